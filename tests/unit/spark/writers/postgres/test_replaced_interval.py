"""What a run of a data interval replaces in PostgreSQL, by the account, and what it says of other rows."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_fds.batch.sink.postgres_account import Entry
from airflow_provider_fds.sinks import PostgresSink
from airflow_provider_fds.spark.fence.postgres_removal import WrittenRows
from airflow_provider_fds.spark.runtime.failures import RefusalError
from airflow_provider_fds.spark.writers.postgres.replaced_interval import ReplacedInterval, held_rows
from tests.unit.spark.batches import batch

DAY, OTHER = "2026-01-01/2026-01-02", "2026-01-01/2026-01-03"
SINK = PostgresSink("public.orders", mode="replace", provenance=True)


def entry(first: int, last: int, rows: int, *, interval: str = DAY, generation: int = 1, version: int = 1) -> Entry:
    return Entry(generation, 0, "digest", rows, "end", version, "attempt", first, last, interval)


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ([], (0, 0)),
        ([entry(0, 9, 100)], (100, 100)),
        ([entry(0, 9, 100), entry(0, 9, 40, generation=2)], (40, 40)),
        ([entry(0, 3, 10), entry(4, 9, 20)], (30, 30)),
        # the account does not say how many rows of a version another interval took over
        ([entry(5, 14, 50, interval=OTHER), entry(0, 9, 100)], (100, 150)),
        ([entry(0, 9, 100), entry(5, 14, 50, interval=OTHER)], (0, 150)),
    ],
)
def test_a_run_replaces_what_the_interval_and_others_with_its_versions_have_written(entries, expected):
    assert held_rows(entries, (0, 9)) == WrittenRows(*expected)


LAST = 6
SPANS = st.tuples(st.integers(0, LAST), st.integers(0, LAST)).map(lambda span: (min(span), max(span)))
#: Runs of data intervals: the versions of each, and how many rows each version of the source has then.
RUNS = st.lists(st.tuples(SPANS, st.lists(st.integers(0, 3), min_size=LAST + 1, max_size=LAST + 1)), max_size=6)


def in_part(one: tuple[int, int], other: tuple[int, int]) -> bool:
    return one != other and one[0] <= other[1] and other[0] <= one[1]


@given(runs=RUNS, asked=SPANS)
def test_a_run_is_neither_refused_nor_warned_for_intervals_that_overlap_in_part(runs, asked):
    """The bounds hold for any intervals, and are exact if none of them overlap in part.

    Otherwise the account does not say how many rows of a version another interval took over, so that as many rows of
    another writer may be replaced with the interval's.
    """
    rows = [0] * (LAST + 1)
    entries = []
    for (first, last), counts in runs:
        span = slice(first, last + 1)
        rows[span] = counts[span]
        generation = 1 + sum(one.interval == f"{first}/{last}" for one in entries)
        entries.append(entry(first, last, sum(counts[span]), interval=f"{first}/{last}", generation=generation))
    first, last = asked
    found = held_rows([one for one in entries if one.first_version <= last and one.last_version >= first], asked)
    there = sum(rows[first : last + 1])
    assert found.least <= there <= found.most
    spans = [asked, *(span for span, _ in runs)]
    if not any(in_part(one, other) for one in spans for other in spans):
        assert found.least == found.most


class Table:
    """A table and its account, of which another transaction commits something while DELETE waits for it."""

    def __init__(self, entries: list[Entry], rows: int, meanwhile: tuple[list[Entry], int] = ([], 0)) -> None:
        self.entries, self.rows, self.meanwhile = entries, rows, meanwhile

    def execute(self, statement: str, *_values: Any) -> Any:
        if "pg_constraint" in statement:
            return SimpleNamespace(fetchone=lambda: None)
        removed = self.rows
        if statement.startswith("DELETE"):
            new, self.rows = self.meanwhile
            self.entries = self.entries + new
        return SimpleNamespace(rowcount=removed, fetchone=lambda: (1,) if self.rows else None)

    def with_versions(self, _uuid: str, _target: str, versions: tuple[int, int], since: int = 0) -> list[Entry]:
        first, last = versions
        found = [one for one in self.entries if one.first_version <= last and one.last_version >= first]
        return [one for one in found if one.version > since]

    def of_others(self, *_asked: Any) -> None:
        return None

    def remove(self, since: int) -> tuple[str, ...]:
        one = replace(batch(epoch=2), interval=DAY, interval_versions=(0, 9))
        replaced = ReplacedInterval(self, "target", SimpleNamespace(allow_overlap=False), one, SINK, since)
        return replaced.remove(self, [SimpleNamespace(name="_source_version")])


@pytest.mark.parametrize(
    ("rows", "left"),
    [
        pytest.param(100, 60, id="its rows are there after DELETE"),
        pytest.param(100, 0, id="it has written fewer rows than were removed"),
    ],
)
def test_an_interval_that_landed_while_delete_waited_is_not_taken_for_a_trigger_or_another_writer(rows, left):
    table = Table([entry(0, 9, 100)], rows, ([entry(0, 9, 60, interval=OTHER, version=2)], left))
    with pytest.raises(RefusalError, match="was loaded at the same time") as refused:
        table.remove(since=1)
    assert (refused.value.reason, refused.value.retryable) == ("SINK_BUSY", True)


def test_rows_that_are_still_there_and_rows_of_others_are_refused():
    with pytest.raises(RefusalError, match="a trigger keeps them"):
        Table([entry(0, 9, 100)], 100, ([], 1)).remove(since=1)
    with pytest.raises(RefusalError, match="others are another writer's") as refused:
        Table([entry(0, 9, 100)], 101).remove(since=1)
    assert refused.value.retryable is False
    assert Table([entry(0, 9, 100)], 100).remove(since=1) == ()
    assert "another writer had removed rows" in Table([entry(0, 9, 100)], 99).remove(since=1)[0]
