"""Waiting for a version or for new data of a table, without a stream."""

from __future__ import annotations

import asyncio
import shutil

import pytest

from airflow_provider_fds.delta.storage.local import LocalStorage
from airflow_provider_fds.sensors.table_condition import seen_by
from airflow_provider_fds.stream.polling.table_condition import ConditionPoller, TableCondition
from tests.counting_storage import CountingStorage
from tests.unit.catalog.test_log_view import Managed


def watch(log_builder, requests=None, **condition):
    storage = CountingStorage(LocalStorage(str(log_builder.root)), [] if requests is None else requests)
    return ConditionPoller(storage, TableCondition(**condition))


def optimize(table):
    path = next(iter(table.live))
    table.commit(table.remove(path, dataChange=False), table.add("o.parquet", dataChange=False), operation="OPTIMIZE")


def test_a_version_that_is_there_or_was_cleaned_up_is_reached(log_builder):
    log_builder.with_appends(12)
    log_builder.clean_up_before(10)
    found = watch(log_builder, version=3).check()
    assert (found.newest_version, found.reason) == (12, "it has version 3")
    assert watch(log_builder, version=12).check() is not None
    assert watch(log_builder, version=13).check() is None


async def test_a_table_that_does_not_exist_yet_is_waited_for(log_builder):
    waiting = watch(log_builder, version=1)
    assert waiting.check() is None
    assert waiting.newest == -1
    assert waiting.absence.startswith("no Delta table at ")
    log_builder.create()
    assert await waiting.poll() is None
    assert (waiting.newest, waiting.absence) == (0, None)
    log_builder.append()
    assert (await waiting.poll()).newest_version == 1


@pytest.mark.parametrize(
    "condition",
    [{"version": 9}, {"after_version": 2}, {"committed_after": "2024-01-01 00:09:00"}],
)
async def test_a_poll_of_an_unchanged_table_is_one_head(log_builder, condition):
    log_builder.with_appends(2)
    requests = []
    waiting = watch(log_builder, requests, **condition)
    assert waiting.check() is None
    requests.clear()
    for _ in range(3):
        assert await waiting.poll() is None
    assert [request.kind for request in requests] == ["head_async"] * 3


def test_commits_without_data_do_not_count(log_builder):
    log_builder.with_appends(1)
    optimize(log_builder)
    log_builder.commit(operation="SET TBLPROPERTIES")
    waiting = watch(log_builder, after_version=1)
    assert waiting.check() is None
    log_builder.commit(log_builder.remove("part-00001-00000.parquet"), operation="DELETE")
    found = asyncio.run(waiting.poll())
    assert (found.newest_version, found.reason) == (4, "version 4 has data")


def test_any_data_counts_after_version_minus_one_but_not_an_empty_table(log_builder):
    log_builder.create()
    waiting = watch(log_builder, after_version=-1)
    assert waiting.check() is None
    log_builder.append()
    assert waiting.check().reason == "version 1 has data"


def test_versions_that_log_cleanup_removed_may_have_had_data(log_builder):
    log_builder.with_appends(5)
    log_builder.clean_up_before(5)
    reason = "log cleanup removed versions 3 to 4, which may have had data"
    assert watch(log_builder, after_version=2).check().reason == reason


def test_a_commit_that_a_catalog_publishes_is_not_another_table(log_builder):
    table = Managed(log_builder)
    view = table.view()
    seen = seen_by(view, 5)
    table.publish(5, tell=True, keep=False)
    assert seen_by(view, 5) == seen
    condition = TableCondition(after_version=5, after_modified_ms=seen["modified_ms"])
    assert ConditionPoller(view, condition).check() is None


def test_a_table_that_was_replaced_counts_as_changed(log_builder):
    log_builder.with_appends(5)
    waiting = watch(log_builder, after_version=5)
    assert waiting.check() is None
    shutil.rmtree(log_builder.log)
    assert waiting.check() is None
    log_builder.version = -1
    log_builder.create()
    assert "ends before version 5" in waiting.check().reason


@pytest.mark.parametrize(("moment", "is_met"), [("00:02:00", True), ("00:02:00.001", False), ("00:01:30", True)])
def test_a_commit_time_is_inclusive_to_the_millisecond(log_builder, moment, is_met):
    log_builder.with_appends(2)
    found = watch(log_builder, committed_after=f"2024-01-01 {moment}").check()
    assert (found is not None) is is_met


def test_a_commit_without_data_after_the_time_does_not_count(log_builder):
    log_builder.with_appends(2)
    waiting = watch(log_builder, committed_after="2024-01-01 00:03:00")
    optimize(log_builder)
    assert waiting.check() is None
    log_builder.append()
    assert waiting.check().reason == "version 4 has data"


def test_in_commit_timestamps_are_the_times_of_commits(log_builder):
    log_builder.create(
        configuration={"delta.enableInCommitTimestamps": "true"},
        protocol={"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["inCommitTimestamp"]},
    )
    for version in range(3):
        path = log_builder.path_of(version)
        if version:
            log_builder.append()
        text = path.read_text().replace(
            '"commitInfo":{', f'"commitInfo":{{"inCommitTimestamp":{10_000 * (version + 1)},'
        )
        log_builder.write_raw(version, text)
    assert watch(log_builder, committed_after="1970-01-01 00:00:30").check().reason == "version 2 has data"
    assert watch(log_builder, committed_after="1970-01-01 00:00:31").check() is None


def test_a_condition_survives_the_triggerers_database(log_builder):
    for condition in (
        TableCondition(version=3),
        TableCondition(after_version=-1),
        TableCondition(after_version=2, after_modified_ms=5),
        TableCondition(committed_after="2024"),
    ):
        assert TableCondition.from_dict(condition.to_dict()) == condition


async def test_a_table_that_was_replaced_by_one_with_the_same_newest_version_counts_as_changed(log_builder):
    log_builder.with_appends(1)
    seen = log_builder.time_of(1)
    waiting = watch(log_builder, after_version=1, after_modified_ms=seen)
    assert waiting.check() is None
    shutil.rmtree(log_builder.log)
    log_builder.version = -1
    log_builder.with_appends(1)
    log_builder.touch(1, seen)
    assert waiting.check() is None
    log_builder.touch(1, seen + 5)
    assert waiting.check().reason == "version 1 has data"
