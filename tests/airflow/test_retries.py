"""When Airflow repeats a task that failed: not at all, after a growing delay, or after the delay that the task has."""

from __future__ import annotations

import textwrap
from datetime import timedelta
from uuid import uuid4

import deltalake
import pytest

from airflow_provider_fds.hooks import retries
from airflow_provider_fds.hooks.retries import delay_before

DAG_TEXT = """
from datetime import datetime, timedelta
from airflow.sdk import DAG
from airflow_provider_fds import (
    DeltaAppendSink, DeltaFleetOperator, DeltaIngestOperator, DeltaPlanOperator, DeltaStream, DeltaTableVersionSensor,
    FleetStream,
)

stream = DeltaStream("{dag_id}", table="{lake}/orders", starting_version=1)
sink = DeltaAppendSink("{lake}/sink")

with DAG("{dag_id}", schedule=None, start_date=datetime(2026, 1, 1), default_args={default_args}):
    {task}
"""
INGEST = 'DeltaIngestOperator(task_id="t", stream=stream, sink=sink)'
TASKS = {
    "ingest": INGEST,
    "plan": 'DeltaPlanOperator(task_id="t", stream=stream)',
    "fleet": 'DeltaFleetOperator(task_id="t", streams=[FleetStream(stream, sink)])',
    "sensor": 'DeltaTableVersionSensor(task_id="t", table="{lake}/orders", committed_after="2020-01-01")',
}
AIRFLOWS = "timedelta(minutes=5)"

has_policies = pytest.mark.skipif(
    not hasattr(__import__("airflow.sdk", fromlist=["BaseOperator"]).BaseOperator, "retry_policy"),
    reason="Airflow before 3.3 has no retry policies",
)


@pytest.fixture
def failed_tries(installation, lake):
    """Runs a task until it has failed for good; returns delay and reason of each retry."""

    def run(task: str, *, default_args: str) -> list[tuple[float | None, str | None]]:
        from airflow.models.taskinstancehistory import TaskInstanceHistory
        from airflow.utils.session import create_session
        from sqlalchemy import select

        text = textwrap.dedent(DAG_TEXT)
        dag_id = f"retries_{uuid4().hex}"
        for name, value in (("task", task), ("lake", lake.uri), ("dag_id", dag_id), ("default_args", default_args)):
            text = text.replace("{" + name + "}", value)
        run = installation.run(installation.add(text))
        assert run.state("t") == "failed"
        with create_session() as session:
            of_run = select(TaskInstanceHistory).where(TaskInstanceHistory.run_id == run.run_id)
            tries = session.scalars(of_run.order_by(TaskInstanceHistory.try_number)).all()
            return [(one.retry_delay_override, one.retry_reason) for one in tries if one.dag_id == run.dag_id]

    return run


@pytest.fixture
def torn(lake):
    """A table whose commit 1 is empty: a store without atomic writes may still be writing it."""
    for number in range(3):
        lake.append("orders", number)
    (lake.root / "orders" / "_delta_log" / f"{1:020d}.json").write_bytes(b"")


@has_policies
@pytest.mark.parametrize("task", TASKS)
def test_an_error_that_a_retry_may_fix_is_retried_after_a_delay_that_doubles(failed_tries, torn, monkeypatch, task):
    monkeypatch.setattr(retries, "FIRST", timedelta(seconds=0.5))
    tries = failed_tries(TASKS[task], default_args=f'{{"retries": 2, "retry_delay": {AIRFLOWS}}}')
    assert [delay for delay, _ in tries] == [0.5, 1]
    assert {reason for _, reason in tries} == {"STREAMS_FAILED" if task == "fleet" else "LOG_FILE_INCOMPLETE"}


def test_an_error_that_a_retry_would_meet_again_is_not_retried(failed_tries, lake):
    lake.append("orders", 1, 2)
    deltalake.DeltaTable(lake.root / "orders").delete("id = 1")
    assert failed_tries(INGEST, default_args=f'{{"retries": 2, "retry_delay": {AIRFLOWS}}}') == []


@has_policies
@pytest.mark.parametrize(
    "own",
    [
        '"retry_delay": timedelta(milliseconds=100)',
        f'"retry_delay": {AIRFLOWS}, "retry_exponential_backoff": True, "max_retry_delay": timedelta(seconds=0.1)',
    ],
)
def test_a_task_keeps_the_delay_that_its_author_has_set(failed_tries, torn, own):
    assert failed_tries(INGEST, default_args=f'{{"retries": 1, {own}}}') == [(None, None)]


def test_the_delay_doubles_up_to_ten_minutes():
    assert [delay_before(retry).total_seconds() for retry in (1, 2, 3, 5, 6, 7, 1000)] == [
        30, 60, 120, 480, 600, 600, 600,
    ]  # fmt: skip
