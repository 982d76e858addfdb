"""Databases that were restored: what they lack, and what they may have, is not taken for granted."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_provider_fds.batch.sink.postgres_account import Entry
from airflow_provider_fds.batch.spec import JobSpec
from airflow_provider_fds.sinks import PostgresSink
from airflow_provider_fds.spark.runtime.failures import RefusalError
from airflow_provider_fds.spark.writers.postgres_writer import PostgresWriter
from tests.unit.spark.batches import batch

INTERVAL = replace(batch(), interval="2026-01-01/2026-01-02", interval_versions=(0, 9))


def writer(committed: int | None, mode: str = "append") -> PostgresWriter:
    keys = ("id",) if mode == "merge" else ()
    sink = PostgresSink("public.orders", mode=mode, provenance=True, keys=keys)
    job = JobSpec((INTERVAL,), sink.to_dict(), "target", committed, "reports", "attempt")
    made = PostgresWriter(None, sink, job, {})
    made._target_id = "target"
    return made


@pytest.mark.parametrize("mode", ["append", "replace", "merge"])
def test_a_table_with_another_oid_may_have_the_rows_of_the_stream(mode):
    made = writer(None, mode)
    other = SimpleNamespace(target=lambda: "a table", registered=lambda _target: "another id")
    with pytest.raises(RefusalError, match="restored from a dump") as refused:
        made._known(other, INTERVAL)
    assert ("remove the stream's rows that it may have, then load everything" in str(refused.value)) == (
        mode != "merge"
    )


def account(entry: Entry | None = None) -> Any:
    return SimpleNamespace(entry=lambda *_asked: entry, newest=lambda *_asked: entry)


@pytest.mark.parametrize("known", [None, (0, 7)])
def test_an_interval_is_not_appended_to_a_database_that_lacks_others(known):
    with pytest.raises(RefusalError, match="commit 8, so the database was restored") as refused:
        writer(8)._find(account(), INTERVAL, known)
    assert (refused.value.reason, refused.value.retryable) == ("SINK_OUT_OF_ORDER", False)
    assert "allow_overlap=True, and clearing the runs of the data intervals that the sink lacks" in str(refused.value)


@pytest.mark.parametrize(("committed", "known"), [(None, None), (None, (0, 3)), (8, (0, 8)), (8, (0, 9))])
def test_a_database_that_has_all_commits_takes_the_interval(committed, known):
    assert writer(committed)._find(account(), INTERVAL, known) is None
    assert writer(committed, "replace")._lacks_intervals(INTERVAL, known) is None


def test_an_interval_that_is_there_is_done():
    there = Entry(1, 0, INTERVAL.manifest_digest, 5, "end", 2, "attempt", interval=str(INTERVAL.interval))
    assert writer(8)._find(account(there), INTERVAL, (1, 7)).commit.version == 2


def test_a_sink_that_replaces_gets_the_interval_and_a_warning():
    assert writer(8, "replace")._find(account(), INTERVAL, (0, 7)) is None
    said = writer(8, "replace")._lacks_intervals(INTERVAL, (0, 7))
    assert said.endswith("Load them again by clearing the runs of their data intervals")
