"""Small commits wait for each other: ``min_batch_bytes`` and ``max_batch_wait``."""

from __future__ import annotations

import json
import time
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from airflow_provider_fds.cli.main import main
from airflow_provider_fds.delta.storage.open import open_storage
from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.sinks import DeltaAppendSink
from airflow_provider_fds.source.offset import Offset
from airflow_provider_fds.stream import DeltaStream, TablePoller
from airflow_provider_fds.stream.polling import min_batch
from tests.conftest import LogBuilder
from tests.unit.stream.conftest import Bench

#: Bytes of a file of the log builder.
FILE = 1000


@pytest.fixture
def clock(monkeypatch):
    """The clock of the worker: ``clock.now`` in seconds since the epoch."""
    found = SimpleNamespace(now=time.time())
    monkeypatch.setattr(min_batch.time, "time", lambda: found.now)
    return found


def append(builder: Any, at: float, files: int = 1, **values: Any) -> int:
    return int(builder.append(files, timestamp_ms=int(at * 1000), **values))


@pytest.fixture
def table(log_builder, clock):
    log_builder.create(timestamp_ms=int((clock.now - 10_000) * 1000))
    return log_builder


def small(bench: Any, **options: Any) -> DeltaStream:
    return bench.stream(**{"min_batch_bytes": 5 * FILE, **options})


def test_small_work_waits_and_says_how_much_is_there_and_until_when(bench, table, sink, clock):
    append(table, clock.now - 120, 3)
    work = bench.session(stream=small(bench)).begin(sink)
    assert (work.status, work.batches) == ("up_to_date", ())
    assert "waiting for more data: it has 2.9 KiB of 4.9 KiB (min_batch_bytes)" in work.reason
    assert "the oldest commit is 2 min old" in work.reason
    latest = time.strftime("%Y-%m-%dT%H:%M", time.gmtime(clock.now + 15 * 60 - 120))
    assert f"A run after {latest}" in work.reason


def test_enough_work_does_not_wait(bench, table, sink, clock):
    append(table, clock.now, 2)
    append(table, clock.now, 3)
    (batch,) = bench.session(stream=small(bench)).begin(sink).batches
    assert (batch.num_files, batch.last_version) == (5, 2)


def test_small_work_is_loaded_when_its_oldest_commit_is_old_enough(bench, table, sink, clock):
    append(table, clock.now - 200)
    append(table, clock.now)
    stream = small(bench, max_batch_wait=201)
    assert not bench.session(stream=stream).begin(sink).batches
    clock.now += 1.5
    (batch,) = bench.session("run-2", stream=stream).begin(sink).batches
    assert batch.num_files == 2


def test_a_clock_far_off_does_not_make_anything_wait(bench, table, sink, clock):
    append(table, clock.now + 3600)
    assert bench.session(stream=small(bench)).begin(sink).batches


def test_batches_that_ended_at_a_limit_are_loaded_and_only_the_rest_waits(bench, table, sink, clock):
    for _ in range(5):
        append(table, clock.now)
    stream = small(bench, max_files_per_batch=2)
    session, work = bench.run_once(sink, stream=stream)
    assert ([batch.num_files for batch in work.batches], work.is_more) == ([2, 2], False)
    again = session.begin(sink)
    assert (again.status, again.result.batches) == ("done", 2)
    assert "1000 bytes of 4.9 KiB" in again.reason
    assert not bench.session("run-2", stream=stream).begin(sink).batches


def test_the_rest_of_a_commit_does_not_wait(bench, table, sink, clock):
    append(table, clock.now, 3)
    work = bench.session(stream=small(bench, max_files_per_batch=2)).begin(sink)
    assert [batch.num_files for batch in work.batches] == [2, 1]


def test_a_snapshot_does_not_wait(bench, table, sink, clock):
    append(table, clock.now)
    stream = DeltaStream("orders", table=str(bench.table), min_batch_bytes=5 * FILE)
    assert bench.session(stream=stream).begin(sink).batches


def test_what_comes_before_a_version_that_cannot_be_passed_does_not_wait(bench, table, sink, clock):
    append(table, clock.now)
    table.commit(table.remove("part-00001-00000.parquet"), operation="DELETE", timestamp_ms=int(clock.now * 1000))
    work = bench.session(stream=small(bench)).begin(sink)
    assert len(work.batches) == 1
    assert work.warning is not None


