"""What can be read from a sink's history, without Spark."""

from __future__ import annotations

import json

import pytest

from airflow_provider_fds.batch.sink.commit_metadata import commit_metadata, read_commit_metadata
from airflow_provider_fds.batch.sink.sink_commit import SinkCommit, parse_commit
from airflow_provider_fds.batch.transactions import txn_version
from airflow_provider_fds.spark.runtime.failures import RefusalError
from airflow_provider_fds.spark.runtime.hadoop_files import read_bytes
from airflow_provider_fds.spark.sink_log.history import History, SinkLog, quoted
from airflow_provider_fds.spark.sink_log.log_files import LogCheckpoint, newest_checkpoint
from airflow_provider_fds.spark.sink_log.sink_place import interval_seconds
from tests.unit.spark.batches import batch


def commit(version, of=None, operation="WRITE", metrics=None):
    metadata = read_commit_metadata(commit_metadata(of, "try-1", {})) if of is not None else None
    return SinkCommit(version, operation, metrics or {}, metadata)


def history_of(*commits):
    return History(commits[0].version, commits)


def test_a_batch_is_found_by_stream_number_and_digest():
    history = history_of(commit(3), commit(2, batch(number=1)), commit(1, batch()), commit(0))
    assert history.find(batch()).version == 1
    assert history.find(batch(digest="other")) is None
    assert history.find(batch(uuid="other")) is None
    assert history.find(batch(epoch=2)) is None


def test_the_newest_transaction_is_the_highest_of_this_stream():
    history = history_of(commit(2, batch(uuid="other", number=9)), commit(1, batch(number=1)), commit(0, batch()))
    assert history.newest_transaction("fds:u") == txn_version(1, 1)
    assert history.newest_transaction("nobody") is None
    assert (history.newest_version, history.oldest_version, history.oldest_of("fds:u")) == (2, 0, 0)


@pytest.mark.parametrize(
    "operation",
    ["RESTORE", "CLONE", "REPLACE TABLE", "CREATE OR REPLACE TABLE AS SELECT", "CREATE TABLE", "CONVERT"],
)
def test_an_operation_that_breaks_the_chain_counts_only_after_the_last_commit(operation):
    history = history_of(commit(2), commit(1, operation=operation), commit(0))
    assert history.breaking_after(0).version == 1
    assert history.breaking_after(1) is None


@pytest.mark.parametrize("operation", ["WRITE", "OPTIMIZE", "VACUUM END", "DELETE", "MERGE", "SET TBLPROPERTIES", ""])
def test_other_operations_do_not_break_the_history(operation):
    assert not commit(1, operation=operation).is_breaking


def test_metadata_of_another_writer_is_not_ours():
    assert read_commit_metadata(json.dumps({"uuid": "u", "epoch": 1, "batch_id": 0})) is None


def test_missing_metrics_are_none():
    assert commit(0, metrics={"numOutputRows": "7"}).metric("numOutputRows") == 7
    assert commit(0).metric("numOutputRows") is None


def test_a_path_with_a_backtick_is_one_name_in_sql():
    assert quoted("file:/a`b") == "delta.`file:/a``b`"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("interval 30 days", 2_592_000),
        ("INTERVAL 1 week 2 days", 777_600),
        ("interval 1 second", 1),
        ("2 hours", 7200),
        ("interval 5 milliseconds", 0),
        ("forever", None),
    ],
)
def test_intervals_of_delta_are_understood(text, seconds):
    assert interval_seconds(text) == seconds


def content(*actions):
    return "\n".join(json.dumps(action) for action in actions).encode()


def test_a_commit_is_read_without_its_files():
    text = content(
        {"add": {"path": "a.parquet"}},
        {"metaData": {"id": "t"}},
        {"txn": {"appId": "fds:u", "version": txn_version(1, 4)}},
        {
            "commitInfo": {
                "operation": "WRITE",
                "operationMetrics": {"numOutputRows": "7", "numFiles": 1},
                "userMetadata": commit_metadata(batch(number=4), "try-1", {}),
            }
        },
    )
    read = parse_commit(3, text)
    assert (read.version, read.operation, read.table_id) == (3, "WRITE", "t")
    assert (read.metric("numOutputRows"), read.metric("numFiles")) == (7, 1)
    assert read.transaction_of("fds:u") == txn_version(1, 4)
    assert read.holds(batch(number=4))


def test_a_commit_without_commit_info_is_read_too():
    read = parse_commit(0, content({"txn": {"appId": "fds:u", "version": 9}}))
    assert (read.operation, read.metadata, read.transaction_of("fds:u")) == ("", None, 9)
    assert not read.holds(batch())


