"""Links on the page of a task: what a DAG declares, what a task stores."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace

import pytest

from airflow_provider_fds import (
    DeltaAppendSink,
    DeltaCommitOperator,
    DeltaIngestOperator,
    DeltaPlanOperator,
    DeltaStream,
)
from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.get_provider_info import get_provider_info
from airflow_provider_fds.hooks.settings import catalog_url
from airflow_provider_fds.operators.links import LINKS
from airflow_provider_fds.operators.task.spark_task import SparkTask
from airflow_provider_fds.stream.monitoring.stream_id import StreamId

TEMPLATE = "https://catalog.example/table?location={table}&version={version}"

PLANS = """
from airflow_provider_fds import DeltaPlanOperator, DeltaStream
from airflow.sdk import DAG

streams = [DeltaStream(name, table=f"{lake}/{{name}}", starting_version=0) for name in ("orders", "returns")]

with DAG("plans", schedule=None):
    DeltaPlanOperator.partial(task_id="plan").expand(stream=streams)
"""

INGESTS = """
from airflow_provider_fds import DeltaIngestOperator, DeltaStream, DeltaAppendSink
from airflow.sdk import DAG

streams = [DeltaStream(name, table=f"{lake}/{{name}}", starting_version=0) for name in ("orders", "returns")]
sinks = [DeltaAppendSink(f"{lake}/bronze/{{name}}") for name in ("orders", "returns")]

with DAG("mapped_ingests", schedule=None):
    DeltaIngestOperator.partial(task_id="ingest", retries=0).expand_kwargs(
        [{{"stream": stream, "sink": sink}} for stream, sink in zip(streams, sinks)]
    )
