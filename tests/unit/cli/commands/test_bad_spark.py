"""A Spark that cannot load: ``fds run`` says what was found, what is needed and the command, and plans nothing."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from airflow_provider_fds.cli.main import main
from airflow_provider_fds.errors import EXIT_CONFIGURATION
from airflow_provider_fds.spark.installation import own_spark
from airflow_provider_fds.spark.runtime.settings import DELTA_EXTENSION, EXTENSIONS
from airflow_provider_fds.spark.sessions import connect_server as connect
from airflow_provider_fds.spark.sessions.connect_server import ConnectServer

LOCAL, CONNECT = "pip install 'airflow-provider-fds[local]'", "a connection of type 'spark_connect'"


@pytest.fixture
def refused(log_builder, tmp_path, monkeypatch, capsys):
    """Return what ``fds run`` says on a worker that has nothing but Java; it must have left nothing."""
    jdk = tmp_path / "jdk" / "bin"
    program(jdk / "java", "echo 'openjdk version \"17.0.15\" 2025-04-15' >&2")
    monkeypatch.setenv("JAVA_HOME", str(jdk.parent))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setenv("FDS_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("SPARK_HOME", raising=False)
    monkeypatch.setattr(own_spark, "has_bundled_spark", lambda: False)
    own_spark._asked.cache_clear()
    log_builder.create()
    log_builder.append()
    work = tmp_path / "work"
    work.mkdir()

    def run(*words):
        places = [
            "--stream",
            "s",
            "--sink",
            work / "sink",
            "--staging",
            work / "staging",
            "--checkpoint",
            work / "checkpoint.json",
        ]
        code = main([str(word) for word in ("run", log_builder.root, *places, *words)])
        captured = capsys.readouterr()
        assert code == EXIT_CONFIGURATION, captured.err
        assert "Traceback" not in captured.err
        assert captured.out == ""
        assert list(work.iterdir()) == []
        return captured.err

    return run


def program(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def spark(folder, version, scala, *deltas):
    """Make a spark-submit that says these versions, with these JARs of Delta in its folder; return its path."""
    (folder / "jars").mkdir(parents=True)
    for delta in deltas:
        (folder / "jars" / f"delta-spark_{delta}.jar").touch()
    says = f"echo '   version {version}'; echo 'Using Scala version {scala}.18, OpenJDK 64-Bit Server VM'"
    return program(folder / "bin" / "spark-submit", says)


@pytest.mark.parametrize("client", [None, "4.2.0"])
def test_no_spark_at_all_and_the_client_of_spark_connect_alone(refused, monkeypatch, client):
    monkeypatch.setattr(own_spark, "installed_client", lambda: client)
    said = refused()
    found = "" if client is None else f" (pyspark-client {client} is, but contains no Spark)"
    assert f"no Spark was found: pyspark is not installed{found}, SPARK_HOME is not set" in said
    assert "a Spark of version 3.5 or newer" in said
    assert LOCAL in said
    assert CONNECT in said


def test_a_spark_binary_that_does_not_exist_or_run_is_refused(refused):
    said = refused("--spark-binary", "/nowhere/spark-submit")
    assert "the spark-binary '/nowhere/spark-submit' is not a program" in said
    assert LOCAL in said


def test_a_spark_binary_that_prints_garbage(refused, tmp_path):
    said = refused("--spark-binary", program(tmp_path / "garbage", "echo 'no such option'; exit 3"))
    assert "--version ended with 3 and printed 'no such option'; expected the versions of Spark and Scala" in said
    assert LOCAL in said


@pytest.mark.parametrize(
    ("version", "said"),
    [("3.4.1", "FDS needs Spark 3.5 or newer"), ("4.3.0", "FDS knows the Delta versions for Spark 3.5, 4.0, 4.1, 4.2")],
)
def test_a_spark_that_is_too_old_or_unknown(refused, tmp_path, version, said):
    assert said in refused("--spark-binary", spark(tmp_path / "spark", version, "2.13"))


def test_a_delta_for_another_scala(refused, tmp_path):
    said = refused("--spark-binary", spark(tmp_path / "spark", "3.5.7", "2.12", "2.13-3.3.2"))
    assert "delta-spark_2.13-3.3.2.jar is Delta 3.3.2 for Spark 3.5 and Scala 2.13, but" in said
    assert "needs Delta for Spark 3.5 and Scala 2.12: remove it from that folder" in said


def test_two_deltas_on_the_class_path(refused, tmp_path):
    binary = spark(tmp_path / "spark", "3.5.7", "2.12", "2.12-3.3.2")
    said = refused("--spark-binary", binary, "--conf", "spark.driver.extraClassPath=/opt/delta-spark_2.12-3.3.1.jar")
    assert "there is more than one Delta for Spark: /opt/delta-spark_2.12-3.3.1.jar, " in said
    assert "Keep one of them" in said


@pytest.mark.parametrize(
    ("version", "settings", "said"),
    [
        ("4.1.4", {}, "the server is Spark 4.1.4, but the installed pyspark is 4.2.0."),
        ("5.0.0", {}, "the server is Spark 5.0.0, but the installed pyspark is 4.2.0."),
        ("3.5.7", {}, "FDS needs a Spark Connect server of Spark 4.0 or newer. Upgrade the server"),
        (
            "4.2.0",
            {},
            "(Spark 4.2.0) has no Delta: spark.sql.extensions is ''. Start it with `fds connect-server`, or with",
        ),
        (
            "4.2.0",
            {"spark.jars": "/jars/delta-spark_4.2_2.12-4.4.0.jar"},
            "which is Delta 4.4.0 for Spark 4.2 and Scala 2.12, but it is Spark 4.2.0. Start it with the Delta",
        ),
        (
            "4.2.0",
            {"spark.jars": "/jars/delta-spark_4.2_2.13-4.4.0.jar,/jars/delta-spark_4.2_2.13-4.3.0.jar"},
            "it was started with more than one Delta: /jars/delta-spark_4.2_2.13-4.4.0.jar, ",
        ),
    ],
)
def test_a_connect_server_that_does_not_fit(refused, monkeypatch, version, settings, said):
    conf = SimpleNamespace(getAll={**settings, EXTENSIONS: DELTA_EXTENSION if settings else ""}, set=lambda *_: None)
    client = SimpleNamespace(set_retry_policies=lambda _: None)
    session = SimpleNamespace(version=version, conf=conf, client=client, stop=lambda: None)
    monkeypatch.setattr(connect, "client_version", lambda: "4.2.0")
    monkeypatch.setattr(ConnectServer, "check_reachable", lambda _: None)
    monkeypatch.setattr(ConnectServer, "open", lambda _, **__: session)
    assert said in refused("--remote", "sc://host:15002")
