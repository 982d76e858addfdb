"""A Spark Connect server with FDS's classes saves what the driver's own JVM saves; without any doubt only."""

from __future__ import annotations

import json
from dataclasses import replace

import pyspark
import pytest

from airflow_provider_fds.spark.application.batch_rows import listed_rows
from airflow_provider_fds.spark.runtime import connect_shortcuts
from airflow_provider_fds.spark.runtime.connect_shortcuts import has_shortcuts, shortcut
from airflow_provider_fds.spark.runtime.hadoop_files import hadoop_path
from airflow_provider_fds.spark.sink_log.history import SinkLog
from airflow_provider_fds.spark.sink_log.sink_transactions import give_transactions

pytestmark = pytest.mark.skipif(
    not pyspark.__version__.startswith("4.2"), reason="the classes are compiled for the Delta of Spark 4.2"
)


@pytest.fixture
def manifest(connect_session, stream):
    """A batch, and its manifest as Delta reads it."""
    batch = stream.plan()[0]
    return batch, connect_session.read.format("delta").load(batch.manifest)


@pytest.fixture
def sink(connect_session, stream):
    """A sink with two batches of a stream; returns its path and the second one."""
    first, second, *_ = stream.plan()
    code, reports = stream.work(connect_session, stream.job(first, second))
    assert code == 0, reports
    return hadoop_path(stream.sink.table_uri, connect_session), second


def log_of(session, path):
    log = SinkLog(session, path)
    log.history(None)
    return log


def append(session, path, **options):
    rows = session.range(1000, 1003).selectExpr("id", "'another writer' AS name", "id AS p")
    rows.write.format("delta").mode("append").options(mergeSchema="true", **options).save(path)


def ids(frame):
    return sorted(row.id for row in frame.select("id").collect())


def test_the_rows_of_a_manifest_are_read_without_its_state(connect_session, manifest):
    batch, frame = manifest
    listed = listed_rows(connect_session, frame, batch.manifest, batch.num_files)
    assert listed is not frame
    assert listed.schema == frame.schema
    assert ids(listed) == ids(frame)
    assert "TahoeBatchFileIndex" in listed._explain_string()
    assert "TahoeBatchFileIndex" not in frame._explain_string()


@pytest.mark.parametrize("change", ["files", "folder", "schema", "classes"])
def test_whatever_is_not_the_planned_manifest_is_left_to_delta(connect_session, manifest, stream, monkeypatch, change):
    batch, frame = manifest
    path, files = batch.manifest, batch.num_files
    if change == "files":
        files += 1
    elif change == "folder":
        path = f"{stream.source}"
    elif change == "schema":
        frame = frame.withColumnRenamed("id", "other")
    else:
        monkeypatch.setattr(connect_shortcuts, "SHORTCUTS", "fds.connect.NotThere")
        assert not has_shortcuts(connect_session)
    assert listed_rows(connect_session, frame, path, files) is frame


def test_the_transactions_of_a_sink_are_given_if_log_and_checksum_agree(connect_session, sink):
    path, batch = sink
    log = log_of(connect_session, path)
    assert give_transactions(connect_session, path, log, batch.txn_app_id, batch.txn_version)
    # again, for another stream
    assert give_transactions(connect_session, path, log, "other", None)
    assert not give_transactions(connect_session, path, log, batch.txn_app_id, batch.txn_version - 1)
    assert not give_transactions(connect_session, path, log, batch.txn_app_id, None)
    assert give_transactions(connect_session, path, log, batch.txn_app_id, batch.txn_version)


def test_a_version_that_the_client_has_not_read_is_looked_up_by_delta(connect_session, sink):
    path, batch = sink
    log = log_of(connect_session, path)
    append(connect_session, path)
    assert not give_transactions(connect_session, path, log, batch.txn_app_id, batch.txn_version)


def test_a_checksum_of_other_files_is_not_trusted(connect_session, sink):
    path, batch = sink
    version = log_of(connect_session, path).newest_version
    asked = {"version": version, "app": batch.txn_app_id, "newest": batch.txn_version, "files": 99, "bytes": 1}
    with pytest.raises(Exception, match="the checksum of version"):
        shortcut(connect_session, "transactions", path, **asked).schema  # noqa: B018


def test_a_batch_lands_once_whatever_was_given(connect_session, stream, sink):
    path, second = sink
    rows = ids(connect_session.read.format("delta").load(path))
    log = log_of(connect_session, path)
    assert give_transactions(connect_session, path, log, second.txn_app_id, second.txn_version)
    append(connect_session, path, txnAppId=second.txn_app_id, txnVersion=str(second.txn_version))
    assert ids(connect_session.read.format("delta").load(path)) == rows
    code, (report,) = stream.work(connect_session, stream.job(replace(second, where=None)))
    assert (code, report.outcome) == (0, "verified")


@pytest.mark.parametrize("request_", [{"fds": "other"}, {"path": "x"}, {"fds": 1}, [], "no JSON"])
def test_a_request_that_the_classes_do_not_know_is_an_error(connect_session, monkeypatch, request_):
    monkeypatch.setattr(
        connect_shortcuts, "json", type("Json", (), {"dumps": staticmethod(lambda _: json.dumps(request_))})
    )
    with pytest.raises(Exception):  # noqa: B017
        shortcut(connect_session, "rows", "x").schema  # noqa: B018
    monkeypatch.undo()
    assert connect_session.range(2).count() == 2
