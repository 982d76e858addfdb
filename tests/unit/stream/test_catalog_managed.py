"""Streams of a table whose newest commits only its catalog knows: polled, planned and committed by its name."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta

import pytest

from airflow_provider_fds.catalog.table import CatalogPlaces
from airflow_provider_fds.catalog.unity import UnityCatalog
from airflow_provider_fds.cli import catalogs
from airflow_provider_fds.cli.main import main
from airflow_provider_fds.delta.storage.open import open_place, open_storage
from airflow_provider_fds.ledger.staging.log import Ledger
from airflow_provider_fds.source.offset import Offset
from airflow_provider_fds.stream import DeltaStream, TablePoller
from airflow_provider_fds.stream.polling import alignment
from tests.unit.catalog.test_log_view import Managed
from tests.unit.catalog.test_unity import serve
from tests.unit.catalog.unity_server import UnityServer

TABLE = "main.sales.events"


@pytest.fixture
def server():
    server = UnityServer()
    yield server
    # a process of a command ends with its catalogs
    catalogs._catalog_at.cache_clear()
    server.close()


@pytest.fixture
def table(log_builder, server):
    table = Managed(log_builder)
    # a published copy that must not count, and one after the latest version
    (log_builder.log / f"{3:020d}.json").write_text('{"commitInfo":{}}\n')
    (log_builder.log / f"{6:020d}.json").write_text('{"commitInfo":{}}\n')
    serve(server, table)
    return table


def planned(bench, session, sink):
    """Load what a run finds; return the names of the files in its new manifests, and their protocols and metadata."""
    before = set(bench.staging.rglob("_delta_log/*.json"))
    work = session.begin(sink)
    bench.report(session, work, session.job(work, sink))
    files, rest = [], []
    for path in sorted(set(bench.staging.rglob("_delta_log/*.json")) - before):
        for line in path.read_text().splitlines():
            action = json.loads(line)
            files += [action["add"]["path"].rpartition("/")[2]] if "add" in action else []
            rest += [line] if "protocol" in action or "metaData" in action else []
    session.collect(work)
    return files, "".join(rest)


def test_one_answer_of_the_catalog_serves_a_plan_and_one_the_commits(bench, table, server, sink):
    stream = DeltaStream("events", table=TABLE, catalog_conn_id="unity", starting_version=0)

    def session(run):
        return bench.session(run, stream=stream, places=CatalogPlaces(UnityCatalog(server.url), lambda _: {}))

    def loaded():
        return sum(path.endswith("/tables/events") for path in server.paths())

    first = session("run-1")
    work = first.begin(sink)
    spec = first.job(work, sink)
    assert (work.status, loaded()) == ("work", 1)
    bench.report(first, work, spec)
    first.collect(work)
    assert (first.begin(sink).status, loaded()) == ("done", 2)
    assert session("run-2").begin(sink).status == "up_to_date"
    assert loaded() == 3

    # a plan asks anew: the answer of another one does not live on
    third = session("run-3")
    assert third.begin(sink).status == "up_to_date"
    (table.builder.log / f"{6:020d}.json").unlink()
    assert table.commit() == 6
    serve(server, table)
    assert third.begin(sink).status == "work"


@pytest.fixture
def fds(bench, capsys):
    """Runs a command of ``fds`` on the staging folder; returns its exit code and what it says."""

    def run(*words, **airflow):
        code = main([*words, "--staging", str(bench.staging), "--deployment", "test"], **airflow)
        said = capsys.readouterr()
        return code, f"{said.out}{said.err}"

    return run


@pytest.fixture
def load(bench, table, server, sink):
    """Loads all versions up to 5 by a connection, of which 4 and 5 are staged."""

    def load(connection):
        stream = DeltaStream("events", table=TABLE, catalog_conn_id=connection, starting_version=0)
        places = CatalogPlaces(UnityCatalog(server.url), lambda _: {})
        planned(bench, bench.session("run-1", stream=stream, places=places), sink)

    return load


@pytest.mark.parametrize("connection", ["unity", None])
def test_a_stream_with_news_that_only_its_catalog_shows_is_not_idle(
    bench, load, table, server, monkeypatch, connection
):
    load("unity")
    for version in (3, 4, 5):
        (table.builder.path_of(version)).unlink(missing_ok=True)
        table.publish(version, tell=True, keep=False)
    (table.builder.log / f"{6:020d}.json").unlink()
    serve(server, table)
    monkeypatch.setattr(alignment, "_IDLE_AFTER", timedelta(0))
    by_path = {"table": table.builder.uri}
    named = {"table": TABLE, "catalog_conn_id": connection}
    own = DeltaStream(
        "own", align_with=["events"], max_drift="1h", event_time_column="at", **(named if connection else by_path)
    )
    places = CatalogPlaces(UnityCatalog(server.url), lambda _: {})

    def is_idle():
        staging = open_storage(bench.staging.as_uri())
        ledger = Ledger(staging, "events")
        ledger.find()
        found = alignment.Alignment(own, staging, lambda name: open_place(places.resolve(name)))
        return found._is_idle(ledger)

    # by its path nothing is known of the newest commits
    assert is_idle() is (connection is not None)
    table.commit()
    serve(server, table)
    assert not is_idle()


def test_the_commands_ask_the_catalog_that_loaded_the_stream(fds, load, server):
    load(server.url)
    code, said = fds("status", "events", "--output", "json")
    found = json.loads(said)
    assert (code, found["newest_version"], found["lag_versions"]) == (0, 5, 0)
    assert "LOG_GAP" not in fds("status")[1]
    assert fds("explain", "events")[0] == 0
    _, said = fds("skip", "events", "--version", "6", "--why", "x", "--dry-run")
    assert "version 6 does not exist yet; the newest version" in said


def test_without_its_catalog_such_a_table_is_not_read_by_its_uri(fds, load, server):
    load("unity")
    for command in (("status", "events"), ("status",), ("explain", "events")):
        _, said = fds(*command)
        assert "Its name is main.sales.events, its catalog 'unity'" in " ".join(said.split())
        assert "LOG_" not in said
        for given, airflow in (
            (("--catalog", server.url), {}),
            ((), {"airflow_catalog": {"unity": UnityCatalog(server.url)}.__getitem__}),
        ):
            assert "its catalog 'unity'" not in fds(*command, *given, **airflow)[1]


def test_such_a_table_is_forked_by_its_name(fds, load, server):
    load("unity")
    code, said = fds("fork", "events", "copy", "--yes", "--catalog", server.url)
    assert (code, "is a fork of 'events'" in said) == (0, True), said


def test_a_file_of_streams_is_read_by_the_names_in_it(fds, load, server, tmp_path):
    load("unity")
    file = tmp_path / "streams.yaml"
    entry = f"{{table: {TABLE}, catalog_conn_id: unity, name: NAME, starting_version: 0, sink: {tmp_path}/NAME}}"
    file.write_text(f"streams:\n  - {entry.replace('NAME', 'events')}\n  - {entry.replace('NAME', 'other')}\n")
    for command in (("status", "--file"), ("plan", "--dry-run", "--file")):
        _, said = fds(*command, str(file))
        assert "Add --catalog thrift://HOST:9083" in said
        assert "`airflow fds`" in said
        code, said = fds(*command, str(file), "--catalog", server.url)
        assert "catalog" not in said, said
        assert code == 0, said


def test_the_catalog_command_says_why_a_table_cannot_be_read(capsys, table, server):
    command = ("catalog", TABLE, "--catalog", server.url)
    assert main(command) == 0
    said = capsys.readouterr().out
    assert f"id in the log   {table.builder.table_id}" in said
    assert "newest version  5" in said
    features = {"readerFeatures": ["catalogManaged", "newFeature"], "writerFeatures": ["newFeature"]}
    (table.builder.log / f"{6:020d}.json").unlink()
    table.builder.commit(
        {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **features}}, inCommitTimestamp=9_000
    )
    table.stage(6)
    serve(server, table)
    assert main(command) == 2
    assert "'newFeature': FDS does not know it" in capsys.readouterr().err


def test_exactly_the_rows_that_the_catalog_shows_are_planned(bench, table, server, sink):
    places = CatalogPlaces(UnityCatalog(server.url), lambda _: {})
    stream = DeltaStream("events", table=TABLE, catalog_conn_id="unity", starting_version=0)
    session = bench.session("run-1", stream=stream, places=places)
    files, protocols = planned(bench, session, sink)
    assert sorted(files) == [f"part-{version:05d}-00000.parquet" for version in range(1, 6)]
    for name in ("catalogManaged", "inCommitTimestamp", "v2Checkpoint", "vacuumProtocolCheck", "InCommitTimestamps"):
        assert name not in protocols

    context = session.connected.context
    position = Offset.from_json(session.connected.state.position)
    before = len(server.requests)
    poller = TablePoller(stream, context.open_table(TABLE), position)
    assert poller.check() is None
    assert asyncio.run(poller.poll()) is None
    # the resolve, which serves the first poll, and the second one
    assert len(server.requests) == before + 2
    (table.builder.log / f"{6:020d}.json").unlink()
    assert table.commit() == 6
    table.publish(4, tell=True, keep=False)
    serve(server, table)
    assert poller.check().newest_version == 6
    files, _ = planned(bench, bench.session("run-2", stream=stream, places=places), sink)
    assert files == ["part-00006-00000.parquet"]
