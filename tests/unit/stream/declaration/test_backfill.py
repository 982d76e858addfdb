"""A backfill: a bounded stream of its own that leaves the live stream alone."""

from __future__ import annotations

import pickle
import shutil
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_fds import DeltaStream
from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.ledger.entries.epoch_entries import Requested
from airflow_provider_fds.sinks import DeltaAppendSink, DeltaMergeSink
from airflow_provider_fds.source.offset import Offset
from airflow_provider_fds.stream.actions.action_builder import ActionBuilder
from airflow_provider_fds.stream.actions.prepared_action import perform
from tests.unit.stream.epochs.test_epoch_start import leave_fence

if TYPE_CHECKING:
    from tests.unit.stream.conftest import Bench

ORDERS = DeltaStream("orders", table="s3://lake/orders", starting_version=5, max_files_per_batch=3)


@pytest.fixture
def table(log_builder: Any) -> Any:
    """Versions 0 to 6, each but the first with one file, one minute apart from 2024-01-01."""
    return log_builder.with_appends(6)


def versions(work: Any) -> list[tuple[int, int]]:
    return [(batch.first_version, batch.last_version) for batch in work.batches]


def refusal(call: Any) -> str:
    with pytest.raises(ConfigurationError) as caught:
        call()
    return str(caught.value)


# -- the value


def test_the_options_are_those_of_the_stream_with_another_start_and_end():
    found = ORDERS.backfill(start=1, end="2026-01-31")
    assert found.options.to_dict() == {
        "starting_version": 1,
        "ending_timestamp": "2026-01-31",
        "max_files_per_batch": 3,
    }
    assert (found.table, found.storage_conn_id, found.checkpoint) == (ORDERS.table, None, "variable")


def test_equal_ranges_have_one_name_however_they_are_written():
    names = {
        ORDERS.backfill(start=start, end="7").name
        for start in ("2026-01-01", "2026-01-01T01:00:00+01:00", datetime(2026, 1, 1, tzinfo=UTC))
    }
    assert len(names) == 1
    assert names.pop().startswith("orders.bf.")
    assert ORDERS.backfill(start="3", end=7).name == ORDERS.backfill(start=3, end="7").name
    assert ORDERS.backfill(start=3, end=7).name != ORDERS.backfill(start=3, end=8).name


def test_templates_are_rendered_before_the_range_gets_its_name():
    given = ORDERS.backfill(start="{{ params.start }}", end="{{ dag_run.conf['end'] }}")
    assert (given.name, given.options.starting_version) == ("orders.bf", None)
    values = {"{{ params.start }}": "2026-01-01", "{{ dag_run.conf['end'] }}": "12"}
    found = given.rendered(lambda text: values.get(text, text))
    assert found == ORDERS.backfill(start="2026-01-01", end=12)


def test_a_backfill_survives_pickling_and_its_dict():
    for stream in (ORDERS.backfill(), ORDERS.backfill(start="{{ ds }}", allow_overlap=True), ORDERS.backfill(end=3)):
        for copy in (pickle.loads(pickle.dumps(stream)), DeltaStream.from_dict(stream.to_dict())):
            assert (copy, copy.name, copy.options) == (stream, stream.name, stream.options)


def test_a_checkpoint_file_is_not_shared_with_the_live_stream():
    found = DeltaStream("orders", table="/t", checkpoint="file:/p").backfill(start=0, end=1)
    assert found.checkpoint == f"file:/p{found.name.removeprefix('orders')}"


@pytest.mark.parametrize(
    ("given", "part"),
    [
        ({"start": ""}, "start is empty"),
        ({"end": "None"}, "end is empty"),
        ({"start": 5, "end": 4}, "end 4 is before start 5"),
        ({"start": "2026-02-01", "end": "2026-01-01"}, "is before 'starting_timestamp'"),
        ({"start": "20260131"}, "'2026-01-31'"),
        ({"start": "yesterday"}, "start must be a version, a time or 'earliest'"),
        ({"end": "earliest"}, "end must be a version, a time or 'live_start'"),
        ({"start": True}, "must be a version number"),
        ({"allow_overlap": "yes"}, "allow_overlap must be True or False"),
    ],
    ids=str,
)
def test_a_range_that_cannot_work_is_refused_when_it_is_declared_or_rendered(given, part):
    assert part in refusal(lambda: ORDERS.backfill(**given))