"""


@pytest.mark.usefixtures("airflow_home")
def test_every_link_is_registered_because_airflow_drops_others():
    registered = {path.rpartition(".")[2] for path in get_provider_info()["extra-links"]}
    assert registered == {type(link).__name__ for link in LINKS}


@pytest.mark.parametrize("operator", [DeltaIngestOperator, DeltaPlanOperator, DeltaCommitOperator])
def test_an_operator_in_a_dag_has_all_links(operator):
    assert operator.operator_extra_links == LINKS


def test_a_catalog_gets_the_table_encoded(monkeypatch):
    monkeypatch.setenv("AIRFLOW__FDS__CATALOG_URL_TEMPLATE", TEMPLATE)
    assert catalog_url("s3://lake/a b", 7) == "https://catalog.example/table?location=s3%3A%2F%2Flake%2Fa%20b&version=7"


def test_without_a_template_there_is_no_page(airflow_home):
    assert catalog_url("s3://lake/orders", 7) is None


@pytest.mark.parametrize(
    "template",
    [
        "catalog.example/{table}",
        "javascript:alert('{table}')",
        "https://catalog.example/{name}/{version}",
        "https://catalog.example/{table.__class__}",
        "https://catalog.example/{table",
        "https://catalog.example/{}",
        "https://catalog.example/",
        "https://user:secret@catalog.example/{table}",
    ],
)
def test_another_template_is_refused_without_its_secrets(monkeypatch, template):
    monkeypatch.setenv("AIRFLOW__FDS__CATALOG_URL_TEMPLATE", template)
    with pytest.raises(ConfigurationError, match="catalog_url_template") as refused:
        catalog_url("s3://lake/orders", 7)
    assert "secret" not in str(refused.value)


def session(result):
    connected = SimpleNamespace(
        table=SimpleNamespace(uri="s3a://lake/orders"),
        staging=SimpleNamespace(uri="s3://lake/_fds"),
        sink_target=lambda uri: uri,
    )
    return SimpleNamespace(
        stream=DeltaStream("orders", table="s3a://lake/orders"), connected=connected, result=lambda: result
    )


def shown(operator):
    return {link.name: link.get_link(operator, ti_key=None) for link in operator.operator_extra_links}


def test_a_task_has_the_links_that_it_knows(monkeypatch):
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", "https://airflow.example/airflow/")
    monkeypatch.setenv("AIRFLOW__FDS__CATALOG_URL_TEMPLATE", TEMPLATE)
    sink = DeltaAppendSink("s3://lake/bronze")
    ingest = DeltaIngestOperator(task_id="i", stream=DeltaStream("orders", table="s3://lake/orders"), sink=sink)
    ingest.spark_pages = {"YARN application": "http://rm/cluster/app/1"}
    with ingest.showing_links(session(SimpleNamespace(last_version=4, sink_version=9)), sink):
        pass
    assert shown(ingest) == {
        "Delta stream": f"/airflow/fds/#/streams/{StreamId.of('s3://lake/_fds', 'orders')}",
        "Spark": "http://rm/cluster/app/1",
        "Source version": "https://catalog.example/table?location=s3%3A%2F%2Flake%2Forders&version=4",
        "Sink version": "https://catalog.example/table?location=s3%3A%2F%2Flake%2Fbronze&version=9",
    }


@pytest.mark.parametrize(
    "page",
    ["http://admin:secret@rm:8088/cluster/app/1", "javascript:alert(1)//rm/cluster/app/1", "rm:8088/cluster/app/1"],
)
def test_a_page_of_spark_with_a_credential_or_without_http_is_no_link(page):
    sink = DeltaAppendSink("s3://lake/bronze")
    ingest = DeltaIngestOperator(task_id="i", stream=DeltaStream("orders", table="s3://lake/orders"), sink=sink)
    # the address is from the connection, whose extra only its owner may read
    ingest.spark_pages = {"YARN application": page}
    with ingest.showing_links(session(None), sink):
        pass
    assert set(shown(ingest)) == {"Delta stream"}


def test_the_log_has_no_credential_of_the_pages_of_spark():
    said = []
    pages = {"YARN application": "http://admin:secret@rm:8088/cluster/app/1"}
    spark = SimpleNamespace(run=lambda _: None, links=lambda: pages)
    log = SimpleNamespace(info=lambda text, *values: said.append(text % values))
    task = SimpleNamespace(spark=spark, log=log)
    task._with_pages = partial(SparkTask._with_pages, task)
    SparkTask.run_spark(task, None)
    assert said == ["YARN application: http://***@rm:8088/cluster/app/1"]


def test_a_wrong_template_costs_its_own_links_and_not_the_load(monkeypatch, caplog):
    monkeypatch.setenv("AIRFLOW__FDS__CATALOG_URL_TEMPLATE", "catalog.example")
    sink = DeltaAppendSink("s3://lake/bronze")
    ingest = DeltaIngestOperator(task_id="i", stream=DeltaStream("orders", table="s3://lake/orders"), sink=sink)
    ingest.spark_pages = {"YARN application": "http://rm/cluster/app/1"}
    with ingest.showing_links(session(SimpleNamespace(last_version=4, sink_version=9)), sink):
        pass
    assert set(shown(ingest)) == {"Delta stream", "Spark"}
    assert "catalog_url_template" in caplog.text


def test_a_task_without_a_catalog_stores_one_link(installation, lake):
    lake.append("orders", 1)
    lake.append("returns", 2)
    run = installation.run(installation.add(PLANS.format(lake=lake.uri)))
    assert run.state("plan", 0) == run.state("plan", 1) == "success"
    links = {(index, key): value for (_, index, key), value in run.xcoms.items() if key.startswith("_link_")}
    assert set(links) == {(0, "_link_DeltaStreamLink"), (1, "_link_DeltaStreamLink")}
    assert links[1, "_link_DeltaStreamLink"].endswith("-returns")


def test_each_instance_of_a_mapped_task_has_its_own_links_in_the_ui(installation, on_server, lake, monkeypatch):
    monkeypatch.setenv("AIRFLOW__FDS__CATALOG_URL_TEMPLATE", TEMPLATE)
    lake.append("orders", 1)
    lake.append("returns", 2)
    lake.append("returns", 3)
    dag = installation.add(INGESTS.format(lake=lake.uri))

    run = installation.run(dag)

    assert run.state("ingest", 0) == run.state("ingest", 1) == "success"
    assert run.xcom("ingest", "_link_SourceVersionLink", 0).endswith("orders&version=0")
    assert run.xcom("ingest", "_link_SourceVersionLink", 1).endswith("returns&version=1")
    assert run.xcom("ingest", "_link_SinkVersionLink", 1).endswith("returns&version=0")
    # as the API server reads it, from the serialized DAG
    from airflow.models.serialized_dag import SerializedDagModel
    from airflow.models.taskinstancekey import TaskInstanceKey

    task = SerializedDagModel.get_dag(dag.dag_id).get_task("ingest")
    assert set(task.extra_links) == {link.name for link in LINKS}
    key = TaskInstanceKey(dag_id=dag.dag_id, run_id=run.run_id, task_id="ingest", map_index=1)
    instance = SimpleNamespace(key=key)
    assert task.get_extra_links(instance, "Source version").endswith("returns&version=1")
    assert not task.get_extra_links(instance, "Spark")


@pytest.mark.usefixtures("airflow_home")
def test_a_mapped_task_keeps_its_links_in_the_serialized_dag():
    from airflow.sdk import DAG
    from airflow.serialization import serialized_objects

    serialization = getattr(serialized_objects, "DagSerialization", None) or serialized_objects.SerializedDAG
    with DAG("d", schedule=None) as dag:
        sink = DeltaAppendSink("s3://lake/bronze")
        DeltaIngestOperator(task_id="one", stream=DeltaStream("orders", table="s3://lake/orders"), sink=sink)
        DeltaIngestOperator.partial(task_id="many").expand_kwargs(
            [{"stream": DeltaStream("orders", table="s3://lake/orders"), "sink": sink}]
        )
    read = serialization.from_dict(serialization.to_dict(dag))
    for task_id in ("one", "many"):
        assert set(read.get_task(task_id).extra_links) == {link.name for link in LINKS}
