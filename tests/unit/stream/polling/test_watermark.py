"""Waiting for the watermark of a stream."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from airflow_provider_fds.delta.moments import moment_text
from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.stream.polling.watermark import WatermarkPoller


def stats(at: str) -> str:
    return json.dumps({"numRecords": 10, "minValues": {"ts": at}, "maxValues": {"ts": at}})


@pytest.fixture
def table(log_builder):
    log_builder.create([log_builder.field("ts", "timestamp")])
    return log_builder


def waiting(bench: Any, at: str, **options: Any) -> WatermarkPoller:
    stream = bench.stream(event_time_column="ts", **options)
    return WatermarkPoller(bench.session(stream=stream).connected, moment_text(at))


async def test_it_waits_for_what_is_committed_and_not_for_what_the_table_has(bench, table, sink):
    poller = waiting(bench, "2026-01-02")
    assert poller.check() is None
    table.append(stats=stats("2026-01-01T23:59:59.999Z"))
    bench.run_once(sink, "run-1", bench.stream(event_time_column="ts"))
    assert await poller.poll() is None
    assert poller.watermark == "2026-01-01T23:59:59.999000Z"
    table.append(stats=stats("2026-01-02T00:00:00.000Z"))
    assert await poller.poll() is None
    bench.run_once(sink, "run-2", bench.stream(event_time_column="ts"))
    found = await poller.poll()
    assert (found.newest_version, found.is_finished) == (2, False)
    assert found.reason == "watermark 2026-01-02T00:00:00.000000Z has reached 2026-01-02T00:00:00.000000Z"


def test_it_does_not_wait_for_a_stream_that_is_finished(bench, table, sink):
    table.append(stats=stats("2026-01-01T00:00:00.000Z"))
    options = {"ending_version": 1}
    bench.run_once(sink, stream=bench.stream(event_time_column="ts", **options))
    found = waiting(bench, "2027-01-01", **options).check()
    assert found is not None
    assert "is finished: ending_version=1" in found.reason


def test_a_stream_without_times_keeps_it_waiting(bench, table, sink):
    table.append()
    bench.run_once(sink, stream=bench.stream(event_time_column="ts"))
    poller = waiting(bench, "1970-01-01")
    assert poller.check() is None
    assert poller.watermark is None


@pytest.mark.parametrize(
    ("moment", "expected"),
    [
        ("2026-01-02", "2026-01-02T00:00:00.000000Z"),
        ("2026-01-02T00:00:00+00:00", "2026-01-02T00:00:00.000000Z"),
        ("2026-01-02 00:00:00.5+01:00", "2026-01-01T23:00:00.500000Z"),
        (datetime(2026, 1, 2, tzinfo=UTC), "2026-01-02T00:00:00.000000Z"),
        (datetime(2026, 1, 2, tzinfo=timezone(timedelta(hours=1))), "2026-01-01T23:00:00.000000Z"),
        (datetime(2026, 1, 2), "2026-01-02T00:00:00.000000Z"),
    ],
)
def test_a_point_in_time_is_utc_with_microseconds(moment, expected):
    assert moment_text(moment) == expected


@pytest.mark.parametrize("moment", ["", "None", "soon", "2026-13-01"])
def test_what_is_no_time_is_refused(moment):
    with pytest.raises(ConfigurationError):
        moment_text(moment)