@pytest.mark.parametrize("end", [{"ending_version": 1}, {"ending_timestamp": "2124-01-01"}])
def test_a_stream_with_an_end_takes_everything(bench, table, sink, clock, end):
    append(table, clock.now)
    assert bench.session(stream=small(bench, **end)).begin(sink).batches


def test_a_backfill_takes_everything(bench, table, sink, clock):
    append(table, clock.now)
    backfill = DeltaStream("orders", table=str(bench.table), min_batch_bytes=5 * FILE).backfill(start=0, end=1)
    assert bench.session(stream=backfill).begin(sink).batches


def test_commits_without_data_do_not_wait(bench, table, sink, clock):
    table.commit(operation="OPTIMIZE", timestamp_ms=int(clock.now * 1000))
    session = bench.session(stream=small(bench))
    work = session.begin(sink)
    assert (work.status, work.reason) == ("up_to_date", "")
    assert Offset.from_json(session.connected.state.position).version == 2


def looking(table: Any, version: int = 1, **options: Any) -> TablePoller:
    values = {"starting_version": 0, "min_batch_bytes": 5 * FILE, **options}
    stream = DeltaStream("s", str(table.root), **values)
    return TablePoller(stream, open_storage(str(table.root)), Offset(table.table_id, version))


async def test_a_poll_waits_until_there_is_enough(table, clock):
    poller = looking(table)
    for files in (2, 2):
        append(table, clock.now, files)
        assert await poller.poll() is None
    assert poller.waiting is not None
    assert poller.waiting.num_bytes == 4 * FILE
    append(table, clock.now)
    assert (await poller.poll()).reason == "data"


async def test_a_poll_sees_that_the_wait_is_over_without_a_new_commit(table, clock):
    append(table, clock.now)
    poller = looking(table)
    assert await poller.poll() is None
    assert await poller.poll() is None
    clock.now += 15 * 60
    found = await poller.poll()
    assert (found.newest_version, found.reason) == (1, "data")


def test_a_poll_counts_only_files_that_the_stream_reads(table, clock):
    append(table, clock.now)
    table.commit(*(table.add(f"tmp-{n}") for n in range(9)), operation="WRITE", timestamp_ms=int(clock.now * 1000))
    poller = looking(table, exclude_regex="tmp-")
    assert poller.check() is None
    assert poller.waiting.num_bytes == FILE


@pytest.mark.parametrize("limit", [{"max_files_per_batch": 3}, {"max_versions_per_batch": 1}])
def test_a_poll_reports_what_a_limit_divides(table, clock, limit):
    append(table, clock.now, 2)
    poller = looking(table, **limit)
    assert poller.check() is None
    append(table, clock.now, 2)
    assert poller.check() is not None


def test_a_poll_of_a_feed_counts_removed_files_too(table, clock):
    feed = {"delta.enableChangeDataFeed": "true"}
    table.commit(table.metadata(configuration=feed), timestamp_ms=int(clock.now * 1000))
    append(table, clock.now, 2)
    poller = looking(table, 2, read_change_feed=True)
    assert poller.check() is None
    removed = (table.remove(f"part-00002-0000{n}.parquet", size=2 * FILE) for n in range(2))
    table.commit(*removed, operation="DELETE", timestamp_ms=int(clock.now * 1000))
    assert poller.check() is not None


def test_fds_run_says_that_data_waits_and_succeeds(table, clock, tmp_path, capsys):
    append(table, clock.now)
    where = ("--staging", str(tmp_path / "staging"), "--checkpoint", str(tmp_path / "c.json"), "--stream", "orders")
    options = ("--option", "starting_version=0", "--option", "min_batch_bytes=1m", "--option", "max_batch_wait=10m")
    run = ("run", str(table.root), "--sink", str(tmp_path / "sink"), *where, *options)
    assert main([*run]) == 0
    assert "Stream 'orders' is waiting for more data: it has 1000 bytes of 1 MiB" in capsys.readouterr().out
    assert main([*run, "--output", "json"]) == 0
    end = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (end["status"], end["error"]) == ("up_to_date", None)
    assert "waiting for more data" in end["waiting"]


