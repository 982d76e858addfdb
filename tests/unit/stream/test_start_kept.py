"""Where a stream starts counts once. Numbers: conformance cases."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_fds.sinks import DeltaTableSink

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.stream.conftest import Bench


@pytest.fixture
def sink(tmp_path: Path) -> DeltaTableSink:
    return DeltaTableSink(str(tmp_path / "sink"))


@pytest.fixture
def table(log_builder: Any) -> Any:
    """Versions 0 to 4, each but the first with one file."""
    log_builder.create()
    for _ in range(4):
        log_builder.append()
    return log_builder


def run_once(bench: Bench, sink: DeltaTableSink, run: str, stream: Any, **given: Any) -> Any:
    session = bench.session(run, stream=stream)
    work = session.begin(sink, **given)
    if work.status == "work":
        bench.report(session, work, session.job(work, sink))
        session.collect(work)
    return work


def versions(work: Any) -> list[tuple[int, int]]:
    return [(batch.first_version, batch.last_version) for batch in work.batches]


@pytest.mark.parametrize(
    "start",
    [{"starting_version": 4}, {"starting_version": "latest"}, {"starting_version": None}],
    ids=str,
)
def test_20_a_start_plays_no_part_once_the_stream_has_a_position(bench, table, sink, start):
    first = bench.stream(starting_version=1, max_versions_per_batch=1)
    assert versions(run_once(bench, sink, "run-1", first, max_batches=1)) == [(1, 1)]
    other = bench.stream(**start, max_versions_per_batch=1)
    assert versions(run_once(bench, sink, "run-2", other)) == [(2, 2), (3, 3), (4, 4)]


def test_20_a_start_in_time_plays_no_part_once_the_stream_has_a_position(bench, table, sink):
    run_once(bench, sink, "run-1", bench.stream(starting_version=1, ending_version=2))
    other = bench.stream(starting_version=None, starting_timestamp="2030-01-01", on_future_start="fail")
    assert versions(run_once(bench, sink, "run-2", other)) == [(3, 4)]


def test_27_a_start_later_than_the_newest_commit_waits_and_then_reads_what_comes(bench, table, sink):
    stream = bench.stream(starting_version=None, starting_timestamp="2024-01-01T00:04:00.001")
    assert run_once(bench, sink, "run-1", stream).status == "waiting"
    table.append()
    assert versions(run_once(bench, sink, "run-2", stream)) == [(5, 5)]
