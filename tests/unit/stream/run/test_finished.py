"""Streams with an end: they read up to it, then every run is a skip that says so. Numbers: conformance cases."""

from __future__ import annotations

from typing import Any

import deltalake
import pytest

from airflow_provider_fds.errors import ConfigurationError, TornFileError, UnsupportedFeatureError
from airflow_provider_fds.hooks.position import read_standing
from airflow_provider_fds.stream.position.stream_end import finished_reason
from tests.unit.stream.conftest import UNREADABLE

ENDS = [{"ending_version": 3}, {"ending_timestamp": "2024-01-01T00:03:30"}]


@pytest.fixture
def table(log_builder: Any) -> Any:
    """Versions 0 to 5, each but the first with one file."""
    return log_builder.with_appends(5)


@pytest.mark.parametrize("options", ENDS, ids=str)
def test_26_a_run_loads_up_to_the_end_and_the_next_one_reports_a_finished_stream(bench, table, sink, options):
    stream = bench.stream(**options)
    session, work = bench.run_once(sink, "run-1", stream)
    assert (work.batches[-1].last_version, work.target, work.is_more) == (3, 3, False)
    assert session.begin(sink).status == "done"
    entries = session.connected.ledger.n
    table.append()
    session, work = bench.run_once(sink, "run-2", stream)

    assert work.status == "finished"
    assert "'orders' is finished" in work.reason
    assert next(iter(options)) in work.reason
    assert session.connected.ledger.n == entries
    assert session.result() is None


@pytest.mark.parametrize("leave_unreadable", UNREADABLE)
@pytest.mark.parametrize("options", ENDS, ids=str)
def test_a_stream_finishes_before_a_commit_that_cannot_be_read(bench, table, sink, options, leave_unreadable):
    stream = bench.stream(**options)
    bench.session("run-0", stream=stream).ensure_open(sink)
    leave_unreadable(table)

    assert bench.load_once(sink, "run-1", stream).target == 3
    assert bench.load_once(sink, "run-2", stream).status == "finished"


@pytest.mark.parametrize("leave_unreadable", UNREADABLE)
def test_an_end_that_may_be_after_a_commit_that_cannot_be_read_is_not_reached(bench, table, sink, leave_unreadable):
    # version 6 is from 00:06 by its file's time, but only it knows whether that counts
    stream = bench.stream(ending_timestamp="2024-01-01T00:05:30")
    bench.load_once(sink, "run-0", stream)
    leave_unreadable(table)

    with pytest.raises((UnsupportedFeatureError, TornFileError)):
        bench.load_once(sink, "run-1", stream)


@pytest.mark.parametrize("leave_unreadable", UNREADABLE)
def test_what_comes_before_a_commit_that_cannot_be_read_is_loaded_while_the_end_is_unknown(
    bench, table, sink, leave_unreadable
):
    bench.load_once(sink, "run-1", bench.stream(ending_version=2))
    leave_unreadable(table)

    work = bench.load_once(sink, "run-2", bench.stream(ending_timestamp="2024-01-01T00:05:30"))
    assert work.batches[-1].last_version == 5


def test_a_finished_stream_no_longer_needs_the_log(bench, table, sink):
    stream = bench.stream(ending_version=3)
    bench.run_once(sink, "run-1", stream)
    for path in table.log.iterdir():
        path.unlink()

    assert bench.run_once(sink, "run-2", stream)[1].status == "finished"


def test_a_time_that_means_an_earlier_version_of_another_table_does_not_finish_the_stream(bench, table, sink):
    stream = bench.stream(ending_timestamp="2024-01-01T00:06:30", on_violation="quarantine")
    bench.run_once(sink, "run-1", stream)
    # lost before they were read
    table.append()
    for path in table.log.iterdir():
        path.unlink()
    table.table_id, table.version = "another", -1
    table.create()
    table.append()
    table.append(timestamp_ms=table.time_of(8))

    assert bench.poller(stream).check().reason == "position is lost"
    session, work = bench.run_once(sink, "run-2", stream)
    assert (work.status, session.connected.state.quarantined.lost) == ("paused", "TABLE_REPLACED")
    assert session.connected.state.ended is None


