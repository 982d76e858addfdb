"""A stream is not created where its sink has traces that may be its own."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_provider_fds.batch.sink.commit_metadata import commit_metadata
from airflow_provider_fds.batch.spec import BatchSpec
from airflow_provider_fds.batch.transactions import txn_version
from airflow_provider_fds.delta.reader.log import DeltaLog
from airflow_provider_fds.errors import LedgerError
from airflow_provider_fds.sinks import DeltaAppendSink, ForeachBatchSink
from airflow_provider_fds.stream.sink_record.sink_traces import loaded_by_others
from tests.conftest import LogBuilder

OLD, OTHER = "0b6c3a6e-7c6d-4c8e-9a51-0e3c1f6f2a11", "5f0b7a52-8f0c-4b0e-8f56-6d7f0a1c2b33"


class TracedSink:
    """A sink with one commit of a stream, then commits of other writers, then perhaps a cleanup of its log."""

    def __init__(self, root):
        root.mkdir()
        self.builder = LogBuilder(root)
        self.builder.log.mkdir()
        self.builder.create()
        self.sink = DeltaAppendSink(str(root))

    def load(self, stream, uuid, *, seen=None, interval=None):
        batch = BatchSpec(stream, uuid, 1, 0, "{}", "{}", "{}", 0, 2, "m", "d", 5, 1, 50, None, interval=interval)
        info = {"operation": "WRITE", "userMetadata": commit_metadata(batch, "t", {}, seen=seen)}
        txn = {"appId": f"fds:{uuid}", "version": txn_version(1, 0)}
        self.builder.commit({"commitInfo": info}, {"txn": txn}, operation=None)

    def pass_by(self, commits):
        for _ in range(commits):
            self.builder.commit(operation="OPTIMIZE")

    def clean_up(self, before):
        """Leave a log checkpoint of version ``before - 1`` in place of the commits up to there."""
        folder, rows = self.builder.log, {"txn": [], "protocol": [], "metaData": []}
        for path in sorted(folder.glob("*.json"))[:before]:
            for action in map(json.loads, path.read_text().splitlines()):
                for name, found in rows.items():
                    if name in action:
                        found.append(action[name])
            path.unlink()
        txn = pa.struct([("appId", pa.string()), ("version", pa.int64())])
        protocol = pa.struct([("minReaderVersion", pa.int32()), ("minWriterVersion", pa.int32())])
        metadata = pa.struct(
            [("id", pa.string()), ("schemaString", pa.string()), ("partitionColumns", pa.list_(pa.string()))]
        )
        actions = [(name, row) for name, found in rows.items() for row in found]
        table = pa.table(
            {
                name: pa.array([row if name == of else None for of, row in actions], kind)
                for name, kind in (("txn", txn), ("protocol", protocol), ("metaData", metadata))
            }
        )
        pq.write_table(table, folder / f"{before - 1:020}.checkpoint.parquet")


@pytest.fixture
def traced(tmp_path):
    return TracedSink(tmp_path / "sink")


def test_a_lost_ledger_is_noticed_however_many_commits_came_since(bench, two_appends, traced):
    traced.load("orders", OLD)
    traced.pass_by(120)
    with pytest.raises(LedgerError, match=f"version 1 of the sink .* by a stream of this name \\(uuid {OLD}"):
        bench.session().begin(traced.sink)


def test_a_transaction_is_found_although_its_commit_is_gone(bench, two_appends, traced):
    traced.load("orders", OLD)
    traced.pass_by(3)
    traced.clean_up(before=3)
    with pytest.raises(LedgerError, match=rf"(?s){OLD}.*other_streams=\['{OLD}'\]") as caught:
        bench.session().begin(traced.sink)
    assert "restore it" in str(caught.value)
    assert bench.session().status().phase == "empty"


def test_other_streams_on_the_sink_allows_a_known_stream(bench, two_appends, traced):
    traced.load("elsewhere", OTHER)
    traced.clean_up(before=2)
    traced.pass_by(1)
    sink = DeltaAppendSink(traced.sink.uri, other_streams=[OTHER])
    assert bench.session().begin(sink).status == "work"


def test_streams_of_other_names_and_those_of_the_same_staging_are_known(bench, two_appends, traced, tmp_path):
    neighbour = bench.session("run-0", stream=bench.stream("neighbour"))
    neighbour.begin(DeltaAppendSink(str(tmp_path / "another")))
    traced.load("neighbour", neighbour.connected.state.uuid)
    traced.clean_up(before=2)
    traced.load("other", OTHER)
    assert bench.session().begin(traced.sink).status == "work"


def test_commits_that_an_unfinished_cleanup_left_before_a_gap_count_too(bench, two_appends, traced):
    traced.load("orders", OLD)
    traced.pass_by(3)
    kept = (traced.builder.log / f"{1:020}.json").read_bytes()
    traced.clean_up(before=3)
    (traced.builder.log / f"{1:020}.json").write_bytes(kept)
    with pytest.raises(LedgerError, match="version 1 of the sink"):
        bench.session().begin(traced.sink)


def test_a_stream_that_was_created_without_its_sink_is_searched_for_when_it_is_bound(bench, two_appends, traced):
    traced.load("orders", OLD)
    traced.pass_by(3)
    traced.clean_up(before=3)
    bench.session("plan").begin(None)
    with pytest.raises(LedgerError, match=rf"(?s)knows of no batch in its sink.*{OLD}") as refused:
        bench.session("run").begin(traced.sink)
    # which finds nothing of the uuid that this ledger has
    assert "fds recover" not in str(refused.value)


def test_data_intervals_of_a_lost_ledger_are_not_sent_to_recover(bench, two_appends, traced):
    traced.load("orders", OLD, interval="2026-01-01/2026-01-02")
    with pytest.raises(LedgerError, match="load the intervals into another sink with a stream of another") as refused:
        bench.session().begin(traced.sink)
    assert "fds recover" not in str(refused.value)


def test_the_named_tables_of_a_function_are_searched_too(bench, two_appends, traced):
    txn = {"appId": f"fds:{OLD}#kept", "version": txn_version(1, 0)}
    traced.builder.commit({"txn": txn}, operation="WRITE")
    sink = ForeachBatchSink("jobs:split", writes={"kept": traced.sink.uri, "gone": None})
    with pytest.raises(LedgerError, match=rf"(?s){OLD}.*other_streams=\['{OLD}'\]"):
        bench.session().begin(sink)

    known = ForeachBatchSink("jobs:split", writes=sink.writes, other_streams=[OLD])
    assert bench.session().begin(known).status == "work"


def test_commits_are_read_back_to_a_batch_that_says_what_was_loaded_before_it(bench, two_appends, traced, monkeypatch):
    traced.load("third", OLD)
    traced.pass_by(300)
    seen = {"to": 301, "streams": {OLD: ["third", [["t", 0, 4, -100, 7, -100, 1]]]}}
    traced.load("fourth", OTHER, seen=seen)
    traced.pass_by(1)
    connected = bench.session().connected
    connected.load()
    read = []
    commits = DeltaLog.commits
    monkeypatch.setattr(
        DeltaLog, "commits", lambda log, first, last: read.append((first, last)) or commits(log, first, last)
    )
    streams = loaded_by_others(connected, traced.sink)
    assert [(one.name, [piece.versions for piece in one.pieces]) for one in streams if one.pieces] == [
        ("third", [(4, 6)])
    ]
    assert read == [(300, 303)]