def test_a_log_is_followed_from_where_it_was_left(tmp_path):
    folder = tmp_path / "_delta_log"
    folder.mkdir()
    (folder / "00000000000000000003.checkpoint.parquet").touch()
    log = SinkLog(None, str(tmp_path))
    assert log.history(None) is None
    for version in (3, 4):
        (folder / f"{version:020}.json").write_bytes(content({"commitInfo": {"operation": f"OP {version}"}}))
    assert [c.operation for c in log.history(None).commits] == ["OP 4", "OP 3"]
    (folder / f"{5:020}.json").write_bytes(content({"commitInfo": {"operation": "OP 5"}}))
    assert [c.version for c in log.history(5).commits] == [5]
    history = log.history(9)
    assert (history.newest_version, history.commits) == (5, ())


def test_the_newest_commit_is_read_once_for_all_who_ask(tmp_path, monkeypatch):
    folder = tmp_path / "_delta_log"
    folder.mkdir()
    for version in (0, 1):
        (folder / f"{version:020}.json").write_bytes(content({"commitInfo": {"operation": f"OP {version}"}}))
    asked = []
    monkeypatch.setattr(
        "airflow_provider_fds.spark.sink_log.history.read_bytes",
        lambda path, spark: asked.append(path) or read_bytes(path, spark),
    )
    log = SinkLog(None, str(tmp_path))
    log.history(None)
    assert b"OP 1" in log.content(1)
    assert b"OP 0" in log.content(0)
    assert [path[-6:-5] for path in asked] == ["1", "0", "0"]


def test_a_recreated_log_is_read_again(tmp_path):
    folder = tmp_path / "_delta_log"
    folder.mkdir()
    for version in (0, 1):
        (folder / f"{version:020}.json").write_bytes(content({"commitInfo": {"operation": "OLD"}}))
    log = SinkLog(None, str(tmp_path))
    assert log.history(None).newest_version == 1
    (folder / f"{1:020}.json").unlink()
    (folder / f"{0:020}.json").write_bytes(content({"commitInfo": {"operation": "NEW"}}))
    history = log.history(None)
    assert (history.newest_version, history.at(0).operation) == (0, "NEW")


def test_protocol_and_metadata_of_a_commit_are_read(tmp_path):
    read = parse_commit(
        4,
        content(
            {"remove": {"path": "a", "dataChange": False, "stats": '{"dataChange":true}'}},
            {"protocol": {"minWriterVersion": 7, "writerFeatures": ["catalogManaged"]}},
            {"metaData": {"id": "t", "configuration": {"delta.setTransactionRetentionDuration": "interval 1 day"}}},
            {"commitInfo": {"operation": "WRITE", "operationParameters": {"mode": "Overwrite", "predicate": None}}},
        ),
    )
    assert (read.features, read.removes_rows) == (("catalogManaged",), False)
    assert read.properties == {"delta.setTransactionRetentionDuration": "interval 1 day"}
    assert read.parameters == {"mode": "Overwrite"}
    assert parse_commit(5, content({"remove": {"path": "a", "dataChange": True}})).removes_rows
    assert parse_commit(5, content({"remove": {"path": "a", "dataChange": True}})).properties is None


def test_commits_before_a_gap_in_the_log_are_gone(tmp_path):
    folder = tmp_path / "_delta_log"
    folder.mkdir()
    for version in (0, 1, 7, 8):
        (folder / f"{version:020}.json").write_bytes(content({"commitInfo": {"operation": "WRITE"}}))
    assert SinkLog(None, str(tmp_path)).history(None).oldest_version == 7


def test_transactions_are_read_without_spark_from_a_whole_log_and_otherwise_refused(tmp_path):
    folder = tmp_path / "_delta_log"
    folder.mkdir()
    for version in (0, 1):
        txn = {"txn": {"appId": "fds:u", "version": version}}
        (folder / f"{version:020}.json").write_bytes(content(txn, {"txn": {"appId": "other", "version": 1}}))
    log = SinkLog(None, str(tmp_path))
    log.history(None)
    assert log.transactions() == {"fds:u": 1}
    (folder / f"{0:020}.json").unlink()
    log = SinkLog(None, str(tmp_path))
    log.history(None)
    with pytest.raises(RefusalError, match="no checkpoint before them"):
        log.transactions()


def checkpoint(version, ending="parquet"):
    return f"{version:020}.checkpoint.{ending}"


def test_the_newest_checkpoint_that_is_whole_counts():
    part = "0000000001.0000000002.parquet"
    uuid = "3a0d65cd-4056-49b8-937b-95f9e3ee90e5.json"
    names = [checkpoint(2), checkpoint(4, part), checkpoint(3, uuid), checkpoint(9), f"{5:020}.json"]
    assert newest_checkpoint(names, 8) == LogCheckpoint(3, (checkpoint(3, uuid),))
    other = checkpoint(4, "0000000002.0000000002.parquet")
    assert newest_checkpoint([*names, other], 8).files == (checkpoint(4, part), other)
    assert newest_checkpoint(names, 1) is None
