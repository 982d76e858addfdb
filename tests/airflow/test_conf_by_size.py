"""``conf_by_size``: a small increment and a large first load do not run with the same executors."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from airflow_provider_fds import DeltaAppendSink, DeltaIngestOperator, DeltaStream
from airflow_provider_fds.backends.base import Application, UserArguments
from airflow_provider_fds.backends.registry import find_backend
from airflow_provider_fds.backends.spark_master import SparkMaster, application_arguments, check_master, submitted
from airflow_provider_fds.decorators.delta_batch import DeltaBatchDecoratedOperator
from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.places import Place

STEPS = [("1m", {"spark.executor.instances": 2}), ("10g", {"spark.executor.instances": 40})]
STREAM = DeltaStream("orders", table="s3://lake/orders")


def operator(**arguments):
    return DeltaIngestOperator(task_id="load", stream=STREAM, sink=DeltaAppendSink("s3://lake/bronze"), **arguments)


def application(*sizes):
    transactions = [SimpleNamespace(parts=[SimpleNamespace(num_bytes=size)]) for size in sizes]
    session = SimpleNamespace(
        scope=SimpleNamespace(transactions=lambda batches: transactions),
        connected=SimpleNamespace(places=lambda uri: [Place("s3://lake/orders")], sink_target=lambda uri: uri),
    )
    work = SimpleNamespace(batches=[SimpleNamespace(num_bytes=size) for size in sizes])
    return Application(session, DeltaAppendSink("s3://lake/bronze"), work, "s3a://staging/x.job.json")


@pytest.fixture
def cluster(airflow_home, monkeypatch, spark_on_path):
    spark_on_path(name="spark3-submit")
    connection = {"conn_type": "spark", "host": "yarn", "extra": {"spark-binary": "spark3-submit"}}
    monkeypatch.setenv("AIRFLOW_CONN_CLUSTER", json.dumps(connection))


@pytest.mark.parametrize(("sizes", "instances"), [((10, 2_000), 2), ((10, 2 << 20, 10), 40), ((20 << 30,), 40)])
@pytest.mark.parametrize("form", ["pairs", "function"])
def test_the_command_has_the_settings_for_the_largest_batch(cluster, tmp_path, sizes, instances, form):
    given = STEPS if form == "pairs" else lambda size: dict(STEPS[size > 1 << 20][1])
    task = operator(conn_id="cluster", conf={"spark.a": "b"}, conf_by_size=given)
    backend = task.find_spark("cluster")
    backend.check()

    made = application_arguments(backend.master, application(*sizes), backend.arguments)
    with submitted(backend.master, made, tmp_path) as final:
        task._set_submission(final)
        command = task._get_hook()._build_spark_submit_command(task.application)
        # the user's settings are not shown to other users of the machine
        settings = Path(command[command.index("--properties-file") + 1]).read_text().splitlines()

    assert f"spark.executor.instances={instances}" in settings
    assert "spark.a=b" in settings
    # the next application of the run starts from the user's own settings
    assert "spark.executor.instances" not in backend.arguments.conf


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"conf_by_size": [("2g", {}), ("1g", {})]}, "the sizes of conf_by_size must increase"),
        ({"conf_by_size": STEPS, "num_executors": 3}, "num_executors and spark.executor.instances in conf_by_size"),
        ({"resources": STEPS}, "resources is an argument of every Airflow task"),
    ],
    ids=["order", "ineffective", "name"],
)
def test_bad_arguments_are_refused_when_the_dag_is_parsed(arguments, problem):
    with pytest.raises(ConfigurationError, match=problem):
        operator(**arguments)


def test_a_function_of_the_dag_file_has_the_argument_too():
    def load(df):
        del df

    arguments = {"task_id": "load", "python_callable": load, "stream": STREAM}
    assert DeltaBatchDecoratedOperator(**arguments, conf_by_size=STEPS).conf_by_size == STEPS
    with pytest.raises(ConfigurationError, match="must increase"):
        DeltaBatchDecoratedOperator(**arguments, conf_by_size=[("2g", {}), ("1g", {})])


def test_settings_that_would_lose_rows_are_refused_before_anything_is_planned():
    steps = [("1g", {"spark.sql.files.ignoreMissingFiles": True})]
    place = SparkMaster("spark_default", "local[1]", None)
    with pytest.raises(ConfigurationError, match="ignoreMissingFiles is True, but a batch is loaded correctly only"):
        check_master(place, UserArguments(conf_by_size=steps))
    with pytest.raises(ConfigurationError, match="ignoreMissingFiles is True, but a batch is loaded correctly only"):
        application_arguments(place, application(10), UserArguments(conf_by_size=lambda _: steps[0][1]))


def test_a_connect_server_is_refused_because_its_executors_are_fixed(airflow_home, monkeypatch):
    monkeypatch.setenv("AIRFLOW_CONN_WARM", json.dumps({"conn_type": "spark_connect", "host": "localhost"}))
    backend = find_backend("warm", UserArguments(conf_by_size=STEPS))
    with pytest.raises(
        ConfigurationError, match=r"conf_by_size cannot be given with connection 'warm'.*already running"
    ):
        backend.check()


DAG_TEXT = """
from datetime import datetime
from airflow.sdk import DAG
from airflow_provider_fds import DeltaIngestOperator, DeltaStream, DeltaAppendSink

CODEC = "spark.sql.parquet.compression.codec"

with DAG("by_size", schedule=None, start_date=datetime(2026, 1, 1)):
    DeltaIngestOperator(
        task_id="ingest",
        stream=DeltaStream("by_size", table="{lake}/orders"),
        sink=DeltaAppendSink("{lake}/by_size"),
        conf={{CODEC: "uncompressed"}},
        conf_by_size=[("4k", {{CODEC: "gzip"}}), ("1g", {{CODEC: "zstd"}})],
    )
"""


def test_each_run_works_with_the_settings_for_its_batches(installation, lake):
    dag = installation.add(DAG_TEXT.format(lake=lake.uri))
    lake.append("orders", *range(20_000))
    first = installation.run(dag)
    lake.append("orders", 20_000)
    second = installation.run(dag)

    assert (first.state("ingest"), second.state("ingest")) == ("success", "success")
    assert (first.xcom("ingest")["bytes"] > 4096, second.xcom("ingest")["bytes"] <= 4096) == (True, True)
    files = sorted(path.name for path in (lake.root / "by_size").glob("*.parquet"))
    assert sorted(name.split(".")[-2] for name in files) == ["gz", "zstd"]
    assert lake.ids("by_size") == [*range(20_001)]
