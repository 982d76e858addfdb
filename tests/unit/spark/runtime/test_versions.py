"""Versions that do not go together are named, with what mends it: what pip has, what a user brings, what a JVM has."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from airflow_provider_fds.spark.installation.install import (
    allows,
    brought_delta_problems,
    brought_problems,
    delta_package,
    spark_problem,
)
from airflow_provider_fds.spark.runtime.driver_versions import DriverVersions, no_session
from airflow_provider_fds.spark.runtime.failures import RefusalError
from airflow_provider_fds.spark.runtime.versions import DeltaJar, server_problem

ROOT = Path(__file__).parents[4]


def installed(folder: Path, name: str, version: str, *requires: str) -> None:
    """What pip leaves of a distribution."""
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    lines = [f"Name: {name}", f"Version: {version}", *(f"Requires-Dist: {text}" for text in requires)]
    (info / "METADATA").write_text("Metadata-Version: 2.1\n" + "\n".join(lines) + "\n")


# which release of delta-spark asks pip for which pyspark
@pytest.mark.parametrize(
    ("needed", "version", "fits"),
    [
        ("pyspark<=4.2.0,>=4.0.1", "4.2.0", True),
        ("pyspark<=4.2.0,>=4.0.1", "4.2.1", True),
        ("pyspark<=4.2.0,>=4.0.1", "4.0.0", True),
        ("pyspark<=4.2.0,>=4.0.1", "4.3.0", False),
        ("pyspark<=4.2.0,>=4.0.1", "3.5.7", False),
        ("pyspark<4.1.0,>=4.0.0", "4.0.1", True),
        ("pyspark<4.1.0,>=4.0.0", "4.1.0", False),
        ("pyspark<3.6.0,>=3.5.3", "3.5.7", True),
        ("pyspark (==3.5.*)", "3.5.1", True),
        ("pyspark (==3.5.*)", "4.0.1", False),
        ("pyspark", "4.2.0", True),
    ],
)
def test_bounds_of_pip_are_about_major_and_minor_versions(needed, version, fits):
    assert allows([needed], version) is fits


def test_a_delta_spark_for_another_pyspark_is_named_with_what_to_install(monkeypatch, tmp_path):
    mine = metadata.version("pyspark")
    installed(tmp_path, "delta-spark", "2.4.0", "pyspark<3.5.0,>=3.4.0")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert spark_problem() == (
        f"delta-spark is 2.4.0, which is for pyspark<3.5.0,>=3.4.0, but pyspark is {mine}: pip install "
        f"'pyspark=={mine}' delta-spark chooses the matching one"
    )


def test_the_installed_versions_are_compatible():
    assert spark_problem() is None


@pytest.mark.parametrize(
    ("python", "jar", "said"),
    [
        ("4.2.0", "4.2.1", "None"),
        ("4.0.1", "4.2.0", "its Python files are of 4.0.1, in"),
        ("4.2.0", "4.1.0", "its JARs are of 4.1.0, in"),
    ],
)
def test_files_of_another_version_over_those_of_pyspark_are_named(tmp_path, python, jar, said):
    (tmp_path / "pyspark" / "jars").mkdir(parents=True)
    (tmp_path / "pyspark" / "__init__.py").touch()
    (tmp_path / "pyspark" / "version.py").write_text(f'__version__: str = "{python}"\n')
    (tmp_path / "pyspark" / "jars" / f"spark-core_2.13-{jar}.jar").touch()
    installed(tmp_path, "pyspark", "4.2.0")
    installed(tmp_path, "pyspark-client", "4.2.0")
    installed(tmp_path, "delta-spark", "4.4.0", "pyspark<=4.2.0,>=4.0.1")
    code = "from airflow_provider_fds.spark.installation.install import spark_problem; print(spark_problem())"
    env = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, check=True)
    assert said in ran.stdout
    if said != "None":
        assert "pip reports pyspark 4.2.0" in ran.stdout
        assert "pip install --force-reinstall --no-deps pyspark==4.2.0" in ran.stdout


@pytest.mark.parametrize(
    ("text", "jar"),
    [
        ("io.delta:delta-spark_4.2_2.13:4.4.0", DeltaJar("delta-spark_4.2_2.13", "4.4.0", "2.13", "4.2")),
        ("/opt/jars/delta-spark_4.2_2.13-4.4.0.jar", DeltaJar("delta-spark_4.2_2.13", "4.4.0", "2.13", "4.2")),
        ("s3://b/delta-spark_2.13-4.0.0.jar", DeltaJar("delta-spark_2.13", "4.0.0", "2.13", "4.0")),
        ("io.delta:delta-spark_2.12:3.3.2", DeltaJar("delta-spark_2.12", "3.3.2", "2.12", "3.5")),
        ("io.delta:delta-spark_2.13:4.1.0", DeltaJar("delta-spark_2.13", "4.1.0", "2.13", None)),
        ("io.delta:delta-core_2.12:2.4.0", DeltaJar("delta-core_2.12", "2.4.0", "2.12", None)),
        ("io.delta:delta-storage:4.4.0", None),
        ("org.apache.hadoop:hadoop-aws:3.5.0", None),
    ],
)
def test_a_jar_of_delta_says_by_its_name_what_it_is_for(text, jar):
    assert DeltaJar.named(text) == jar


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("io.delta:delta-spark_4.2_2.13:4.4.0", None),
        ("io.delta:delta-spark_2.13:4.4.0", None),
        ("org.postgresql:postgresql:42.7.4", None),
        (
            "io.delta:delta-spark_2.13:4.0.0",
            (
                "is Delta 4.0.0 for Spark 4.0 and Scala 2.13, but the installed pyspark is 4.2.0 (Scala 2.13) and the "
                "installed delta-spark 4.4.0. Omit it: FDS adds io.delta:delta-spark_4.2_2.13:4.4.0 itself"
            ),
        ),
        ("/jars/delta-spark_4.1_2.13-4.4.0.jar", "is Delta 4.4.0 for Spark 4.1 and Scala 2.13, but"),
        ("io.delta:delta-spark_4.2_2.12:4.4.0", "is Delta 4.4.0 for Spark 4.2 and Scala 2.12"),
        ("io.delta:delta-spark_4.2_2.13:4.3.0", "the installed delta-spark 4.4.0. Omit it"),
        ("io.delta:delta-core_2.12:2.4.0", "is Delta 2.4.0 for Scala 2.12"),
    ],
)
def test_a_delta_of_the_user_must_be_the_version_that_pip_has(name, said):
    problems = brought_problems([name], spark="4.2.0", delta="4.4.0", expected="io.delta:delta-spark_4.2_2.13:4.4.0")
    assert len(problems) == (said is not None)
    assert all(said in problem and problem.startswith(name) for problem in problems)


def test_packages_jars_and_class_paths_are_searched_for_delta():
    own = delta_package().split(":")[1]
    assert brought_delta_problems(delta_package(), f"/a/{own}-{metadata.version('delta-spark')}.jar", None) == []
    found = brought_delta_problems("org.x:y:1, io.delta:delta-core_2.12:2.4.0", "/a/b.jar:/a/delta-core_2.12-2.3.0.jar")
    assert [problem.split()[0] for problem in found] == [
        "io.delta:delta-core_2.12:2.4.0",
        "/a/delta-core_2.12-2.3.0.jar",
    ]


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (DriverVersions("4.2.0", "4.2.0", "4.4.0", "/j/delta-spark_4.2_2.13-4.4.0.jar"), None),
        (DriverVersions("4.0.1", "4.0.1", "4.0.0", "/j/delta-spark_2.13-4.0.0.jar"), None),
        (DriverVersions("3.5.7", "3.5.7-amzn-0", "3.3.2"), None),
        (DriverVersions("4.2.0", "4.2.1", None), None),
        (
            DriverVersions("4.0.1", "4.2.0", "4.4.0"),
            (
                "the driver's Python has pyspark 4.0.1, its JVM is Spark 4.2.0: use the spark-submit of that pyspark "
                "(no spark-binary, no other SPARK_HOME), or install the Python package of that Spark where the driver "
                "runs: pip install 'pyspark==4.2.*'"
            ),
        ),
        (
            DriverVersions("4.2.0", "4.2.0", "4.0.0"),
            "the JVM has Delta 4.0.0, which was built for Spark 4.0, but this is Spark 4.2.0",
        ),
        (
            DriverVersions("4.2.0", "4.2.0", "4.4.0", "/j/delta-spark_4.0_2.13-4.4.0.jar"),
            "the JVM has Delta 4.4.0 (/j/delta-spark_4.0_2.13-4.4.0.jar), which was built for Spark 4.0",
        ),
        (
            DriverVersions(
                "3.5.7",
                "3.5.7",
                "3.3.2",
                "/j/delta-spark_2.12-3.3.2.jar",
                ("/s/jars/x.jar", "/s/jars/delta-spark_2.12-3.3.1.jar", "file:/j/delta-spark_2.12-3.3.2.jar"),
            ),
            (
                "the JVM has more than one Delta on its class path: /s/jars/delta-spark_2.12-3.3.1.jar, "
                "file:/j/delta-spark_2.12-3.3.2.jar. Spark 3.5.7 needs one: Delta 3.3.2. Remove the others from the "
                "packages, jars and class path of the job, from spark-defaults.conf and from the jars folder of that "
                "Spark, or set delta_version='provided' to have FDS add none"
            ),
        ),
        # once from the cache of Ivy, once in the working folder of the application
        (
            DriverVersions(
                "3.5.7",
                "3.5.7",
                "3.3.2",
                "/j/delta-spark_2.12-3.3.2.jar",
                ("/ivy/jars/io.delta_delta-spark_2.12-3.3.2.jar", "file:/j/delta-spark_2.12-3.3.2.jar"),
            ),
            None,
        ),
    ],
)
def test_a_driver_with_incompatible_python_jvm_and_delta_is_named(found, said):
    problem = found.problem()
    assert (problem is None) == (said is None)
    assert said is None or said in problem


def test_a_session_that_could_not_be_started_for_its_versions_says_so(monkeypatch, tmp_path):
    error = TypeError("'JavaPackage' object is not callable")
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    assert no_session(error) is error
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / "spark-core_2.12-3.4.1.jar").touch()
    told = no_session(error)
    assert isinstance(told, RefusalError)
    assert (told.reason, told.retryable) == ("SPARK_VERSION_MISMATCH", False)
    assert "its JVM is Spark 3.4.1" in str(told)


@pytest.mark.parametrize(
    ("server", "client", "fits"),
    [
        ("4.2.0", "4.2.0", True),
        ("4.2.1-SNAPSHOT", "4.2.0", True),
        ("4.2.0", "4.0.1", True),
        ("4.0.1", "4.2.0", False),
        ("3.5.7", "4.2.0", False),
        ("4.0.0", "3.5.7", False),
    ],
)
def test_a_connect_server_must_not_be_older_than_the_client_nor_of_another_major_version(server, client, fits):
    problem = server_problem(server, client)
    assert (problem is None) == fits
    if problem is not None:
        assert f"the server is Spark {server}, but the installed pyspark is {client}" in problem
        # there is no client of Spark 3.5 that FDS could use
        assert ("pip install 'pyspark==" if server >= "4" else "a connection of type 'spark'") in problem


def test_with_only_the_connect_client_the_advice_is_to_install_its_version():
    problem = server_problem("4.1.4", "4.2.0", packages=["pyspark-client"])
    assert problem.endswith("install its version here: pip install 'pyspark-client==4.1.*'")


@pytest.mark.parametrize(
    ("jars", "fits"),
    [
        ([], True),
        (["", "/opt/jars/mine.jar"], True),
        (["/opt/jars/delta-spark_4.2_2.13-4.4.0.jar", "/opt/jars/delta-storage-4.4.0.jar"], True),
        (["io.delta:delta-spark_4.2_2.13:4.4.0"], True),
        (["io.delta:delta-spark_2.13:4.3.0"], True),  # for several Sparks, and the name does not say which
        (["/opt/jars/mine.jar", "/opt/jars/delta-spark_4.1_2.13-4.4.0.jar"], False),
        (["io.delta:delta-spark_2.13:4.0.0"], False),
        (["io.delta:delta-spark_2.12:3.3.2"], False),
        (["io.delta:delta-spark_4.2_2.12:4.4.0"], False),
    ],
)
def test_a_connect_server_must_not_have_the_delta_of_another_spark(jars, fits):
    problem = server_problem("4.2.0", "4.2.0", jars)
    assert (problem is None) == fits
    if problem is not None:
        assert f"it was started with {jars[-1]}, which is Delta " in problem
        assert "Start it with the Delta that was built for Spark 4.2" in problem


def test_a_connect_server_with_two_deltas_is_refused_and_one_that_is_named_twice_is_not():
    own = "io.delta:delta-spark_4.2_2.13:4.4.0"
    assert server_problem("4.2.0", "4.2.0", [own, "file:///ivy/io.delta_delta-spark_4.2_2.13-4.4.0.jar"]) is None
    problem = server_problem("4.2.0", "4.2.0", [own, "/jars/delta-spark_4.2_2.13-4.4.1.jar"])
    assert problem == (
        f"it was started with more than one Delta: {own}, /jars/delta-spark_4.2_2.13-4.4.1.jar. Start it with one of "
        "them: its packages, its jars and the jars folder of its Spark must name one Delta together"
    )