def test_a_refused_backfill_says_what_to_do():
    daily = DeltaStream("daily", table="/t", read="data_interval")
    assert "airflow backfill create" in refusal(daily.backfill)
    assert "Call backfill() on stream 'orders'" in refusal(ORDERS.backfill().backfill)
    assert "at most 100" in refusal(DeltaStream("x" * 85, table="/t").backfill)


# -- runs


def test_a_backfill_loads_its_range_once_ends_as_finished_and_leaves_the_position_alone(bench, table, sink):
    live = bench.stream(starting_version=4)
    bench.load_once(sink, "live", live)
    before = bench.session(stream=live).status()

    backfill = live.backfill(start="2024-01-01T00:01:00Z", end="2024-01-01T00:03:00Z")
    assert versions(bench.load_once(sink, "run-1", backfill)) == [(1, 3)]
    again = bench.load_once(sink, "run-2", backfill)
    assert again.status == "finished"
    assert f"Stream '{backfill.name}' is finished" in again.reason
    assert bench.session(stream=live).status() == before


@pytest.mark.parametrize(
    ("start", "first"),
    [("2024-01-01T00:01:30", 2), ("2024-01-01T00:02:00", 2), ("2020-01-01", 0)],
    ids=["between commits", "on a commit", "before the first"],
)
def test_a_time_means_the_first_commit_at_or_after_it(bench, table, sink, start, first):
    work = bench.load_once(sink, "run-1", bench.stream().backfill(start=start, end=4))
    assert versions(work) == [(first, 4)]


def test_live_start_is_the_version_before_the_one_where_the_live_stream_began(bench, table, sink):
    live = bench.stream(starting_version=4)
    bench.load_once(sink, "live", live)
    assert versions(bench.load_once(sink, "run-1", live.backfill())) == [(0, 3)]
    # a later rewind of the live stream does not change what the range means
    session = bench.session("person", stream=live)
    session.connected.load()
    session.connected.execute(Requested(reason="rewind", why="test", to={"starting_version": 2}))
    assert bench.load_once(sink, "run-2", live.backfill()).status == "finished"


def recreate(table: Any, appends: int) -> None:
    """Make another table at the same place."""
    shutil.rmtree(table.root)
    table.__init__(table.root)
    table.table_id = "22222222-2222-3333-4444-555555555555"
    table.with_appends(appends)


def begin_again(bench: Bench, sink: Any, stream: DeltaStream) -> Any:
    """Let a stream begin a new epoch at its start options; return a session that has opened it."""
    session = bench.session("again", stream=stream)
    session.connected.load()
    ledger = session.connected.ledger
    perform(ledger, ActionBuilder(ledger, "test").rewind(to="start", sink_rows="keep"), session.connected.context.actor)
    work = session.begin(sink)
    leave_fence(bench, session, session.job(work, sink))
    session.collect(work)
    return session


def test_live_start_is_about_the_table_that_the_live_stream_reads_now(bench, table, sink):
    bench.load_once(sink, "live", bench.stream(starting_version=2))
    recreate(table, 5)
    live = bench.stream(starting_version=4)
    begin_again(bench, sink, live)
    assert versions(bench.load_once(sink, "run-1", live.backfill())) == [(0, 3)]


def test_streams_of_two_tables_at_one_place_load_each_row_of_both_once_into_one_sink(bench, table, sink):
    one = bench.stream("one")
    assert versions(bench.load_once(sink, "run-1", one)) == [(0, 6)]
    recreate(table, 6)
    two = bench.stream("two", ending_version=3)
    assert versions(bench.load_once(sink, "run-2", two)) == [(0, 3)]
    # what the first stream has read of the table that is gone does not count, what the second has read of this one does
    session = begin_again(bench, sink, one)
    assert "stream 'two' already appends versions 0 to 3" in refusal(lambda: session.begin(sink))


def test_live_start_is_refused_if_there_is_nothing_before_it(bench, table, sink):
    live = bench.stream(starting_version=0)
    assert "it has not begun" in refusal(lambda: bench.session(stream=live.backfill()))
    bench.load_once(sink, "live", live)
    assert "it began at version 0" in refusal(lambda: bench.session(stream=live.backfill()))


def test_live_start_is_refused_where_the_live_stream_began_with_a_snapshot(bench, table, sink):
    live = bench.stream(starting_version=None)
    bench.load_once(sink, "live", live)
    assert "began with the snapshot of version 6" in refusal(lambda: bench.session(stream=live.backfill()))


