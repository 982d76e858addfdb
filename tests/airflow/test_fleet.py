"""``DeltaFleetOperator`` with real Spark, in real runs: every stream has a fate of its own."""

from __future__ import annotations

import pytest

NAMES = ("t1", "t2", "t3", "t4", "t5", "t6")

DAG_TEXT = """
from datetime import datetime
from airflow.sdk import DAG
from airflow_provider_fds import DeltaFleetOperator, DeltaStream, DeltaTableSink, FleetStream

with DAG("{name}", schedule=None, start_date=datetime(2026, 1, 1)):
    DeltaFleetOperator(
        task_id="load",
        streams=[
            FleetStream(
                DeltaStream(name, table=f"{lake}/{{name}}", starting_version="earliest", on_violation="quarantine"),
                DeltaTableSink(f"{lake}/sinks/{{name}}"),
            )
            for name in {names}
        ],
        parallelism=4,
        {arguments}
    )
"""


@pytest.fixture
def dag_of(installation, lake):
    def make(name, arguments="", names=NAMES):
        return installation.add(DAG_TEXT.format(name=name, lake=lake.uri, names=names, arguments=arguments))

    return make


def outcomes(run, key="return_value"):
    return {name: one["outcome"] for name, one in run.xcom("load", key)["streams"].items()}


def test_a_fleet_loads_its_streams_and_later_only_what_changed_and_each_fails_alone(dag_of, installation, lake):
    for number, name in enumerate(NAMES):
        lake.append(name, number, number + 10)
    lake.delete("t6", "id = 5")
    dag = dag_of("fleet", 'on_stream_failure="continue"')

    # five are loaded, and the one whose rows were deleted is loaded up to there
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
