"""What is missing on a machine is said exactly, and nothing is resolved twice."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from importlib import metadata
from typing import TYPE_CHECKING

import pytest

from airflow_provider_fds.spark.installation import cache, install
from airflow_provider_fds.spark.installation.cache import SparkSetupError, default_cache_dir
from airflow_provider_fds.spark.installation.install import (
    client_problem,
    client_version,
    delta_package,
    java_problem,
    spark_problem,
)
from airflow_provider_fds.spark.installation.jars import delta_jars
from airflow_provider_fds.spark.runtime.versions import DELTA_OF_SPARK, delta_coordinates, of_minor

if TYPE_CHECKING:
    from pathlib import Path


def java_home(folder: Path, says: str) -> str:
    """A Java home whose ``java -version`` says this."""
    binary = folder / "bin" / "java"
    binary.parent.mkdir(parents=True)
    binary.write_text(f"#!/bin/sh\necho '{says}' >&2\n")
    binary.chmod(0o755)
    return str(folder)


@pytest.mark.parametrize(
    ("says", "found"),
    [('openjdk version "11.0.2" 2019-01-15', "Java 11"), ('java version "1.8.0_292"', "Java 8")],
)
def test_an_old_java_is_named_with_what_to_install(monkeypatch, tmp_path, says, found):
    monkeypatch.setenv("JAVA_HOME", java_home(tmp_path / "jdk", says))
    problem = java_problem()
    assert found in problem
    assert "apt-get install openjdk-17-jre-headless" in problem


def test_a_java_home_without_java_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))
    assert f"JAVA_HOME is {tmp_path / 'gone'}" in java_problem()


def test_a_user_without_a_name_is_an_error_before_spark_starts(monkeypatch):
    monkeypatch.setattr(os, "getuid", lambda: 1000670000)
    assert "uid 1000670000, has no name" in java_problem()


def test_a_user_without_a_home_has_a_cache(monkeypatch, tmp_path):
    for name in ("FDS_CACHE_DIR", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 1000670000)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert default_cache_dir() == tmp_path / "fds-1000670000"


def test_without_any_java_the_error_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "PATH has no java" in java_problem()
    assert "apt-get install openjdk-17-jre-headless" in java_problem()


@pytest.mark.parametrize("says", ['openjdk version "17.0.15" 2025-04-15', 'openjdk version "21" 2023-09-19'])
def test_a_recent_java_is_accepted(monkeypatch, tmp_path, says):
    monkeypatch.setenv("JAVA_HOME", java_home(tmp_path / "jdk", says))
    assert java_problem() is None


def test_the_coordinates_follow_the_installed_versions():
    spark = ".".join(metadata.version("pyspark").split(".")[:2])
    assert delta_package() == f"io.delta:delta-spark_{spark}_2.13:{metadata.version('delta-spark')}"


def test_two_versions_of_pyspark_and_its_client_are_a_problem(monkeypatch):
    versions = {"pyspark": "4.2.0", "pyspark-client": "4.1.0", "delta-spark": "4.4.0"}
    monkeypatch.setattr(install, "_version", versions.get)
    assert "pyspark is 4.2.0 but pyspark-client is 4.1.0" in spark_problem()
    with pytest.raises(SparkSetupError, match="pip install"):
        delta_package()


@pytest.mark.parametrize(("missing", "pyspark"), [("pyspark", "4.2.0"), ("delta-spark", "4.3.0")])
def test_a_missing_package_is_named(monkeypatch, missing, pyspark):
    versions = {"pyspark": pyspark, "pyspark-client": pyspark, "delta-spark": "4.4.0", missing: None}
    monkeypatch.setattr(install, "_version", versions.get)
    assert f"{missing} is not installed" in spark_problem()


def test_without_delta_spark_the_installed_pyspark_gets_the_delta_of_the_table(monkeypatch):
    mine = metadata.version("pyspark")
    monkeypatch.setattr(install, "_version", {"pyspark": mine}.get)
    assert spark_problem() is None
    assert delta_package() == delta_coordinates(mine, "2.13", DELTA_OF_SPARK[of_minor(mine)])


def test_a_missing_spark_is_named_with_the_extra_that_has_it(monkeypatch):
    monkeypatch.setattr(install, "_version", {"pyspark-client": "4.1.0"}.get)
    assert spark_problem() == (
        "pyspark is not installed (pyspark-client 4.1.0 contains no Spark): pip install 'airflow-provider-fds[local]'"
    )


@pytest.mark.parametrize(
    ("versions", "said"),
    [
        ({"pyspark-client": "4.1.0"}, None),
        ({}, "neither pyspark-client nor pyspark is installed: pip install 'airflow-provider-fds[connect]'"),
        ({"pyspark": "3.5.7"}, "pyspark is 3.5.7, and FDS needs a client of Spark 4.0 or newer for Spark Connect"),
        ({"pyspark": "4.2.0", "pyspark-client": "4.1.0"}, "pyspark is 4.2.0 but pyspark-client is 4.1.0"),
    ],
)
def test_a_connect_server_needs_the_client_alone(monkeypatch, versions, said):
    monkeypatch.setattr(install, "_version", versions.get)
    problem = client_problem()
    assert problem is None if said is None else problem.startswith(said)
    if versions.get("pyspark") is None and said is None:
        assert client_version() == versions["pyspark-client"]


def test_the_cache_is_where_the_environment_says(monkeypatch, tmp_path):
    monkeypatch.setenv("FDS_CACHE_DIR", str(tmp_path / "own"))
    assert default_cache_dir() == tmp_path / "own"
    monkeypatch.delenv("FDS_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert default_cache_dir() == tmp_path / "xdg" / "fds"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert default_cache_dir() == tmp_path / "home" / ".cache" / "fds"


def test_existing_jars_are_used_without_java(monkeypatch, tmp_path):
    monkeypatch.setattr(cache, "PINNED", {})
    _, artifact, version = delta_package().split(":")
    (tmp_path / "jars").mkdir()
    wanted = tuple(tmp_path / "jars" / name for name in (f"{artifact}-{version}.jar", f"delta-storage-{version}.jar"))
    for jar in wanted:
        jar.write_bytes(b"jar")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))
    assert delta_jars(tmp_path) == wanted


def test_without_java_jars_are_not_resolved(monkeypatch, tmp_path):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))
    with pytest.raises(SparkSetupError, match="Spark needs Java 17"):
        delta_jars(tmp_path / "cache")


def test_a_cache_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(SparkSetupError, match="FDS_CACHE_DIR"):
        delta_jars(tmp_path / "file")


def test_launching_imports_neither_pyspark_nor_anything_else_heavy():
    code = (
        "import sys, airflow_provider_fds.spark.submission.launch;"
        "print([m for m in ('pyspark', 'airflow', 'pyarrow', 'obstore', 'msgspec') if m in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def test_folders_that_go_while_they_are_measured_do_not_end_the_fetching(monkeypatch, tmp_path):
    from airflow_provider_fds.spark.installation import jars

    (tmp_path / "gone").mkdir()
    (tmp_path / "a.jar").write_bytes(b"x" * 2048)
    scan = os.scandir

    def vanishing(path):
        if str(path).endswith("gone"):
            raise FileNotFoundError(path)
        return scan(path)

    monkeypatch.setattr(os, "scandir", vanishing)
    assert jars._size(tmp_path) == "2 KiB"
    assert jars._size(tmp_path / "missing") == "0 bytes"


def test_jars_that_are_fetched_are_told_about_from_the_first_second(monkeypatch, tmp_path, caplog):
    from airflow_provider_fds.spark.installation import jars

    monkeypatch.setattr(jars, "_TELL_SECONDS", 0.05)
    (tmp_path / "half.jar").write_bytes(b"x" * 2048)
    slow = [sys.executable, "-c", "import time; print('resolving'); time.sleep(0.5)"]
    with caplog.at_level("INFO"):
        assert jars._fetch(slow, {}, str(tmp_path), "io.delta:delta-spark", tmp_path) == (0, "resolving\n")
    first, *_, last = [record.getMessage() for record in caplog.records]
    assert first.startswith("Still fetching io.delta:delta-spark: 0")
    assert f", 2 KiB in {tmp_path}." in first
    assert last.startswith("Fetched io.delta:delta-spark in 0.")

    class GoneError(Exception):
        pass

    def resolve(*_args):
        raise GoneError

    monkeypatch.setattr(jars, "_resolve", resolve)
    with caplog.at_level("INFO"), pytest.raises(GoneError):
        delta_jars(tmp_path / "cache", spark_submit="spark-submit")
    assert "from a Maven repository into" in caplog.records[-1].getMessage()
