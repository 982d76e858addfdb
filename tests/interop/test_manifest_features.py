"""The newer table features, together in one table whose log begins with a checkpoint."""

from __future__ import annotations

import pytest

from airflow_provider_fds.delta.actions import CommitInfo

FIRST = 3


@pytest.fixture(scope="module")
def modern(lab):
    """In-commit timestamps, row tracking, deletion vectors, variant, timestamp_ntz; v2 checkpoints every 2 commits."""
    path = lab.create(
        "modern",
        """(id LONG, t TIMESTAMP_NTZ, v VARIANT) USING delta TBLPROPERTIES (
             'delta.checkpointPolicy' = 'v2', 'delta.checkpointInterval' = '2',
             'delta.enableInCommitTimestamps' = 'true', 'delta.enableRowTracking' = 'true',
             'delta.enableDeletionVectors' = 'true')""",
    )
    insert = """INSERT INTO {} SELECT id, TIMESTAMP_NTZ'2026-03-29 02:30:00', parse_json('{"k": [' || id || ', null]}')
                FROM range(%d, %d, 1, 1)"""
    for first in (0, 10, 20):
        lab.sql(insert % (first, first + 10), path)
    lab.sql("UPDATE {} SET t = TIMESTAMP_NTZ'0001-01-01 00:00:00' WHERE id = 21", path)
    lab.sql("DELETE FROM {} WHERE id IN (0, 22)", path)
    for version in range(FIRST - 1):
        (lab.folder / "modern" / "_delta_log" / f"{version:020d}.json").unlink()
    return path


@pytest.fixture(scope="module")
def tracked(lab):
    """Row tracking enabled when the table had rows already: their ids came in a later commit, without data."""
    path = lab.create("tracked", "(id LONG) USING delta")
    lab.sql("INSERT INTO {} VALUES (1)", path)
    lab.sql("ALTER TABLE {} SET TBLPROPERTIES ('delta.enableRowTracking' = 'true')", path)
    lab.sql("INSERT INTO {} VALUES (2)", path)
    return path


def test_a_table_with_the_newer_features_is_read_as_structured_streaming_reads_it(lab, modern):
    batches = lab.batches(modern, FIRST)

    assert {"v2Checkpoint", "variantType", "timestampNtz"} <= set(batches[0].state.protocol.readerFeatures)
    assert lab.read_all(modern, FIRST) == lab.streamed(modern, FIRST)


def test_the_commit_timestamp_is_the_in_commit_timestamp(lab, modern):
    log = lab.log(modern)
    expected = set()
    for version in range(FIRST, log.latest() + 1):
        (info,) = (a.commitInfo for a in log.commit(version).actions if isinstance(a.commitInfo, CommitInfo))
        expected.add((version, info.inCommitTimestamp))

    found = set()
    for batch in lab.batches(modern, FIRST):
        frame = lab.read(batch, modern).selectExpr("_commit_version", "unix_millis(_commit_timestamp)").distinct()
        found |= {tuple(row) for row in frame.collect()}

    assert found == expected


def test_row_ids_are_those_of_the_source(lab, modern):
    ids = ("id", "_metadata.row_id", "_metadata.row_commit_version")
    source = {tuple(row) for row in lab.spark.read.format("delta").load(modern).select(*ids).collect()}
    batches = lab.batches(modern, FIRST)

    frame = lab.read(batches[-1], modern).select(*ids)
    newest = {tuple(row) for row in frame.where(f"_commit_version = {lab.log(modern).latest()}").collect()}

    assert len(newest) == 17
    assert newest <= source


def test_files_older_than_row_tracking_are_read_without_ids(lab, tracked):
    frame = lab.read_one(tracked)

    assert {row.id for row in frame.collect()} == {1, 2}
    with pytest.raises(Exception, match="FIELD_NOT_FOUND"):
        frame.select("_metadata.row_id")
