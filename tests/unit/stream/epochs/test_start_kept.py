"""Where a stream starts counts once. Numbers: conformance cases."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.ledger.entries.request_entries import Requested
from airflow_provider_fds.source.offset import Offset
from airflow_provider_fds.stream.monitoring.status import status_of
from airflow_provider_fds.stream.run.reporting import write_end

if TYPE_CHECKING:
    from airflow_provider_fds.sinks import DeltaAppendSink
    from tests.unit.stream.conftest import Bench


@pytest.fixture
def table(log_builder: Any) -> Any:
    """Versions 0 to 4, each but the first with one file."""
    return log_builder.with_appends(4)


def versions(work: Any) -> list[tuple[int, int]]:
    return [(batch.first_version, batch.last_version) for batch in work.batches]


@pytest.mark.parametrize(
    "start",
    [{"starting_version": 4}, {"starting_version": "latest"}, {"starting_version": None}],
    ids=str,
)
def test_20_a_start_plays_no_part_once_the_stream_has_a_position(bench, table, sink, start):
    first = bench.stream(starting_version=1, max_versions_per_batch=1)
    assert versions(bench.load_once(sink, "run-1", first, max_batches=1)) == [(1, 1)]
    other = bench.stream(**start, max_versions_per_batch=1)
    assert versions(bench.load_once(sink, "run-2", other)) == [(2, 2), (3, 3), (4, 4)]


def test_20_a_start_in_time_plays_no_part_once_the_stream_has_a_position(bench, table, sink):
    bench.load_once(sink, "run-1", bench.stream(starting_version=1, ending_version=2))
    other = bench.stream(starting_version=None, starting_timestamp="2030-01-01")
    assert versions(bench.load_once(sink, "run-2", other)) == [(3, 4)]


def test_27_a_start_later_than_the_newest_commit_waits_and_then_reads_what_comes(bench, table, sink):
    stream = bench.stream(starting_version=None, starting_timestamp="2024-01-01T00:04:00.001")
    session, work = bench.run_once(sink, "run-1", stream)
    assert (work.status, work.reason) == ("waiting", session.scope.waits_for)
    write_end(session, None)
    status = status_of(session.connected)
    assert status.condition == "waiting"
    assert "is waiting for start 2024-01-01T00:04:00.001: no commit" in str(status.waits_for)
    table.append()
    assert versions(bench.load_once(sink, "run-2", stream)) == [(5, 5)]


def noted(bench: Bench, sink: DeltaAppendSink, run: str, **start: Any) -> str | None:
    session = bench.session(run, stream=bench.stream(**start))
    session.begin(sink)
    return session.connected.start_note


@pytest.mark.parametrize(
    ("start", "shown"),
    [
        ({"starting_version": 4}, "starting_version=4"),
        ({"starting_version": 9999}, "starting_version=9999"),
        ({"starting_version": "latest"}, "starting_version='latest'"),
        ({"starting_version": None, "starting_timestamp": "2030-01-01"}, "starting_timestamp='2030-01-01'"),
    ],
    ids=str,
)
def test_a_changed_start_is_reported_in_every_run_and_in_the_status(bench, table, sink, caplog, start, shown):
    bench.load_once(sink, "run-1", bench.stream(starting_version=1))
    for run in ("run-2", "run-3"):
        caplog.clear()
        note = noted(bench, sink, run, **start)
        assert note in caplog.messages
        for part in (f"{shown} has no effect", "began at version 1", "fds rewind orders", "fds backfill orders"):
            assert part in note
    # the status knows no options: it shows what the last run had
    status = bench.session(stream=bench.stream(starting_version=None)).status()
    assert status.extra["start option"] == note


def test_a_start_that_is_set_back_is_no_longer_reported(bench, table, sink):
    bench.load_once(sink, "run-1", bench.stream(starting_version=1))
    assert noted(bench, sink, "run-2", starting_version=2) is not None
    assert noted(bench, sink, "run-3", starting_version=1) is None
    assert "start option" not in bench.session().status().extra


def test_the_same_start_in_another_spelling_and_an_omitted_one_are_no_change(bench, table, sink):
    stream = bench.stream(starting_version=None, starting_timestamp="2024-01-01T00:01:00Z")
    bench.load_once(sink, "run-1", stream)
    again = {"starting_version": None, "starting_timestamp": "2024-01-01 01:01:00+01:00"}
    assert noted(bench, sink, "run-2", **again) is None
    assert noted(bench, sink, "run-3", starting_version=None) is None


def test_a_changed_start_fails_the_run_on_request_and_moves_nothing(bench, table, sink):
    bench.load_once(sink, "run-1", bench.stream(starting_version=1, ending_version=2))
    before = bench.session().status().position
    with pytest.raises(ConfigurationError, match=r"starting_version=3 has no effect.*began at version 1.*fds rewind"):
        noted(bench, sink, "run-2", starting_version=3, on_changed_start="fail")
    status = bench.session().status()
    assert (status.position, status.planned_batches) == (before, 0)
    assert "starting_version=3" in status.extra["start option"]


def test_a_stream_that_began_with_a_snapshot_says_so(bench, table, sink):
    bench.load_once(sink, "run-1", bench.stream(starting_version=None))
    assert "began at the snapshot of version 4" in (noted(bench, sink, "run-2", starting_version=0) or "")


def test_a_rewind_is_not_a_changed_start_and_a_reset_begins_with_the_options_of_its_run(bench, table):
    session = bench.session("run-1", stream=bench.stream(starting_version=2))
    session.ensure_open()
    session.connected.execute(Requested(reason="rewind", why="test", to={"starting_version": 1}))
    state = session.ensure_open()
    assert (Offset.from_json(state.position).version, session.connected.start_note) == (1, None)

    session.connected.execute(Requested(reason="reset", why="test", to={"start": "options"}))
    other = bench.session("run-2", stream=bench.stream(starting_version=3))
    state = other.ensure_open()
    assert (Offset.from_json(state.position).version, other.connected.start_note) == (3, None)
    assert state.range_options == {"starting_version": 3}
