"""Positions that log cleanup took, or soon will: fail, continue at what is left, warn before."""

from __future__ import annotations

import logging
import os
import shutil
import time
from typing import TYPE_CHECKING, Any

import deltalake
import pytest

from airflow_provider_fds.errors import (
    LogGapError,
    LogRewoundError,
    LogTruncatedError,
    TableReplacedError,
    TornFileError,
)
from airflow_provider_fds.sinks import DeltaAppendSink, DeltaMergeSink
from airflow_provider_fds.source.offset import Offset
from tests.unit.stream.conftest import UNREADABLE

if TYPE_CHECKING:
    from tests.unit.stream.conftest import Bench

EARLIEST = {"on_lost_position": "earliest"}


@pytest.fixture
def behind(bench: Bench, log_builder: Any, sink: DeltaAppendSink) -> Any:
    """A stream that has read version 1 of a table with versions up to 6."""
    log_builder.create()
    log_builder.append()
    run(bench, sink, "run-1")
    for _ in range(5):
        log_builder.append()
    return log_builder


def clean_up(builder: Any) -> None:
    """Clean up the log before version 4, as Delta does: there is a checkpoint that holds what went."""
    deltalake.DeltaTable(str(builder.root)).create_checkpoint()
    builder.clean_up_before(4)


def run(bench: Bench, sink: DeltaAppendSink, name: str, **options: Any) -> Any:
    return bench.load_once(sink, name, bench.stream(**options))


def age(builder: Any, version: int, days: float) -> None:
    path = builder.root / "_delta_log" / f"{version:020d}.json"
    past = time.time() - days * 86400
    os.utime(path, (past, past))


# D39
def test_49_a_log_that_was_cleaned_up_past_the_position_fails_the_run_which_the_sensor_wakes(bench, behind, sink):
    clean_up(behind)
    with pytest.raises(LogTruncatedError, match=r"version 2 .* oldest remaining commit is version 4"):
        run(bench, sink, "run-2")
    assert bench.poller(bench.stream()).check().reason == "position is lost"


# D39
def test_51_with_earliest_a_stream_continues_at_the_oldest_commit_and_the_ledger_records_the_loss(
    bench, behind, sink, caplog
):
    """Conformance case 51, by another name and not in silence."""
    clean_up(behind)
    caplog.set_level(logging.WARNING)

    work = run(bench, sink, "run-2", **EARLIEST)

    assert work.status == "work"
    assert [(batch.first_version, batch.last_version, batch.num_files) for batch in work.batches] == [(4, 6, 3)]
    ledger = bench.session("looker").connected
    ledger.load()
    (lost,) = [e.action for e in ledger.ledger.entries() if e.action.kind == "advanced"]
    assert (lost.first_version, lost.last_version) == (2, 3)
    (line,) = lost.skipped
    assert "versions 2 to 3 were removed by log cleanup" in line.reason
    assert line.reason in caplog.text
    assert Offset.from_json(lost.end).version == 4
    # once: the next run has nothing to move over
    assert run(bench, sink, "run-3", **EARLIEST).status == "up_to_date"


def test_the_sensor_wakes_a_run_that_moves_such_a_stream(bench, behind, sink):
    clean_up(behind)
    seen = bench.poller(bench.stream(**EARLIEST)).check()
    assert (seen.newest_version, seen.reason) == (6, "position is lost")


def test_50_a_hole_is_still_an_error(bench, behind, sink):
    (behind.root / "_delta_log" / f"{4:020d}.json").unlink()
    assert run(bench, sink, "run-2", **EARLIEST).batches[-1].last_version == 3
    with pytest.raises(LogGapError, match="version 4 is missing"):
        run(bench, sink, "run-3", **EARLIEST)


def test_a_table_that_is_older_than_the_position_is_still_an_error(bench, behind, sink):
    for version in range(1, 7):
        (behind.root / "_delta_log" / f"{version:020d}.json").unlink()
    with pytest.raises(LogRewoundError):
        run(bench, sink, "run-2", **EARLIEST)


def test_another_table_is_still_an_error(bench, behind, sink):
    shutil.rmtree(behind.root / "_delta_log")
    behind.table_id = "another"
    behind.version = -1
    behind.create()
    for _ in range(6):
        behind.append()
    clean_up(behind)
    with pytest.raises(TableReplacedError):
        run(bench, sink, "run-2", **EARLIEST)


def test_a_recreated_shorter_table_is_distinguished_from_a_restored_one(bench, behind, sink):
    run(bench, sink, "run-2")
    shutil.rmtree(behind.root / "_delta_log")
    behind.table_id = "another"
    behind.version = -1
    behind.create()
    with pytest.raises(TableReplacedError, match="it was deleted and created again"):
        run(bench, sink, "run-3")
    assert bench.poller(bench.stream()).check().reason == "position is lost"


@pytest.mark.parametrize(("days", "is_warned"), [(1, False), (4, True)])
def test_a_run_warns_while_there_is_still_time(bench, behind, sink, caplog, days, is_warned):
    age(behind, 2, days)
    caplog.set_level(logging.WARNING)
    run(bench, sink, "run-2")
    assert ("delta.deletedFileRetentionDuration is 7 days" in caplog.text) == is_warned


