"""``DeltaIngestOperator`` where things go wrong: with real Spark, in a real run."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from airflow_provider_fds.delta.storage.open import open_storage
from airflow_provider_fds.ledger.staging.log import Ledger
from tests.stuck_file import stuck_file

DAG_TEXT = """
from datetime import datetime
from airflow.sdk import DAG
from airflow_provider_fds import DeltaIngestOperator, DeltaStream, DeltaAppendSink

with DAG("{name}", schedule=None, start_date=datetime(2026, 1, 1)):
    DeltaIngestOperator(
        task_id="ingest",
        stream=DeltaStream("{name}", table="{lake}/orders", starting_version="earliest", {options}),
        sink=DeltaAppendSink("{lake}/{name}"),
        {arguments}
    )
"""


@pytest.fixture
def dag_of(installation, lake):
    def make(name, options="", arguments=""):
        return installation.add(DAG_TEXT.format(name=name, lake=lake.uri, options=options, arguments=arguments))

    return make


def test_batches_of_a_failed_run_stay_and_the_next_run_delivers_the_rest_up_to_the_bad_version(
    dag_of, installation, lake, on_server
):
    lake.append("orders", 1, 2)
    lake.append("orders", 3)
    lake.delete("orders", "id = 2")
    lost = data_file(lake, version=1)
    dag = dag_of("stopping", options="max_files_per_batch=1")

    # the file of the second batch cannot be read: the first batch is committed, the run fails without an event
    lost.rename(lost.with_suffix(".away"))
    failed = installation.run(dag)
    assert failed.state("ingest") == "failed"
    assert lake.ids("stopping") == [1, 2]
    assert installation.events(f"{lake.uri}/stopping") == []

    # the next run takes the second batch over; the delete behind it is a warning; the event covers both batches
    lost.with_suffix(".away").rename(lost)
    delivered = installation.run(dag)
    assert delivered.state("ingest") == "success"
    assert lake.ids("stopping") == [1, 2, 3]
    result = delivered.xcom("ingest")
    assert (result["first_batch_id"], result["rows"], result["first_version"]) == (1, 1, 1)
    assert (result["rows_read"], result["files_written"]) == (1, 1)
    assert result["bytes_written"] > 0
    assert set(result["seconds"]) == {"plan", "spark", "commit", "check", "load", "write", "verify"}
    assert result["seconds"]["spark"] > result["seconds"]["write"] > 0
    assert (result["stopped"]["reason_code"], result["stopped"]["version"]) == ("SOURCE_ROWS_CHANGED", 2)
    (event,) = installation.events(f"{lake.uri}/stopping")
    assert event["stopped"] == result["stopped"]
    assert (event["first_batch_id"], event["batches"], event["rows"], event["first_version"]) == (0, 2, None, 0)
    assert (event["end"], event["sink_version"]) == (result["end"], result["sink_version"])

    # now the bad version is first in line: the run fails before Spark is started
    stopped = installation.run(dag)
    assert stopped.state("ingest") == "failed"
    assert lake.ids("stopping") == [1, 2, 3]
    assert len(installation.events(f"{lake.uri}/stopping")) == 1


def test_a_batch_is_committed_while_spark_works_on_the_next_one(dag_of, installation, lake, tmp_path):
    lake.append("orders", 1)
    lake.append("orders", 2)
    dag = dag_of("draining", options="max_files_per_batch=1")
    has_ended = threading.Event()
    with stuck_file(data_file(lake, version=1)) as stuck, ThreadPoolExecutor(1) as pool:

        def committed_meanwhile() -> int | None:
            try:
                stuck.wait_for_reader(has_ended.is_set)
                last = None
                while last is None and not has_ended.wait(0.2):
                    last = Ledger(open_storage((tmp_path / "staging").as_uri()), "draining").find().last_committed
                return last and last.batch_id
            finally:
                # the driver has stood at the second batch until now, and fails with it
                stuck.release()

        committed = pool.submit(committed_meanwhile)
        try:
            run = installation.run(dag)
        finally:
            has_ended.set()
        assert committed.result() == 0
    assert run.state("ingest") == "failed"
    assert lake.ids("draining") == [1]


def data_file(lake, version):
    """Return the one data file that a version of ``orders`` has added."""
    log = lake.root / "orders" / "_delta_log" / f"{version:020d}.json"
    (add,) = [json.loads(line)["add"] for line in log.read_text().splitlines() if '"add"' in line]
    return lake.root / "orders" / add["path"]


def test_nothing_new_can_succeed_without_an_asset_event(dag_of, installation, lake):
    lake.append("orders", 1)
    options = 'starting_timestamp="2100-01-01"'
    arguments = f'on_no_data="succeed", outlets=[Asset("{lake.uri}/waiting")]'
    text = DAG_TEXT.replace("import DAG", "import DAG, Asset").replace('starting_version="earliest", ', "")
    dag = installation.add(text.format(name="waiting", lake=lake.uri, options=options, arguments=arguments))
    run = installation.run(dag)
    assert run.state("ingest") == "success"
    assert run.xcom("ingest") is None
    assert installation.events(f"{lake.uri}/waiting") == []


# D48
@pytest.mark.parametrize("policy", ["skip", "succeed"])
def test_a_finished_stream_is_a_skip_without_spark_that_says_so(dag_of, installation, lake, policy):
    lake.append("orders", 1)
    name = f"finished_{policy}"
    text = DAG_TEXT.replace('starting_version="earliest", ', "")
    options = 'starting_timestamp="2000-01-01", ending_timestamp="2000-01-02"'
    dag = installation.add(text.format(name=name, lake=lake.uri, options=options, arguments=f'on_no_data="{policy}"'))
    assert installation.run(dag).state("ingest") == {"skip": "skipped", "succeed": "success"}[policy]
    assert not (lake.root / name).exists()


def test_a_stream_in_quarantine_skips_every_run_until_a_person_decides(dag_of, installation, lake):
    lake.append("orders", 1)
    lake.delete("orders", "id = 1")
    dag = dag_of(
        "quarantined", options='on_violation="quarantine", skip_versions=0', arguments='conn_id="spark_default"'
    )
    first, second = installation.run(dag), installation.run(dag)
    assert (first.state("ingest"), second.state("ingest")) == ("skipped", "skipped")
    assert not lake.exists("quarantined")


# D21
def test_a_drain_stops_at_its_time_limit_between_batches_and_the_next_run_continues(
    dag_of, installation, on_server, lake
):
    for i in range(3):
        lake.append("orders", i)
    arguments = "run_time_limit=__import__('datetime').timedelta(seconds=0)"
    dag = dag_of("limited", options="max_files_per_batch=1", arguments=arguments)
    first = installation.run(dag)
    assert first.state("ingest") == "success"
    # at least one batch a run, or a stream would never come on
    assert first.xcom("ingest")["batches"] == 1
    assert lake.ids("limited") == [0]