@pytest.mark.parametrize("is_earlier", [True, False], ids=["means an earlier version", "is before all commits"])
def test_a_stream_of_a_table_that_was_created_again_is_not_called_finished(bench, table, sink, is_earlier):
    stream = bench.stream(ending_timestamp="2024-01-01T00:06:30")
    bench.run_once(sink, "run-1", stream)
    for path in table.log.iterdir():
        path.unlink()
    table.table_id, table.version = "another", -1
    table.create(timestamp_ms=table.time_of(0 if is_earlier else 7))
    table.append(timestamp_ms=table.time_of(8))
    session = bench.session("looker", stream=stream)
    found = session.status()
    assert (found.finished, found.reason_code) == (None, "TABLE_REPLACED")
    assert finished_reason(session.connected) is None
    assert bench.poller(stream).check().reason == "position is lost"


def test_a_hole_stops_a_stream_with_a_time_as_its_end_as_any_other(bench, table, sink):
    stream = bench.stream(ending_timestamp="2024-01-01T00:10:00", on_violation="quarantine")
    bench.run_once(sink, "run-1", stream)
    for _ in range(3):
        table.append()
    (table.log / f"{7:020d}.json").unlink()

    assert bench.poller(stream).check().reason == "position is lost"
    _, work = bench.run_once(sink, "run-2", stream)
    assert [(batch.first_version, batch.last_version) for batch in work.batches] == [(6, 6)]
    session, work = bench.run_once(sink, "run-3", stream)
    assert (work.status, session.connected.state.quarantined.lost) == ("paused", "LOG_GAP")


def test_a_time_as_the_end_is_written_down_once_it_is_known_and_the_log_may_go(bench, table, sink):
    stream = bench.stream(ending_timestamp="2024-01-01T00:03:30")
    bench.run_once(sink, "run-1", stream)
    for _ in range(3):
        table.append()
    table.clean_up_before(7)
    session, work = bench.run_once(sink, "run-2", bench.stream(ending_timestamp="2024-01-01 01:03:30+01:00"))

    assert (work.status, work.target) == ("finished", 3)
    assert session.connected.state.ended.version == 3
    assert session.status().finished
    assert read_standing(stream, session.context).found.is_finished


def test_an_end_that_is_not_known_yet_leaves_the_stream_unfinished(bench, table, sink):
    stream = bench.stream(ending_timestamp="2024-01-01T00:06:30")
    _, work = bench.run_once(sink, "run-1", stream)
    assert work.batches[-1].last_version == 5
    assert bench.run_once(sink, "run-2", stream)[1].status == "up_to_date"
    table.append()  # at 00:06
    assert bench.run_once(sink, "run-3", stream)[1].target == 6
    assert bench.run_once(sink, "run-4", stream)[1].status == "up_to_date"
    table.append()  # at 00:07
    assert bench.run_once(sink, "run-5", stream)[1].status == "finished"


def test_a_stream_finishes_after_moving_over_commits_without_data_before_its_end(bench, log_builder, sink):
    log_builder.create()
    log_builder.append()
    for _ in range(3):
        log_builder.commit(operation="OPTIMIZE")
    stream = bench.stream(ending_version=3)
    bench_stream_up_to_1 = bench.stream(ending_version=1)
    bench.run_once(sink, "run-1", bench_stream_up_to_1)
    session, work = bench.run_once(sink, "run-2", stream)

    assert work.status == "finished"
    assert '"reservoirVersion":4' in session.connected.state.position


def test_a_later_end_lets_a_finished_stream_continue(bench, table, sink):
    bench.run_once(sink, "run-1", bench.stream(ending_version=2))
    _, work = bench.run_once(sink, "run-2", bench.stream(ending_version=4))

    assert (work.batches[0].first_version, work.batches[-1].last_version) == (3, 4)


def test_the_status_counts_to_the_end_and_says_that_it_is_reached(bench, table, sink):
    stream = bench.stream(ending_version=3)
    before = bench.session("run-1", stream=stream)
    before.ensure_open(sink)
    assert (before.status().lag_versions, before.status().finished) == (4, None)
    bench.run_once(sink, "run-1", stream)
    found = bench.session("run-2", stream=stream).status()

    assert (found.lag_versions, found.newest_version) == (0, 5)
    assert found.finished is not None
    assert "ending_version=3" in found.finished


@pytest.mark.parametrize("options", ENDS, ids=str)
async def test_a_finished_stream_ends_the_sensor_however_it_polls(bench, table, sink, options):
    stream = bench.stream(**options)
    bench.run_once(sink, "run-1", stream)
    for look in (bench.poller(stream).check(), await bench.poller(stream).poll()):
        assert look.is_finished
        assert "is finished" in look.reason
        assert look.reason != "data"


