"""``DeltaIngestOperator(wait=True)``: when it defers, when it does not, and what becomes of time and errors."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest
from airflow.providers.common.compat.sdk import (
    AirflowException,
    AirflowFailException,
    AirflowSensorTimeout,
    AirflowSkipException,
    TaskDeferred,
)

from airflow_provider_fds import (
    DeltaAppendSink,
    DeltaFleetOperator,
    DeltaIngestOperator,
    DeltaReplaceSink,
    DeltaStream,
    DeltaTableVersionSensor,
)
from airflow_provider_fds.airflow_version import sdk_exception
from airflow_provider_fds.delta.storage.open import open_storage
from airflow_provider_fds.errors import ConfigurationError, ServerLostError
from airflow_provider_fds.ledger.entries.commit_entries import Committed
from airflow_provider_fds.ledger.entries.operator_entries import Held, Retired
from airflow_provider_fds.ledger.owner import Actor
from airflow_provider_fds.ledger.staging.log import Ledger
from airflow_provider_fds.operators.run.sessions import session_context
from airflow_provider_fds.stream.run.session import StreamSession
from tests.interop.connect_server import free_port

pytestmark = pytest.mark.usefixtures("airflow_database")

WOKEN = {"status": "success", "version": 1, "reason": "data"}


@pytest.fixture(autouse=True)
def lost_server(airflow_database, monkeypatch):
    """A Spark that is not there: a task that begins to load says so, one that waits does not ask."""
    value = {"conn_type": "spark_connect", "host": "127.0.0.1", "port": free_port()}
    monkeypatch.setenv("AIRFLOW_CONN_LOST", json.dumps(value))


@pytest.fixture
def table(log_builder):
    log_builder.create(timestamp_ms=int(time.time() * 1000))
    log_builder.append(timestamp_ms=int(time.time() * 1000))
    return log_builder


@pytest.fixture
def stream(table, tmp_path):
    return DeltaStream(
        "orders", table=table.uri, checkpoint=f"file:{tmp_path}/checkpoint.json", staging=str(tmp_path / "staging")
    )


@pytest.fixture
def consumed(stream, table, stand_at):
    """Says up to which version the stream has committed."""
    return lambda version: stand_at(stream, stream.staging, table.table_id, version, deployment="http://fds.test")


@pytest.fixture
def ingest(stream, tmp_path):
    return lambda **kwargs: operator(tmp_path, **{"stream": stream, **kwargs})


def operator(folder, **kwargs):
    given = {"sink": DeltaAppendSink(str(folder / "sink")), "wait": True, **kwargs}
    return DeltaIngestOperator(task_id="ingest", conn_id="lost", **given)


def context_of(run_id="manual__1", *, state="running", **fields):
    """Return the part of a task's context that the operator reads; ``state`` is that of any other task."""
    ti = SimpleNamespace(
        dag_id="dag",
        run_id=run_id,
        task_id="ingest",
        map_index=-1,
        try_number=1,
        max_tries=0,
        get_dr_count=lambda **_: 1,
        get_task_states=lambda run_ids, task_ids, **_: {run_ids[0]: {task_ids[0]: state}},
    )
    dag_run = SimpleNamespace(run_id=run_id, run_type="manual", run_after=None)
    return {"ti": ti, "dag_run": dag_run, "outlet_events": {}, **fields}


def deferred(call):
    """Return the deferral with which a call ends."""
    with pytest.raises(TaskDeferred) as raised:
        call()
    return raised.value


def test_it_defers_with_the_sensors_trigger_if_there_is_nothing_new(ingest, stream, consumed):
    consumed(1)
    load = ingest(timeout=3600, poll_interval=timedelta(seconds=2))
    found = deferred(lambda: load.execute(context_of()))
    assert found.method_name == "execute_complete"
    assert 3590 < found.timeout.total_seconds() <= 3600
    path, kwargs = found.trigger.serialize()
    assert path == "airflow_provider_fds.triggers.delta_table_version.DeltaTableVersionTrigger"
    assert kwargs == {
        "stream": stream.to_dict(),
        "staging": Path(stream.staging).as_uri(),
        "deployment": "http://fds.test",
        "poll_interval": 2,
        "recheck_every": 20,
        "max_refusals": 10,
        "pauses_first": False,
    }


