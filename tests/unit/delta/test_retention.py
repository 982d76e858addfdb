from __future__ import annotations

from datetime import timedelta

import pytest

from airflow_provider_fds.delta.actions import Metadata
from airflow_provider_fds.delta.retention import FILE_RETENTION, LOG_RETENTION, parse_interval, retention


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("interval 30 days", timedelta(days=30)),
        ("INTERVAL 1 Day", timedelta(days=1)),
        ("2 weeks", timedelta(weeks=2)),
        ("interval 1 week 2 days 3 hours", timedelta(days=9, hours=3)),
        ("interval 90 minutes", timedelta(hours=1.5)),
        ("interval 0 hours", timedelta()),
        ("interval 1.5 seconds", timedelta(seconds=1.5)),
        ("interval 5 milliseconds 7 microseconds", timedelta(microseconds=5007)),
        ("interval -1 day", timedelta(days=-1)),
    ],
)
def test_durations_are_read_as_delta_writes_them(text, expected):
    assert parse_interval(text) == expected


@pytest.mark.parametrize(
    "text", ["", "30", "interval", "days", "interval 1 month", "1 year", "1.5 days", "P1D", "1 day x"]
)
def test_an_invalid_duration_is_refused(text):
    with pytest.raises(ValueError, match="is not a duration such as 'interval 30 days'"):
        parse_interval(text)


def test_a_table_with_missing_or_invalid_properties_has_the_defaults():
    assert retention(Metadata("id"), LOG_RETENTION) == timedelta(days=30)
    assert retention(Metadata("id"), FILE_RETENTION) == timedelta(days=7)
    odd = Metadata("id", configuration={"delta.logRetentionDuration": "for ever"})
    assert retention(odd, LOG_RETENTION) == timedelta(days=30)
    own = Metadata("id", configuration={"delta.deletedFileRetentionDuration": "interval 2 days"})
    assert retention(own, FILE_RETENTION) == timedelta(days=2)
