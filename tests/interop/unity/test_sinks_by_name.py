"""External tables of a real Unity Catalog as sinks by name: created at a location, registered, and loaded again."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import deltalake
import pytest

from airflow_provider_fds.catalog.names import TableName
from airflow_provider_fds.catalog.unity import UnityCatalog
from tests.interop.catalog.lake import Lake

if TYPE_CHECKING:
    from pathlib import Path

    from tests.interop.connect_server import RunningServer
    from tests.interop.unity.server import UnityServer


@pytest.fixture
def lake(tmp_path: Path, unity: UnityServer, connect_server: RunningServer) -> Lake:
    lake = Lake(tmp_path, unity.url, connect_server.url)
    lake.append(1, 2)
    return lake


@pytest.fixture
def folder(unity: UnityServer, name: str) -> Path:
    return unity.lake / f"sink é {name}"


@pytest.fixture
def options(folder: Path) -> tuple[str, str]:
    return ("create=yes", f"location={folder.as_uri()}")


def ids(folder: Path) -> list[int]:
    return sorted(deltalake.DeltaTable(folder).to_pyarrow_table()["id"].to_pylist())


def registered(unity: UnityServer, name: str) -> str:
    return UnityCatalog(unity.url).load(TableName.parse(name)).location


def test_a_missing_table_is_created_at_its_location_and_registered(
    lake: Lake, unity: UnityServer, name: str, folder: Path, options: tuple[str, str]
):
    refused = lake.run(name)
    assert (refused.returncode, "CATALOG_TABLE_NOT_FOUND" in refused.stderr) == (2, True), refused.stderr
    refused = lake.run(name, "create=yes")
    assert (refused.returncode, "CATALOG_TABLE_UNWRITABLE" in refused.stderr) == (2, True), refused.stderr
    assert "Set location on the sink" in refused.stderr
    lake.load(name, *options)
    assert ids(folder) == [1, 2]
    assert registered(unity, name) == folder.as_uri()
    found = unity.call("GET", f"/tables/{name}")
    assert (found["table_type"], found["data_source_format"]) == ("EXTERNAL", "DELTA")
    (column,) = found["columns"]
    assert (column["name"], column["type_text"], column["type_name"]) == ("id", "bigint", "LONG")
    assert json.loads(column["type_json"])["type"] == "long"

    # it is found by its name now, with or without a location
    lake.append(3)
    lake.load(name)
    lake.append(4)
    lake.load(name, *options)
    assert ids(folder) == [1, 2, 3, 4]
    # a table that the catalog forgets keeps its files, and gets its name again
    unity.drop(name)
    lake.append(5)
    lake.load(name, *options)
    assert (ids(folder), registered(unity, name)) == ([1, 2, 3, 4, 5], folder.as_uri())


@pytest.mark.parametrize("point", ["driver.report.after", "checkpoint.after.committed"])
def test_the_next_run_registers_what_a_run_created_that_died(
    point: str, lake: Lake, unity: UnityServer, name: str, folder: Path, options: tuple[str, str]
):
    lake.die(point, name, *options)
    assert TableName.parse(name) not in UnityCatalog(unity.url).tables(TableName(("main", "sales")))
    assert ids(folder) == [1, 2]
    lake.load(name, *options)
    assert (ids(folder), registered(unity, name)) == ([1, 2], folder.as_uri())


def test_a_folder_that_the_catalog_does_not_take_is_an_error_and_loses_no_rows(
    lake: Lake, unity: UnityServer, name: str, folder: Path, options: tuple[str, str]
):
    unity.make_external(f"{name}_other", folder.as_uri())
    refused = lake.run(name, *options)
    assert (refused.returncode, "CATALOG_TABLE_UNWRITABLE" in refused.stderr) == (2, True), refused.stderr
    assert f"the catalog does not take the table at {folder.as_uri()}" in refused.stderr
    unity.drop(f"{name}_other")
    lake.load(name, *options)
    assert (ids(folder), registered(unity, name)) == ([1, 2], folder.as_uri())


def test_a_missing_schema_is_named_before_anything_is_written(lake: Lake, folder: Path, options: tuple[str, str]):
    refused = lake.run("main.nope.orders", *options)
    assert (refused.returncode, "It shows no schema main.nope" in refused.stderr) == (2, True), refused.stderr
    assert not folder.exists()
