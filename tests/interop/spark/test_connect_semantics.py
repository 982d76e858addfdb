"""Servers that speak Spark Connect and ignore what FDS relies on are refused before the first batch."""

from __future__ import annotations

import json

import pytest

from airflow_provider_fds.batch.spec import job_name
from airflow_provider_fds.spark.sessions import semantics
from airflow_provider_fds.spark.sessions.connect_fleet import ConnectFleet
from airflow_provider_fds.spark.sessions.connect_job import ConnectJob
from airflow_provider_fds.spark.sessions.connect_server import ConnectServer
from airflow_provider_fds.spark.sessions.semantics import FOLDER, ServerDiffersError
from airflow_provider_fds.stream.attempt.driver_files import DriverFiles
from tests.interop.connect_look_alike import look_alike
from tests.interop.spark.test_fleet_connect import fleet_of
from tests.interop.spark.test_fleet_job import Streams

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="session")
def spark(connect_session):
    """Instead of the classic session: one on the server."""
    return connect_session


@pytest.fixture(autouse=True)
def unknown_servers(monkeypatch):
    """Each test begins as a new process."""
    monkeypatch.setattr(semantics, "_FIT", set())


def job_of(stream, spec, url, lines=None):
    key = f"orders/jobs/1/0/{job_name(spec.attempt_id, spec.to_json())}"
    stream.staging.put(key, spec.to_json())
    files = DriverFiles(stream.staging, type(stream.staging)(str(stream.sink_path)))
    server = ConnectServer(url, "connection 'warm'")
    return ConnectJob(server, f"{stream.staging.uri}/{key}", files, {}, ([] if lines is None else lines).append)


def kept(stream):
    return sorted(path.name for path in (stream.folder / "staging" / FOLDER).glob("*"))


def drops_transactions(plan):
    if hasattr(plan, "command") and plan.HasField("command") and plan.command.HasField("write_operation"):
        for key in ("txnAppId", "txnVersion"):
            plan.command.write_operation.options.pop(key, None)


def lists_folders(plan):
    """Read the Parquet files of a folder, whatever the table's log says."""
    if (source := source_of(plan)) is not None and source.format == "delta":
        source.format = "parquet"


def source_of(plan):
    """What a plan reads, if it is the reader of a table and nothing else."""
    if not hasattr(plan, "root") or not plan.HasField("root") or not plan.root.HasField("read"):
        return None
    return plan.root.read.data_source if plan.root.read.HasField("data_source") else None


def ignores(key):
    def change(setting):
        for pair in getattr(setting, "pairs", ()):
            if pair.key == key:
                pair.key = "ignored"

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            drops_transactions,
            "a transaction that the table already has is written again (txnAppId, txnVersion): the table has version 1",
        ),
        (lists_folders, "a manifest is not read as its rows: [(7,), (8,)] instead of [(7, 3)]"),
        (
            ignores("spark.sql.session.timeZone"),
            (
                "spark.sql.session.timeZone is ignored: second 0 is 1970-01-01 00:00:00 and 1970-01-01 00:00:00 "
                "instead of 1970-01-01 05:30:00 and 1970-01-01 00:00:00"
            ),
        ),
        (
            ignores("spark.sql.ansi.enabled"),
            (
                "spark.sql.ansi.enabled is ignored: the sum of text and integer is bigint and bigint instead of bigint "
                "and double"
            ),
        ),
    ],
    ids=["transactions", "rows", "zone", "ansi"],
)
def test_a_server_that_ignores_what_batches_rely_on_is_refused_before_the_first(
    stream, connect_server, change, message
):
    spec = stream.job(*stream.plan())
    for _ in range(2):
        # what is wrong is not remembered: the server may be another one tomorrow
        with look_alike(connect_server.port, change) as url, pytest.raises(ServerDiffersError) as caught:
            job_of(stream, spec, url).work()
        assert f"(Spark {stream_version()}) ignores what FDS relies on: {message}. Nothing" in str(caught.value)
        assert not stream.sink_path.exists()
        assert stream.read_reports(spec) == []
        assert kept(stream) == []


def stream_version():
    import pyspark

    return pyspark.__version__


def test_all_that_a_server_ignores_is_named_and_a_fleet_does_not_begin(tmp_path, source_template, connect_server):
    streams = Streams(tmp_path, source_template)
    streams.add("one")
    streams.add("two")

    def change(request):
        for each in (drops_transactions, ignores("spark.sql.session.timeZone")):
            each(request)

    with look_alike(connect_server.port, change) as url:
        fleet, _ = fleet_of(streams, url)
        with pytest.raises(ServerDiffersError, match=r"written again .*; spark\.sql\.session\.timeZone is ignored"):
            fleet.work()
    assert not any(stream.sink_path.exists() for stream in streams.all.values())
    assert isinstance(fleet, ConnectFleet)


def test_a_server_that_fits_is_asked_once_by_all_processes(stream, connect_server, monkeypatch):
    first, second, third = stream.plan()
    asked = []
    ask = semantics.Semantics.ask

    def counted(self):
        asked.append(self)
        ask(self)

    monkeypatch.setattr(semantics.Semantics, "ask", counted)
    assert job_of(stream, stream.job(first), connect_server.url).work() == 0
    (name,) = kept(stream)
    facts = json.loads((stream.folder / "staging" / FOLDER / name).read_bytes())
    assert facts[0] == f"127.0.0.1:{connect_server.port}"
    assert facts[1] == stream_version()
    assert facts[2].startswith("local-")

    assert job_of(stream, stream.job(second), connect_server.url).work() == 0
    # another process, and another session, of the same server
    semantics._FIT.clear()
    assert job_of(stream, stream.job(third), connect_server.url).work() == 0
    assert len(asked) == 1
    assert kept(stream) == [name]


def test_the_settings_of_a_session_that_others_use_stay_as_they_are(spark, stream, connect_server):
    keys = ("spark.sql.session.timeZone", "spark.sql.ansi.enabled")
    before = [spark.conf.get(key) for key in keys]
    semantics.check_semantics(
        ConnectServer(connect_server.url, "connection 'warm'"), spark, {}, f"{stream.staging.uri}/orders/jobs/x", print
    )
    assert [spark.conf.get(key) for key in keys] == before
    assert len(kept(stream)) == 1


def test_a_server_without_answers_is_left_to_the_batch_which_knows_why(stream, connect_server):
    def change(plan):
        if (source := source_of(plan)) is not None:
            source.paths[:] = [f"{path}-unmounted" for path in source.paths]

    lines = []
    spec = stream.job(*stream.plan()[:1])
    with look_alike(connect_server.port, change) as url:
        assert job_of(stream, spec, url, lines).work() != 0
    assert any("it is unknown whether the server does what FDS relies on" in line for line in lines)
    assert kept(stream) == []
    assert stream.read_reports(spec)[0].reason == "MANIFEST_MISSING"
