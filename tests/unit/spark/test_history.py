"""What can be read from a sink's history, without Spark."""

from __future__ import annotations

import json

import pytest

from airflow_provider_fds.batch.spec import BatchSpec, commit_metadata, read_commit_metadata, txn_version
from airflow_provider_fds.spark.history import History, SinkCommit, quoted
from airflow_provider_fds.spark.sink_delta import _interval_seconds


def batch(epoch=1, number=0, digest="d", uuid="u"):
    return BatchSpec(
        stream="orders",
        uuid=uuid,
        epoch=epoch,
        batch_id=number,
        start="s",
        end="e",
        after="s",
        first_version=0,
        last_version=0,
        manifest="m",
        manifest_digest=digest,
        num_files=1,
        num_bytes=1,
        num_rows=1,
        prev_txn_version=None,
    )


def commit(version, of=None, operation="WRITE", metrics=None):
    metadata = read_commit_metadata(commit_metadata(of, "try-1", {})) if of is not None else None
    return SinkCommit(version, operation, metrics or {}, metadata)


def test_a_batch_is_found_by_stream_number_and_digest():
    history = History((commit(3), commit(2, batch(number=1)), commit(1, batch()), commit(0)))
    assert history.find(batch()).version == 1
    assert history.find(batch(digest="other")) is None
    assert history.find(batch(uuid="other")) is None
    assert history.find(batch(epoch=2)) is None


def test_the_newest_transaction_is_the_highest_of_this_stream():
    history = History((commit(2, batch(uuid="other", number=9)), commit(1, batch(number=1)), commit(0, batch())))
    assert history.newest_transaction("u") == txn_version(1, 1)
    assert history.newest_transaction("nobody") is None
    assert (history.newest_version, history.oldest_version, history.oldest_of("u")) == (2, 0, 0)


@pytest.mark.parametrize(
    "operation",
    ["RESTORE", "CLONE", "REPLACE TABLE", "CREATE OR REPLACE TABLE AS SELECT", "CREATE TABLE", "CONVERT"],
)
def test_what_breaks_the_chain_of_transactions_is_seen_only_after_the_last_commit(operation):
    history = History((commit(2), commit(1, operation=operation), commit(0)))
    assert history.breaking_after(0).version == 1
    assert history.breaking_after(1) is None


@pytest.mark.parametrize("operation", ["WRITE", "OPTIMIZE", "VACUUM END", "DELETE", "MERGE", "SET TBLPROPERTIES", ""])
def test_other_operations_break_nothing(operation):
    assert not commit(1, operation=operation).is_breaking


def test_metadata_of_somebody_else_is_not_ours():
    assert read_commit_metadata(json.dumps({"uuid": "u", "epoch": 1, "batch_id": 0})) is None


def test_metrics_that_are_not_there_are_none():
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
    assert _interval_seconds(text) == seconds
