"""What a run of a data interval replaces in PostgreSQL, by the account, and what it says of other rows."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

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


class Table:
    """A table and its account, of which another transaction commits something while DELETE waits for it."""

    def __init__(self, entries: list[Entry], rows: int, meanwhile: tuple[list[Entry], int] = ([], 0)) -> None:
        self.entries, self.rows, self.meanwhile = entries, rows, meanwhile

    def execute(self, statement: str) -> Any:
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
