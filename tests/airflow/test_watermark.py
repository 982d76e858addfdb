"""A DAG that waits for the watermark of another DAG's stream, without Spark."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException, AirflowSensorTimeout, TaskDeferred

from airflow_provider_fds import DeltaStream, DeltaTableVersionSensor, DeltaWatermarkTrigger
from airflow_provider_fds.delta.storage.open import open_storage
from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.ledger.staging.log import Ledger

pytestmark = pytest.mark.usefixtures("airflow_database")

DEPLOYMENT = "http://fds.test"


@pytest.fixture
def stream(log_builder, tmp_path):
    log_builder.create(timestamp_ms=int(time.time() * 1000))
    staging = (tmp_path / "staging").as_uri()
    return DeltaStream(
        "orders", table=log_builder.uri, staging=staging, checkpoint=f"file:{tmp_path}/c.json", event_time_column="ts"
    )


@pytest.fixture
def reached(stream, stand_at, log_builder, monkeypatch):
    """Commit up to an event time, as a run does."""
    stand_at(stream, stream.staging, log_builder.table_id, 0, deployment=DEPLOYMENT)

    def to(watermark):
        from airflow_provider_fds.ledger import position
        from airflow_provider_fds.stream.polling import watermark as module

        monkeypatch.setattr(module, "watermark_at", lambda at, _found: position.watermark_at(at, watermark))

    return to


def sensor(stream, **arguments):
    return DeltaTableVersionSensor(
        **{"task_id": "wait", "stream": stream, "wait_for": "watermark", "at": "2026-01-02", **arguments}
    )


CONTEXT = {"dag_run": SimpleNamespace(run_id="backfill__1", run_type="backfill")}


@pytest.mark.parametrize("deferrable", [True, False])
def test_it_succeeds_with_the_last_committed_version_if_the_watermark_is_there(stream, reached, deferrable):
    reached("2026-01-02T00:00:00.000000Z")
    assert sensor(stream, deferrable=deferrable).execute(CONTEXT) == 0


async def test_it_defers_until_a_run_has_committed_that_far(stream, reached):
    reached("2026-01-01T00:00:00.000000Z")
    with pytest.raises(TaskDeferred) as deferred:
        sensor(stream, deferrable=True, poll_interval=0.01).execute(CONTEXT)
    path, arguments = deferred.value.trigger.serialize()
    assert path == "airflow_provider_fds.triggers.delta_watermark.DeltaWatermarkTrigger"
    assert arguments["at"] == "2026-01-02T00:00:00.000000Z"

    async def event():
        async for found in DeltaWatermarkTrigger(**arguments).run():
            return found.payload
        return None

    waiting = asyncio.ensure_future(event())
    await asyncio.sleep(0)
    reached("2026-01-03T00:00:00.000000Z")
    found = await asyncio.wait_for(waiting, 30)
    assert (found["status"], found["version"]) == ("success", 0)
    assert "has reached 2026-01-02" in found["reason"]
    assert sensor(stream, deferrable=True).execute_complete(CONTEXT, found) == 0


def test_it_times_out_with_what_it_waited_for(stream, reached):
    reached(None)
    with pytest.raises(AirflowSensorTimeout, match="stream 'orders' has not reached 2026-01-02"):
        sensor(stream, deferrable=True, timeout=0).execute(CONTEXT)


def test_the_time_is_a_template(stream):
    found = sensor(stream, at="{{ data_interval_end + macros.timedelta(hours=1) }}")
    macros = SimpleNamespace(timedelta=timedelta)
    found.render_template_fields({"data_interval_end": datetime(2026, 1, 2, tzinfo=UTC), "macros": macros})
    assert found.at == "2026-01-02 01:00:00+00:00"


def test_a_template_that_has_no_time_is_an_error(stream, reached):
    reached(None)
    with pytest.raises(AirflowFailException, match="timestamp 'None' cannot be read"):
        sensor(stream, at="None").execute(CONTEXT)


def test_it_does_not_touch_table_or_ledger(stream, reached, log_builder):
    reached("2026-01-02T00:00:00.000000Z")
    entries = Ledger(open_storage(stream.staging), "orders").find()
    for path in log_builder.log.iterdir():
        path.unlink()
    assert sensor(stream).execute(CONTEXT) == 0
    assert Ledger(open_storage(stream.staging), "orders").find() == entries


@pytest.mark.parametrize(
    ("options", "arguments", "words"),
    [
        ({}, {"at": None}, "wait_for='watermark' needs at"),
        ({}, {"wait_for": "new_data"}, "at has no effect with wait_for='new_data'"),
        ({}, {"grace": timedelta(1)}, "grace has no effect"),
        ({"options": {}}, {}, "has no event_time_column"),
        ({"read": "data_interval"}, {}, "read='data_interval' and no watermark"),
    ],
    ids=str,
)
def test_what_makes_no_sense_is_refused_when_the_dag_is_parsed(stream, options, arguments, words):
    with pytest.raises(ConfigurationError, match=words):
        sensor(DeltaStream.from_dict({**stream.to_dict(), **options}), **arguments)