def test_a_finished_stream_ends_the_sensor_although_the_log_was_cleaned_up_past_it(bench, log_builder, sink):
    log_builder.create()
    for _ in range(5):
        log_builder.append()
    stream = bench.stream(ending_version=2)
    bench.run_once(sink, "run-1", stream)
    deltalake.DeltaTable(str(log_builder.root)).create_checkpoint()
    log_builder.clean_up_before(5)
    assert bench.poller(stream).check().is_finished


async def test_commits_after_the_end_do_not_wake_and_the_end_itself_does_once(bench, log_builder, sink):
    log_builder.create()
    log_builder.append()
    bench.run_once(sink, "run-1", bench.stream(ending_version=1))
    log_builder.commit(operation="OPTIMIZE")
    log_builder.append()
    stream = bench.stream(ending_version=2)
    seen = bench.poller(stream).check()

    # the commits of the hand-made log are years old
    assert seen.reason in ("end is near", "position is old")
    assert not seen.is_finished
    assert bench.run_once(sink, "run-2", stream)[1].status == "finished"
    assert bench.poller(stream).check().is_finished


AS_OF = [{"version_as_of": 3}, {"timestamp_as_of": "2024-01-01T00:03:30"}]


# D48
@pytest.mark.parametrize("options", AS_OF, ids=str)
def test_a_bounded_read_is_the_snapshot_in_batches_and_then_the_stream_is_finished(bench, table, sink, options):
    stream = bench.stream(starting_version=None, max_files_per_batch=2, **options)
    session, work = bench.run_once(sink, "run-1", stream)
    assert [batch.num_files for batch in work.batches] == [2, 1]
    assert session.result().last_version == 3
    table.append()
    table.commit(table.remove("part-00001-00000.parquet"), operation="DELETE")
    session, work = bench.run_once(sink, "run-2", stream)

    assert work.status == "finished"
    assert f"{next(iter(options))} means version 3" in work.reason
    assert session.status().lag_versions == 0


@pytest.mark.parametrize("options", AS_OF, ids=str)
async def test_the_sensor_of_a_bounded_read_wakes_until_the_snapshot_is_read_and_then_says_finished(
    bench, table, sink, options
):
    stream = bench.stream(starting_version=None, max_files_per_batch=1, **options)
    session = bench.session("run-1", stream=stream)
    work = session.begin(sink, max_batches=1)
    assert work.is_more
    bench.report(session, work, session.job(work, sink))
    session.collect(work)
    assert bench.poller(stream).check().reason == "data"
    _, rest = bench.run_once(sink, "run-1", stream)
    assert [batch.num_files for batch in rest.batches] == [1, 1]
    assert bench.poller(stream).check().is_finished
    assert (await bench.poller(stream).poll()).is_finished


def test_a_stream_that_has_begun_elsewhere_cannot_be_made_a_bounded_read(bench, table, sink):
    bench.run_once(sink, "run-1", bench.stream())
    for options in ({"version_as_of": 2}, {"timestamp_as_of": "2024-01-01T00:02:00"}):
        with pytest.raises(ConfigurationError, match="can only be given to a new stream"):
            bench.session("run-2", stream=bench.stream(starting_version=None, **options)).begin(sink)
    stream = bench.stream("other", starting_version=None, version_as_of=2, allow_overlap=True)
    bench.run_once(sink, "run-1", stream)
    with pytest.raises(ConfigurationError, match="version_as_of=3 can only be given to a new stream"):
        bench.session("run-2", stream=bench.stream("other", starting_version=None, version_as_of=3)).begin(sink)


def test_33_limits_apply_in_every_run_even_if_everything_would_fit_one_batch(bench, table, sink):
    _, work = bench.run_once(sink, "run-1", bench.stream(max_files_per_batch=1, ending_version=4))
    assert [batch.num_files for batch in work.batches] == [1, 1, 1, 1]


def test_20_a_stream_that_has_begun_keeps_its_position_whatever_its_start_options_say_now(bench, table, sink):
    bench.run_once(sink, "run-1", bench.stream(ending_version=2))
    _, work = bench.run_once(sink, "run-2", bench.stream(starting_version=5))
    assert work.batches[0].first_version == 3
