"""Streams that read data intervals, in real runs: any order, cleared, refused."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

DAG_TEXT = """
from datetime import datetime, timedelta, timezone
from airflow.sdk import Asset, CronDataIntervalTimetable, DAG
from airflow_provider_fds import (
    DeltaIngestOperator, DeltaPlanOperator, DeltaReplaceSink, DeltaStream, DeltaAppendSink, DeltaTableVersionSensor
)

stream = DeltaStream("{name}", table="{lake}/orders", read="data_interval")
with DAG("{dag_id}", schedule={schedule}, start_date=datetime(2026, 1, 1, tzinfo=timezone.utc), catchup=False):
    {task}
"""
DAILY = 'CronDataIntervalTimetable("0 0 * * *", timezone="UTC")'
APPEND = 'DeltaIngestOperator(task_id="load", stream=stream, sink=DeltaAppendSink("{lake}/{name}"))'


@pytest.fixture
def dag_of(installation, lake):
    def make(name, task=APPEND, schedule=DAILY):
        task = task.replace("{lake}", lake.uri).replace("{name}", name)
        dag_id = f"{name}_{uuid4().hex}"  # dag.test() cannot replace the run that another version of a DAG made
        return installation.add(DAG_TEXT.format(name=name, dag_id=dag_id, lake=lake.uri, task=task, schedule=schedule))

    return make


def day(number: int) -> datetime:
    return datetime(2026, 1, number, tzinfo=UTC)


def run_of(number: int) -> dict[str, datetime]:
    """The arguments of a run whose interval is that day: a run is made when its interval is over."""
    return {"logical_date": day(number + 1)}


def commit_at(lake, version: int, when: datetime) -> None:
    """Give a commit of ``orders`` its time."""
    path = lake.root / "orders" / "_delta_log" / f"{version:020d}.json"
    os.utime(path, (when.timestamp(), when.timestamp()))


def fill(lake) -> None:
    """Two commits on the first of January, one on the second at midnight, none on the third, one on the fourth."""
    for version, when in enumerate((day(1), day(1) + timedelta(hours=8), day(2), day(4))):
        lake.append("orders", version * 10, version * 10 + 1)
        commit_at(lake, version, when)


def test_the_example_loads_days_in_any_order_and_a_cleared_day_again(installation, on_server, lake, monkeypatch):
    monkeypatch.setenv("FDS_EXAMPLE_LAKE", lake.uri)
    fill(lake)
    dag = installation.add_example("orders_daily")

    second = installation.run(dag, **run_of(2))
    assert set(second.states.values()) == {"success"}
    assert lake.ids("daily/orders") == [20, 21]
    first = installation.run(dag, **run_of(1))
    assert lake.ids("daily/orders") == [0, 1, 10, 11, 20, 21]
    result = first.xcom("load")
    assert (result["first_version"], result["last_version"], result["rows"]) == (0, 1, 4)
    assert (result["interval_start"], result["interval_end"]) == (
        "2026-01-01T00:00:00.000Z",
        "2026-01-02T00:00:00.000Z",
    )

    again = installation.run(dag, **run_of(2))
    # an attempt that the machine kills is followed by one with a generation of its own
    assert again.xcom("load")["generation"] > second.xcom("load")["generation"]
    assert lake.ids("daily/orders") == [0, 1, 10, 11, 20, 21]
    events = installation.events(f"{lake.uri}/daily/orders")
    assert events == [second.xcom("load"), result, again.xcom("load")]


def test_an_interval_is_appended_once_and_one_without_commits_is_skipped(dag_of, installation, on_server, lake):
    fill(lake)
    dag = dag_of("appended")
    assert installation.run(dag, **run_of(2)).state("load") == "success"
    assert lake.ids("appended") == [20, 21]
    again = installation.run(dag, **run_of(2))
    assert (again.state("load"), again.xcom("load")["rows"]) == ("success", 2)
    assert len(installation.events(f"{lake.uri}/appended")) == 1
    assert lake.ids("appended") == [20, 21]
    assert installation.run(dag, **run_of(3)).state("load") == "skipped"


@pytest.mark.parametrize("schedule", ['"@daily"', "None"])
def test_a_run_without_an_interval_fails_before_spark_and_names_the_timetable_that_works(
    dag_of, installation, lake, schedule
):
    fill(lake)
    dag = dag_of("zero_width", schedule=schedule)
    run = installation.run(dag, **run_of(2))
    assert run.state("load") == "failed"
    assert not lake.exists("zero_width")


def test_the_plan_operator_refuses_intervals(dag_of, installation, lake):
    fill(lake)
    dag = dag_of("planned", 'DeltaPlanOperator(task_id="load", stream=stream)')
    assert installation.run(dag, **run_of(2)).state("load") == "failed"


SENSOR = 'DeltaTableVersionSensor(task_id="wait", stream=stream, wait_for="interval_complete", {arguments})'


@pytest.mark.parametrize(
    ("number", "arguments", "state"),
    [
        (3, "deferrable=True, timeout=1", "success"),
        (5, "timeout=0, poke_interval=1, soft_fail=True", "skipped"),
        (5, "grace=timedelta(hours=2), deferrable=True, timeout=1", "success"),
        (5, "mode='reschedule', grace=timedelta(0), timeout=1", "success"),
    ],
)
def test_the_sensor_waits_until_the_interval_is_complete(dag_of, installation, lake, number, arguments, state):
    fill(lake)
    dag = dag_of("waiting", SENSOR.replace("{arguments}", arguments))
    assert installation.run(dag, **run_of(number)).state("wait") == state