def test_sensor_and_status_warn_too(bench, behind, caplog):
    age(behind, 2, 20)
    caplog.set_level(logging.WARNING)
    assert bench.poller(bench.stream()).check() is not None
    assert "delta.logRetentionDuration is 30 days and" in caplog.text
    status = bench.session("looker").status()
    assert "version 2, the oldest unread version, is 20 days old, and" in status.extra["warning"]


def test_a_stream_that_has_read_all_is_not_warned(bench, behind, sink):
    run(bench, sink, "run-2")
    age(behind, 6, 20)
    assert bench.session("looker").status().extra == {}


def test_a_stream_that_begins_with_a_snapshot_of_an_old_table_is_not_warned(bench, log_builder, sink, caplog):
    log_builder.create()
    log_builder.append()
    age(log_builder, 1, 20)
    caplog.set_level(logging.WARNING)
    run(bench, sink, "run-1", starting_version=None)
    assert "may be removed soon" not in caplog.text


def test_the_status_shows_a_lost_position(bench, behind, sink):
    session = bench.session("looker")
    assert session.status().problem is None
    clean_up(behind)

    problem = session.status().problem

    assert problem is not None
    assert "version 2 of" in problem
    assert "continue at version 4 without them (on_lost_position='earliest')" in problem


def test_a_sink_that_merges_does_not_continue_without_the_changes_that_are_gone(bench, log_builder, tmp_path):
    merging = DeltaMergeSink(str(tmp_path / "merged"), keys=["id"])
    log_builder.create()
    log_builder.append()
    run(bench, merging, "run-1")
    for _ in range(5):
        log_builder.append()
    clean_up(log_builder)

    with pytest.raises(
        LogTruncatedError,
        match=r"updates and deletes .* would be missing.*`fds rewind orders --sink-rows empty --to start",
    ) as refused:
        run(bench, merging, "run-2", **EARLIEST)
    assert "continue at version" not in str(refused.value)
    assert bench.session("looker").connected.load().planned == ()


def test_the_rest_of_a_snapshot_with_the_newest_schema_makes_no_changes_up_of_the_commits_after_it(
    bench, log_builder, sink
):
    """The schema at the snapshot is lost with the log, and the newest one stands for it."""
    log_builder.create()
    log_builder.append(2)
    stream = bench.stream(starting_version=None, max_files_per_batch=1)
    assert bench.load_once(sink, "run-1", stream, max_batches=1).is_more
    fields = [log_builder.field("id")]
    for name in ("a", "b"):
        fields.append(log_builder.field(name))
        log_builder.commit(log_builder.metadata(fields), log_builder.add())
    deltalake.DeltaTable(str(log_builder.root), version=3).create_checkpoint()
    log_builder.clean_up_before(2)

    work = bench.load_once(sink, "run-2", stream)
    assert work.warning is None
    assert [one.last_version for one in work.batches] == [1, 2, 3]
    assert [change.version for one in work.batches for change in one.schema_changes] == [3]


@pytest.mark.parametrize("leave_unreadable", UNREADABLE)
def test_the_rest_of_a_snapshot_whose_log_was_cleaned_up_is_read_before_a_commit_that_cannot_be_read(
    bench, log_builder, sink, leave_unreadable
):
    log_builder.with_appends(2)
    stream = bench.stream(starting_version=None, max_files_per_batch=1)
    bench.load_once(sink, "run-1", stream, max_batches=1)
    log_builder.append()
    deltalake.DeltaTable(str(log_builder.root)).create_checkpoint()
    log_builder.clean_up_before(3)
    leave_unreadable(log_builder)

    work = bench.load_once(sink, "run-2", stream)
    assert [one.last_version for one in work.batches] == [2, 3]


@pytest.mark.parametrize("damage", ["missing", "empty"])
def test_the_versions_before_a_damage_of_the_log_are_loaded_before_it_stops_the_stream(
    bench, log_builder, sink, damage
):
    log_builder.with_appends(2)
    bench.load_once(sink, "run-1")
    for _ in range(4):
        log_builder.append()
    deltalake.DeltaTable(str(log_builder.root)).create_checkpoint()
    if damage == "missing":
        log_builder.path_of(5).unlink()
    else:
        log_builder.write_raw(5, "")

    work = bench.load_once(sink, "run-2")
    assert [(one.first_version, one.last_version) for one in work.batches] == [(3, 4)]
    for run in ("run-3", "run-4"):
        with pytest.raises((LogGapError, TornFileError), match="version 5"):
            bench.load_once(sink, run)


def test_a_damage_of_the_log_does_not_hide_that_the_table_is_another_one(bench, log_builder, sink):
    log_builder.with_appends(2)
    bench.load_once(sink, "run-1")
    log_builder.version = 1
    for files in range(2, 6):
        log_builder.append(files)
    deltalake.DeltaTable(str(log_builder.root)).create_checkpoint()
    log_builder.path_of(4).unlink()

    with pytest.raises(TableReplacedError):
        bench.load_once(sink, "run-2")
