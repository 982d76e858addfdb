"""Keys that a real Unity Catalog gives for a table: they expire while FDS polls and plans, and STS may refuse them."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, NoReturn

import pytest

from airflow_provider_fds.catalog.table import CatalogPlaces
from airflow_provider_fds.catalog.unity import UnityCatalog
from airflow_provider_fds.delta.reader.log import DeltaLog
from airflow_provider_fds.delta.storage.open import open_place, open_storage
from airflow_provider_fds.errors import AccessDeniedError, StorageError
from tests.interop.unity.managed import ManagedTable

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from airflow_provider_fds.delta.storage.storage import Storage
    from tests.conftest import LogBuilder
    from tests.interop.unity.conftest import Loads
    from tests.interop.unity.server import UnityServer
    from tests.interop.unity.sts import KeyedLake, Sts


@pytest.fixture
def name(name: str) -> str:
    return name.replace("main.", "cloud.")


@pytest.fixture
def write(s3_lake: KeyedLake) -> Callable[[str], Storage]:
    """Opens a folder with the key of the tests."""
    return lambda uri: open_storage(uri, s3_lake.options())


@pytest.fixture
def external(log_builder: LogBuilder, write: Callable[[str], Storage], unity: UnityServer, name: str) -> Storage:
    """An external table of versions 0 to 20."""
    folder = write(f"s3://lake/tables/{name.rpartition('.')[2]}")
    for path in log_builder.with_appends(20).log.iterdir():
        folder.put(f"_delta_log/{path.name}", path.read_bytes())
    unity.make_external(name, folder.uri)
    return folder


@pytest.fixture
def places(unity: UnityServer, s3_lake: KeyedLake) -> CatalogPlaces:
    """Tables by name, at the endpoint of a storage connection whose own keys are good for nothing."""
    options = {**s3_lake.options(), "access_key_id": "of-connection", "secret_access_key": "none"}
    return CatalogPlaces(UnityCatalog(unity.url), lambda _: options)


@pytest.fixture
def managed(unity: UnityServer, write: Callable[[str], Storage], name: str) -> ManagedTable:
    """A table whose commits the catalog keeps: versions 1 and 2 are staged."""
    table = ManagedTable(unity, name, write)
    table.create_by_hand()
    table.append_by_hand()
    table.append_by_hand()
    return table


def keys_of(lake: KeyedLake, sts: Sts) -> list[str]:
    """The keys of STS that were used, in order."""
    return [key for key in lake.keys_by_bucket.get("lake", ()) if key in sts.given]


def repeat(action: Callable[[], object]) -> NoReturn:
    """Do it until it raises."""
    while True:
        action()


def until_answered(ask: Callable[[], object]) -> None:
    """Ask until the catalog gives keys."""
    while True:
        with suppress(StorageError):
            ask()
            return


@pytest.mark.usefixtures("external")
def test_a_poll_that_goes_on_renews_its_key_before_it_expires(
    places: CatalogPlaces, s3_lake: KeyedLake, sts: Sts, name: str
):
    sts.lifetime_seconds = 4.0
    log = DeltaLog(open_place(places.resolve(name)))
    while len(keys_of(s3_lake, sts)) < 3:
        assert log.probe(20)
        assert not log.probe(21)
    assert s3_lake.refused == []
    assert "of-connection" not in s3_lake.keys_by_bucket["lake"]


@pytest.mark.usefixtures("external")
def test_a_plan_that_outlasts_its_key_goes_on_with_another_one(
    loads: Loads, places: CatalogPlaces, s3_lake: KeyedLake, sts: Sts, name: str
):
    sts.lifetime_seconds = 4.0
    loads.places = places
    session = loads.session(loads.stream(name))
    s3_lake.slow_reads = 1
    work = session.begin(None, user_job=True)
    assert [batch.num_files for batch in work.batches] == [20]
    assert len(keys_of(s3_lake, sts)) > 1
    assert s3_lake.refused == []


@pytest.mark.usefixtures("external", "s3_lake")
def test_a_key_that_storage_refuses_is_called_one_of_the_catalog(places: CatalogPlaces, sts: Sts, name: str):
    log = DeltaLog(open_place(places.resolve(name)))
    assert log.probe(20)
    sts.given.clear()
    with pytest.raises(AccessDeniedError, match="the credentials that the catalog gives have expired"):
        log.latest()


def test_a_stream_is_planned_with_keys_that_no_file_has(
    managed: ManagedTable, loads: Loads, places: CatalogPlaces, s3_lake: KeyedLake, sts: Sts, tmp_path: Path
):
    loads.places = places
    work = loads.session(loads.stream(managed.name)).begin(None, user_job=True)
    assert [batch.num_files for batch in work.batches] == [2]
    (key,) = {sts.given[key] for key in keys_of(s3_lake, sts)}
    kept = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert b"part-00002.parquet" in kept
    assert not any(text in kept for text in (key.key_id.encode(), key.token.encode(), b"of-connection"))


def test_a_table_for_which_sts_gives_no_keys_is_not_gone(
    managed: ManagedTable, places: CatalogPlaces, s3_lake: KeyedLake, sts: Sts
):
    sts.lifetime_seconds = 2.0
    log = DeltaLog(open_place(places.resolve(managed.name)))
    assert log.latest() == 2
    sts.is_refusing = True
    with pytest.raises(StorageError, match=f"on {managed.name}: credentials for its files: 404 .*minting") as caught:
        repeat(lambda: places.resolve(managed.name))
    assert (caught.value.reason_code, caught.value.retryable) == ("CATALOG_UNAVAILABLE", True)
    with pytest.raises(StorageError, match="minting failed") as caught:
        log.commit(0)
    assert (caught.value.reason_code, caught.value.retryable) == ("CATALOG_UNAVAILABLE", True)
    # a poll asks the catalog only
    assert not log.probe(3)
    sts.is_refusing = False
    sts.lifetime_seconds = 3600.0
    # for a few seconds, the refusal is not asked for again
    until_answered(lambda: log.commit(0))
    assert places.resolve(managed.name).table_id == managed.table_id
    assert s3_lake.refused == []