def test_a_template_that_was_not_rendered_is_refused(bench, table):
    assert "unrendered templates" in refusal(lambda: bench.session(stream=bench.stream().backfill(start="{{ ds }}")))


# -- overlap


def planned_entries(bench: Bench, name: str) -> list[str]:
    return (
        sorted(path.name for path in (bench.staging / name).rglob("*.json")) if (bench.staging / name).exists() else []
    )


def test_a_range_that_the_live_stream_loads_is_refused_before_anything_is_written(bench, table, sink):
    live = bench.stream(starting_version=4)
    bench.load_once(sink, "live", live)
    backfill = live.backfill(start=2, end=5)
    message = refusal(lambda: bench.load_once(sink, "run-1", backfill))
    for part in ("versions 2 to 5", "stream 'orders'", "versions from 4 on", "allow_overlap=True"):
        assert part in message
    assert planned_entries(bench, backfill.name) == []
    allowed = live.backfill(start=2, end=5, allow_overlap=True)
    assert versions(bench.load_once(sink, "run-2", allowed)) == [(2, 5)]


def test_two_backfills_whose_ranges_overlap_are_refused_and_neighbours_are_not(bench, table, sink):
    live = bench.stream(starting_version=5)
    assert versions(bench.load_once(sink, "run-1", live.backfill(start=0, end=2))) == [(0, 2)]
    assert "versions 0 to 2" in refusal(lambda: bench.load_once(sink, "run-2", live.backfill(start=2, end=3)))
    assert versions(bench.load_once(sink, "run-3", live.backfill(start=3, end=4))) == [(3, 4)]
    assert versions(bench.load_once(sink, "run-4", live)) == [(5, 6)]


def test_a_live_stream_that_begins_in_a_range_already_loaded_is_refused(bench, table, sink):
    bench.load_once(sink, "run-1", bench.stream().backfill(start=0, end=2))
    assert "orders.bf." in refusal(lambda: bench.load_once(sink, "run-2", bench.stream(starting_version=1)))
    # a snapshot has the rows of all versions before it
    assert "orders.bf." in refusal(lambda: bench.load_once(sink, "run-3", bench.stream(starting_version=None)))


def test_a_rewind_into_a_range_that_was_backfilled_is_refused(bench, table, sink):
    live = bench.stream(starting_version=4)
    bench.load_once(sink, "run-1", live.backfill(start=0, end=3))
    session = bench.session("run-2", stream=live)
    session.ensure_open()
    session.connected.execute(Requested(reason="rewind", why="test", to={"starting_version": 2}))
    assert "orders.bf." in refusal(lambda: session.begin(sink))
    state = bench.session("run-3", stream=live).connected.load()
    assert (Offset.from_json(state.position).version, state.planned) == (2, ())


def test_a_stream_of_another_name_is_found_by_its_commits_in_the_sink(bench, table, sink):
    bench.load_once(sink, "run-1", bench.stream("one", starting_version=0, ending_version=3))
    message = refusal(lambda: bench.load_once(sink, "run-2", bench.stream("two", starting_version=3)))
    assert "stream 'one' already appends versions 0 to 3" in message
    assert versions(bench.load_once(sink, "run-3", bench.stream("three", starting_version=4))) == [(4, 6)]


def test_the_commits_in_the_sink_show_that_the_ledger_is_gone(bench, table, sink):
    live = bench.stream(starting_version=4)
    bench.load_once(sink, "run-1", live.backfill(start=0, end=2))
    for folder in bench.staging.glob("orders.bf.*"):
        folder.rename(bench.staging.parent / folder.name)
    assert "of the sink has a batch of it" in refusal(
        lambda: bench.load_once(sink, "run-2", live.backfill(start=1, end=3))
    )


def test_another_sink_takes_the_same_range(bench, table, sink, tmp_path):
    live = bench.stream(starting_version=0)
    bench.load_once(sink, "live", live)
    other = DeltaAppendSink(str(tmp_path / "other"))
    assert versions(bench.load_once(other, "run-1", live.backfill(start=1, end=2))) == [(1, 2)]


def test_older_rows_are_not_merged_over_the_newer_ones_of_the_live_stream(bench, table, tmp_path):
    merged = DeltaMergeSink(str(tmp_path / "merged"), keys=["id"])
    live = bench.stream(starting_version=4, ignore_changes=True)
    bench.load_once(merged, "live", live)
    message = refusal(lambda: bench.load_once(merged, "run-1", live.backfill(start=0, end=3)))
    assert "older rows would replace newer ones" in message
