"""OpenLineage events of real runs, with the real provider and a server that receives them."""

from __future__ import annotations

import json

import pytest

INGEST = """
from airflow_provider_fds import DeltaIngestOperator, DeltaStream, DeltaAppendSink
from airflow.sdk import DAG

with DAG("loads", schedule=None):
    DeltaIngestOperator(
        task_id="ingest",
        stream=DeltaStream("orders_to_bronze", table="{lake}/orders", starting_version=0, max_files_per_batch=1),
        sink=DeltaAppendSink("{lake}/bronze"{sink}),
        retries=0,
    )
"""


def columns(dataset):
    return [(field["name"], field["type"]) for field in dataset["facets"]["schema"]["fields"]]


def test_a_run_names_the_table_it_read_and_the_one_it_wrote(installation, lake, receiver):
    lake.append("orders", 1, 2, name="orders")
    lake.append("orders", 3)

    run = installation.run(installation.add(INGEST.format(lake=lake.uri, sink=", provenance=True")))

    assert run.state("ingest") == "success"
    (start,), (complete,) = receiver.of("loads.ingest", "START"), receiver.of("loads.ingest", "COMPLETE")
    source, sink = ("file", f"{lake.root}/orders"), ("file", f"{lake.root}/bronze")
    for event in (start, complete):
        assert [(one["namespace"], one["name"]) for one in event["inputs"]] == [source]
        assert [(one["namespace"], one["name"]) for one in event["outputs"]] == [sink]
        assert event["job"]["facets"]["fds_stream"]["stream"] == "orders_to_bronze"
        assert event["job"]["facets"]["fds_stream"]["delivery"] == "transaction"
    read, written = complete["inputs"][0], complete["outputs"][0]
    result = run.xcom("ingest")
    assert read["facets"]["version"]["datasetVersion"] == "1"
    assert (
        read["inputFacets"]["fds_versions"]["first_version"],
        read["inputFacets"]["fds_versions"]["last_version"],
    ) == (
        0,
        1,
    )
    assert read["inputFacets"]["inputStatistics"]["rowCount"] == 3
    assert read["inputFacets"]["inputStatistics"]["fileCount"] == 2
    assert columns(read) == [("id", "long"), ("name", "string")]
    (identifier,) = read["facets"]["symlinks"]["identifiers"]
    assert identifier == {"namespace": "file", "name": "orders", "type": "TABLE"}
    assert written["facets"]["version"]["datasetVersion"] == str(result["sink_version"])
    assert columns(written)[:2] == [("id", "long"), ("name", "string")]
    assert ("_source_version", "long") in columns(written)
    assert written["outputFacets"]["outputStatistics"]["rowCount"] == 3
    copied = written["facets"]["columnLineage"]["fields"]
    assert {name: [(one["name"], one["field"]) for one in found["inputFields"]] for name, found in copied.items()} == {
        "id": [(source[1], "id")],
        "name": [(source[1], "name")],
    }
    batches = complete["run"]["facets"]["fds_batches"]
    assert {name: batches[name] for name in ("stream", "epoch", "first_batch_id", "last_batch_id", "start", "end")} == {
        name: result[name] for name in ("stream", "epoch", "first_batch_id", "last_batch_id", "start", "end")
    }


def test_a_run_without_news_names_its_tables_without_versions(installation, lake, receiver):
    lake.append("orders", 1)
    dag = installation.add(
        INGEST.format(lake=lake.uri, sink="").replace("starting_version=0", "starting_version='latest'")
    )

    run = installation.run(dag)

    assert run.state("ingest") == "skipped"
    for event in receiver.of("loads.ingest"):
        assert event["inputs"][0]["name"] == f"{lake.root}/orders"
        assert not event["inputs"][0]["facets"]
        assert "fds_batches" not in event["run"]["facets"]


def test_a_run_that_fails_after_a_batch_names_what_it_has_committed(installation, lake, receiver):
    lake.append("orders", 1)
    lake.append("orders", 2)
    text = INGEST.format(lake=lake.uri, sink=', transform="picky:refuses_two"').replace(
        "retries=0", "retries=0, batches_per_application=1, py_files='{picky}'"
    )
    picky = lake.root / "picky.py"
    picky.write_text(
        "def refuses_two(df):\n    if df.filter('id = 2').count():\n        raise ValueError('two')\n    return df\n"
    )

    run = installation.run(installation.add(text.replace("{picky}", str(picky))))

    assert run.state("ingest") == "failed"
    (event,) = receiver.of("loads.ingest", "FAIL")
    assert event["inputs"][0]["facets"]["version"]["datasetVersion"] == "0"
    assert event["outputs"][0]["facets"]["version"]["datasetVersion"] == "0"
    assert event["run"]["facets"]["fds_batches"]["last_batch_id"] == 0
    # a function decides what the columns are made of
    assert "columnLineage" not in event["outputs"][0]["facets"]


AGENT = """
from airflow_provider_fds import DeltaIngestOperator, DeltaMergeSink, DeltaStream, DeltaAppendSink
from airflow.sdk import DAG, task

AGENT = dict(
    packages="io.openlineage:openlineage-spark_2.13:1.53.0",
    conf={{"spark.extraListeners": "io.openlineage.spark.agent.OpenLineageSparkListener"}},
    openlineage_inject_transport_info=True,
    retries=0,
)

def stream(name):
    return DeltaStream(name, table="{lake}/orders", starting_version=0)

with DAG("agent", schedule=None):
    append = DeltaIngestOperator(
        task_id="append", stream=stream("append"), sink=DeltaAppendSink("{lake}/appended"), **AGENT
    )
    merge = DeltaIngestOperator(
        task_id="merge", stream=stream("merge"), sink=DeltaMergeSink("{lake}/merged", keys=["id"]), **AGENT
    )
    more = DeltaIngestOperator(
        task_id="history", stream=stream("history"), sink=DeltaMergeSink("{lake}/history", keys=["id"], scd=2), **AGENT
    )
    append >> merge >> more
"""


@pytest.mark.timeout(600)
def test_the_spark_agent_reports_to_the_task_and_names_no_file_of_staging(
    installation, lake, receiver, tmp_path, caplog, capfd
):
    lake.append("orders", 1, 2)
    lake.append("orders", 2, 3)

    run = installation.run(installation.add(AGENT.format(lake=lake.uri)))

    assert set(run.states.values()) == {"success"}
    spark = [event for event in receiver.events if "airflow" not in event["producer"]]
    for task_id in ("append", "merge", "history"):
        (start,) = receiver.of(f"agent.{task_id}", "START")
        children = [e for e in spark if e["run"]["facets"]["parent"]["run"]["runId"] == start["run"]["runId"]]
        assert {event["eventType"] for event in children} == {"START", "COMPLETE"}
        assert {event["run"]["facets"]["parent"]["job"]["name"] for event in children} == {f"agent.{task_id}"}
    staging = str(tmp_path / "staging")
    assert not [found for found in receiver.datasets("inputs") if found[1].startswith(staging)]
    assert staging not in json.dumps([event["outputs"] for event in receiver.events])
    # the key of the transport is in a file that only Spark reads
    assert "very-secret-key" not in capfd.readouterr().out + caplog.text
