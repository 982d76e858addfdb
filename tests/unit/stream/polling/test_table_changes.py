"""What a watcher is told about a table: commits with data, each read once."""

from __future__ import annotations

import asyncio

import pytest

from airflow_provider_fds.delta.storage.local import LocalStorage
from airflow_provider_fds.delta.storage.open import open_storage
from airflow_provider_fds.stream.polling import table_changes
from airflow_provider_fds.stream.polling.table_changes import SeenVersion, TableChange, TableChanges
from tests.conftest import LogBuilder
from tests.unit.catalog.test_log_view import Managed


@pytest.fixture
def changes(log_builder):
    return TableChanges(open_storage(log_builder.uri, {}))


def since(changes, version, **attributes):
    changes.check()
    return asyncio.run(changes.since(SeenVersion(version, **attributes), changes.newest))


def test_commits_with_data_are_one_change_with_their_operations_and_rows(log_builder, changes):
    log_builder.create()
    log_builder.append(n_files=2)
    log_builder.commit(log_builder.add(), operation="MERGE")
    log_builder.append()
    assert since(changes, 0) == TableChange(1, 3, ("MERGE", "WRITE"), 40)
    assert since(changes, 2) == TableChange(3, 3, ("WRITE",), 10)
    assert since(changes, 3) is None


def test_commits_without_data_are_no_change_and_are_not_at_its_ends(log_builder, changes):
    log_builder.create()
    log_builder.commit(operation="VACUUM END")
    rewritten = [log_builder.add(dataChange=False)]
    log_builder.commit(*rewritten, operation="OPTIMIZE")
    assert since(changes, 0) is None
    log_builder.append()
    log_builder.commit(operation="VACUUM END")
    assert since(changes, 0) == TableChange(3, 3, ("WRITE",), 10)


def test_rows_are_unknown_if_one_file_has_no_statistics_and_none_if_files_only_go(log_builder, changes):
    log_builder.create()
    added = log_builder.add("a.parquet")
    log_builder.commit(added)
    log_builder.commit(log_builder.remove("a.parquet"), operation="DELETE")
    assert since(changes, 1) == TableChange(2, 2, ("DELETE",), 0)
    log_builder.commit(log_builder.add(stats=None))
    assert since(changes, 0) == TableChange(1, 3, ("DELETE", "WRITE"), None)


def test_a_commit_that_a_catalog_publishes_is_no_change_and_another_table_of_the_name_is(log_builder, tmp_path):
    table = Managed(log_builder)
    changes = TableChanges(table.view())
    changes.check()
    before = changes.newest
    table.publish(5, tell=True, keep=False)
    assert not changes.check()
    assert asyncio.run(changes.since(SeenVersion.from_dict(before.to_dict()), changes.newest)) is None
    # a cursor from before the catalog managed the table
    assert asyncio.run(changes.since(SeenVersion(5, modified_ms=1), changes.newest)) is None
    table.commit()
    assert changes.check()
    assert asyncio.run(changes.since(before, changes.newest)) == TableChange(6, 6, ("WRITE",), 10)

    changes.reopen(Managed(LogBuilder(tmp_path / "other"), latest=6).view(table_id="another"))
    assert changes.check()
    assert asyncio.run(changes.since(before, changes.newest)) == TableChange(1, 6, ("WRITE",), 60)


def test_a_table_that_is_created_has_changed_since_there_was_none(log_builder, changes):
    changes.check()
    assert changes.newest == SeenVersion(-1)
    log_builder.create()
    log_builder.append()
    assert since(changes, -1) == TableChange(1, 1, ("WRITE",), 10)


def test_all_commits_of_a_table_that_was_replaced_count(log_builder, changes):
    log_builder.create()
    log_builder.append()
    # a later version than the table has
    assert since(changes, 7) == TableChange(1, 1, ("WRITE",), 10)
    # the same version of another table
    assert since(changes, 1, modified_ms=1) == TableChange(1, 1, ("WRITE",), 10)
    assert since(changes, 1, modified_ms=changes.newest.modified_ms) is None


def test_a_table_that_is_replaced_while_it_is_watched_has_changed(log_builder, changes):
    log_builder.create(timestamp_ms=1_700_000_000_000)
    log_builder.append(timestamp_ms=1_700_000_001_000)
    changes.check()
    before = changes.newest
    assert asyncio.run(changes.since(SeenVersion(0), before)) == TableChange(1, 1, ("WRITE",), 10)
    log_builder.touch(1, 1_700_000_009_000)
    assert changes.check()
    assert asyncio.run(changes.since(before, changes.newest)) == TableChange(1, 1, ("WRITE",), 10)


def test_commits_that_log_cleanup_removed_count_as_data_of_unknown_size(log_builder, changes):
    log_builder.create()
    log_builder.append()
    log_builder.append()
    log_builder.commit(operation="VACUUM END")
    log_builder.clean_up_before(3)
    assert since(changes, 0) == TableChange(1, 3, (), None)


def test_no_more_commits_are_read_than_the_newest_thousand(log_builder, changes, monkeypatch):
    monkeypatch.setattr(table_changes, "MOST_COMMITS", 2)
    log_builder.create()
    log_builder.commit(log_builder.add(), operation="MERGE")
    log_builder.append()
    log_builder.append()
    assert since(changes, 0) == TableChange(1, 3, ("WRITE",), None)


async def test_a_thousand_watchers_cost_one_read_of_each_commit(log_builder, changes, monkeypatch):
    log_builder.create()
    changes.check()
    log_builder.append()
    log_builder.append()
    changes.check()
    reads = []
    get = LocalStorage.get
    monkeypatch.setattr(LocalStorage, "get", lambda storage, key, *rest: reads.append(key) or get(storage, key, *rest))
    found = await asyncio.gather(*(changes.since(SeenVersion(0), changes.newest) for _ in range(1000)))
    assert set(found) == {TableChange(1, 2, ("WRITE",), 20)}
    assert [key[-7:-5] for key in reads] == ["01", "02"]


async def test_a_failed_read_is_read_again(log_builder, changes, monkeypatch):
    log_builder.create()
    log_builder.append()
    changes.check()
    with monkeypatch.context() as broken:
        broken.setattr(LocalStorage, "head", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            await changes.since(SeenVersion(0), changes.newest)
    assert await changes.since(SeenVersion(0), changes.newest) == TableChange(1, 1, ("WRITE",), 10)


async def test_an_unchanged_table_costs_one_head(log_builder, changes, monkeypatch):
    log_builder.create()
    changes.check()
    heads = []
    head = LocalStorage.head_async

    async def counted(storage, key):
        heads.append(key)
        return await head(storage, key)

    monkeypatch.setattr(LocalStorage, "head_async", counted)
    monkeypatch.setattr(LocalStorage, "list_after", lambda *_: 1 / 0)
    assert not await changes.poll()
    assert heads == ["_delta_log/00000000000000000001.json"]
