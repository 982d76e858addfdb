"""``DeltaFleetOperator`` with real Spark, in real runs: every stream has a fate of its own."""

from __future__ import annotations

import json
import threading
import time
from contextlib import nullcontext

import pytest

from airflow_provider_fds.triggers.delta_fleet import DeltaFleetTrigger
from tests.interop.spark_processes import processes_of

pytestmark = pytest.mark.usefixtures("on_server")

NAMES = ("t1", "t2", "t3", "t4", "t5", "t6")

DAG_TEXT = """
from datetime import datetime
from airflow.sdk import DAG
from airflow_provider_fds import DeltaFleetOperator, DeltaStream, DeltaAppendSink, FleetStream

with DAG("{name}", schedule=None, start_date=datetime(2026, 1, 1)):
    DeltaFleetOperator(
        task_id="load",
        streams=[
            FleetStream(
                DeltaStream(name, table=f"{lake}/{{name}}", starting_version="earliest", on_violation="quarantine"),
                DeltaAppendSink(f"{lake}/sinks/{{name}}"),
            )
            for name in {names}
        ],
        parallelism=4,
        {arguments}
    )
"""

SINGLE = """
from datetime import datetime
from airflow.sdk import DAG
from airflow_provider_fds import DeltaIngestOperator, DeltaStream, DeltaAppendSink

with DAG("single", schedule=None, start_date=datetime(2026, 1, 1)):
    DeltaIngestOperator(
        task_id="ingest",
        stream=DeltaStream("t1", table="{lake}/t1", starting_version="earliest", on_violation="quarantine"),
        sink=DeltaAppendSink("{lake}/sinks/t1"),
    )
"""


@pytest.fixture
def dag_of(installation, lake):
    def make(name, arguments="", names=NAMES):
        return installation.add(DAG_TEXT.format(name=name, lake=lake.uri, names=names, arguments=arguments))

    return make


def outcomes(run, key="return_value"):
    return {name: one["outcome"] for name, one in run.xcom("load", key)["streams"].items()}


