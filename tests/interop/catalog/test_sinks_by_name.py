"""Sinks by name, with a real metastore and two real Sparks: one that writes by path, and one that reads by name."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING
from urllib.parse import quote

import deltalake
import pytest

from airflow_provider_fds.batch.spec import JobSpec
from airflow_provider_fds.catalog.glue import GlueCatalog, glue_client
from airflow_provider_fds.catalog.names import TableName
from airflow_provider_fds.catalog.sinks import SinkPlaces
from airflow_provider_fds.delta.actions import Metadata
from airflow_provider_fds.delta.storage.open import open_storage
from airflow_provider_fds.ledger.owner import Actor, Owner
from airflow_provider_fds.ledger.staging.log import Ledger
from airflow_provider_fds.sinks import DeltaReplaceSink
from airflow_provider_fds.spark.application.job_run import run as run_job
from airflow_provider_fds.stream import DataInterval, DeltaStream, StreamContext, StreamSession
from tests.fds_command import fds
from tests.interop.catalog.lake import Lake
from tests.interop.s3_server import Server

if TYPE_CHECKING:
    from pathlib import Path

    from tests.interop.catalog.conftest import HiveSpark
    from tests.interop.connect_server import RunningServer


DAY = datetime(2024, 1, 1, tzinfo=UTC)
ONE_DAY = timedelta(days=1)


@pytest.fixture
def lake(tmp_path: Path, metastore_uri: str, connect_server: RunningServer) -> Lake:
    lake = Lake(tmp_path, metastore_uri, connect_server.url)
    lake.append(1, 2)
    return lake


def ids(spark: HiveSpark, table: str) -> list[int]:
    return [row[0] for row in spark.sql(f"SELECT id FROM {table} ORDER BY id")]


def columns(spark: HiveSpark, table: str) -> list[str]:
    return [row[0] for row in spark.sql(f"DESCRIBE {table}")]


@pytest.mark.parametrize("kind", ["managed", "external"])
def test_rows_are_appended_to_a_table_of_spark_and_read_by_its_name(kind, lake, hive_spark):
    where = f"LOCATION '{hive_spark.folder}/into {kind}'" if kind == "external" else ""
    hive_spark.sql(f"CREATE TABLE lab.into_{kind} (id BIGINT) USING delta {where}")
    hive_spark.sql(f"INSERT INTO lab.into_{kind} VALUES (0)")
    lake.load(f"lab.into_{kind}")
    assert ids(hive_spark, f"lab.into_{kind}") == [0, 1, 2]
    lake.append(3)
    lake.load(f"lab.into_{kind}")
    assert ids(hive_spark, f"lab.into_{kind}") == [0, 1, 2, 3]
    # what is there has a transaction: Spark by name goes on as well
    hive_spark.sql(f"INSERT INTO lab.into_{kind} VALUES (4)")
    assert hive_spark.sql(f"DESCRIBE HISTORY lab.into_{kind}")[1][4] == "WRITE"


def test_keys_are_merged_into_a_table_by_its_name(lake, hive_spark):
    hive_spark.sql("CREATE TABLE lab.merged (id BIGINT) USING delta")
    hive_spark.sql("INSERT INTO lab.merged VALUES (1), (7)")
    lake.load("lab.merged", "kind=delta_merge", "keys=id")
    assert ids(hive_spark, "lab.merged") == [1, 2, 7]


def test_a_missing_table_is_created_in_the_folder_of_its_database_and_registered(lake, hive_spark, catalog):
    refused = lake.run("lab.created")
    assert refused.returncode == 2
    assert "CATALOG_TABLE_NOT_FOUND" in refused.stderr
    assert "set create=True" in refused.stderr
    lake.load("lab.Created", "create=yes")
    assert ids(hive_spark, "lab.created") == [1, 2]
    assert catalog.load(TableName(("lab", "created"))).location.endswith("/warehouse/lab.db/created")
    shown = {row[0]: row[1] for row in hive_spark.sql("DESCRIBE EXTENDED lab.created")}
    assert (shown["Type"], shown["Provider"]) == ("EXTERNAL", "delta")
    assert hive_spark.sql("SHOW TABLES IN lab LIKE 'created*'") == [["lab", "created", False]]
    lake.append(3)
    lake.load("lab.created", "create=yes")
    hive_spark.sql("INSERT INTO lab.created VALUES (4)")
    assert ids(hive_spark, "lab.created") == [1, 2, 3, 4]
    # a table that Spark would drop with its files keeps them: it is external
    hive_spark.sql("DROP TABLE lab.created")
    lake.append(5)
    lake.load("lab.created", "create=yes")
    assert ids(hive_spark, "lab.created") == [1, 2, 3, 4, 5]


def test_a_missing_table_is_created_where_the_sink_says(lake, hive_spark):
    folder = hive_spark.folder / "own %20 folder"
    location = f"location=file://{quote(str(folder))}"
    lake.load("lab.elsewhere", "create=yes", location)
    assert ids(hive_spark, "lab.elsewhere") == [1, 2]
    assert (folder / "_delta_log").is_dir()
    lake.append(3)
    refused = lake.run("lab.elsewhere", "create=yes", f"location={hive_spark.folder}/another")
    assert refused.returncode == 2
    assert "CATALOG_TABLE_UNWRITABLE" in refused.stderr
    assert "not at the location of the sink" in refused.stderr
    lake.load("lab.elsewhere", "create=yes", location)
    assert ids(hive_spark, "lab.elsewhere") == [1, 2, 3]


@pytest.mark.parametrize("point", ["driver.report.after", "checkpoint.after.committed"])
def test_the_next_run_registers_what_a_run_created_that_died(point, lake, hive_spark, catalog):
    name = "died_" + point.replace(".", "_")
    lake.die(point, f"lab.{name}", "create=yes")
    assert TableName(("lab", name)) not in catalog.tables(TableName(("lab",)))
    lake.load(f"lab.{name}", "create=yes")
    assert ids(hive_spark, f"lab.{name}") == [1, 2]


def test_a_data_interval_is_loaded_and_replaced_in_a_table_by_its_name(
    lake, hive_spark, catalog, connect_session, tmp_path
):
    lake.append(3)
    for version in range(2):
        time = (DAY + version * ONE_DAY).timestamp()
        os.utime(tmp_path / "orders" / "_delta_log" / f"{version:020}.json", (time, time))
    sink = DeltaReplaceSink("lab.by_day", catalog_conn_id="hive", create=True, provenance=True)

    def load(day: int, run_id: str) -> None:
        context = StreamContext(
            staging_uri=str(tmp_path / "staging"),
            deployment="test",
            actor=Actor(deployment="test", dag_id="d", run_id=run_id, task_id="t", try_number=1),
            owner=Owner(kind="airflow", deployment="test", dag_id="d", run_id=run_id, task_id="t"),
            owner_is_running=lambda _owner: False,
            sink_places=SinkPlaces(catalog, lambda _uri: {}, sink),
        )
        begin = DAY + day * ONE_DAY
        stream = DeltaStream("days", table=str(tmp_path / "orders"), read="data_interval")
        session = StreamSession(stream, context, DataInterval(begin, begin + ONE_DAY))
        work = session.begin(sink)
        assert work.status == "work", work
        spec = session.job(work, sink).removeprefix(f"{session.connected.staging.uri}/")
        job = JobSpec.from_json(session.connected.staging.get(spec)[0])
        assert run_job(connect_session, job) == 0
        assert session.collect(work).failure is None

    load(0, "first")
    assert catalog.load(TableName(("lab", "by_day"))).location.endswith("/warehouse/lab.db/by_day")
    load(1, "second")
    assert ids(hive_spark, "lab.by_day") == [1, 2, 3]
    # by its name, somebody spoils the rows of both days; only the day that runs again is replaced
    hive_spark.sql("UPDATE lab.by_day SET id = id + 100")
    load(0, "cleared")
    assert ids(hive_spark, "lab.by_day") == [1, 2, 103]


def test_columns_that_are_added_by_path_are_there_by_name(lake, hive_spark):
    lake.load("lab.wider", "create=yes", "merge_schema=yes")
    assert columns(hive_spark, "lab.wider") == ["id"]
    hive_spark.sql("SELECT * FROM lab.wider")
    lake.append(3, state="paid")
    lake.load("lab.wider", "create=yes", "merge_schema=yes")
    # the metastore has a placeholder, of Spark's own tables too: the log has the columns
    assert columns(hive_spark, "lab.wider") == ["id", "state"]
    assert hive_spark.sql("SELECT * FROM lab.wider ORDER BY id") == [[1, None], [2, None], [3, "paid"]]
    assert hive_spark.sql("SELECT state FROM lab.wider WHERE id = 3") == [["paid"]]


def test_a_name_that_means_another_table_stops_the_stream_and_loses_nothing(lake, hive_spark):
    hive_spark.sql("CREATE TABLE lab.given (id BIGINT) USING delta")
    lake.load("lab.given")
    hive_spark.sql("ALTER TABLE lab.given RENAME TO lab.kept")
    hive_spark.sql(f"CREATE TABLE lab.given (id BIGINT) USING delta LOCATION '{hive_spark.folder}/given'")
    lake.append(3)
    for options in ((), ("create=yes",)):
        refused = lake.run("lab.given", *options)
        assert refused.returncode != 0
        assert "SINK_MISMATCH" in refused.stderr
        assert "is now the table at file:///" in refused.stderr
        assert "Nothing was written to it" in refused.stderr
    assert (ids(hive_spark, "lab.given"), ids(hive_spark, "lab.kept")) == ([], [1, 2])


def test_a_table_that_was_renamed_is_loaded_by_its_new_name(lake, hive_spark):
    hive_spark.sql(f"CREATE TABLE lab.before (id BIGINT) USING delta LOCATION '{hive_spark.folder}/renamed'")
    lake.load("lab.before")
    hive_spark.sql("ALTER TABLE lab.before RENAME TO lab.after")
    lake.append(3)
    assert "CATALOG_TABLE_NOT_FOUND" in lake.run("lab.before").stderr
    lake.load("lab.after")
    assert ids(hive_spark, "lab.after") == [1, 2, 3]


def test_a_table_that_was_dropped_and_created_in_its_folder_stops_the_stream(lake, hive_spark):
    hive_spark.sql("CREATE TABLE lab.anew (id BIGINT) USING delta")
    lake.load("lab.anew")
    hive_spark.sql("DROP TABLE lab.anew")
    hive_spark.sql("CREATE TABLE lab.anew (id BIGINT) USING delta")
    lake.append(3)
    refused = lake.run("lab.anew")
    assert refused.returncode != 0
    assert "SINK_REPLACED" in refused.stderr
    assert ids(hive_spark, "lab.anew") == []


def test_what_is_no_delta_table_is_refused_before_anything_is_written(lake, hive_spark):
    hive_spark.sql("CREATE TABLE lab.parts (id BIGINT) USING parquet")
    hive_spark.sql("CREATE VIEW lab.view_of_parts AS SELECT * FROM lab.parts")
    for name, kind in {"parts": "a Parquet table", "view_of_parts": "a view"}.items():
        refused = lake.run(f"lab.{name}", "create=yes")
        assert refused.returncode == 2
        assert "CATALOG_TABLE_UNREADABLE" in refused.stderr
        assert f"is {kind}" in refused.stderr
    assert hive_spark.sql("SELECT * FROM lab.parts") == []
    missing = lake.run("nowhere.orders", "create=yes")
    assert "There is no database of this name" in missing.stderr
    assert Ledger(open_storage(str(lake.folder / "staging")), "orders").find().phase in ("empty", "open")


def test_a_stream_goes_on_by_the_uri_of_its_table(lake, hive_spark, catalog):
    hive_spark.sql("CREATE TABLE lab.by_path (id BIGINT) USING delta")
    lake.load("lab.by_path")
    lake.append(3)
    words = list(lake.words(catalog.load(TableName(("lab", "by_path"))).location))
    at = words.index("--sink-catalog")
    done = fds(*words[:at], *words[at + 2 :])
    assert done.returncode == 0, done.stderr
    lake.append(4)
    lake.load("lab.by_path")
    assert ids(hive_spark, "lab.by_path") == [1, 2, 3, 4]


def test_a_fork_is_bound_to_a_table_by_its_name(lake, hive_spark, metastore_uri):
    hive_spark.sql("CREATE TABLE lab.forked_from (id BIGINT) USING delta")
    lake.load("lab.forked_from")
    words = ("fork", "orders", "audit", "--staging", str(lake.folder / "staging"), "--sink-catalog", metastore_uri)
    missing = fds(*words, "--sink", "lab.forked_to", "--yes")
    assert (missing.returncode, "CATALOG_TABLE_NOT_FOUND" in missing.stderr) == (2, True), missing.stderr
    of_origin = fds(*words, "--sink", "lab.forked_from", "--yes")
    assert (of_origin.returncode, "RANGES_OVERLAP" in of_origin.stderr) == (2, True), of_origin.stderr
    options = ("--sink-option", "create=yes", "--sink-option", "kind=delta_merge", "--sink-option", "keys=id")
    for said in ("it is bound to", "is already a fork of"):
        done = fds(*words, "--sink", "lab.forked_to", *options, "--yes")
        assert (done.returncode, said in done.stdout) == (0, True), (done.stdout, done.stderr)
    state = Ledger(open_storage(str(lake.folder / "staging")), "audit").find()
    assert state.sink.kind == "delta_merge"
    assert state.sink.target.endswith("/warehouse/lab.db/forked_to")
    lake.append(3)
    run = ["audit" if word == "orders" else word for word in lake.words("lab.forked_to", "create=yes")]
    merged = fds(*run, *options[2:])
    assert merged.returncode == 0, merged.stderr
    assert ids(hive_spark, "lab.forked_to") == [3]


def test_two_streams_into_one_table_are_found_by_its_folder(lake, hive_spark):
    hive_spark.sql("CREATE TABLE lab.shared (id BIGINT) USING delta")
    lake.load("lab.shared")
    words = ["other" if word == "orders" else word for word in lake.words("lab.shared")]
    refused = fds(*words)
    assert "RANGES_OVERLAP" in refused.stderr
    assert ids(hive_spark, "lab.shared") == [1, 2]


def test_the_command_line_shows_whether_a_table_can_be_a_sink(lake, hive_spark, metastore_uri):
    hive_spark.sql("CREATE TABLE lab.shown (id BIGINT) USING delta")
    shown = fds("catalog", "lab.shown", "--catalog", metastore_uri, "--output", "json")
    assert json.loads(shown.stdout)["as a sink"] == "by its location"


def test_a_missing_table_is_created_and_registered_in_glue(lake, tmp_path, monkeypatch):
    server = Server()
    keys = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_ENDPOINT_URL": server.endpoint}
    for name, value in keys.items():
        monkeypatch.setenv(name, value)
    client = glue_client(region_name="eu-west-1")
    try:
        client.create_database(DatabaseInput={"Name": "lab", "LocationUri": (tmp_path / "glue").as_uri()})
        folder = tmp_path / "glue" / "orders"
        words = list(lake.words("lab.orders", "create=yes"))
        words[words.index("--sink-catalog") + 1] = "glue://eu-west-1"
        for ids_now in ([1, 2], [1, 2, 3]):
            done = fds(*words)
            assert done.returncode == 0, done.stderr
            loaded = deltalake.DeltaTable(folder).to_pyarrow_table()["id"].to_pylist()
            assert sorted(loaded) == ids_now
            lake.append(3)
        assert client.get_table(DatabaseName="lab", Name="orders")["Table"]["TableType"] == "EXTERNAL_TABLE"
        found = GlueCatalog(lambda: client).load(TableName(("lab", "orders")))
        assert found.location == folder.as_uri()
    finally:
        client.close()
        server.stop()


def test_a_folder_that_the_metastore_cannot_reach_gets_the_location_of_spark(hive_spark, catalog):
    """As with a bucket, if the metastore has no file system for it."""
    name = TableName(("lab", "far_away"))
    catalog.register(name, "s3a://lake/far%20away", Metadata("1"))
    catalog.register(name, "s3a://lake/far%20away", Metadata("1"))
    assert catalog.load(name).location == "s3a://lake/far%20away"
    assert ["lab", "far_away", False] in hive_spark.sql("SHOW TABLES IN lab")
