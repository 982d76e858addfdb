"""Tables whose newest commits only a real Unity Catalog knows: the rows that Spark loads, and what a poll costs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from airflow_provider_fds.delta.reader.log import DeltaLog
from airflow_provider_fds.delta.storage.open import open_place, open_storage
from airflow_provider_fds.errors import StorageError, TableNotFoundError, UnsupportedFeatureError
from airflow_provider_fds.source.offset import Offset
from airflow_provider_fds.stream import TablePoller
from tests.counting_storage import CountingStorage, Request
from tests.interop.unity.conftest import counted
from tests.interop.unity.managed import ManagedTable, SparkTable
from tests.interop.unity.server import table_path

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.interop.unity.conftest import Loads
    from tests.interop.unity.server import UnityServer


@pytest.fixture
def of_spark(spark: SparkSession, unity: UnityServer, name: str, tmp_path: Path) -> SparkTable:
    """Versions 1 to 5: the catalog names 2 to 5, of which 2 is published too, among files that do not count."""
    table = SparkTable(unity, name, open_storage, spark, tmp_path / "twin", "id BIGINT, name STRING")
    for version in range(1, 4):
        first = version * 100
        table.sql(f"INSERT INTO {{}} SELECT id, concat('n', id) FROM range({first}, {first + 50})")
        if version == 1:
            table.publish(1, remove=True)
            table.report_published(1)
    table.publish(2)
    table.sql("ALTER TABLE {} ADD COLUMN extra STRING")
    table.sql("INSERT INTO {} SELECT id, concat('n', id), 'new' FROM range(500, 550)")
    table.lose(3)
    table.lose(5)
    table.leave_half_written(5)
    table.leave_half_written(6)
    # published out of turn, by a writer that the catalog refused
    table.folder.put(f"_delta_log/{3:020d}.json", b'{"commitInfo":{}}\n')
    table.folder.put(f"_delta_log/{6:020d}.json", b'{"commitInfo":{}}\n')
    return table


def test_exactly_the_rows_that_the_catalog_has_are_loaded_by_a_spark_that_knows_no_catalog(
    of_spark: SparkTable, loads: Loads
):
    table = of_spark
    stream = loads.stream(table.name)
    loads.load(stream)
    assert counted(loads.loaded(stream)) == counted(table.rows())

    # the next commits are published, as the catalog's rules demand
    for version in (2, 3, 4, 5):
        table.publish(version, remove=True)
    table.folder.delete(f"_delta_log/{6:020d}.json")
    table.sql("INSERT INTO {} SELECT id, 'last', 'new' FROM range(700, 750)")
    loads.load(stream)
    assert counted(loads.loaded(stream)) == counted(table.rows())

    # a snapshot has the deletion vectors of staged commits
    table.sql("DELETE FROM {} WHERE id % 10 = 0")
    snapshot = loads.stream(table.name, "snapshot", starting_version=None)
    loads.load(snapshot)
    assert counted(loads.loaded(snapshot)) == counted(table.rows())


def test_a_poll_sees_a_staged_commit_by_one_request_to_the_catalog_and_none_to_storage(
    table: ManagedTable, loads: Loads, asked: list[str]
):
    place = loads.places.resolve(table.name)
    requests: list[Request] = []
    storage = place.view(CountingStorage(open_storage(place.uri, place.options), requests))
    log = DeltaLog(storage)
    poller = TablePoller(loads.stream(table.name), storage, Offset.after(3, log.state_at(3).metadata.id))
    assert poller.check() is None
    for is_there in (False, True):
        asked.clear()
        requests.clear()
        assert log.probe(4) is is_there
        assert (asked, requests) == ([table_path(table.name)], [])
        if not is_there:
            table.append_by_hand()
    assert poller.check().newest_version == 4


def test_by_its_path_the_table_is_refused(table: ManagedTable):
    with pytest.raises(UnsupportedFeatureError, match="through the catalog"):
        DeltaLog(open_storage(table.location)).state_at(1)


def test_a_table_that_was_renamed_is_found_by_its_new_name_only(table: ManagedTable, loads: Loads, unity: UnityServer):
    def planned() -> int:
        """Plan, and return the number of files that wait for a job."""
        work = loads.session(loads.stream(table.name)).begin(None, user_job=True)
        return sum(batch.num_files for batch in work.batches)

    assert planned() == 3
    unity.rename(table.name, f"{table.name.rpartition('.')[2]}_new")
    with pytest.raises(TableNotFoundError, match=f"has no table {table.name}. .*if the table was renamed"):
        planned()
    table.name += "_new"
    table.append_by_hand()
    assert planned() == 3
    assert loads.session(loads.stream(table.name)).connected.load().catalog.name == table.name


def test_a_poll_of_a_table_that_was_dropped_says_so(table: ManagedTable, loads: Loads, unity: UnityServer):
    log = DeltaLog(open_place(loads.places.resolve(table.name)))
    assert not log.probe(4)
    unity.drop(table.name)
    with pytest.raises(TableNotFoundError, match=f"has no table {table.name}"):
        log.probe(4)


def test_a_poll_of_a_table_that_was_created_anew_does_not_go_on(table: ManagedTable, loads: Loads, unity: UnityServer):
    log = DeltaLog(open_place(loads.places.resolve(table.name)))
    # the answer by which it was found serves the first poll
    assert not log.probe(4)
    unity.drop(table.name)
    again = ManagedTable(unity, table.name, open_storage)
    again.create_by_hand()
    with pytest.raises(StorageError, match="since it was resolved, the table was created anew"):
        log.probe(4)
