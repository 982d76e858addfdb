"""``DeltaTableVersionSensor(table=…)``: waiting for a table without a stream and without staging."""

from __future__ import annotations

import asyncio
import threading
import time
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest
from airflow.providers.common.compat.sdk import (
    AirflowFailException,
    AirflowSensorTimeout,
    AirflowSkipException,
    TaskDeferred,
)

from airflow_provider_fds import DeltaStream, DeltaTableConditionTrigger, DeltaTableVersionSensor
from airflow_provider_fds.errors import ConfigurationError, StorageError

pytestmark = pytest.mark.usefixtures("airflow_database")

START = datetime(2024, 1, 1, tzinfo=UTC)


class TaskInstance:
    """The part of a task instance that the sensor uses, with the XComs of all runs."""

    task_id, map_index = "wait", -1

    def __init__(self):
        self.previous = None
        self.xcoms = {}

    def get_first_reschedule_date(self, _context):
        return None

    def get_previous_dagrun(self, state):
        assert state == "success"
        return self.previous

    def xcom_push(self, key, value):
        self.xcoms["now", key] = value

    def xcom_pull(self, *, task_ids, run_id, key, map_indexes):
        assert (task_ids, map_indexes) == ("wait", -1)
        return self.xcoms.get((run_id, key))

    def next_run(self):
        """End this run with success."""
        self.previous = SimpleNamespace(run_id=f"run_{len(self.xcoms)}")
        self.xcoms[self.previous.run_id, "fds_seen"] = self.xcoms.pop(("now", "fds_seen"), None)


@pytest.fixture
def ti():
    return TaskInstance()


@pytest.fixture
def context(ti):
    return {"dag_run": SimpleNamespace(run_id="scheduled__1", logical_date=START), "ti": ti}


@pytest.fixture
def sensor(log_builder):
    def make(**arguments):
        return DeltaTableVersionSensor(task_id="wait", **{"table": log_builder.uri, "poll_interval": 0.01, **arguments})

    return make


def outcome(sensor, context):
    """The version that the sensor returns, or ``None`` if it waits."""
    try:
        return sensor.execute(context)
    except (TaskDeferred, AirflowSensorTimeout):
        return None


@pytest.fixture(params=[True, False], ids=["deferred", "poked"])
def deferrable(request):
    return request.param


def test_a_version_that_is_there_is_a_success_and_a_later_one_is_waited_for(log_builder, sensor, context, deferrable):
    log_builder.with_appends(2)
    assert outcome(sensor(version=2, deferrable=deferrable, timeout=0.01), context) == 2
    assert outcome(sensor(version="1", deferrable=deferrable, timeout=0.01), context) == 2
    assert outcome(sensor(version=3, deferrable=deferrable, timeout=0.01), context) is None


def test_no_table_yet_is_waited_for_with_a_warning(sensor, context, deferrable, capsys):
    assert outcome(sensor(version=0, deferrable=deferrable, timeout=0.01), context) is None
    assert "Waiting for the table: no Delta table at" in capsys.readouterr().out


async def test_the_trigger_waits_for_the_same_condition(log_builder, sensor, context):
    with pytest.raises(TaskDeferred) as deferred:
        sensor(committed_after=START + timedelta(minutes=1), deferrable=True).execute(context)
    classpath, arguments = deferred.value.trigger.serialize()
    assert classpath == "airflow_provider_fds.triggers.delta_table_condition.DeltaTableConditionTrigger"
    assert arguments["condition"] == {"committed_after": "2024-01-01T00:01:00.000000Z"}

    async def event():
        async for found in DeltaTableConditionTrigger(**arguments).run():
            return found.payload
        return None

    waiting = asyncio.ensure_future(event())
    log_builder.create()
    log_builder.append()
    found = await asyncio.wait_for(waiting, 30)
    assert (found["status"], found["version"], found["reason"]) == ("success", 1, "version 1 has data")
    assert sensor(committed_after="2024-01-01 00:01", deferrable=True).execute_complete(context, found) == 1


def test_the_first_run_takes_any_data_and_the_next_one_only_later_data(log_builder, sensor, context, ti, deferrable):
    wait = sensor(changed_since="last_run", deferrable=deferrable, timeout=0.01)
    log_builder.create()
    assert outcome(wait, context) is None
    log_builder.append()
    assert outcome(wait, context) == 1
    # the data was committed while the run was waiting for it, and does not count again
    ti.next_run()
    assert outcome(wait, context) is None
    log_builder.append()
    assert outcome(wait, context) == 2


def test_a_run_that_ended_without_new_data_passes_on_what_the_run_before_it_saw(log_builder, sensor, context, ti):
    wait = sensor(changed_since="last_run", timeout=0.01, soft_fail=True)
    log_builder.with_appends(4)
    assert wait.execute(context) == 4
    ti.next_run()
    with pytest.raises(AirflowSkipException):
        wait.execute(context)
    # committed after the skipped run's last poll; the run itself counts as successful
    log_builder.append()
    ti.next_run()
    assert wait.execute(context) == 5


