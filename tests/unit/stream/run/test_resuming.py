"""What the next run does, by where the last one ended. Numbers: cases of earlier systems."""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_fds.source.offset import BASE_INDEX, Offset

if TYPE_CHECKING:
    from airflow_provider_fds.sinks import DeltaAppendSink
    from airflow_provider_fds.stream import RunWork, StreamSession
    from tests.unit.stream.conftest import Bench

SNAPSHOT_FIRST: dict[str, Any] = {"starting_version": None}


def begun(bench: Bench, sink: DeltaAppendSink, run: str, **options: Any) -> tuple[StreamSession, RunWork]:
    """Begin a run and do nothing more: what a process leaves that dies before Spark starts."""
    max_batches = options.pop("max_batches", 200)
    session = bench.session(run, stream=bench.stream(**options))
    return session, session.begin(sink, max_batches=max_batches)


def load(
    bench: Bench, sink: DeltaAppendSink, session: StreamSession, work: RunWork, batches: int | None = None
) -> None:
    """Load and commit the batches of a run, or so many of them."""
    taken = replace(work, batches=work.batches[:batches])
    bench.report(session, taken, session.job(taken, sink))
    session.collect(taken)


def run(bench: Bench, sink: DeltaAppendSink, name: str, **options: Any) -> RunWork:
    """Work a run to the end of what it found first; return that."""
    session, work = begun(bench, sink, name, **options)
    if work.status == "work":
        load(bench, sink, session, work)
    return work


def position(bench: Bench, **options: Any) -> Offset:
    session = bench.session("looker", stream=bench.stream(**options))
    found = session.connected.load().position
    assert found is not None
    return Offset.from_json(found)


def versions(work: RunWork) -> list[tuple[int, int]]:
    return [(batch.first_version, batch.last_version) for batch in work.batches]


# D7
def test_an_empty_table_is_read_as_nothing_however_often_and_then_each_append_comes(bench, log_builder, sink):
    log_builder.create()
    assert [run(bench, sink, f"run-{n}", **SNAPSHOT_FIRST).status for n in (1, 2)] == ["up_to_date"] * 2
    assert position(bench, **SNAPSHOT_FIRST) == Offset(log_builder.table_id, 1)
    for number in (3, 4, 5):
        version = log_builder.append()
        work = run(bench, sink, f"run-{number}", **SNAPSHOT_FIRST)
        assert (versions(work), work.batches[0].num_files) == ([(version, version)], 1)


# D8
def test_a_table_is_read_whole_and_then_each_append_comes(bench, two_appends, log_builder, sink):
    first = run(bench, sink, "run-1", **SNAPSHOT_FIRST)
    assert [(batch.num_files, batch.num_rows) for batch in first.batches] == [(5, 50)]
    assert position(bench, **SNAPSHOT_FIRST) == Offset(log_builder.table_id, 3)
    for number in (2, 3, 4):
        version = log_builder.append()
        work = run(bench, sink, f"run-{number}", **SNAPSHOT_FIRST)
        assert (versions(work), work.batches[0].num_files) == ([(version, version)], 1)


# D28
def test_nothing_more_is_planned_while_batches_are_left(bench, log_builder, sink):
    log_builder.create()
    for _ in range(10):
        log_builder.append()
    options = {"starting_version": 1, "max_versions_per_batch": 1, "max_batches": 3}
    session, first = begun(bench, sink, "run-1", **options)
    assert (versions(first), first.is_more) == ([(1, 1), (2, 2), (3, 3)], True)
    _, again = begun(bench, sink, "run-1", **options)
    assert again.batches == first.batches
    load(bench, sink, session, first, batches=1)
    session, rest = begun(bench, sink, "run-1", **options)
    assert rest.batches == first.batches[1:]
    load(bench, sink, session, rest)
    assert versions(begun(bench, sink, "run-1", **options)[1]) == [(4, 4), (5, 5), (6, 6)]


# D31, D40
def test_batches_that_a_dead_run_has_left_are_loaded_and_the_one_it_loaded_is_not(bench, log_builder, sink):
    log_builder.create()
    for _ in range(3):
        log_builder.append()
    options = {"starting_version": 1, "max_versions_per_batch": 1}
    session, planned = begun(bench, sink, "run-1", **options)
    load(bench, sink, session, planned, batches=1)
    session, left = begun(bench, sink, "run-2", **options)
    assert left.batches == planned.batches[1:]
    load(bench, sink, session, left)

    entries = [entry.action for entry in session.connected.ledger.entries()]
    committed = [(action.batch_id, action.rows) for action in entries if action.kind == "committed"]
    assert committed == [(0, 10), (1, 10), (2, 10)]
    assert begun(bench, sink, "run-3", **options)[1].status == "up_to_date"


# D32
def test_a_run_continues_before_the_snapshot_after_it_or_after_the_first_change(bench, two_appends, log_builder, sink):
    begun(bench, sink, "run-1", **SNAPSHOT_FIRST)
    before = position(bench, **SNAPSHOT_FIRST)
    assert (before.version, before.index, before.is_initial_snapshot) == (2, BASE_INDEX, True)
    log_builder.append()
    assert versions(run(bench, sink, "run-2", **SNAPSHOT_FIRST)) == [(2, 2)]
    assert position(bench, **SNAPSHOT_FIRST) == Offset(log_builder.table_id, 3)
    log_builder.append()
    assert versions(run(bench, sink, "run-3", **SNAPSHOT_FIRST, max_batches=1)) == [(3, 4)]
    assert position(bench, **SNAPSHOT_FIRST) == Offset(log_builder.table_id, 5)


# D33
def test_after_the_snapshot_none_is_created_or_read_again(bench, two_appends, log_builder, sink):
    run(bench, sink, "run-1", **SNAPSHOT_FIRST)
    snapshots = bench.staging / "orders" / "snapshots"
    assert len(list(snapshots.iterdir())) == 1
    shutil.rmtree(snapshots)
    log_builder.append()

    assert versions(run(bench, sink, "run-2", **SNAPSHOT_FIRST)) == [(3, 3)]
    assert not snapshots.exists()


# D35
def test_a_batch_that_is_in_the_sink_and_was_never_committed_here_is_found_there(bench, two_appends, sink):
    lost, work = begun(bench, sink, "run-1")
    # Spark has written and reported, and the task died before it read the report
    bench.report(lost, work, lost.job(work, sink))
    session, again = begun(bench, sink, "run-2")
    assert again.batches == work.batches
    bench.report(session, again, session.job(again, sink), outcome="verified", sink_version=1)
    (committed,) = session.collect(again).committed

    assert committed == work.batches[0]
    state = session.connected.state
    assert (state.last_batch_id, state.sink_version) == (0, 1)
    assert begun(bench, sink, "run-3")[1].status == "up_to_date"


# D48
@pytest.mark.parametrize("options", [{"version_as_of": 0}, {"timestamp_as_of": "2024-01-01"}], ids=str)
def test_a_bounded_read_of_an_empty_table_is_finished_without_a_batch(bench, log_builder, sink, options):
    log_builder.create()
    work = run(bench, sink, "run-1", **SNAPSHOT_FIRST, **options)
    assert (work.status, work.batches) == ("finished", ())
