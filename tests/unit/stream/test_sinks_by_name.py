"""A sink with a name: it is looked up once in a run, written by its folder, and registered once it exists."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from airflow_provider_fds.backends.job_storage import storage_of
from airflow_provider_fds.batch.spec import JobSpec
from airflow_provider_fds.catalog import problems
from airflow_provider_fds.catalog.names import TableName
from airflow_provider_fds.catalog.sinks import SinkPlaces
from airflow_provider_fds.catalog.table import CatalogTable
from airflow_provider_fds.delta.actions import Metadata
from airflow_provider_fds.errors import ConfigurationError, SinkError, StorageError, TableNotFoundError
from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.sinks import DeltaAppendSink, DeltaMergeSink

NAME = TableName(("bronze", "orders"))


@dataclass
class FakeCatalog:
    """A catalog of one database, whose folder is ``folder``."""

    folder: str
    tables: dict[TableName, str] = field(default_factory=dict)
    asked: int = 0
    down: bool = False
    title = "Catalog"

    def load_sink(self, name):
        self.asked += 1
        if self.down:
            raise problems.unavailable(self.title, name, "no answer")
        if name not in self.tables:
            raise problems.not_found(self.title, name)
        return CatalogTable(name, self.tables[name], "1")

    def new_location(self, name):
        return f"{self.folder}/{name.parts[-1]}" if self.folder else ""

    def register(self, name, location, table):
        if self.down:
            raise problems.unavailable(self.title, name, "no answer")
        assert isinstance(table, Metadata)
        self.tables.setdefault(name, location)


@pytest.fixture
def catalog(tmp_path):
    return FakeCatalog((tmp_path / "warehouse").as_uri())


def named(**options):
    return DeltaAppendSink(str(NAME), catalog_conn_id="hive", **options)


def session_of(bench, catalog, sink, run="run-1"):
    return bench.session(run, sink_places=SinkPlaces(catalog, lambda _uri: {}, sink))


def load(bench, catalog, sink, run="run-1"):
    """Let a run load all it finds; return its session and its job."""
    session = session_of(bench, catalog, sink, run)
    work = session.begin(sink)
    spec = session.job(work, sink)
    bench.report(session, work, spec)
    session.collect(work)
    staging = session.connected.staging
    return session, JobSpec.from_json(staging.get(spec.removeprefix(f"{staging.uri}/"))[0])


def test_it_is_looked_up_once_and_everything_else_goes_by_its_folder(bench, two_appends, catalog, tmp_path):
    catalog.tables[NAME] = f"file:{tmp_path}/somewhere"
    session, job = load(bench, catalog, named())
    folder = (tmp_path / "somewhere").as_uri()
    assert catalog.asked == 1
    assert session.connected.state.sink.target == folder
    assert job.sink == json.loads(json.dumps(DeltaAppendSink(folder).to_dict()))
    assert storage_of(session, named()).places[-1].uri == folder
    # the name means another table while the run goes on
    catalog.tables[NAME] = f"file:{tmp_path}/other"
    assert session.connected.sink_target(named().table_uri) == folder


def test_delta_commits_on_s3_through_the_log_store_that_loses_none(bench, two_appends, catalog):
    catalog.tables[NAME] = "s3://lake/orders"
    session = session_of(bench, catalog, named())
    assert storage_of(session, named()).needs_log_store
    assert not storage_of(session, named(allow_single_driver_s3=True)).needs_log_store


def test_a_missing_table_is_not_created_unless_the_sink_says_so(bench, two_appends, catalog):
    with pytest.raises(TableNotFoundError, match=r"has no table bronze\.orders.*set create=True") as caught:
        session_of(bench, catalog, named()).begin(named())
    assert caught.value.reason_code == Reason.CATALOG_TABLE_NOT_FOUND


@pytest.mark.parametrize("location", [None, "own folder"])
def test_it_is_registered_once_the_first_batch_has_created_it(bench, two_appends, catalog, tmp_path, location):
    sink = named(create=True, location=None if location is None else str(tmp_path / location))
    session = session_of(bench, catalog, sink)
    work = session.begin(sink)
    spec = session.job(work, sink)
    assert catalog.tables == {}
    bench.report(session, work, spec)
    session.collect(work, is_running=True)
    assert catalog.tables == {}
    session.collect(work)
    folder = tmp_path / (location or "warehouse/orders")
    assert catalog.tables == {NAME: folder.as_uri()}
    assert session.connected.sink_place(sink.table_uri).register is None


def test_a_run_registers_what_a_run_that_died_has_created(bench, two_appends, catalog, log_builder):
    sink = named(create=True)
    session = session_of(bench, catalog, sink)
    work = session.begin(sink)
    bench.report(session, work, session.job(work, sink))
    catalog.down = True
    with pytest.raises(StorageError) as caught:
        session.collect(work)
    assert caught.value.retryable
    assert session.result() is not None

    catalog.down = False
    again = session_of(bench, catalog, sink, "run-2")
    assert again.begin(sink).status == "up_to_date"
    assert NAME in catalog.tables


def test_another_table_in_the_folder_gets_no_name(bench, two_appends, catalog):
    sink = named(create=True)
    session, _ = load(bench, catalog, sink)
    catalog.tables.clear()
    log = Path(session.connected.sink_target(sink.table_uri).removeprefix("file://")) / "_delta_log"
    created = log / f"{0:020}.json"
    created.write_text(created.read_text().replace(session.connected.state.sink_table_id, "another"))
    session_of(bench, catalog, sink, "run-2").begin(sink)
    assert catalog.tables == {}


def test_a_name_that_somebody_else_takes_meanwhile_is_not_taken_away(bench, two_appends, catalog, tmp_path):
    sink = named(create=True)
    session = session_of(bench, catalog, sink)
    work = session.begin(sink)
    bench.report(session, work, session.job(work, sink))
    catalog.tables[NAME] = (tmp_path / "other").as_uri()
    with pytest.raises(ConfigurationError, match=r"somebody else has given the name to the table at .*/other"):
        session.collect(work)
    assert catalog.tables == {NAME: (tmp_path / "other").as_uri()}
    with pytest.raises(SinkError, match=r"is now the table at .*/other"):
        session_of(bench, catalog, sink, "run-2").begin(sink)


@pytest.mark.parametrize("make", [named, lambda: DeltaMergeSink(str(NAME), catalog_conn_id="hive", keys=["id"])])
def test_a_name_that_means_another_table_stops_the_stream(bench, two_appends, catalog, tmp_path, log_builder, make):
    sink = make()
    catalog.tables[NAME] = (tmp_path / "first").as_uri()
    load(bench, catalog, sink)
    log_builder.append(1)
    catalog.tables[NAME] = (tmp_path / "second").as_uri()
    session = session_of(bench, catalog, sink, "run-2")
    with pytest.raises(SinkError) as caught:
        session.begin(sink)
    assert caught.value.reason_code == Reason.SINK_MISMATCH
    for words in ("/first", "/second", "bronze.orders of catalog 'hive'", "Nothing was written to it"):
        assert words in str(caught.value)
    assert not (tmp_path / "second").exists()
    catalog.tables[NAME] = (tmp_path / "first").as_uri()
    assert session_of(bench, catalog, sink, "run-3").begin(sink).status == "work"


def test_a_table_elsewhere_than_its_location_is_refused(bench, two_appends, catalog, tmp_path):
    catalog.tables[NAME] = (tmp_path / "first").as_uri()
    sink = named(create=True, location=str(tmp_path / "second"))
    with pytest.raises(ConfigurationError, match=r"it is at .*/first, and not at the location of the sink, .*/second"):
        session_of(bench, catalog, sink).begin(sink)


def test_a_database_without_a_folder_needs_a_location(bench, two_appends, catalog, tmp_path):
    catalog.folder = ""
    with pytest.raises(ConfigurationError, match=r"its schema has no folder for new tables\. Set location") as caught:
        session_of(bench, catalog, named(create=True)).begin(named(create=True))
    assert caught.value.reason_code == Reason.CATALOG_TABLE_UNWRITABLE
    assert "connection 'hive'" in str(caught.value)
    sink = named(create=True, location=str(tmp_path / "own"))
    load(bench, catalog, sink)
    assert catalog.tables == {NAME: (tmp_path / "own").as_uri()}
