"""How a Spark Connect server is started: the Delta and settings of an application, and what a server needs besides."""

from __future__ import annotations

import pytest

from airflow_provider_fds.spark.installation import cache as cache_module
from airflow_provider_fds.spark.installation.cache import SparkSetupError
from airflow_provider_fds.spark.installation.install import delta_package
from airflow_provider_fds.spark.installation.own_spark import OwnSpark
from airflow_provider_fds.spark.runtime.connect_shortcuts import RELATION_CLASSES, SHORTCUTS
from airflow_provider_fds.spark.runtime.settings import DELTA_SESSION
from airflow_provider_fds.spark.submission import submit
from airflow_provider_fds.spark.submission.class_archive import ClassArchive
from airflow_provider_fds.spark.submission.connect_service import server_arguments, shortcuts_jar
from airflow_provider_fds.spark.submission.object_store import S3_LOG_STORE
from airflow_provider_fds.spark.submission.submit import submission, submit_arguments

TABLES_KEPT = "spark.databricks.delta.delta.log.cacheSize"
JVM = "spark.driver.defaultJavaOptions"
LOG_STORE = "spark.delta.logStore.s3a.impl"


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A cache in which the JARs are already; what is in them is not looked at."""
    monkeypatch.setattr(cache_module, "PINNED", {})
    monkeypatch.setattr(cache_module, "PINNED_FOLDERS", {})
    _, artifact, version = delta_package().split(":")
    names = (f"{artifact}-{version}.jar", f"delta-storage-{version}.jar", "hadoop-aws-3.5.0/hadoop-aws.jar")
    for name in names:
        (tmp_path / "jars" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "jars" / name).write_bytes(b"jar")
    return tmp_path


def test_a_server_has_the_delta_and_settings_of_an_application_and_bounded_caches(cache):
    job = submit_arguments("x", master="local[2]", cache_dir=cache)
    server = server_arguments(cache_dir=cache)
    assert server.driver_class_path == f"{job.driver_class_path}:{shortcuts_jar()}"
    assert server.env_vars == job.env_vars
    more = {key: value for key, value in server.conf.items() if job.conf.get(key) != value}
    assert more.pop(JVM) != job.conf[JVM]
    assert more == {
        TABLES_KEPT: "100",
        RELATION_CLASSES: SHORTCUTS,
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "15002",
    }
    assert server.conf.items() >= DELTA_SESSION.items()


def test_a_server_is_a_class_of_spark_and_needs_no_files_of_fds(cache):
    command = server_arguments(cache_dir=cache).command()
    assert command[-3:] == ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"]
    assert "--py-files" not in command


def test_a_server_that_goes_on_has_the_compiler_and_collector_of_the_jvm_and_the_archive(cache, monkeypatch):
    archive = ClassArchive(cache / "classes", "key", "", "")
    monkeypatch.setattr(submit, "class_archive", lambda *_: archive)
    archive.folder.mkdir()
    (archive.folder / "key-1.jsa").write_bytes(b"x")
    options = server_arguments(cache_dir=cache).conf[JVM]
    assert "TieredStopAtLevel" not in options
    assert "UseSerialGC" not in options
    assert f"-XX:SharedArchiveFile={archive.path()}" in options


def test_settings_of_the_user_take_precedence_over_all_but_the_forced_ones(cache):
    server = server_arguments(conf={TABLES_KEPT: "500", "spark.ui.enabled": "true"}, cache_dir=cache)
    assert (server.conf[TABLES_KEPT], server.conf["spark.ui.enabled"]) == ("500", "true")
    with pytest.raises(SparkSetupError, match="a batch is loaded correctly only with 'false'"):
        server_arguments(conf={"spark.sql.files.ignoreMissingFiles": "true"}, cache_dir=cache)


def test_a_token_is_no_argument_that_others_can_read(cache):
    made = server_arguments(conf={"spark.connect.authenticate.token": "s3cr3t"}, cache_dir=cache)
    with submission(made, cache) as given:
        assert "s3cr3t" not in " ".join(given.command())
        assert "spark.connect.grpc.binding.port=15002" in given.command()


def test_the_installed_spark_commits_on_s3_through_the_log_store_if_it_is_told_of_s3(cache):
    assert LOG_STORE not in server_arguments(cache_dir=cache).conf
    server = server_arguments(serves_s3=True, cache_dir=cache)
    assert server.conf[LOG_STORE] == S3_LOG_STORE
    names = [path.rpartition("/")[2] for path in server.driver_class_path.split(":")]
    assert names[2:] == ["hadoop-aws.jar", "fds-s3-log-store.jar", "fds-connect.jar"]
    brought = server_arguments(conf={"spark.jars.packages": "org.apache.hadoop:hadoop-aws:3.5.0"}, cache_dir=cache)
    assert brought.conf[LOG_STORE] == S3_LOG_STORE


def test_a_log_store_of_the_user_stays(cache):
    mine = {"spark.delta.logStore.class": "io.delta.storage.S3DynamoDBLogStore"}
    server = server_arguments(conf=mine, serves_s3=True, cache_dir=cache)
    assert LOG_STORE not in server.conf
    assert "fds-s3-log-store" not in server.driver_class_path


def test_a_spark_of_the_user_always_has_the_log_store_and_its_own_file_system(cache):
    spark = OwnSpark("spark-submit", "/opt/spark/bin/spark-submit", "4.2.0", "2.13")
    server = server_arguments(own_spark=spark, cache_dir=cache)
    assert server.conf[LOG_STORE] == S3_LOG_STORE
    assert "hadoop-aws" not in server.driver_class_path
    assert server.spark_binary == "spark-submit"


def test_executors_of_a_cluster_get_the_jars_too(cache):
    server = server_arguments(master="spark://host:7077", cache_dir=cache)
    assert server.jars is not None
    assert server.jars.endswith(f",{shortcuts_jar()}")
    assert server.driver_class_path is None
    assert "spark.driver.host" not in server.conf


def test_classes_of_the_user_stay_beside_those_of_fds(cache):
    server = server_arguments(conf={RELATION_CLASSES: "mine.Relations"}, cache_dir=cache)
    assert server.conf[RELATION_CLASSES] == f"mine.Relations,{SHORTCUTS}"


def test_a_spark_that_has_its_own_delta_gets_the_classes_too(cache):
    spark = OwnSpark("spark-submit", "/opt/spark/bin/spark-submit", "4.1.0", "2.13")
    server = server_arguments(own_spark=spark, delta_version="provided", cache_dir=cache)
    assert str(shortcuts_jar()) in f"{server.driver_class_path}:{server.jars}"


def test_a_spark_whose_connect_is_another_does_not_get_the_classes(cache):
    spark = OwnSpark("spark-submit", "/opt/spark/bin/spark-submit", "3.5.7", "2.12")
    server = server_arguments(own_spark=spark, delta_version="provided", cache_dir=cache)
    assert RELATION_CLASSES not in server.conf
    assert "fds-connect" not in f"{server.driver_class_path}{server.jars}"
