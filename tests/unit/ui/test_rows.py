"""Rows of the page "Delta streams"."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from airflow_provider_fds.source.offset import Offset
from airflow_provider_fds.stream.monitoring.status_row import LastBatch, StatusRow
from airflow_provider_fds.stream.monitoring.stream_id import StreamId
from airflow_provider_fds.ui.rows import describe_committed, row_of

NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)
STAGING = "s3://lake/_fds"


def row(**fields):
    found = {"name": "orders", "written_at": "2026-11-23T11:50:00.000Z", "written_by": "run", "condition": "waiting"}
    return row_of(StatusRow(**{**found, **fields}), STAGING, NOW)


def test_an_id_is_the_same_for_the_same_folder_and_name_and_can_be_a_segment_of_a_path():
    text = str(StreamId.of(STAGING, "a-b.c_d"))
    assert text.endswith("-a-b.c_d")
    assert StreamId.parse(text) == StreamId.of(STAGING, "a-b.c_d")
    assert str(StreamId.of("s3://other/_fds", "a-b.c_d")) != text
    assert row()["id"] == str(StreamId.of(STAGING, "orders"))


def test_a_row_says_what_the_stream_waits_for():
    assert (row()["waits_for"], row(waits_for="another stream")["waits_for"]) == (None, "another stream")


@pytest.mark.parametrize("text", ["", "orders", "12345678", "12345678-", "123-orders"])
def test_another_text_is_no_id(text):
    assert StreamId.parse(text) is None


@pytest.mark.parametrize(
    ("position", "said"),
    [
        (None, "nothing yet"),
        (Offset.after(366, "t"), "version 366"),
        (Offset("t", 0), "nothing yet"),
        (Offset("t", 3, 0), "1 file of version 3"),
        (Offset("t", 3, 1_999), "2,000 files of version 3"),
        (Offset("t", 3, 4, is_initial_snapshot=True), "5 files of the initial snapshot of version 3"),
    ],
)
def test_a_position_is_said_by_what_is_committed(position, said):
    assert describe_committed(None if position is None else position.to_json()) == said


def test_a_position_that_is_no_offset_is_not_known():
    assert describe_committed("{}") == "not known"
    assert describe_committed("[" * 100_000) == "not known"


@pytest.mark.parametrize(
    ("minutes", "promised", "is_stale"),
    [(14, None, False), (16, None, True), (16, 600.0, False), (19, 600.0, False), (21, 600.0, True), (3, 60.0, True)],
)
def test_a_status_is_stale_if_its_writer_is_late(minutes, promised, is_stale):
    at = (NOW - timedelta(minutes=minutes)).isoformat()
    found = row(written_at=at, next_within_seconds=promised)
    assert (found["stale"], found["age_seconds"]) == (is_stale, minutes * 60)


def test_a_rate_is_that_of_the_last_batch():
    assert row()["rows_per_second"] is None
    batch = LastBatch(batch_id=1, epoch=1, rows_read=100, rows_written=50, seconds=4.0)
    assert row(last_batch=batch)["rows_per_second"] == 25
    assert row(last_batch=batch)["last_batch"]["rows_written"] == 50
