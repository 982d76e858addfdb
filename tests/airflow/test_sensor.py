"""``DeltaTableVersionSensor``: the three ways to wait, and what becomes of errors."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace

import pytest
from airflow.providers.common.compat.sdk import (
    AirflowException,
    AirflowFailException,
    AirflowSensorTimeout,
    AirflowSkipException,
    TaskDeferred,
)

from airflow_provider_fds import DeltaStream, DeltaTableVersionSensor
from airflow_provider_fds.airflow_version import sdk_exception
from airflow_provider_fds.delta.storage.open import open_storage
from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.hooks.stream_context import reading_context
from airflow_provider_fds.ledger.entries.operator_entries import Held, Resumed
from airflow_provider_fds.ledger.entries.request_entries import Requested
from airflow_provider_fds.ledger.owner import Actor
from airflow_provider_fds.ledger.staging.log import Ledger
from airflow_provider_fds.stream import StreamSession

pytestmark = pytest.mark.usefixtures("airflow_database")


def now_ms():
    return int(time.time() * 1000)


@pytest.fixture
def context(airflow_database):
    """The part of a task's context that a sensor reads."""
    from airflow.sdk.api.datamodels._generated import DagRun, DagRunType

    fields = dict.fromkeys(DagRun.model_fields)
    run = DagRun.model_construct(**{**fields, "run_id": "manual__1", "run_type": DagRunType.MANUAL})
    return {"dag_run": run, "ti": SimpleNamespace(get_first_reschedule_date=lambda _context: None)}


@pytest.fixture
def table(log_builder):
    log_builder.create(timestamp_ms=now_ms())
    log_builder.append(timestamp_ms=now_ms())
    return log_builder


@pytest.fixture
def consumed(stream, table, stand_at):
    """Says up to which version the stream has committed."""
    return lambda version: stand_at(stream, stream.staging, table.table_id, version, deployment="http://fds.test")


@pytest.fixture
def stream(table, tmp_path):
    return DeltaStream(
        "orders", table=table.uri, checkpoint=f"file:{tmp_path}/checkpoint.json", staging=str(tmp_path / "staging")
    )


@pytest.fixture
def sensor(stream):
    def make(**kwargs):
        return DeltaTableVersionSensor(task_id="wait", **{"stream": stream, "poll_interval": 0.01, **kwargs})

    return make


@pytest.mark.parametrize("deferrable", [True, False])
def test_it_succeeds_at_once_with_the_newest_version_before_the_streams_first_run(sensor, context, deferrable):
    assert sensor(deferrable=deferrable).execute(context) == 1


@pytest.mark.parametrize("deferrable", [True, False])
def test_it_succeeds_at_once_if_there_is_data_after_the_position(sensor, consumed, context, deferrable):
    consumed(0)
    assert sensor(deferrable=deferrable).execute(context) == 1


def test_it_defers_if_there_is_nothing_new(sensor, consumed, context):
    consumed(1)
    wait = sensor(deferrable=True, timeout=3600, poll_interval=2)
    with pytest.raises(TaskDeferred) as deferred:
        wait.execute(context)
    assert deferred.value.method_name == "execute_complete"
    assert 3590 < deferred.value.timeout.total_seconds() <= 3600
    _, kwargs = deferred.value.trigger.serialize()
    assert kwargs["stream"] == wait.stream.to_dict()
    assert (kwargs["poll_interval"], kwargs["recheck_every"], kwargs["max_refusals"]) == (2, 20, 10)
    assert kwargs["deployment"] == "http://fds.test"


def test_it_polls_again_when_the_trigger_has_fired(sensor, consumed, context):
    consumed(0)
    event = {"status": "success", "version": 1, "reason": "data"}
    assert sensor(deferrable=True).execute_complete(context, event, deadline=time.time() + 60) == 1


def test_it_continues_to_wait_until_the_same_deadline_if_another_run_has_committed(sensor, consumed, context):
    consumed(1)
    event = {"status": "success", "version": 1, "reason": "data"}
    deadline = time.time() + 60
    with pytest.raises(TaskDeferred) as deferred:
        sensor(deferrable=True, timeout=3600).execute_complete(context, event, deadline=deadline)
    assert deferred.value.kwargs == {"deadline": deadline}
    assert deferred.value.timeout.total_seconds() <= 60


def test_its_deadline_holds_over_several_deferrals(sensor, consumed, context):
    consumed(1)
    event = {"status": "success", "version": 1, "reason": "data"}
    with pytest.raises(AirflowSensorTimeout):
        sensor(deferrable=True).execute_complete(context, event, deadline=time.time() - 1)
    with pytest.raises(AirflowSkipException):
        sensor(deferrable=True, soft_fail=True).execute_complete(context, event, deadline=time.time() - 1)