@pytest.mark.parametrize("place", ["--dry-run", "--staging"])
def test_fds_plan_says_that_data_waits(table, clock, tmp_path, capsys, place):
    append(table, clock.now)
    where = (place,) if place == "--dry-run" else (place, str(tmp_path / "staging"), "--stream", "orders")
    options = ("--option", "starting_version=0", "--option", "min_batch_bytes=1m")
    assert main(["plan", str(table.root), *where, *options]) == 0
    assert "waiting for more data" in capsys.readouterr().out
    assert main(["plan", str(table.root), "--estimate", *options]) == 0
    assert "bytes        1,000" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"min_batch_bytes": -1}, "size of at least 1 byte"),
        ({"min_batch_bytes": "much"}, "size of at least 1 byte"),
        ({"min_batch_bytes": "2g", "max_bytes_per_batch": "1g"}, r"a batch ends at 1073741824 bytes \('max_bytes_per"),
        ({"min_batch_bytes": "126g"}, "Set a smaller minimum or a larger limit"),
        ({"min_batch_bytes": 1, "max_batch_wait": -5}, "above 0 and at most a day"),
        ({"min_batch_bytes": 1, "max_batch_wait": "soon"}, "above 0 and at most a day"),
        ({"min_batch_bytes": 1, "max_batch_wait": "2d"}, "above 0 and at most a day"),
        ({"min_batch_bytes": 1, "max_batch_wait": float("nan")}, "above 0 and at most a day"),
        ({"min_batch_bytes": 1, "max_batch_wait": True}, "above 0 and at most a day"),
        ({"max_batch_wait": "5m"}, "has no effect without min_batch_bytes"),
        ({"min_batch_bytes": 1, "read": "data_interval"}, "an interval is loaded completely"),
        ({"minOffsetsPerTrigger": 1}, "min_batch_bytes"),
    ],
    ids=str,
)
def test_what_makes_no_sense_is_refused(options, words):
    with pytest.raises(ConfigurationError, match=words):
        DeltaStream("s", "s3://lake/t", **options)


@pytest.mark.parametrize("value", [timedelta(minutes=5), 300, 300.0, "300", "5m", "5 min", "300s"])
def test_a_wait_is_a_time_span_seconds_or_a_string(value):
    stream = DeltaStream("s", "s3://lake/t", min_batch_bytes="126g", max_files_per_batch=5, max_batch_wait=value)
    assert stream.options.max_batch_wait == timedelta(minutes=5)
    assert DeltaStream.from_dict(json.loads(json.dumps(stream.to_dict()))) == stream
    assert stream.to_dict()["options"]["max_batch_wait"] == 300


COMMITS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 400)), min_size=1, max_size=6)
OPTIONS = st.fixed_dictionaries(
    {"min_batch_bytes": st.integers(1, 6 * FILE), "max_batch_wait": st.integers(1, 900)},
    optional={"max_files_per_batch": st.integers(1, 4), "max_versions_per_batch": st.integers(1, 3)},
)


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(commits=COMMITS, options=OPTIONS)
def test_whatever_waits_the_rows_are_those_without_a_minimum_and_nothing_waits_for_good(
    commits, options, clock, tmp_path_factory
):
    place = tmp_path_factory.mktemp("lake")
    builder = LogBuilder(place / "table")
    began = clock.now = 1_700_000_000.0
    builder.create(timestamp_ms=int(clock.now * 1000))
    bench, sink = Bench(builder.root, place / "staging"), DeltaAppendSink(str(place / "sink"))
    stream = bench.stream(**options)
    loaded: list[tuple[int, int]] = []
    runs = 0

    def run() -> None:
        nonlocal runs
        runs += 1
        session, work = bench.run_once(sink, f"run-{runs}", stream)
        loaded.extend((batch.num_files, batch.first_version) for batch in work.batches)
        position = session.connected.state.position
        poller = TablePoller(stream, open_storage(str(builder.root)), Offset.from_json(position))
        if not work.batches and poller.check() is not None:
            # the poll and the plan agree, or a run would be woken again and again
            assert poller.check().reason != "data"

    for files, pause in commits:
        clock.now += pause
        append(builder, clock.now, files) if files else builder.commit(timestamp_ms=int(clock.now * 1000))
        run()
    clock.now += options["max_batch_wait"] + 1
    run()
    assert clock.now > began
    assert sum(files for files, _ in loaded) == sum(files for files, _ in commits)
    session = bench.session("last", stream=stream)
    work = session.begin(sink)
    assert (work.status, work.reason) == ("up_to_date", "")
    assert Offset.from_json(session.connected.state.position).version == builder.version + 1