@pytest.mark.parametrize("loss", ["xcom", "log", "other table"])
def test_without_evidence_of_the_previous_run_any_data_counts(log_builder, sensor, context, ti, loss):
    wait = sensor(changed_since="last_run", timeout=0.01)
    log_builder.with_appends(4)
    assert outcome(wait, context) == 4
    ti.next_run()
    assert outcome(wait, context) is None
    if loss == "xcom":
        ti.xcoms.clear()
    elif loss == "log":
        log_builder.touch(4, log_builder.time_of(4) + 1)
    else:
        ti.xcoms[ti.previous.run_id, "fds_seen"]["table"] = "file:///another"
    assert outcome(wait, context) == 4


def test_a_run_without_a_logical_date_is_an_error_that_says_what_to_do(log_builder, sensor, context):
    log_builder.create()
    context["dag_run"].logical_date = None
    with pytest.raises(AirflowFailException, match="'scheduled__1' has no logical date"):
        sensor(changed_since="last_run").execute(context)


def test_an_unavailable_airflow_is_retried(log_builder, sensor, context, ti, monkeypatch):
    def refuse(state):
        raise RuntimeError(state)

    log_builder.create()
    monkeypatch.setattr(ti, "get_previous_dagrun", refuse)
    with pytest.raises(StorageError, match="did not return the previous run"):
        sensor(changed_since="last_run").execute(context)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({}, "exactly one of version, changed_since and committed_after, got none"),
        ({"version": 1, "committed_after": "2024"}, "got version and committed_after"),
        ({"version": -1}, "version must be an integer of at least 0, got -1"),
        ({"version": "newest"}, "version must be an integer of at least 0, got 'newest'"),
        ({"version": True}, "version must be an integer"),
        ({"changed_since": "yesterday"}, "changed_since must be 'last_run', got 'yesterday'"),
        ({"committed_after": "tomorrow"}, "committed_after: timestamp 'tomorrow' cannot be read"),
        ({"version": 1, "at": "2024"}, "at can only be used with stream"),
        ({"version": 1, "grace": timedelta(1), "wait_for": "watermark"}, "wait_for and grace can only be used with"),
        ({"version": 1, "stream": DeltaStream("s", table="/t")}, "stream cannot be combined with table and version"),
        ({"table": None, "version": 1}, "the sensor needs stream=…, or table=…"),
    ],
)
def test_arguments_that_do_not_fit_are_refused_when_the_dag_is_parsed(sensor, arguments, problem):
    with pytest.raises(ConfigurationError) as refused:
        sensor(**arguments)
    assert problem in str(refused.value)


def test_a_rendered_value_that_is_no_version_fails_without_a_retry(log_builder, sensor, context):
    log_builder.create()
    wait = sensor(version="{{ params.version }}")
    wait.version = "None"
    with pytest.raises(AirflowFailException, match="version must be an integer of at least 0, got 'None'"):
        wait.execute(context)


def test_the_end_of_the_wait_says_what_was_waited_for(log_builder, sensor, context):
    log_builder.create()
    event = {"status": "success", "version": 0, "reason": ""}
    wait = sensor(version=7, deferrable=True)
    with pytest.raises(AirflowSensorTimeout, match="has not had version 7 after"):
        wait.execute_complete(context, event, deadline=time.time() - 1)
    with pytest.raises(AirflowSkipException):
        sensor(version=7, deferrable=True, soft_fail=True).execute_complete(context, event, deadline=time.time() - 1)


def test_a_missing_connection_fails_without_a_retry(sensor, context):
    with pytest.raises(AirflowFailException, match="Airflow connection 'no_such'"):
        sensor(table="s3://lake/orders", storage_conn_id="no_such", version=1).execute(context)


def test_real_runs_continue_from_what_the_previous_one_saw(installation, lake, tmp_path):
    """Airflow's own task processes, database and inline trigger; a mapped task, templates."""
    lake.append("orders", 1)
    dag = installation.add(
        f"""
        from datetime import datetime
        from pathlib import Path
        from airflow.sdk import DAG
        from airflow_provider_fds import DeltaTableVersionSensor

        class Telling(DeltaTableVersionSensor):
            def defer(self, **kwargs):
                Path("{tmp_path}/deferred").touch()
                super().defer(**kwargs)

        params = {{"version": 0, "since": "2026"}}
        with DAG("standing_alone", schedule=None, start_date=datetime(2026, 1, 1), params=params):
            Telling.partial(
                task_id="changed", changed_since="last_run", deferrable=True, poll_interval=0.2
            ).expand(table=["{lake.uri}/orders"])
            orders = "{lake.uri}/orders"
            DeltaTableVersionSensor(task_id="reached", table=orders, version="{{{{ params.version }}}}")
            DeltaTableVersionSensor(task_id="fresh", table=orders, committed_after="{{{{ params.since }}}}")
        """
    )
    first = installation.run(dag)
    assert set(first.states.values()) == {"success"}
    assert first.xcom("changed", map_index=0) == 0
    assert not (tmp_path / "deferred").exists()

    def write():
        deadline = time.monotonic() + 120
        while not (tmp_path / "deferred").exists() and time.monotonic() < deadline:
            time.sleep(0.1)
        lake.append("orders", 2)

    writer = threading.Thread(target=write)
    writer.start()
    second = installation.run(dag)
    writer.join()
    assert (tmp_path / "deferred").exists()
    assert set(second.states.values()) == {"success"}
    assert second.xcom("changed", map_index=0) == 1
    assert second.xcom("changed", "fds_seen", map_index=0)["version"] == 1
