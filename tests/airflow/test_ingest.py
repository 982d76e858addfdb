"""``DeltaIngestOperator`` where things go wrong: with real Spark, in a real run."""

from __future__ import annotations

import pytest

DAG_TEXT = """
from datetime import datetime
from airflow.sdk import DAG
from airflow_provider_fds import DeltaIngestOperator, DeltaStream, DeltaTableSink

with DAG("{name}", schedule=None, start_date=datetime(2026, 1, 1), params={{"java": ""}}):
    DeltaIngestOperator(
        task_id="ingest",
        stream=DeltaStream("{name}", table="{lake}/orders", starting_version="earliest", {options}),
        sink=DeltaTableSink("{lake}/{name}"),
        conf={{"spark.driver.extraJavaOptions": "{{{{ params.java }}}}"}},
        {arguments}
    )
"""


@pytest.fixture
def dag_of(installation, lake):
    def make(name, options="", arguments=""):
        return installation.add(DAG_TEXT.format(name=name, lake=lake.uri, options=options, arguments=arguments))

    return make


def events(uri):
    """Return the extras of all events of an asset, oldest first."""
    from airflow.models.asset import AssetEvent, AssetModel
    from airflow.utils.session import create_session
    from sqlalchemy import select

    with create_session() as session:
        found = select(AssetEvent).join(AssetModel, AssetEvent.asset_id == AssetModel.id).where(AssetModel.uri == uri)
        return [event.extra for event in session.scalars(found.order_by(AssetEvent.id)).all()]


def test_a_failed_job_leaves_its_batches_to_the_next_run_which_delivers_up_to_the_bad_version(
    dag_of, installation, lake
):
    lake.append("orders", 1, 2)
    lake.append("orders", 3)
    lake.delete("orders", "id = 2")
    dag = dag_of("stopping")

    # a JVM that does not start: nothing is written, nothing committed, no event
    failed = installation.run(dag, run_conf={"java": "-XX:NoSuchFlag"})
    assert failed.state("ingest") == "failed"
    assert not lake.exists("stopping")
    assert events(f"{lake.uri}/stopping") == []

    # the next run takes the batches over; the delete behind them is a warning
    delivered = installation.run(dag)
    assert delivered.state("ingest") == "success"
    assert lake.ids("stopping") == [1, 2, 3]
    result = delivered.xcom("ingest")
    assert (result["rows"], result["first_version"], result["last_version"]) == (3, 0, 1)
    (event,) = events(f"{lake.uri}/stopping")
    assert event == result

    # now the bad version is first in line
    stopped = installation.run(dag)
    assert stopped.state("ingest") == "failed"
    assert lake.ids("stopping") == [1, 2, 3]


def test_nothing_new_can_succeed_without_waking_anybody(dag_of, installation, lake):
    lake.append("orders", 1)
    options = 'ignore_changes=True, starting_timestamp="2100-01-01"'
    options = options.replace("ignore_changes=True, ", "")
    arguments = f'on_no_data="succeed", outlets=[Asset("{lake.uri}/waiting")]'
    text = DAG_TEXT.replace("import DAG", "import DAG, Asset").replace('starting_version="earliest", ', "")
    dag = installation.add(text.format(name="waiting", lake=lake.uri, options=options, arguments=arguments))
    run = installation.run(dag)
    assert run.state("ingest") == "success"
    assert run.xcom("ingest") is None
    assert events(f"{lake.uri}/waiting") == []


def test_a_drain_stops_at_its_time_limit_between_batches_and_the_next_run_goes_on(dag_of, installation, lake):
    for i in range(3):
        lake.append("orders", i)
    arguments = "run_time_limit=__import__('datetime').timedelta(seconds=0)"
    dag = dag_of("limited", options="max_files_per_batch=1", arguments=arguments)
    first = installation.run(dag)
    assert first.state("ingest") == "success"
    # at least one batch a run, or a stream would never come on
    assert first.xcom("ingest")["batches"] == 1
    assert lake.ids("limited") == [0]