def test_without_arguments_it_waits_as_long_and_polls_as_often_as_the_sensor(ingest, consumed):
    consumed(1)
    found = deferred(lambda: ingest().execute(context_of()))
    assert found.timeout > timedelta(days=6)
    assert found.trigger.serialize()[1]["poll_interval"] == 60


async def test_its_trigger_fires_with_new_data_and_the_task_then_loads(ingest, consumed, table):
    consumed(1)
    trigger = deferred(lambda: ingest(poll_interval=0.01).execute(context_of())).trigger
    table.append(timestamp_ms=int(time.time() * 1000))
    event = await anext(trigger.run())
    assert (event.payload["status"], event.payload["version"]) == ("success", 2)
    with pytest.raises(ServerLostError):
        ingest().execute_complete(context_of(), event.payload, deadline=time.time() + 60)


def test_it_does_not_wait_if_there_is_data(ingest, consumed):
    consumed(0)
    with pytest.raises(ServerLostError):
        ingest().execute(context_of())


def test_batches_planned_by_an_earlier_attempt_are_loaded_without_waiting(ingest, consumed, stream, tmp_path):
    consumed(0)
    plan(stream, tmp_path, context_of())
    with pytest.raises(ServerLostError):
        ingest().execute(context_of())


def test_a_run_whose_batches_another_one_has_loaded_leaves_what_comes_later_to_the_next(
    ingest, consumed, stream, tmp_path, table
):
    consumed(0)
    plan(stream, tmp_path, context_of())
    sink = DeltaAppendSink(str(tmp_path / "sink"))
    session = StreamSession(stream, session_context(context_of("manual__2", state="failed"), stream, sink))
    work = session.begin(sink)
    log = tmp_path / "sink" / "_delta_log"
    log.mkdir(parents=True)
    (log / f"{0:020}.json").write_text('{"commitInfo":{"operation":"WRITE"}}\n')
    session.connected.execute(
        Committed(
            epoch=work.epoch,
            batch_id=work.batches[0].batch_id,
            owner=session.context.owner,
            attempt_id=work.attempt_id,
            outcome="written",
            digest=work.batches[0].digest,
            sink_version=0,
            sink_table_id="t",
            rows=1,
        )
    )
    table.append(timestamp_ms=int(time.time() * 1000))
    # a trigger would fire at once, and again, for data that this run never loads
    with pytest.raises(AirflowSkipException, match="Nothing new"):
        ingest().execute(context_of())


def test_while_another_run_owns_the_next_batches_on_busy_decides(ingest, consumed, stream, tmp_path):
    consumed(0)
    plan(stream, tmp_path, context_of("manual__0"))
    with pytest.raises(AirflowSkipException, match="manual__0"):
        ingest().execute(context_of())
    with pytest.raises(sdk_exception("AirflowRescheduleException")):
        ingest(on_busy="wait").execute(context_of())


def test_woken_without_data_it_waits_until_the_same_deadline_and_its_trigger_pauses_first(ingest, consumed):
    consumed(1)
    deadline = time.time() + 60
    found = deferred(lambda: ingest().execute_complete(context_of(), WOKEN, deadline=deadline))
    assert found.kwargs == {"deadline": deadline}
    assert found.timeout.total_seconds() <= 60
    assert found.trigger.serialize()[1]["pauses_first"] is True


def test_dag_test_resumes_it_with_only_the_event(ingest, consumed):
    consumed(1)
    assert deferred(lambda: ingest(timeout=60).execute_complete(context_of(), WOKEN)).timeout.total_seconds() <= 60


def test_when_the_time_is_over_nothing_is_new_and_on_no_data_decides(ingest, consumed):
    consumed(1)
    with pytest.raises(AirflowSkipException, match="Nothing new"):
        ingest(timeout=0).execute(context_of())
    with pytest.raises(AirflowSkipException, match="Nothing new"):
        ingest().execute_complete(context_of(), WOKEN, deadline=time.time() - 1)
    assert ingest(timeout=0, on_no_data="succeed").execute(context_of()) is None


def test_a_deferral_that_airflow_times_out_polls_one_last_time(ingest, consumed, table):
    consumed(1)
    over = ("__fail__", {"error": "Trigger timeout"}, context_of())
    with pytest.raises(AirflowSkipException, match="Nothing new"):
        ingest().resume_execution(*over)
    table.append(timestamp_ms=int(time.time() * 1000))
    with pytest.raises(ServerLostError):
        ingest().resume_execution(*over)


