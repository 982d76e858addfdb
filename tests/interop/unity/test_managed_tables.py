"""Tables whose newest commits only a real Unity Catalog knows: the rows that Spark loads, and what a poll costs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from airflow_provider_fds.delta.reader.log import DeltaLog
from airflow_provider_fds.delta.storage.open import open_place, open_storage
from airflow_provider_fds.errors import TableNotFoundError, UnsupportedFeatureError
from airflow_provider_fds.source.offset import Offset
from airflow_provider_fds.stream import TablePoller
from tests.counting_storage import CountingStorage, Request
from tests.interop.unity.conftest import counted
from tests.interop.unity.server import table_path

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_provider_fds.catalog.table import CatalogPlaces
    from airflow_provider_fds.places import Place
    from tests.interop.unity.conftest import Loads
    from tests.interop.unity.managed import SparkTable
    from tests.interop.unity.server import UnityServer


@pytest.fixture
def table(managed: Callable[[str], SparkTable], name: str) -> SparkTable:
    """Versions 1 to 5: the catalog names 2 to 5, of which 2 is published too, among files that do not count."""
    table = managed(name)
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
    table: SparkTable, loads: Loads
):
    stream = loads.stream(table.name, on_schema_change="continue")
    loads.load(stream)
    assert counted(loads.loaded(stream)) == counted(table.rows())
    # a snapshot has the rows of staged commits too
    snapshot = loads.stream(table.name, "snapshot", starting_version=None)
    loads.load(snapshot)
    assert counted(loads.loaded(snapshot)) == counted(table.rows())

    table.folder.delete(f"_delta_log/{6:020d}.json")
    table.sql("DELETE FROM {} WHERE id % 10 = 0")
    table.sql("INSERT INTO {} SELECT id, 'last', 'new' FROM range(700, 750)")
    for version in (3, 4, 5):
        table.publish(version, remove=True)
    before = loads.loaded(stream).count()
    changed = loads.stream(table.name, on_schema_change="continue", skip_change_commits=True)
    loads.load(changed)
    assert loads.loaded(stream).count() == before + 50
    assert loads.load(changed).connected.state.position["version"] == 8
    # with its deletion vectors
    again = loads.stream(table.name, "again", starting_version=None)
    loads.load(again)
    assert counted(loads.loaded(again)) == counted(table.rows())


def opened(places: CatalogPlaces, name: str, requests: list[Request]) -> CountingStorage:
    """Open a table as everything of FDS does, with its requests to storage counted."""
    place = places.resolve(name)
    folder = CountingStorage(open_storage(place.uri, place.options), requests)
    return place.view(folder)


def test_a_poll_sees_a_staged_commit_by_one_request_to_the_catalog_and_none_to_storage(
    table: SparkTable, loads: Loads, asked: list[str]
):
    requests: list[Request] = []
    storage = opened(loads.places, table.name, requests)
    log = DeltaLog(storage)
    poller = TablePoller(loads.stream(table.name), storage, Offset.after(5, log.state_at(5).metadata.id))
    assert poller.check() is None
    for is_there in (False, True):
        asked.clear()
        requests.clear()
        assert log.probe(6) is is_there
        assert (asked, requests) == ([table_path(table.name)], [])
        if not is_there:
            table.sql("INSERT INTO {} SELECT id, 'six', 'new' FROM range(600, 610)")
    assert poller.check().newest_version == 6


def test_by_its_path_the_table_is_refused(table: SparkTable):
    with pytest.raises(UnsupportedFeatureError, match="through the catalog"):
        DeltaLog(open_storage(table.location)).state_at(1)


def test_a_table_that_was_renamed_is_found_by_its_new_name_only(table: SparkTable, loads: Loads, unity: UnityServer):
    stream = loads.stream(table.name, on_schema_change="continue")
    loads.load(stream)
    unity.rename(table.name, "renamed")
    with pytest.raises(TableNotFoundError, match=f"has no table {table.name}. .*if the table was renamed"):
        loads.load(stream)
    table.name = "main.sales.renamed"
    table.folder.delete(f"_delta_log/{6:020d}.json")
    table.sql("INSERT INTO {} SELECT id, 'six', 'new' FROM range(600, 610)")
    renamed = loads.stream(table.name, on_schema_change="continue")
    session = loads.load(renamed)
    assert session.connected.state.catalog.name == table.name
    assert counted(loads.loaded(renamed)) == counted(table.rows())


def test_a_poll_of_a_table_that_was_dropped_or_created_anew_says_so(
    managed: Callable[[str], SparkTable], name: str, loads: Loads, unity: UnityServer
):
    table = managed(name)
    place: Place = loads.places.resolve(name)
    log = DeltaLog(open_place(place))
    assert not log.probe(1)
    unity.drop(name)
    with pytest.raises(TableNotFoundError, match=f"has no table {name}"):
        log.probe(1)
    assert table.version == 0
