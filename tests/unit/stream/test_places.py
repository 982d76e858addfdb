"""The seam for tables: a stream of a table that has a name goes on by the place of that name, and keeps its formats."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from airflow_provider_fds.batch.spec import JobSpec
from airflow_provider_fds.errors import LedgerError
from airflow_provider_fds.places import Place
from airflow_provider_fds.sinks import DeltaAppendSink
from airflow_provider_fds.source.offset import Offset
from airflow_provider_fds.stream import DeltaStream, TablePoller
from airflow_provider_fds.stream.monitoring.all_statuses import all_statuses
from airflow_provider_fds.stream.monitoring.monitor import StreamMonitor

TABLE = "main.sales.orders"


@dataclass
class Names:
    """A catalog of local folders. What is no name is a URI: ledgers record those."""

    folders: dict[str, str]
    ids: dict[str, str] = field(default_factory=dict)

    def resolve(self, table: str) -> Place:
        if table not in self.folders:
            return Place(table)
        return Place(self.folders[table], name=table, table_id=self.ids.get(table, ""))


@pytest.fixture
def places(bench, two_appends):
    return Names({TABLE: str(bench.table)}, {TABLE: "u1"})


def named(**options):
    return DeltaStream("orders", **{"table": TABLE, "catalog_conn_id": "unity", "starting_version": 0, **options})


def loaded(bench, places, sink, run="run-1"):
    """Let a run load all it finds; return its session, its job and the committed batches."""
    session = bench.session(run, stream=named(), places=places)
    work = session.begin(sink)
    spec = session.job(work, sink)
    bench.report(session, work, spec)
    staging = session.connected.staging
    job = JobSpec.from_json(staging.get(spec.removeprefix(f"{staging.uri}/"))[0])
    return session, job, session.collect(work).committed


def test_it_is_planned_polled_committed_and_shown(bench, places, sink, log_builder):
    session, job, committed = loaded(bench, places, sink)
    assert committed
    state = session.connected.state
    assert (state.table, session.stream.table) == (log_builder.uri, TABLE)
    assert TABLE not in job.to_json().decode()
    manifests = "".join(path.read_text() for path in bench.staging.rglob("_delta_log/*.json"))
    assert f"{log_builder.uri}/" in manifests

    context = session.connected.context
    poller = TablePoller(session.stream, context.open_table(TABLE), Offset.from_json(state.position))
    assert poller.check() is None
    version = log_builder.append(1)
    assert poller.check().newest_version == version
    for (status,) in (list(all_statuses(context)), StreamMonitor(lambda: context).poll()):
        assert (status.table, status.newest_version, status.lag_versions) == (log_builder.uri, version, 1)


def test_the_same_table_by_path_is_the_same_stream(bench, places, sink, log_builder):
    session, _, _ = loaded(bench, places, sink)
    log_builder.append(1)
    by_path = bench.session("run-2", stream=bench.stream())
    assert by_path.begin(sink).status == "work"
    assert by_path.connected.state.uuid == session.connected.state.uuid


def test_the_ledger_has_the_name_and_a_new_id_or_name_at_the_same_place(bench, places, sink):
    session, _, _ = loaded(bench, places, sink)
    known = session.connected.state.catalog
    assert (known.connection, known.name, known.table_id) == ("unity", TABLE, "u1")
    entries = session.connected.ledger.n

    # registered anew over the same files, and renamed: the log there decides whether it is the same table
    places.folders["main.sales.renamed"], places.ids["main.sales.renamed"] = places.folders[TABLE], "u2"
    again = bench.session("run-2", stream=named(table="main.sales.renamed"), places=places)
    again.begin(sink)
    assert again.connected.state.catalog.name == "main.sales.renamed"
    assert again.connected.state.catalog.table_id == "u2"
    written = [entry.action.kind for entry in again.connected.ledger.entries()][entries + 1 :]
    assert written.count("named") == 1


@pytest.mark.parametrize(
    ("table_id", "words"),
    [
        ("u1", r"catalog has moved that table to .*/moved\. If its log moved with it, `fds accept orders --moved-to"),
        ("u2", r"main\.sales\.orders is now another one, at .*/moved: it was dropped and created again"),
    ],
)
def test_a_table_at_another_place_stops_the_stream(bench, places, sink, tmp_path, table_id, words):
    loaded(bench, places, sink)
    places.folders[TABLE], places.ids[TABLE] = str(tmp_path / "moved"), table_id
    with pytest.raises(LedgerError, match=words):
        bench.session("run-2", stream=named(), places=places).connected.load()


def test_a_sink_is_known_by_its_place_and_spark_gets_it(bench, places, tmp_path):
    folder = tmp_path / "sink"
    # the declaration refuses a name of three parts here too
    sinks = Names({"bronze:orders": str(folder)})
    sink = DeltaAppendSink("bronze:orders")
    session = bench.session(stream=named(), places=places, sink_places=sinks)
    work = session.begin(sink)
    session.job(work, sink)
    connected = session.connected
    assert connected.state.sink.target == folder.as_uri()
    assert [place.uri for place in connected.places(sink.table_uri)] == [
        str(bench.table), str(bench.staging), str(folder)
    ]  # fmt: skip
    assert connected.spark_sink("bronze:orders") == folder.as_uri()