def test_an_error_of_the_trigger_fails_the_task(ingest):
    event = {"status": "error", "error": "LogGapError", "message": "version 3 is missing", "retryable": False}
    with pytest.raises(AirflowFailException, match="LogGapError: version 3 is missing"):
        ingest().execute_complete(context_of(), event)
    with pytest.raises(AirflowException) as failed:
        ingest().execute_complete(context_of(), {**event, "retryable": True})
    assert not isinstance(failed.value, AirflowFailException)


def test_a_finished_stream_skips_the_task_instead_of_waiting(ingest, stream, consumed, table, tmp_path):
    consumed(1)
    bounded = DeltaStream(
        "orders", table=table.uri, checkpoint=stream.checkpoint, staging=stream.staging, ending_version=1
    )
    with pytest.raises(AirflowSkipException, match="'orders' is finished: ending_version=1"):
        ingest(stream=bounded).execute(context_of())


def test_a_task_waits_for_a_held_stream_and_names_the_reason_when_it_times_out(ingest, stream, consumed):
    consumed(0)
    ask(stream, Held(why="maintenance"))
    deferred(lambda: ingest().execute(context_of()))
    with pytest.raises(AirflowSkipException, match=r"is on hold: maintenance"):
        ingest(timeout=0).execute(context_of())


def test_a_stream_enters_quarantine_and_the_task_waits(ingest, stream, table):
    table.commit(table.remove(next(iter(table.live))), operation="DELETE", timestamp_ms=int(time.time() * 1000))
    stopping = DeltaStream(
        "orders",
        table=table.uri,
        checkpoint=stream.checkpoint,
        staging=stream.staging,
        starting_version=2,
        on_violation="quarantine",
    )
    deferred(lambda: ingest(stream=stopping).execute(context_of()))
    with pytest.raises(AirflowSkipException, match="is in quarantine"):
        ingest(stream=stopping, timeout=0).execute(context_of())


def test_a_retired_stream_fails_without_a_retry(ingest, stream, consumed):
    consumed(1)
    ask(stream, Retired(why="gone"))
    with pytest.raises(AirflowFailException, match="retired"):
        ingest().execute(context_of())


def test_a_task_waits_for_a_start_in_the_future(ingest, stream, table):
    later = DeltaStream(
        "orders",
        table=table.uri,
        checkpoint=stream.checkpoint,
        staging=stream.staging,
        starting_timestamp="2100-01-01",
    )
    deferred(lambda: ingest(stream=later).execute(context_of()))


def test_a_waiting_run_of_a_backfill_is_refused_at_once(ingest):
    with pytest.raises(AirflowFailException, match="is a backfill"):
        ingest().execute(context_of("backfill__1"))


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"wait": False, "timeout": 5, "grace": timedelta(0)}, r"timeout, grace has no effect without wait=True"),
        ({"wait": "yes"}, "wait must be True or False"),
        ({"poll_interval": 0}, "poll_interval must be a timedelta or a number of seconds above 0"),
        ({"timeout": -1}, "timeout must be a timedelta or a number of seconds of at least 0"),
        ({"timeout": True}, "timeout must be"),
        ({"max_refusals": 3}, "max_refusals is not an argument any more: a waiting task gives up after 10 polls"),
        ({"grace": timedelta(hours=1)}, "grace requires read='data_interval'"),
        ({"grace": -3}, "grace must be None, a timedelta or seconds, and not negative"),
        ({"run_time_limit": "600"}, "run_time_limit must be a timedelta or seconds"),
        ({"linger": 0}, "linger must be a positive timedelta, seconds, or text such as '12m', got 0"),
        ({"linger": "a while"}, "linger must be a positive timedelta, seconds, or text"),
    ],
)
def test_incompatible_arguments_are_refused_when_the_dag_is_parsed(arguments, text):
    stream, sink = DeltaStream("s", "s3://lake/t"), DeltaAppendSink("s3://lake/s")
    with pytest.raises(ConfigurationError, match=text):
        DeltaIngestOperator(task_id="load", stream=stream, sink=sink, **{"wait": True, **arguments})


