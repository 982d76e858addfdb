"""The archive of classes: when there is one, when it is used, how it is made."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from airflow_provider_fds.spark.installation.cache import SparkSetupError
from airflow_provider_fds.spark.submission import class_archive as module
from airflow_provider_fds.spark.submission.class_archive import ClassArchive, class_archive

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def installation(tmp_path, monkeypatch):
    """A JVM, a Spark and a JAR that only look like it."""
    for path in ("jdk/bin/java", "jdk/lib/server/libjvm.so", "spark/jars/core.jar", "delta.jar"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(b"bytes")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    for name in ("SPARK_CONF_DIR", "HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_DIST_CLASSPATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(module, "bundled_spark_home", lambda: tmp_path / "spark")
    return tmp_path


def archive_of(folder: Path) -> ClassArchive:
    found = class_archive(str(folder / "delta.jar"), "-XX:+UseSerialGC", folder / "cache")
    assert found is not None
    return found


def put(archive: ClassArchive, data: bytes = b"x" * 100, size: int = 100) -> Path:
    archive.folder.mkdir(parents=True, exist_ok=True)
    path = archive.folder / f"{archive.key}-{size}.jsa"
    path.write_bytes(data)
    return path


def test_a_missing_archive_changes_nothing(installation):
    assert archive_of(installation).options() == []


def test_an_archive_is_mapped_and_checked_but_optional(installation):
    archive = archive_of(installation)
    path = put(archive)
    assert archive.options() == [
        f"-XX:SharedArchiveFile={path}",
        "-Xshare:auto",
        "-XX:+VerifySharedSpaces",
        "-Xlog:cds*=off",
    ]


def test_a_truncated_archive_is_not_given_to_the_jvm_which_would_die_of_it(installation):
    archive = archive_of(installation)
    put(archive, b"x" * 40)
    assert archive.options() == []


@pytest.mark.parametrize("changed", ["jdk/lib/server/libjvm.so", "spark/jars/core.jar", "delta.jar"])
def test_another_jvm_spark_or_delta_has_another_archive(installation, changed):
    put(archive_of(installation))
    (installation / changed).write_bytes(b"newer bytes")
    assert archive_of(installation).options() == []


def test_another_class_path_has_another_archive(installation):
    put(archive_of(installation))
    other = class_archive(f"{installation}/delta.jar:{installation}/delta.jar", "-XX:+UseSerialGC", installation)
    assert other is not None
    assert other.options() == []


@pytest.mark.parametrize(
    "variable", ["SPARK_CONF_DIR", "HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_DIST_CLASSPATH", "FDS_CLASS_ARCHIVE"]
)
def test_there_is_no_archive_if_it_is_off_or_the_class_path_has_more(installation, monkeypatch, variable):
    monkeypatch.setenv(variable, "off")
    assert class_archive(str(installation / "delta.jar"), "", installation) is None


def test_there_is_no_archive_for_a_spark_with_a_conf_folder(installation):
    (installation / "spark" / "conf").mkdir()
    assert class_archive(str(installation / "delta.jar"), "", installation) is None


SUBMIT = """#!/bin/sh
for word in "$@"; do case "$word" in *ArchiveClassesAtExit=*) printf archive > "${word##*=}";; esac; done
case "$*" in *--version*) exit %d;; esac
"""


def put_submit(folder: Path, exit_code: int) -> None:
    path = folder / "spark" / "bin" / "spark-submit"
    path.parent.mkdir(exist_ok=True)
    path.write_text(SUBMIT % exit_code)
    path.chmod(0o755)


def test_a_checked_archive_appears_under_its_size(installation):
    put_submit(installation, 0)
    archive = archive_of(installation)
    old = [archive.folder / f"old-{n}.jsa" for n in range(5)]
    archive.folder.mkdir(parents=True)
    (archive.folder / "killed.tmp").mkdir()
    for age, path in enumerate(old):
        path.write_bytes(b"")
        os.utime(path, (1000 - age, 1000 - age))
    assert archive.make() == archive.folder / f"{archive.key}-7.jsa" == archive.path()
    assert sorted(p.name for p in archive.folder.iterdir()) == sorted(
        [f"{archive.key}-7.jsa", "lock", "old-0.jsa", "old-1.jsa"]
    )


def test_an_unusable_archive_is_not_published(installation):
    put_submit(installation, 1)
    archive = archive_of(installation)
    with pytest.raises(SparkSetupError, match="cannot use the class archive"):
        archive.make()
    assert archive.path() is None


def test_a_process_waits_for_another_one_that_makes_it(installation):
    archive = archive_of(installation)
    archive.folder.mkdir(parents=True)
    with ThreadPoolExecutor() as pool, (archive.folder / "lock").open("a") as lock:
        module.fcntl.flock(lock, module.fcntl.LOCK_EX)
        waiting = pool.submit(archive.make)
        with pytest.raises(TimeoutError):
            waiting.result(0.05)
        made = put(archive)
        module.fcntl.flock(lock, module.fcntl.LOCK_UN)
        assert waiting.result() == made
