"""Configurations that cannot work, found before anything starts."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from airflow_provider_fds import (
    DeltaAppendSink,
    DeltaCommitOperator,
    DeltaIngestOperator,
    DeltaMergeSink,
    DeltaPlanOperator,
    DeltaStream,
    DeltaTableVersionSensor,
)
from airflow_provider_fds.backends.base import UserArguments
from airflow_provider_fds.backends.registry import find_backend
from airflow_provider_fds.backends.spark_master import SparkMaster, check_master, prepare_submission
from airflow_provider_fds.errors import ConfigurationError, StorageError
from airflow_provider_fds.hooks.data_interval import refuse_backfill
from airflow_provider_fds.hooks.failures import task_failures
from airflow_provider_fds.places import Place
from airflow_provider_fds.spark.installation import own_spark
from airflow_provider_fds.spark.installation.install import delta_package
from airflow_provider_fds.spark.submission.object_store import JobStorage

LOCAL = SparkMaster("spark_default", "local[1]", None)


@pytest.fixture
def spark_connection(airflow_database, monkeypatch):
    def make(**fields):
        monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps({"conn_type": "spark", **fields}))
        return "spark_default"

    return make


@pytest.mark.parametrize(
    ("fields", "master", "deploy_mode"),
    [
        ({"host": "local[*]"}, "local[*]", None),
        ({"host": "spark://master", "port": 7077}, "spark://master:7077", None),
        ({"host": "master", "port": 7077}, "spark://master:7077", None),
        ({"host": "yarn", "extra": {"deploy-mode": "cluster"}}, "yarn", "cluster"),
        ({"host": "k8s://https://api:6443"}, "k8s://https://api:6443", None),
    ],
)
def test_the_master_is_the_one_that_the_spark_provider_would_use(spark_connection, fields, master, deploy_mode):
    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook

    conn_id = spark_connection(**fields)
    backend = find_backend(conn_id)
    assert (backend.master.master, backend.master.deploy_mode) == (master, deploy_mode)
    if "k8s" not in master:  # the hook needs the kubernetes package for it
        assert SparkSubmitHook(conn_id=conn_id)._connection["master"] == master


def test_a_missing_spark_connection_is_named(airflow_database):
    with pytest.raises(
        ConfigurationError, match=r"Airflow connection 'spark_lost'.*Spark connection.*does not exist"
    ) as caught:
        find_backend("spark_lost")
    for command in (
        "`airflow connections add spark_lost --conn-type spark --conn-host spark://HOST --conn-port 7077`",
        "`airflow connections add spark_lost --conn-type spark_connect --conn-host sc://HOST --conn-port 15002 ",
    ):
        assert command in str(caught.value)


def test_a_connection_of_another_type_is_refused_with_what_to_write(spark_connection):
    with pytest.raises(ConfigurationError, match=r"'spark_default' is of type 'yarn', expected 'spark'.*yarn, k8s"):
        find_backend(spark_connection(conn_type="yarn", host="yarn"))


def test_a_spark_connection_without_a_master_is_refused(spark_connection):
    with pytest.raises(ConfigurationError, match=r"has no host.*local\[\*\]"):
        find_backend(spark_connection())


@pytest.mark.parametrize("mode", ["Cluster", True, "clustre"])
def test_a_deploy_mode_that_is_none_is_refused_before_anything_is_planned(spark_connection, mode):
    backend = find_backend(spark_connection(host="spark://master:7077", extra={"deploy-mode": mode}))
    with pytest.raises(ConfigurationError, match=f"deploy mode {mode!r}, expected 'client' or 'cluster'"):
        backend.check()


def test_an_extra_of_a_spark_connection_that_is_no_object_is_refused(spark_connection):
    with pytest.raises(ConfigurationError, match="'spark_default' must be a JSON object, got a list"):
        find_backend(spark_connection(host="local[*]", extra="[1]"))


def test_without_java_the_message_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(ConfigurationError, match=r"Spark needs Java 17.*apt-get install openjdk-17"):
        check_master(LOCAL, UserArguments())


def test_a_driver_in_the_cluster_needs_no_java_here(monkeypatch, tmp_path, spark_on_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    spark_on_path()
    monkeypatch.delenv("JAVA_HOME", raising=False)
    check_master(SparkMaster("spark_default", "yarn", "cluster", binary="spark-submit"), UserArguments())


def test_settings_that_would_lose_rows_are_refused_together_with_what_else_is_wrong(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    given = UserArguments(conf={"spark.sql.files.ignoreCorruptFiles": True})
    with pytest.raises(ConfigurationError) as caught:
        check_master(LOCAL, given)
    assert len(caught.value.problems) == 2
    assert "ignoreCorruptFiles" in caught.value.problems[0]


def test_the_users_own_arguments_are_kept(tmp_path):
    given = UserArguments(
        conf={"spark.sql.shuffle.partitions": "7", "spark.jars.packages": "a:b:1"},
        jars="/own.jar",
        packages="c:d:2",
        py_files="/own.zip",
        driver_class_path="/own/classes",
        env_vars={"LANG": "C"},
    )
    made = prepare_submission(LOCAL, "file:///spec", given=given, storage=JobStorage(), cache_dir=None)
    assert made.conf["spark.sql.shuffle.partitions"] == "7"
    assert made.conf["spark.jars.packages"] == "c:d:2,a:b:1"
    assert made.jars == "/own.jar"
    assert made.driver_class_path.endswith(":/own/classes")
    assert "delta-spark" in made.driver_class_path
    assert made.py_files.startswith("/own.zip,")
    assert made.env_vars["LANG"] == "C"
    assert made.application_args == ("file:///spec",)


def test_delta_brought_along_as_a_package_is_not_added_again():
    given = UserArguments(packages=delta_package())
    made = prepare_submission(LOCAL, "file:///spec", given=given, storage=JobStorage(), cache_dir=None)
    assert (made.jars, made.driver_class_path) == (None, None)


def test_a_delta_of_another_version_is_refused_before_anything_is_planned_with_the_one_that_fits(spark_on_path):
    other = "io.delta:delta-spark_2.12:3.3.2"
    given = UserArguments(packages=f"org.x:y:1,{other}", conf={"spark.jars": "/own/delta-spark_2.12-3.3.1.jar"})
    one = UserArguments(packages=f"org.x:y:1,{other}")
    with pytest.raises(ConfigurationError, match="Omit it: FDS adds") as caught:
        check_master(LOCAL, given)
    assert [problem.split()[0] for problem in caught.value.problems] == [other, "/own/delta-spark_2.12-3.3.1.jar"]
    assert f"FDS adds {delta_package()} itself" in caught.value.problems[0]
    # another Spark has another Delta
    cluster = SparkMaster("spark_default", "yarn", "cluster", binary="spark-submit")
    spark_on_path("3.5.7", "2.12")
    check_master(cluster, one)
    with pytest.raises(ConfigurationError, match="there is more than one Delta for Spark"):
        check_master(cluster, given)
    spark_on_path("4.2.0", "2.13")
    with pytest.raises(ConfigurationError, match=r"starts Spark 4\.2\.0 .* and needs Delta for Spark 4\.2"):
        check_master(cluster, one)


def test_on_yarn_and_kubernetes_no_environment_is_added_because_it_would_be_visible_there(spark_on_path):
    spark_on_path()
    backend = SparkMaster("spark_default", "yarn", "cluster", binary="spark-submit")
    storage = JobStorage((Place("s3://lake/orders"),))
    made = prepare_submission(backend, "s3a://spec", given=UserArguments(), storage=storage, cache_dir=None)
    assert made.env_vars == {}
    assert "spark.jars.packages" not in made.conf


@pytest.mark.parametrize("extra", [{"spark-binary": "spark3-submit"}, {}])
def test_a_worker_without_any_spark_is_refused_with_what_to_install(spark_connection, monkeypatch, tmp_path, extra):
    monkeypatch.setattr(own_spark, "has_bundled_spark", lambda: False)
    monkeypatch.setenv("PATH", str(tmp_path))
    backend = find_backend(spark_connection(host="spark://master", port=7077, extra=extra))
    with pytest.raises(ConfigurationError) as caught:
        backend.check()
    (problem,) = caught.value.problems
    found = "the spark-binary 'spark3-submit' is not on this worker's PATH" if extra else "no Spark was found"
    assert problem.startswith(found)
    assert "pip install 'airflow-provider-fds[local]'" in problem
    assert "a connection of type 'spark_connect'" in problem


def test_delta_version_needs_a_driver_of_the_user(airflow_database, monkeypatch):
    monkeypatch.setenv("AIRFLOW_CONN_SERVER", json.dumps({"conn_type": "spark_connect", "host": "sc://host"}))
    with pytest.raises(ConfigurationError, match="delta_version cannot be given with connection 'server'"):
        find_backend("server", UserArguments(delta_version="4.4.0")).check()


def test_a_missing_spark_connection_stops_the_task_before_a_ledger_is_made(installation, lake, tmp_path):
    lake.append("orders", 1)
    run = installation.run(
        installation.add(
            f"""
            from datetime import datetime
            from airflow.sdk import DAG
            from airflow_provider_fds import DeltaIngestOperator, DeltaStream, DeltaAppendSink

            with DAG("no_spark", schedule=None, start_date=datetime(2026, 1, 1)):
                DeltaIngestOperator(
                    task_id="ingest",
                    stream=DeltaStream("no_spark", table="{lake.uri}/orders"),
                    sink=DeltaAppendSink("{lake.uri}/bronze"),
                    conn_id="spark_lost",
                    retries=3,
                )
            """
        )
    )
    # failed, not up_for_retry: a retry would find the same
    assert run.state("ingest") == "failed"
    assert not (tmp_path / "staging").exists()


def test_airflow_retries_a_retryable_error_and_all_others_fail_without_a_retry():
    from airflow.providers.common.compat.sdk import AirflowFailException

    with pytest.raises(StorageError), task_failures({}):
        raise StorageError("503")
    with pytest.raises(AirflowFailException, match="ConfigurationError: no such table"), task_failures({}):
        raise ConfigurationError("no such table")
    with pytest.raises(ZeroDivisionError), task_failures({}):
        raise ZeroDivisionError


@pytest.mark.parametrize(
    ("run_type", "run_id"), [("backfill", "scheduled__2026-01-01"), ("manual", "backfill__2026-01-01")]
)
def test_a_backfill_is_refused_with_what_to_do_instead(run_type, run_id):
    from airflow_provider_fds import DeltaStream

    stream = DeltaStream("orders", table="/lake/orders")
    dag_run = SimpleNamespace(run_type=run_type, run_id=run_id)
    with pytest.raises(ConfigurationError, match=r"'/lake/orders'.*rewind.*a stream with another name"):
        refuse_backfill({"dag_run": dag_run}, stream)
    refuse_backfill({"dag_run": SimpleNamespace(run_type="scheduled", run_id="scheduled__2026")}, stream)


def test_a_merge_with_limits_that_cut_commits_is_refused_when_the_dag_is_parsed(tmp_path):
    changes = {"read_change_feed": True, "whole_commits": False}
    merge = DeltaMergeSink(str(tmp_path / "sink"), keys=["id"])
    stream = DeltaStream("orders", table=str(tmp_path), staging=str(tmp_path / "staging"), **changes)
    with pytest.raises(ConfigurationError, match="has read_change_feed and whole_commits=False, but DeltaMergeSink"):
        DeltaIngestOperator(task_id="merge", stream=stream, sink=merge)
    DeltaIngestOperator(task_id="append", stream=stream, sink=DeltaAppendSink(str(tmp_path / "sink")))


@pytest.mark.parametrize(
    ("make", "arguments"),
    [
        (DeltaIngestOperator, {"sink": "/lake/bronze"}),
        (DeltaPlanOperator, {}),
        (DeltaCommitOperator, {"batch": {}}),
        (DeltaTableVersionSensor, {}),
    ],
)
def test_the_name_of_a_stream_is_refused_when_the_dag_is_parsed(make, arguments):
    with pytest.raises(ConfigurationError, match="stream must be a DeltaStream or a dict of its arguments, got str"):
        make(task_id="task", stream="orders", **arguments)
    assert make(task_id="task", stream="{{ ti.xcom_pull('declare') }}", **arguments).task_id == "task"
