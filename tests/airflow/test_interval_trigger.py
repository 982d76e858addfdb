"""Waiting for the end of a data interval: sensor and trigger, without Spark."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException, AirflowSensorTimeout, TaskDeferred

from airflow_provider_fds import (
    DeltaAppendSink,
    DeltaIngestOperator,
    DeltaIntervalTrigger,
    DeltaReplaceSink,
    DeltaStream,
    DeltaTableVersionSensor,
)
from airflow_provider_fds.errors import ConfigurationError

pytestmark = pytest.mark.usefixtures("airflow_database")

#: The log builder commits version v in minute v.
START = datetime(2024, 1, 1, tzinfo=UTC)


@pytest.fixture
def stream(log_builder, tmp_path):
    log_builder.create()
    log_builder.append(1)
    return DeltaStream("days", table=log_builder.uri, read="data_interval", staging=(tmp_path / "staging").as_uri())


@pytest.fixture
def context():
    def of(first, last):
        run = SimpleNamespace(run_id="backfill__1", run_type="backfill")
        start, end = (START + timedelta(minutes=number) for number in (first, last))
        return {"dag_run": run, "data_interval_start": start, "data_interval_end": end}

    return of


def sensor(stream, **arguments):
    return DeltaTableVersionSensor(task_id="wait", stream=stream, wait_for="interval_complete", **arguments)


async def event_of(trigger):
    async for event in trigger.run():
        return event.payload
    return None


async def test_the_trigger_fires_when_a_commit_reaches_the_end(stream, context, log_builder):
    with pytest.raises(TaskDeferred) as deferred:
        sensor(stream, deferrable=True, poll_interval=0.01).execute(context(0, 5))
    classpath, arguments = deferred.value.trigger.serialize()
    assert classpath == "airflow_provider_fds.triggers.delta_interval.DeltaIntervalTrigger"
    waiting = asyncio.ensure_future(event_of(DeltaIntervalTrigger(**arguments)))
    log_builder.append(1)
    log_builder.append(1, timestamp_ms=log_builder.time_of(5))
    event = await asyncio.wait_for(waiting, 30)
    assert (event["status"], event["version"]) == ("success", 3)
    assert sensor(stream, deferrable=True).execute_complete(context(0, 5), event) == 3


async def test_the_trigger_fires_when_grace_has_passed(stream, context):
    with pytest.raises(TaskDeferred) as deferred:
        sensor(stream, deferrable=True, grace=timedelta(days=10_000)).execute(context(0, 5))
    arguments = deferred.value.trigger.serialize()[1]
    event = await asyncio.wait_for(event_of(DeltaIntervalTrigger(**{**arguments, "grace": 60.0})), 30)
    assert "have passed since" in event["reason"]


def test_a_backfill_run_waits_like_any_other_run(stream, context):
    assert sensor(stream).execute(context(0, 1)) == 1


def test_a_sensor_without_new_data_times_out(stream, context):
    with pytest.raises(AirflowSensorTimeout, match="The interval is not over"):
        sensor(stream, deferrable=True, timeout=0).execute(context(0, 5))


def test_an_empty_interval_fails_without_a_retry_and_names_the_timetable(stream, context):
    with pytest.raises(AirflowFailException, match="CronDataIntervalTimetable"):
        sensor(stream).execute(context(3, 3))
    with pytest.raises(AirflowFailException, match="CronDataIntervalTimetable"):
        sensor(stream).execute({"dag_run": context(0, 1)["dag_run"]})


@pytest.mark.parametrize(
    ("read", "arguments", "text"),
    [
        ("data_interval", {}, "wait_for='interval_complete'"),
        ("offset", {"wait_for": "interval_complete"}, "wait_for='new_data'"),
        ("offset", {"grace": timedelta(hours=1)}, "no effect"),
        ("data_interval", {"wait_for": "interval_complete", "grace": "3"}, "timedelta"),
        ("offset", {"wait_for": "news"}, "must be"),
    ],
)
def test_incompatible_arguments_are_refused_when_the_dag_is_parsed(read, arguments, text):
    stream = DeltaStream("s", "s3://lake/t", read=read)
    with pytest.raises(ConfigurationError, match=text):
        DeltaTableVersionSensor(task_id="wait", stream=stream, **arguments)


def test_the_operator_refuses_arguments_that_contradict_how_the_stream_reads():
    days, orders = (DeltaStream("s", "s3://lake/t", read=read) for read in ("data_interval", "offset"))
    replacing = DeltaReplaceSink("s3://lake/s", replace_where="a = 1")
    with pytest.raises(ConfigurationError, match="run_time_limit"):
        DeltaIngestOperator(task_id="load", stream=days, sink=replacing, run_time_limit=timedelta(hours=1))
    with pytest.raises(ConfigurationError, match="A sink that replaces requires"):
        DeltaIngestOperator(task_id="load", stream=orders, sink=replacing)


def test_runs_of_intervals_are_not_serialised():
    days, orders = (DeltaStream("s", "s3://lake/t", read=read) for read in ("data_interval", "offset"))
    sink = DeltaAppendSink("s3://lake/s")
    assert DeltaIngestOperator(task_id="load", stream=days, sink=sink).max_active_tis_per_dag is None
    assert DeltaIngestOperator(task_id="load", stream=orders, sink=sink).max_active_tis_per_dag == 1
