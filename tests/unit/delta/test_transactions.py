"""The transactions of a table's state, by the beginning of their application ids."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_provider_fds.delta.reader.log import DeltaLog
from airflow_provider_fds.delta.reader.replay import transactions_with
from airflow_provider_fds.delta.storage.local import LocalStorage


def txn(app_id, version):
    return {"txn": {"appId": app_id, "version": version}}


def test_transactions_are_known_by_the_commits_and_by_the_log_checkpoint_before_them(log_builder):
    log_builder.create()
    log_builder.commit(txn("fds:a", 1), txn("other", 9))
    log_builder.commit(txn("fds:a", 2), txn("fds:b:x", 1))
    log = DeltaLog(LocalStorage(str(log_builder.root)))
    assert transactions_with(log, 2, "fds:") == {"fds:a": 2, "fds:b:x": 1}
    assert transactions_with(log, 1, "fds:") == {"fds:a": 1}

    rows = [{"appId": "fds:a", "version": 1}, {"appId": "other", "version": 9}, {"appId": "fds:old", "version": 7}]
    checkpoint = pa.table({"txn": pa.array(rows, pa.struct([("appId", pa.string()), ("version", pa.int64())]))})
    pq.write_table(checkpoint, log_builder.log / f"{1:020}.checkpoint.parquet")
    for version in (0, 1):
        (log_builder.log / f"{version:020}.json").unlink()
    assert transactions_with(log, 2, "fds:") == {"fds:a": 2, "fds:b:x": 1, "fds:old": 7}
