"""The data intervals that the page of a stream shows."""

from __future__ import annotations

from itertools import pairwise

import pytest

from airflow_provider_fds.ledger.intervals import KnownBoundary
from airflow_provider_fds.ledger.owner import Owner
from airflow_provider_fds.ledger.records import IntervalRecord
from airflow_provider_fds.ledger.state import StreamState
from airflow_provider_fds.ui.intervals import describe_intervals

OWNER = Owner(kind="airflow", deployment="d", dag_id="dag", run_id="r", task_id="t")


def at(day, hour=0):
    return f"2026-11-{day:02}T{hour:02}:00:00.000Z"


def loaded(start, end, **fields):
    known = {"generation": 1, "first_version": 3, "last_version": 5, "owner": OWNER, "rows": 70}
    return IntervalRecord(interval=f"{start}/{end}", **(known | fields))


def shown(*records):
    return describe_intervals(StreamState(name="orders", boundaries=(KnownBoundary(at(1), 0),), intervals=records))


def test_a_stream_by_offset_has_no_intervals():
    assert describe_intervals(StreamState(name="orders")) is None


def test_the_last_interval_is_the_latest_that_is_loaded_whatever_was_loaded_last():
    found = shown(loaded(at(2), at(3)), loaded(at(3), at(4), owner=None), loaded(at(1), at(2)))
    assert found["last"] == {
        "start": at(2), "end": at(3), "generation": 1, "versions": "versions 3 to 5", "rows": 70, "is_blocked": False,
    }  # fmt: skip
    (unfinished,) = found["unfinished"]
    assert (unfinished["start"], unfinished["rows"], unfinished["is_blocked"]) == (at(3), None, False)


def test_time_between_two_intervals_that_no_run_has_begun_is_a_gap():
    found = shown(loaded(at(1), at(2)), loaded(at(1, 12), at(4)), loaded(at(6), at(7)), loaded(at(7), at(8)))
    assert found["gaps"] == [{"start": at(4), "end": at(6)}]


@pytest.mark.parametrize(
    ("instants", "following"),
    [
        ([at(1), at(2), at(3), at(4)], {"start": at(4), "end": at(5)}),
        # two are not enough, and one of another length leaves it open
        ([at(1), at(2), at(3)], None),
        ([at(1), at(2), at(3), at(3, 12)], None),
    ],
)
def test_the_next_interval_follows_from_three_of_one_length(instants, following):
    assert shown(*(loaded(*pair) for pair in pairwise(instants)))["next"] == following


def test_after_a_gap_the_next_interval_is_open():
    assert shown(loaded(at(1), at(2)), loaded(at(2), at(3)), loaded(at(5), at(6)))["next"] is None