@pytest.mark.parametrize("linger", [timedelta(minutes=10), 600, "10m"])
def test_a_time_to_linger_has_the_same_forms_for_one_stream_and_for_a_fleet(linger):
    stream, sink = DeltaStream("s", "s3://lake/t"), DeltaAppendSink("s3://lake/s")
    one = DeltaIngestOperator(task_id="load", stream=stream, sink=sink, linger=linger)
    fleet = DeltaFleetOperator(task_id="loads", streams=[{"stream": stream, "sink": sink}], linger=linger)
    assert one.linger == fleet.linger == timedelta(minutes=10)


def test_a_time_may_be_given_in_seconds_as_airflow_does():
    daily = DeltaStream("s", "s3://lake/t", read="data_interval")
    offset, sink = DeltaStream("s", "s3://lake/t"), DeltaReplaceSink("s3://lake/s", replace_where="day = 1")
    waiting = DeltaIngestOperator(task_id="load", stream=daily, sink=sink, wait=True, grace=90)
    limited = DeltaIngestOperator(
        task_id="more", stream=offset, sink=DeltaAppendSink("s3://lake/s"), run_time_limit=600
    )
    sensor = DeltaTableVersionSensor(task_id="wait", stream=daily, wait_for="interval_complete", grace=1.5)
    assert waiting.waiting.grace == timedelta(seconds=90)
    assert limited.run_time_limit == timedelta(minutes=10)
    assert sensor.grace == timedelta(seconds=1.5)


#: The log builder commits version v in minute v.
START = datetime(2024, 1, 1, tzinfo=UTC)


@pytest.fixture
def days(log_builder, tmp_path):
    log_builder.create()
    log_builder.append(1)
    return DeltaStream(
        "days",
        table=log_builder.uri,
        read="data_interval",
        checkpoint=f"file:{tmp_path}/days.json",
        staging=(tmp_path / "staging").as_uri(),
    )


def of_interval(first, last):
    start, end = (START + timedelta(minutes=number) for number in (first, last))
    return context_of("scheduled__1", data_interval_start=start, data_interval_end=end)


def test_a_task_waits_until_its_interval_is_complete(days, log_builder, tmp_path):
    load = operator(tmp_path, stream=days, grace=timedelta(days=10_000), timeout=60)
    found = deferred(lambda: load.execute(of_interval(0, 5)))
    path, kwargs = found.trigger.serialize()
    assert path == "airflow_provider_fds.triggers.delta_interval.DeltaIntervalTrigger"
    assert (kwargs["interval_end"], kwargs["grace"]) == ("2024-01-01T00:05:00+00:00", 864e6)

    log_builder.append(1, timestamp_ms=log_builder.time_of(5))
    with pytest.raises(ServerLostError):
        load.execute_complete(of_interval(0, 5), WOKEN, deadline=time.time() + 60)


def test_a_complete_interval_without_rows_is_skipped_without_waiting(days, tmp_path):
    with pytest.raises(AirflowSkipException, match="Nothing in interval"):
        operator(tmp_path, stream=days, grace=timedelta(0)).execute(of_interval(5, 6))


def test_an_interval_that_is_not_complete_in_time_fails_since_no_other_run_would_load_it(days, tmp_path):
    sink = DeltaReplaceSink(str(tmp_path / "sink"), replace_where="id > 0")
    with pytest.raises(AirflowSensorTimeout, match="The interval is not over"):
        operator(tmp_path, stream=days, sink=sink, timeout=0).execute(of_interval(0, 5))


def test_an_interval_whose_end_is_resolved_already_is_not_waited_for(days, tmp_path):
    # the run before was given no time to wait, and took the interval as it was
    with pytest.raises(ServerLostError):
        operator(tmp_path, stream=days, wait=False).execute(of_interval(1, 5))
    with pytest.raises(ServerLostError):
        operator(tmp_path, stream=days).execute(of_interval(1, 5))


def plan(stream, tmp_path, context):
    """Leave the plan of an attempt that died before Spark."""
    session = StreamSession(stream, session_context(context, stream, DeltaAppendSink(str(tmp_path / "sink"))))
    assert session.begin(DeltaAppendSink(str(tmp_path / "sink"))).status == "work"


def ask(stream, command):
    ledger = Ledger(open_storage(stream.staging), stream.name)
    ledger.execute(command, Actor(deployment="http://fds.test", user="ann", host="desk"))