def test_an_error_of_the_trigger_fails_the_task_with_its_message(sensor, context):
    event = {"status": "error", "error": "LogGapError", "message": "version 3 is missing", "retryable": False}
    with pytest.raises(AirflowFailException, match="LogGapError: version 3 is missing"):
        sensor(deferrable=True).execute_complete(context, event, deadline=time.time() + 60)
    event = {**event, "retryable": True}
    with pytest.raises(AirflowException) as failed:
        sensor(deferrable=True).execute_complete(context, event, deadline=time.time() + 60)
    assert not isinstance(failed.value, AirflowFailException)


def test_an_error_of_the_trigger_is_a_skip_with_soft_fail(sensor, context):
    event = {"status": "error", "error": "LogGapError", "message": "version 3 is missing", "retryable": False}
    kwargs = {"event": event, "deadline": time.time() + 60}
    with pytest.raises(AirflowSkipException):
        sensor(deferrable=True, soft_fail=True).resume_execution("execute_complete", kwargs, context)


@pytest.mark.parametrize("deferrable", [True, False])
def test_a_lost_position_is_for_the_run_to_judge(sensor, table, consumed, context, deferrable):
    table.append(timestamp_ms=now_ms())
    table.append(timestamp_ms=now_ms())
    consumed(0)
    table.clean_up_before(3)
    assert sensor(deferrable=deferrable).execute(context) == 3


def test_in_reschedule_mode_it_leaves_the_worker(sensor, consumed, context):
    consumed(1)
    with pytest.raises(sdk_exception("AirflowRescheduleException")):
        sensor(mode="reschedule", poll_interval=60).execute(context)


def test_in_poke_mode_it_polls_until_there_is_data(sensor, table, consumed, context):
    consumed(1)
    wait = sensor()
    looked = threading.Event()
    poke = wait.poke

    def noticed(context):
        found = poke(context)
        looked.set()
        return found

    wait.poke = noticed

    def write():
        looked.wait(30)
        table.append(timestamp_ms=now_ms())

    writer = threading.Thread(target=write)
    writer.start()
    assert wait.execute(context) == 2
    writer.join()


def test_a_commit_that_the_stream_may_not_pass_wakes_it_for_the_operator_to_report(sensor, table, consumed, context):
    path = next(iter(table.live))
    table.commit(table.remove(path), operation="DELETE", timestamp_ms=now_ms())
    consumed(1)
    assert sensor().execute(context) == 2


def test_it_refuses_to_run_in_a_backfill(sensor, context):
    from airflow.sdk.api.datamodels._generated import DagRunType

    context["dag_run"].run_type = DagRunType.BACKFILL
    with pytest.raises(
        AirflowFailException,
        match=r"'manual__1' is a backfill.*'orders'.*a stream with another name.*CronDataIntervalTimetable",
    ):
        sensor().execute(context)


# D36
@pytest.mark.parametrize(
    ("name", "now"), [("max_refusals", "gives up after 10 polls"), ("recheck_every", "every 20th poll")]
)
def test_an_argument_of_an_older_version_is_refused_with_what_happens_now(sensor, name, now):
    with pytest.raises(ConfigurationError, match=f"{name} is not an argument any more: .*{now}"):
        sensor(**{name: 3})


def test_a_missing_table_fails_without_a_retry_and_is_named(sensor, context, tmp_path):
    stream = DeltaStream("orders", table=str(tmp_path / "nothing"), staging=str(tmp_path / "staging"))
    with pytest.raises(AirflowFailException, match=r"TableNotFoundError: .*nothing"):
        sensor(stream=stream).execute(context)


