from __future__ import annotations

import time
from typing import Any

import pytest

from airflow_provider_fds.delta.storage.local import LocalStorage
from airflow_provider_fds.errors import TableNotFoundError
from airflow_provider_fds.source.offset import Offset
from airflow_provider_fds.stream import DeltaStream, TablePoller


class CountingStorage(LocalStorage):
    """A local storage that counts what is asked of it."""

    def __init__(self, root: Any) -> None:
        super().__init__(str(root))
        self.heads = self.lists = self.gets = 0

    def head(self, key):
        self.heads += 1
        return super().head(key)

    def get(self, key):
        self.gets += 1
        return super().get(key)

    def list_after(self, folder, after=None):
        self.lists += 1
        return super().list_after(folder, after)


def watch(log_builder, version: int, **options: Any) -> tuple[TablePoller, CountingStorage]:
    storage = CountingStorage(log_builder.root)
    stream = DeltaStream("s", str(log_builder.root), starting_version=0, **options)
    return TablePoller(stream, storage, Offset(log_builder.table_id, version)), storage


def now_ms() -> int:
    return int(time.time() * 1000)


@pytest.fixture
def table(log_builder):
    log_builder.create(timestamp_ms=now_ms())
    log_builder.append(1, timestamp_ms=now_ms())
    return log_builder


@pytest.mark.parametrize("commits", [0, 200])
async def test_a_poll_of_an_unchanged_table_is_exactly_one_head_at_any_log_size(table, commits):
    for _ in range(commits):
        table.append(1, timestamp_ms=now_ms())
    looking, storage = watch(table, table.version + 1)
    for _ in range(3):
        assert await looking.poll() is None

    assert (storage.heads, storage.lists, storage.gets) == (3, 0, 0)


async def test_a_commit_with_data_is_seen(table):
    looking, _ = watch(table, 2)
    table.append(1, timestamp_ms=now_ms())
    seen = await looking.poll()

    assert seen is not None
    assert (seen.newest_version, seen.reason) == (2, "data")
    assert looking.check() == seen


async def test_a_commit_without_data_wakes_no_run_and_is_read_once(table):
    looking, storage = watch(table, 2)
    table.commit(operation="OPTIMIZE", timestamp_ms=now_ms())
    assert await looking.poll() is None
    gets = storage.gets
    assert await looking.poll() is None

    assert storage.gets == gets
    table.append(1, timestamp_ms=now_ms())
    seen = await looking.poll()
    assert seen is not None
    assert (seen.newest_version, storage.gets) == (3, gets + 1)


async def test_commits_without_data_wake_when_the_position_is_older_than_a_day(log_builder):
    log_builder.create()
    log_builder.append(1)
    log_builder.commit(operation="OPTIMIZE")
    looking, _ = watch(log_builder, 2)
    seen = await looking.poll()

    assert seen is not None
    assert seen.reason == "position is old"


async def test_a_commit_that_the_options_skip_is_not_data(table):
    looking, _ = watch(table, 2, skip_change_commits=True)
    table.commit(table.add("x"), table.remove("part-00001-00000.parquet"), timestamp_ms=now_ms())

    assert await looking.poll() is None


async def test_a_commit_whose_files_are_all_excluded_is_not_data(table):
    looking, _ = watch(table, 2, exclude_regex="^tmp/")
    table.commit(table.add("tmp/x"), timestamp_ms=now_ms())
    assert await looking.poll() is None
    table.commit(table.add("tmp/x"), table.add("y"), timestamp_ms=now_ms())
    assert (await looking.poll()).reason == "data"


@pytest.mark.parametrize("feed", [False, True])
async def test_a_commit_whose_partitions_are_all_left_out_is_not_data(log_builder, feed):
    fields = [log_builder.field("id"), log_builder.field("country", "string")]
    properties = {"delta.enableChangeDataFeed": "true"} if feed else {}
    log_builder.create(fields, ["country"], properties, timestamp_ms=now_ms())
    looking, _ = watch(log_builder, 1, where="country = 'DE'", read_change_feed=feed)
    log_builder.append(2, partitionValues={"country": "FR"}, timestamp_ms=now_ms())
    assert await looking.poll() is None
    assert looking.check() is None
    log_builder.append(1, partitionValues={"country": "DE"}, timestamp_ms=now_ms())
    assert (await looking.poll()).reason == "data"


async def test_a_filter_that_does_not_fit_the_table_wakes_the_run_that_reports_it(table):
    looking, _ = watch(table, 2, where="country = 'DE'")
    table.append(1, timestamp_ms=now_ms())
    found = await looking.poll()
    assert found.reason != "data"
    assert found.reason.startswith("stopped: ")
    assert "where \"country = 'DE'\" names 'country'" in found.reason


CHANGE_FEED = {"delta.enableChangeDataFeed": "true"}


