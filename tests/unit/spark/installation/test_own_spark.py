"""A Spark of the user's own: found, asked once, supplied with its Delta, or refused in words that say what to do."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from airflow_provider_fds.backends.base import UserArguments
from airflow_provider_fds.backends.local import LocalBackend
from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.spark.installation import cache, own_spark
from airflow_provider_fds.spark.installation.cache import SparkSetupError
from airflow_provider_fds.spark.installation.own_spark import OwnSpark, choose_spark, find_own_spark, own_delta_problems
from airflow_provider_fds.spark.runtime.versions import DELTA_OF_SPARK
from airflow_provider_fds.spark.submission.submit import LOAD_DEFAULTS, submission, submit_arguments

ROOT = Path(__file__).parents[4]

BANNER = """\
Welcome to
      ____              __
     / __/__  ___ _____/ /__
   /___/ .__/\\_,_/_/ /_/\\_\\   version {spark}
      /_/

Using Scala version {scala}.18, OpenJDK 64-Bit Server VM, 17.0.15
Branch HEAD
"""


@pytest.fixture
def worker(monkeypatch, tmp_path):
    """Return the folder of a worker without pyspark, with nothing on PATH but a Java."""
    jdk = tmp_path / "jdk" / "bin"
    jdk.mkdir(parents=True)
    program(jdk / "java", "echo 'openjdk version \"17.0.15\" 2025-04-15' >&2")
    monkeypatch.setenv("JAVA_HOME", str(jdk.parent))
    monkeypatch.setenv("PATH", f"{tmp_path / 'path'}:/usr/bin:/bin")
    monkeypatch.setenv("FDS_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("SPARK_HOME", raising=False)
    monkeypatch.setattr(own_spark, "has_bundled_spark", lambda: False)
    own_spark._asked.cache_clear()
    return tmp_path


def program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def spark_submit(home: Path, spark: str, scala: str) -> Path:
    """Make a spark-submit that says its version, and counts in a file how often it was asked."""
    (home / "jars").mkdir(parents=True, exist_ok=True)
    banner = home / "banner"
    banner.write_text(BANNER.format(spark=spark, scala=scala))
    return program(home / "bin" / "spark-submit", f"echo asked >> '{home}/asked'; cat '{banner}' >&2")


def delta_cache(folder: Path, artifact: str, version: str) -> Path:
    (folder / "jars").mkdir(parents=True)
    for name in (f"{artifact}-{version}.jar", f"delta-storage-{version}.jar"):
        (folder / "jars" / name).write_bytes(b"jar")
    return folder


@pytest.mark.parametrize(
    ("spark", "scala", "package"),
    [
        ("3.5.7", "2.12", "io.delta:delta-spark_2.12:3.3.2"),
        ("3.5.2-amzn-1", "2.12", "io.delta:delta-spark_2.12:3.3.2"),
        ("3.5.7", "2.13", "io.delta:delta-spark_2.13:3.3.2"),
        ("4.0.1", "2.13", "io.delta:delta-spark_2.13:4.0.0"),
        ("4.1.4", "2.13", "io.delta:delta-spark_4.1_2.13:4.4.0"),
        ("4.2.0", "2.13", "io.delta:delta-spark_4.2_2.13:4.4.0"),
    ],
)
def test_each_spark_gets_the_delta_of_its_version_and_scala(worker, spark, scala, package):
    found = find_own_spark(str(spark_submit(worker / "spark", spark, scala)), {"PATH": "/bin"})
    assert (found.version, found.scala) == (spark, scala)
    assert found.delta_package() == package
    assert own_delta_problems(found, [package]) == []


def test_a_version_of_delta_can_be_named(worker):
    spark = OwnSpark("spark-submit", "/s/bin/spark-submit", "4.3.0", "2.13")
    with pytest.raises(
        SparkSetupError, match=r"Spark 4\.3\.0 .* FDS knows the Delta versions for Spark 3\.5, 4\.0, 4\.1, 4\.2"
    ):
        spark.delta_package()
    assert spark.delta_package("4.5.0") == "io.delta:delta-spark_4.3_2.13:4.5.0"
    assert own_delta_problems(spark, [], "provided") == []
    assert list(DELTA_OF_SPARK) == ["3.5", "4.0", "4.1", "4.2"]


def test_the_page_has_the_table_of_the_code():
    page = (ROOT / "docs" / "backends.md").read_text()
    rows = re.findall(r"^\| (\d\.\d) \| [^|]+ \| (\d\.\d\.\d) \|$", page, re.MULTILINE)
    assert dict(rows) == DELTA_OF_SPARK


@pytest.mark.parametrize("how", ["binary", "SPARK_HOME", "PATH"])
def test_a_spark_is_found_without_pyspark_and_asked_once(worker, monkeypatch, how):
    home = worker / ("path" if how == "PATH" else "spark")
    submit = spark_submit(home, "3.5.7", "2.12")
    if how == "SPARK_HOME":
        monkeypatch.setenv("SPARK_HOME", str(home))
    if how == "PATH":
        monkeypatch.setenv("PATH", f"{home / 'bin'}:/usr/bin:/bin")
    for _ in range(3):
        found = choose_spark("local[2]", str(submit) if how == "binary" else None)
        assert (found.version, found.path, found.home) == ("3.5.7", str(submit), home)
        # as in another process
        own_spark._asked.cache_clear()
    assert (home / "asked").read_text() == "asked\n"
    (home / "banner").write_text(BANNER.format(spark="3.5.8", scala="2.12"))
    (home / "jars" / "spark-core_2.12-3.5.8.jar").touch()
    assert find_own_spark(str(submit), {"PATH": "/bin"}).version == "3.5.8"


@pytest.mark.parametrize(
    ("binary", "spark_home", "said"),
    [
        (None, None, "no Spark was found: pyspark is not installed"),
        ("spark9-submit", None, "the spark-binary 'spark9-submit' is not on this worker's PATH"),
        ("/nowhere/spark-submit", None, "the spark-binary '/nowhere/spark-submit' is not a program"),
        (None, "/nowhere", "SPARK_HOME is /nowhere, which has no bin/spark-submit"),
    ],
)
def test_a_missing_spark_is_named_with_what_to_do(worker, monkeypatch, binary, spark_home, said):
    if spark_home is not None:
        monkeypatch.setenv("SPARK_HOME", spark_home)
    with pytest.raises(ConfigurationError) as caught:
        LocalBackend("local[2]", UserArguments(spark_binary=binary), print).check()
    assert said in str(caught.value)
    assert "pip install 'airflow-provider-fds[local]'" in str(caught.value)
    assert "spark_connect" in str(caught.value)


def test_a_worker_with_only_the_connect_client_gets_an_error_that_names_the_missing_spark(worker, monkeypatch):
    monkeypatch.setattr(own_spark, "installed_client", lambda: "4.2.0")
    with pytest.raises(ConfigurationError) as caught:
        LocalBackend("local[2]", UserArguments(), print).check()
    assert "pyspark is not installed (pyspark-client 4.2.0 is, but contains no Spark)" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("echo 'no such option'", "ended with 0 and printed 'no such option'; expected the versions of Spark"),
        ("echo 'Could not find valid SPARK_HOME' >&2; exit 127", "ended with 127 and printed 'Could not find valid"),
        ("echo 'version 3.5.7 of something else'", "printed 'version 3.5.7 of something else'; expected"),
    ],
)
def test_a_spark_submit_that_prints_something_else_is_named(worker, text, said):
    binary = program(worker / "garbage", text)
    with pytest.raises(SparkSetupError) as caught:
        find_own_spark(str(binary), {"PATH": "/bin"})
    assert str(caught.value).startswith(f"{binary} --version ")
    assert said in str(caught.value)
    assert not (worker / "cache" / "sparks").exists()


def test_a_spark_before_3_5_is_refused(worker):
    with pytest.raises(SparkSetupError, match=r"starts Spark 3\.4\.1 \(Scala 2\.12\); FDS needs Spark 3\.5 or newer"):
        find_own_spark(str(spark_submit(worker / "spark", "3.4.1", "2.12")), {"PATH": "/bin"})


def test_spark_3_5_runs_on_a_java_that_spark_4_does_not(worker):
    program(worker / "jdk" / "bin" / "java", "echo 'openjdk version \"11.0.2\" 2019-01-15' >&2")
    assert find_own_spark(str(spark_submit(worker / "old", "3.5.7", "2.12")), {"PATH": "/bin"}).version == "3.5.7"
    with pytest.raises(SparkSetupError, match=r"Spark needs Java 17 or newer; .* is Java 11"):
        find_own_spark(str(spark_submit(worker / "new", "4.0.1", "2.13")), {"PATH": "/bin"})


@pytest.mark.parametrize("spark", ["3.5.7", "4.0.1"])
def test_the_java_of_a_users_spark_is_asked_for_its_version_once(worker, spark):
    says = "echo 'openjdk version \"17.0.15\" 2025-04-15' >&2"
    program(worker / "jdk" / "bin" / "java", f"echo asked >> '{worker}/java'; {says}")
    find_own_spark(str(spark_submit(worker / "spark", spark, "2.13")), {"PATH": "/bin"})
    assert (worker / "java").read_text() == "asked\n"


SPARK_35 = OwnSpark("spark-submit", "/opt/spark/bin/spark-submit", "3.5.7", "2.12")


@pytest.mark.parametrize(
    ("brought", "delta_version", "said"),
    [
        (
            "io.delta:delta-spark_2.13:3.3.2",
            None,
            (
                "io.delta:delta-spark_2.13:3.3.2 is Delta 3.3.2 for Spark 3.5 and Scala 2.13, but "
                "/opt/spark/bin/spark-submit starts Spark 3.5.7 (Scala 2.12) and needs Delta for Spark 3.5 and "
                "Scala 2.12: remove it; FDS adds the right one itself"
            ),
        ),
        ("/j/delta-spark_4.2_2.13-4.4.0.jar", None, "is Delta 4.4.0 for Spark 4.2 and Scala 2.13, but"),
        (
            "io.delta:delta-spark_2.12:3.3.2,/j/delta-spark_2.12-3.3.1.jar",
            None,
            "more than one Delta for Spark: io.delta:delta-spark_2.12:3.3.2, /j/delta-spark_2.12-3.3.1.jar",
        ),
        (
            "conf:jars/delta-spark_2.12-3.3.2.jar:jars/delta-spark_2.12-3.3.1.jar",
            None,
            "more than one Delta for Spark: conf:jars/delta-spark_2.12-3.3.2.jar, jars/delta-spark_2.12-3.3.1.jar",
        ),
        ("io.delta:delta-spark_2.12:3.3.2", "3.3.1", "delta_version is '3.3.1', but Delta is already there"),
        ("io.delta:delta-spark_2.12:3.3.2", None, None),
        ("org.x:y:1", None, None),
        (None, "3.3.1", None),
    ],
)
def test_a_delta_that_does_not_fit_the_users_spark_is_named_with_what_to_do(brought, delta_version, said):
    problems = own_delta_problems(SPARK_35, [brought], delta_version)
    assert [said in problem for problem in problems] == ([] if said is None else [True])


def test_a_delta_in_the_folder_of_that_spark_is_used_and_two_are_refused(worker):
    home = worker / "spark"
    submit = spark_submit(home, "3.5.7", "2.12")
    included = home / "jars" / "delta-spark_2.12-3.3.1.jar"
    included.touch()
    spark = find_own_spark(str(submit), {"PATH": "/bin"})
    assert own_delta_problems(spark, []) == []
    made = submit_arguments("x", master="yarn", own_spark=spark)
    assert made.jars is None
    (problem,) = own_delta_problems(spark, ["io.delta:delta-spark_2.12:3.3.2"])
    assert problem == (
        f"there is more than one Delta for Spark: io.delta:delta-spark_2.12:3.3.2, {included}. Keep one of them"
    )


def test_a_folder_on_the_class_path_is_searched_for_delta(tmp_path):
    for version in ("3.3.1", "3.3.2"):
        (tmp_path / f"delta-spark_2.12-{version}.jar").touch()
    (problem,) = own_delta_problems(SPARK_35, [f"/etc/hadoop:{tmp_path}/*:/etc/hive"])
    found = ", ".join(f"{tmp_path}/delta-spark_2.12-{version}.jar" for version in ("3.3.1", "3.3.2"))
    assert problem == f"there is more than one Delta for Spark: {found}. Keep one of them"


@pytest.mark.parametrize("master", ["local[2]", "spark://host:7077"])
def test_the_users_spark_is_started_with_its_own_delta_and_without_this_python(worker, monkeypatch, master):
    monkeypatch.setattr(cache, "PINNED", {})
    folder = delta_cache(worker / "jars", "delta-spark_2.12", "3.3.2")
    spark = find_own_spark(str(spark_submit(worker / "spark", "3.5.7", "2.12")), {"PATH": "/bin"})
    made = submit_arguments("x", master=master, own_spark=spark, cache_dir=folder)
    assert made.command()[0] == spark.path
    jars = [str(folder / "jars" / name) for name in ("delta-spark_2.12-3.3.2.jar", "delta-storage-3.3.2.jar")]
    if master.startswith("local"):
        assert made.driver_class_path == ":".join(jars)
    else:
        assert made.jars == ",".join(jars)
    assert "PYSPARK_PYTHON" not in made.env_vars
    assert made.class_archive is None


@pytest.mark.parametrize(
    "arguments",
    [
        {"delta_version": "provided"},
        {"jars": "/j/delta-spark_2.12-3.3.2.jar,/j/delta-storage-3.3.2.jar"},
        {"conf": {"spark.jars.packages": "io.delta:delta-spark_2.12:3.3.2"}},
    ],
)
def test_no_delta_is_added_if_there_is_one_already(tmp_path, arguments):
    made = submit_arguments("x", master="spark://host:7077", own_spark=SPARK_35, cache_dir=tmp_path, **arguments)
    assert made.jars is None


@pytest.mark.parametrize(("version", "knows"), [("3.5.7", False), ("4.0.1", True)])
def test_only_spark_4_gets_the_flag_to_read_its_defaults_beside_the_private_file(tmp_path, version, knows):
    spark = OwnSpark("spark-submit", "/s/bin/spark-submit", version, "2.13")
    secret = {"spark.hadoop.fs.s3a.secret.key": "s3cr3t"}
    made = submit_arguments(
        "x", master="yarn", own_spark=spark, conf=secret, cache_dir=tmp_path, delta_version="provided"
    )
    with submission(made, tmp_path) as given:
        assert (LOAD_DEFAULTS in given.command()) is knows