def test_a_deferred_task_wakes_up_in_a_real_run(installation, lake, tmp_path):
    """Through Airflow's own task processes and an inline trigger: deferred, woken, verified again."""
    lake.append("orders", 1)
    dag = installation.add(
        f"""
        from datetime import datetime
        from pathlib import Path
        from airflow.sdk import DAG
        from airflow_provider_fds import DeltaCommitOperator, DeltaPlanOperator, DeltaStream, DeltaTableVersionSensor
        from airflow.providers.standard.operators.empty import EmptyOperator

        class Telling(DeltaTableVersionSensor):
            def defer(self, **kwargs):
                Path("{tmp_path}/deferred").touch()
                super().defer(**kwargs)

        orders = DeltaStream("deferred", table="{lake.uri}/orders")
        with DAG("deferring", schedule=None, start_date=datetime(2026, 1, 1)):
            wait = Telling(task_id="wait", stream=orders, deferrable=True, poll_interval=0.2)
            plan = DeltaPlanOperator(task_id="plan", stream=orders)
            commit = DeltaCommitOperator(task_id="commit", batch=plan.output)
            wait >> plan >> EmptyOperator(task_id="load") >> commit
        """
    )
    first = installation.run(dag)
    assert set(first.states.values()) == {"success"}
    assert (first.xcom("wait"), first.xcom("commit")["last_version"]) == (0, 0)

    def write():
        deadline = time.monotonic() + 120
        while not (tmp_path / "deferred").exists() and time.monotonic() < deadline:
            time.sleep(0.1)
        # also when it never came: the run must end, and the assertion below says what was missing
        lake.append("orders", 2)

    assert not (tmp_path / "deferred").exists()

    writer = threading.Thread(target=write)
    writer.start()
    second = installation.run(dag)
    writer.join()
    assert (tmp_path / "deferred").exists()
    assert set(second.states.values()) == {"success"}
    assert (second.xcom("wait"), second.xcom("commit")["first_version"]) == (1, 1)


@pytest.mark.parametrize("deferrable", [True, False])
def test_a_finished_stream_is_a_skip_with_the_reason_in_every_way_to_wait(
    sensor, consumed, table, context, tmp_path, deferrable
):
    consumed(1)
    stream = DeltaStream(
        "orders",
        table=table.uri,
        checkpoint=f"file:{tmp_path}/checkpoint.json",
        staging=str(tmp_path / "staging"),
        ending_version=1,
    )
    with pytest.raises(AirflowSkipException, match="'orders' is finished: ending_version=1"):
        sensor(stream=stream, deferrable=deferrable).execute(context)
    with pytest.raises(AirflowSkipException, match="is finished"):
        sensor(stream=stream, deferrable=deferrable).execute_complete(context, {"status": "success", "version": 1})


@pytest.fixture
def stopped(table, consumed, context, tmp_path):
    """Return a stream that has stopped at version 2, and the session of the run that it has stopped."""

    def stop(on_violation):
        path = next(iter(table.live))
        table.commit(table.remove(path), operation="DELETE", timestamp_ms=now_ms())
        stream = DeltaStream(
            "orders",
            table=table.uri,
            checkpoint=f"file:{tmp_path}/checkpoint.json",
            staging=str(tmp_path / "staging"),
            starting_version=2,
            on_violation=on_violation,
        )
        session = StreamSession(stream, reading_context(stream))
        assert session.begin(None).status == "paused"
        return stream, session

    return stop


@pytest.mark.parametrize("deferrable", [True, False])
def test_it_waits_while_the_stream_is_in_quarantine_and_continues_once_a_person_resumes_it(
    sensor, stopped, context, deferrable
):
    stream, session = stopped("quarantine")
    waits = TaskDeferred if deferrable else AirflowSensorTimeout
    with pytest.raises(waits):
        sensor(stream=stream, deferrable=deferrable, timeout=0 if not deferrable else 60).execute(context)

    session.connected.execute(Resumed(why="looked at it"))
    assert sensor(stream=stream, deferrable=deferrable).execute(context) == 2


@pytest.mark.parametrize("deferrable", [True, False])
def test_it_wakes_the_run_that_asks_a_person_what_to_do_unless_somebody_holds_the_stream(
    sensor, stopped, context, deferrable
):
    stream, session = stopped("ask")
    assert sensor(stream=stream, deferrable=deferrable).execute(context) == 2
    session.connected.execute(Held(why="later"))
    with pytest.raises(TaskDeferred if deferrable else AirflowSensorTimeout):
        sensor(stream=stream, deferrable=deferrable, timeout=0 if not deferrable else 60).execute(context)


@pytest.mark.parametrize("deferrable", [True, False])
def test_a_requested_epoch_wakes_it_although_nothing_is_new(sensor, stream, consumed, context, deferrable):
    consumed(1)
    ask(stream, Requested(reason="rewind", why="wrong rows", to={"starting_version": 0}))

    assert sensor(deferrable=deferrable).execute(context) == 1


def test_a_task_waits_until_a_held_stream_is_resumed(sensor, stream, consumed, context):
    consumed(0)
    ask(stream, Held(why="maintenance"))

    with pytest.raises(TaskDeferred):
        sensor(deferrable=True).execute(context)


def ask(stream, command):
    ledger = Ledger(open_storage(stream.staging), stream.name)
    ledger.execute(command, Actor(deployment="http://fds.test", user="ann", host="desk"))
