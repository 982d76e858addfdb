"""What a real Hive metastore says of tables that a real Spark made, and what becomes of them."""

from __future__ import annotations

import shutil
import time
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pytest

from airflow_provider_fds.catalog.names import TableName
from airflow_provider_fds.catalog.table import CatalogPlaces
from airflow_provider_fds.delta.reader.log import DeltaLog
from airflow_provider_fds.delta.storage.open import open_place, open_storage
from airflow_provider_fds.errors import ConfigurationError, TableNotFoundError

if TYPE_CHECKING:
    from airflow_provider_fds.catalog.hive import HiveCatalog
    from tests.interop.catalog.conftest import HiveSpark


def lab(table: str) -> TableName:
    return TableName(("lab", table))


def delta_id(uri: str) -> str:
    log = DeltaLog(open_storage(uri))
    return log.state_at(log.latest()).metadata.id


def test_a_managed_table_is_in_the_warehouse(hive_spark: HiveSpark, catalog: HiveCatalog):
    hive_spark.sql("CREATE TABLE lab.managed (id BIGINT, part INT) USING delta PARTITIONED BY (part)")
    hive_spark.sql("INSERT INTO lab.managed VALUES (1, 1)")
    found = catalog.load(lab("managed"))
    assert found.name == lab("managed")
    assert found.location.endswith("/warehouse/lab.db/managed")
    assert int(found.table_id) <= time.time()
    assert DeltaLog(open_storage(found.location)).latest() == 1
    # names are not case-sensitive there
    assert catalog.load(TableName(("LAB", "Managed"))) == found


def test_an_external_table_is_where_its_log_is(hive_spark: HiveSpark, catalog: HiveCatalog):
    folder = hive_spark.folder / "a b%20ü"
    hive_spark.sql(f"CREATE TABLE lab.ext (id BIGINT, name STRING) USING delta LOCATION '{folder}'")
    hive_spark.sql("INSERT INTO lab.ext VALUES (1, 'a')")
    place = CatalogPlaces(catalog, lambda uri: {}).resolve("lab.ext")
    assert unquote(place.uri) == f"file://{folder}"
    log = DeltaLog(open_place(place))
    assert log.latest() == 1
    detail = hive_spark.sql("DESCRIBE DETAIL lab.ext")[0]
    assert log.state_at(1).metadata.id == detail[1]


def test_what_is_not_delta_is_named(hive_spark: HiveSpark, catalog: HiveCatalog):
    hive_spark.sql("CREATE TABLE lab.source (id BIGINT) USING delta")
    hive_spark.sql("CREATE VIEW lab.seen AS SELECT * FROM lab.source")
    hive_spark.sql("CREATE TABLE lab.files (id BIGINT) USING parquet")
    hive_spark.sql("CREATE TABLE lab.of_hive (id BIGINT) STORED AS PARQUET")
    hive_spark.sql("CREATE TABLE lab.lines (id STRING) STORED AS TEXTFILE")
    kinds = {
        "seen": "a view",
        "files": "a Parquet table",
        "of_hive": "a Parquet table",
        "lines": "not known as a Delta",
    }
    for name, kind in kinds.items():
        with pytest.raises(ConfigurationError, match=f"lab.{name} in Hive metastore thrift://.* is {kind}"):
            catalog.load(lab(name))


def test_a_managed_table_moves_when_it_is_renamed(hive_spark: HiveSpark, catalog: HiveCatalog):
    hive_spark.sql("CREATE TABLE lab.old (id BIGINT) USING delta")
    before = catalog.load(lab("old"))
    in_log = delta_id(before.location)
    hive_spark.sql("ALTER TABLE lab.old RENAME TO lab.new")
    after = catalog.load(lab("new"))
    assert after.table_id == before.table_id
    assert after.location == before.location.removesuffix("old") + "new"
    assert delta_id(after.location) == in_log
    with pytest.raises(TableNotFoundError, match=r"no table lab\.old"):
        catalog.load(lab("old"))


def test_an_external_table_stays_when_it_is_renamed(hive_spark: HiveSpark, catalog: HiveCatalog):
    hive_spark.sql(f"CREATE TABLE lab.ext_old (id BIGINT) USING delta LOCATION '{hive_spark.folder}/stays'")
    before = catalog.load(lab("ext_old"))
    hive_spark.sql("ALTER TABLE lab.ext_old RENAME TO lab.ext_new")
    after = catalog.load(lab("ext_new"))
    assert (after.location, after.table_id) == (before.location, before.table_id)


def test_a_table_that_is_created_anew_has_another_id(hive_spark: HiveSpark, catalog: HiveCatalog):
    hive_spark.sql("CREATE TABLE lab.again (id BIGINT) USING delta")
    before = catalog.load(lab("again"))
    hive_spark.sql("DROP TABLE lab.again")
    with pytest.raises(TableNotFoundError):
        catalog.load(lab("again"))
    # the metastore knows whole seconds
    while time.time() < int(before.table_id) + 1:
        time.sleep(0.05)
    hive_spark.sql("CREATE TABLE lab.again (id BIGINT, more INT) USING delta")
    after = catalog.load(lab("again"))
    assert after.location == before.location
    assert after.table_id != before.table_id


def test_a_table_that_is_replaced_keeps_its_id(hive_spark: HiveSpark, catalog: HiveCatalog):
    hive_spark.sql("CREATE TABLE lab.replaced (id BIGINT) USING delta")
    before = catalog.load(lab("replaced"))
    in_log = delta_id(before.location)
    hive_spark.sql("CREATE OR REPLACE TABLE lab.replaced (id BIGINT, more INT) USING delta")
    assert catalog.load(lab("replaced")) == before
    assert delta_id(before.location) != in_log


def test_a_new_location_keeps_the_id(hive_spark: HiveSpark, catalog: HiveCatalog):
    folder = hive_spark.folder / "here"
    hive_spark.sql(f"CREATE TABLE lab.moved (id BIGINT) USING delta LOCATION '{folder}'")
    before = catalog.load(lab("moved"))
    shutil.copytree(folder, hive_spark.folder / "there")
    hive_spark.sql(f"ALTER TABLE lab.moved SET LOCATION '{hive_spark.folder}/there'")
    after = catalog.load(lab("moved"))
    assert after.location == before.location.removesuffix("here") + "there"
    assert after.table_id == before.table_id


def test_the_tables_of_a_database_are_listed(hive_spark: HiveSpark, catalog: HiveCatalog):
    hive_spark.sql("CREATE DATABASE few")
    assert catalog.tables(TableName(("few",))) == []
    hive_spark.sql("CREATE TABLE few.b (id BIGINT) USING delta")
    hive_spark.sql("CREATE VIEW few.a AS SELECT 1 one")
    assert catalog.tables(TableName(("few",))) == [TableName(("few", "a")), TableName(("few", "b"))]
    view, table = catalog.listed(TableName(("few",)))
    loaded = catalog.load(TableName(("few", "b")))
    assert (table.name, table.location, table.table_id, table.problem) == (
        loaded.name, loaded.location, loaded.table_id, ""
    )  # fmt: skip
    assert "few.a in Hive metastore" in view.problem
    assert "is a view" in view.problem


def test_a_missing_table_or_database_is_not_found(catalog: HiveCatalog):
    for name in ("lab.nope", "nope.nope"):
        with pytest.raises(TableNotFoundError, match=f"has no table {name}"):
            catalog.load(TableName.parse(name))
    with pytest.raises(TableNotFoundError, match="no database of this name"):
        catalog.tables(TableName(("nope",)))
