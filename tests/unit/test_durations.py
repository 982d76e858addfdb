from __future__ import annotations

from datetime import timedelta

import pytest

from airflow_provider_fds.durations import format_duration, parse_duration


@pytest.mark.parametrize(
    ("duration", "text"),
    [
        (timedelta(), "0 s"),
        (timedelta(milliseconds=250), "0.2 s"),
        (timedelta(seconds=59.99), "59.9 s"),
        (timedelta(seconds=60), "1 min"),
        (timedelta(seconds=75.9), "1 min 15 s"),
        (timedelta(hours=1), "1 h"),
        (timedelta(hours=1, seconds=59), "1 h"),
        (timedelta(hours=2, minutes=5), "2 h 5 min"),
        (timedelta(days=1), "1 day"),
        (timedelta(days=1, minutes=59), "1 day"),
        (timedelta(days=20, hours=3, minutes=59), "20 days 3 h"),
        (timedelta(days=30), "30 days"),
    ],
)
def test_a_duration_is_shown_in_its_two_largest_units(duration, text):
    assert format_duration(duration) == text


@pytest.mark.parametrize(
    ("value", "duration"),
    [
        (timedelta(minutes=3), timedelta(minutes=3)),
        (0, timedelta()),
        (1.5, timedelta(seconds=1.5)),
        ("90", timedelta(seconds=90)),
        (" 15 Min ", timedelta(minutes=15)),
        ("1.5h", timedelta(minutes=90)),
        ("2 days", timedelta(days=2)),
        ("2592000s", timedelta(days=30)),
    ],
)
def test_a_duration_is_a_timedelta_seconds_or_a_text_with_a_unit(value, duration):
    assert parse_duration(value) == duration


@pytest.mark.parametrize(
    "value", [None, True, -1, float("nan"), float("inf"), 1e300, "", "m", "-1m", "1 year", "999999999999d"]
)
def test_anything_else_is_no_duration(value):
    assert parse_duration(value) is None
