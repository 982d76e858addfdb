"""An interval is complete when a commit has reached its end, or grace has passed since."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from airflow_provider_fds.delta.storage.local import LocalStorage
from airflow_provider_fds.errors import TableNotFoundError, TornFileError, UnsupportedFeatureError
from airflow_provider_fds.stream.polling.interval_poll import IntervalPoller
from tests.unit.stream.conftest import UNREADABLE

START = datetime(2024, 1, 1, tzinfo=UTC)


def watch(log_builder, end, grace=None):
    return IntervalPoller(LocalStorage(str(log_builder.root)), end, grace)


def test_a_commit_at_the_end_makes_it_complete(log_builder):
    log_builder.create()
    later = watch(log_builder, START + timedelta(minutes=1))
    assert later.check() is None
    log_builder.append(1)
    seen = asyncio.run(later.poll())
    assert (seen.newest_version, seen.reason) == (
        1,
        "version 1 was committed at or after 2024-01-01T00:01:00.000Z",
    )


def test_while_nothing_is_committed_grace_decides(log_builder):
    log_builder.create()
    end = START + timedelta(minutes=1)
    assert ", but 2 h have passed since then" in watch(log_builder, end, timedelta(hours=2)).check().reason
    now = datetime.now(UTC)
    waiting = watch(log_builder, now - timedelta(hours=1), timedelta(hours=2))
    assert waiting.check() is None
    assert asyncio.run(waiting.poll()) is None
    assert watch(log_builder, now - timedelta(hours=3), timedelta(hours=2)).check() is not None


def test_a_commit_before_the_end_does_not_complete_it(log_builder):
    log_builder.create()
    waiting = watch(log_builder, START + timedelta(minutes=5))
    assert waiting.check() is None
    log_builder.append(1)
    assert asyncio.run(waiting.poll()) is None


@pytest.mark.parametrize("leave_unreadable", UNREADABLE)
def test_an_interval_is_complete_by_a_commit_before_those_that_cannot_be_read(log_builder, leave_unreadable):
    log_builder.with_appends(2)
    leave_unreadable(log_builder)
    assert "version 2 was" in watch(log_builder, START + timedelta(minutes=2)).check().reason
    with pytest.raises((UnsupportedFeatureError, TornFileError)):
        watch(log_builder, START + timedelta(minutes=2.5)).check()


def test_a_missing_table_is_reported(log_builder):
    with pytest.raises(TableNotFoundError):
        watch(log_builder, START).check()