def test_a_fleet_loads_its_streams_and_later_only_what_changed_and_each_fails_alone(
    dag_of, installation, lake, on_server
):
    for number, name in enumerate(NAMES):
        lake.append(name, number, number + 10)
    lake.delete("t6", "id = 5")
    dag = dag_of("fleet", 'on_stream_failure="continue"')

    # five are loaded, and the one whose rows were deleted is loaded up to there
    with on_server():
        run = installation.run(dag)
    assert run.state("load") == "success"
    assert outcomes(run) == dict.fromkeys(NAMES, "loaded")
    result = run.xcom("load")
    assert (result["counts"], result["rows"], result["streams"]["t6"]["stopped"]["version"]) == ({"loaded": 6}, 12, 1)
    for number, name in enumerate(NAMES):
        assert lake.ids(f"sinks/{name}") == [number, number + 10]
        (event,) = installation.events(f"{lake.uri}/sinks/{name}")
        assert (event["stream"], event["rows"], event["first_batch_id"]) == (name, 2, 0)

    # only what changed is loaded; the one with the DELETE is in quarantine now
    lake.append("t2", 100)
    second = installation.run(dag)
    assert second.state("load") == "success"
    assert outcomes(second) == {"t2": "loaded", "t6": "paused"}
    assert second.xcom("load")["counts"] == {"loaded": 1, "unchanged": 4, "paused": 1}
    assert lake.ids("sinks/t2") == [1, 11, 100]
    assert [len(installation.events(f"{lake.uri}/sinks/{name}")) for name in ("t1", "t2", "t6")] == [1, 2, 1]

    # one is broken: it fails alone; repaired, it is loaded
    version = lake.append("t3", 300)
    lake.append("t4", 400)
    commit = lake.root / "t3" / "_delta_log" / f"{version:020d}.json"
    text = commit.read_text()
    commit.write_text(text[: len(text) // 2])
    broken = installation.run(dag)
    assert broken.state("load") == "success"
    assert outcomes(broken) == {"t3": "failed", "t4": "loaded", "t6": "paused"}
    assert broken.xcom("load")["streams"]["t3"]["error"]["reason_code"]
    commit.write_text(text)
    assert outcomes(installation.run(dag)) == {"t3": "loaded", "t6": "paused"}
    assert lake.ids("sinks/t3") == [2, 12, 300]
    assert lake.ids("sinks/t4") == [3, 13, 400]


def test_a_task_with_a_failed_stream_fails_at_its_end_and_its_retry_does_the_rest(dag_of, installation, lake):
    for name in ("t1", "t2"):
        lake.append(name, 1)
    log = lake.root / "t2" / "_delta_log" / f"{0:020d}.json"
    text = log.read_text()
    log.write_text(text[: len(text) // 2])
    dag = dag_of("failing", names=("t1", "t2"))
    run = installation.run(dag)
    assert run.state("load") == "failed"
    assert outcomes(run, "fds_fleet") == {"t1": "loaded", "t2": "failed"}
    assert run.xcom("load", "fds_error")["reason_code"] in ("STREAMS_FAILED", "STREAMS_REJECTED")
    assert lake.ids("sinks/t1") == [1]
    assert installation.events(f"{lake.uri}/sinks/t1") == []
    log.write_text(text)
    repaired = installation.run(dag)
    assert outcomes(repaired) == {"t2": "loaded"}
    assert lake.ids("sinks/t2") == [1]


def test_a_fleet_without_news_is_skipped_without_spark(dag_of, installation, lake, monkeypatch):
    lake.append("t1", 1)
    dag = dag_of("idle", names=("t1",))
    assert installation.run(dag).state("load") == "success"
    run = installation.run(dag)
    assert run.state("load") == "skipped"
    assert len(installation.events(f"{lake.uri}/sinks/t1")) == 1


def batches(lake, table):
    """Return the ids of a sink's batches, in the order of their commits."""
    commits = sorted((lake.root / table / "_delta_log").glob("*.json"))
    actions = [json.loads(line) for commit in commits for line in commit.read_text().splitlines()]
    return [one["txn"]["version"] % 2**32 - 1 for one in actions if "txn" in one]


def test_a_fleet_and_a_task_of_a_single_stream_take_turns_on_it(dag_of, installation, lake):
    fleet, single = dag_of("shared", names=("t1", "t2")), installation.add(SINGLE.format(lake=lake.uri))
    lake.append("t1", 1)
    lake.append("t2", 1)
    assert outcomes(installation.run(fleet)) == {"t1": "loaded", "t2": "loaded"}

    lake.append("t1", 2)
    found = installation.run(single)
    assert (found.state("ingest"), found.xcom("ingest")["first_batch_id"]) == ("success", 1)

    # the fleet remembers an older position, and loads nothing twice
    idle = installation.run(fleet)
    assert idle.state("load") == "skipped"

    lake.append("t1", 3)
    third = installation.run(fleet)
    assert outcomes(third) == {"t1": "loaded"}
    assert third.xcom("load")["streams"]["t1"]["first_batch_id"] == 2
    assert installation.run(single).state("ingest") == "skipped"
    assert lake.ids("sinks/t1") == [1, 2, 3]
    assert batches(lake, "sinks/t1") == [0, 1, 2]


def test_a_fleet_that_waits_loads_a_table_that_grows_meanwhile(dag_of, installation, lake, monkeypatch):
    for name in ("t1", "t2"):
        lake.append(name, 1)
    dag = dag_of("waiting", "wait=True, poll_interval=0.2, timeout=120", names=("t1", "t2"))
    assert installation.run(dag).state("load") == "success"

    polled, poll = [], DeltaFleetTrigger._poll

    async def poll_and_grow(self, name):
        found = await poll(self, name)
        polled.append((name, found))
        if len(polled) == 4:
            lake.append("t2", 2)
        return found

    monkeypatch.setattr(DeltaFleetTrigger, "_poll", poll_and_grow)
    run = installation.run(dag)
    assert run.state("load") == "success"
    assert outcomes(run) == {"t2": "loaded"}
    assert run.xcom("load")["counts"] == {"loaded": 1, "unchanged": 1}
    assert (lake.ids("sinks/t1"), lake.ids("sinks/t2")) == ([1], [1, 2])
    # two polls of each table found nothing, the third woke the task
    assert [found for _, found in polled[:4]] == [None] * 4
    assert dict(polled[4:])["t2"] is not None


@pytest.mark.parametrize("way", ["connect", "submit"])
def test_a_fleet_loads_what_comes_while_it_lingers(dag_of, installation, lake, tmp_path, on_server, way):
    names = ("t1", "t2", "t3")
    for name in names:
        lake.append(name, 1)
    dag = dag_of(f"live_fleet_by_{way}", "linger='10s'", names=names)
    drivers: list[list[int]] = []

    def write() -> None:
        for name, before, row in (("t2", [1], 2), ("t1", [1], 3), ("t2", [1, 2], 4)):
            first = lake.root / "sinks" / name / "_delta_log" / f"{0:020}.json"
            while not first.exists() or lake.ids(f"sinks/{name}") != before:
                time.sleep(0.1)
            drivers.append(processes_of(tmp_path / "staging" / ".fleets"))
            lake.append(name, row)

    writing = threading.Thread(target=write)
    writing.start()
    with on_server() if way == "submit" else nullcontext():
        run = installation.run(dag)
    writing.join()
    # one spark-submit loads all that comes, and does not outlive the task
    assert drivers == [drivers[0]] * 3
    assert bool(drivers[0]) is (way == "submit")
    assert not processes_of(tmp_path / "staging" / ".fleets")
    assert run.state("load") == "success"
    assert [lake.ids(f"sinks/{name}") for name in names] == [[1, 3], [1, 2, 4], [1]]
    result = run.xcom("load")["streams"]
    assert {name: (one["outcome"], one["rows"]) for name, one in result.items()} == {
        "t1": ("loaded", 2), "t2": ("loaded", 3), "t3": ("loaded", 1),
    }  # fmt: skip
    # the events cover all rounds
    assert [[event["rows"] for event in installation.events(f"{lake.uri}/sinks/{name}")] for name in names] == [
        [2], [3], [1],
    ]  # fmt: skip