async def test_deletes_and_change_files_are_data_for_a_stream_of_changes(table):
    looking, _ = watch(table, 2, read_change_feed=True, exclude_regex="^tmp/")
    for line in (table.remove("tmp/x"), {"cdc": {"path": "tmp/y", "size": 1}}):
        table.commit(line, timestamp_ms=now_ms())
        assert await looking.poll() is None
    table.commit(table.remove("tmp/z", dataChange=False), timestamp_ms=now_ms())
    assert await looking.poll() is None
    looking, _ = watch(table, 2, read_change_feed=True)
    assert (await looking.poll()).reason == "data"
    looking, _ = watch(table, 3, read_change_feed=True)
    assert (await looking.poll()).reason == "data"


async def test_a_commit_that_switches_the_feed_off_wakes_the_run_that_reports_it(table):
    looking, _ = watch(table, 2, read_change_feed=True)
    table.commit(table.metadata(configuration=CHANGE_FEED), timestamp_ms=now_ms())
    assert await looking.poll() is None
    table.commit(table.metadata(), timestamp_ms=now_ms())
    seen = await looking.poll()

    assert seen.reason.startswith("stopped: ")
    assert "version 3 does not record changes" in seen.reason


async def test_a_commit_that_stops_the_stream_wakes_the_run_that_reports_it(table):
    looking, _ = watch(table, 2)
    table.commit(table.remove("part-00001-00000.parquet"), operation="DELETE", timestamp_ms=now_ms())
    seen = await looking.poll()

    assert seen.reason.startswith("stopped: ")
    assert "version 2" in seen.reason


async def test_a_recheck_notices_a_table_that_is_gone(table):
    looking, _ = watch(table, 2)
    for path in table.log.iterdir():
        path.unlink()
    assert await looking.poll() is None
    with pytest.raises(TableNotFoundError):
        looking.check()


async def test_a_recheck_notices_that_log_cleanup_has_overtaken_the_position(table):
    for _ in range(3):
        table.append(1, timestamp_ms=now_ms())
    looking, _ = watch(table, 1)
    for version in (0, 1, 2):
        (table.log / f"{version:020d}.json").unlink()
    for _ in range(2):
        found = looking.check()
        assert (found.newest_version, found.reason) == (4, "position is lost")


async def test_a_recheck_notices_a_table_restored_to_before_the_position(table):
    looking, _ = watch(table, 5)
    assert looking.check().reason == "position is lost"


async def test_a_start_in_the_future_waits_for_the_commit_that_reaches_it(log_builder):
    log_builder.create()
    log_builder.append(1)
    stream = DeltaStream("s", str(log_builder.root), starting_timestamp="2024-01-01T00:03:00Z")
    looking = TablePoller(stream, LocalStorage(str(log_builder.root)), None)
    assert looking.check() is None
    assert await looking.poll() is None
    log_builder.append(1)  # at 00:02
    assert await looking.poll() is None
    log_builder.append(1)

    assert (await looking.poll()).newest_version == 3


async def test_a_stream_that_was_never_opened_is_woken_at_once_by_what_its_start_covers(log_builder):
    log_builder.create()
    for options in ({}, {"starting_version": "latest"}, {"starting_timestamp": "2024-01-01"}):
        stream = DeltaStream("s", str(log_builder.root), **options)
        looking = TablePoller(stream, LocalStorage(str(log_builder.root)), None)

        assert looking.check().reason == "data"
        assert (await looking.poll()).reason == "data"


@pytest.mark.parametrize(
    ("kept", "age_hours", "is_old"),
    [
        # a tenth of the default, 30 days, is more than a day
        (None, 23, False),
        (None, 25, True),
        ("interval 5 days", 11, False),
        ("interval 5 days", 13, True),
        ("interval 90 days", 25, True),
        ("nonsense", 23, False),
    ],
)
async def test_a_position_is_old_after_a_day_or_a_tenth_of_the_time_the_log_is_kept(
    log_builder, kept, age_hours, is_old
):
    at = now_ms() - age_hours * 3_600_000
    log_builder.create(configuration={"delta.logRetentionDuration": kept} if kept else None, timestamp_ms=at)
    log_builder.commit(operation="OPTIMIZE", timestamp_ms=at)
    for seen in (watch(log_builder, 1)[0].check(), await watch(log_builder, 1)[0].poll()):
        assert (seen is not None) is is_old
        assert seen is None or seen.reason == "position is old"


async def test_a_file_without_partition_values_is_judged_as_the_plan_judges_it(log_builder):
    fields = [log_builder.field("id"), log_builder.field("country", "string")]
    log_builder.create(fields, ["country"], timestamp_ms=now_ms())
    looking, _ = watch(log_builder, 0, where="country = 'DE'")
    log_builder.commit(log_builder.add(partitionValues=None), timestamp_ms=now_ms())
    assert await looking.poll() is None
