"""A merge sees a commit that adds and removes rows whole, whatever the limits are."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest

from airflow_provider_fds.errors import BatchRejectedError, ConfigurationError
from airflow_provider_fds.ledger.owner import Actor
from airflow_provider_fds.sinks import DeltaAppendSink
from airflow_provider_fds.stream.actions.action_builder import ActionBuilder
from airflow_provider_fds.stream.actions.prepared_action import perform
from tests.interop.merging import Runs, rows_of

ACTOR = Actor(deployment="tests", user="tests", host="tests")
CHANGES = {"delta.enableChangeDataFeed": "true"}


@pytest.fixture
def overwritten(spark, tmp_path):
    """40 rows, all overwritten by rows of the same keys: 4 files removed, 4 added, without deletion vectors."""
    path = str(tmp_path / "source")
    spark.sql(
        f"CREATE TABLE delta.`{path}` (id LONG, name STRING) USING delta TBLPROPERTIES "
        "('delta.enableChangeDataFeed' = 'true', 'delta.enableDeletionVectors' = 'false')"
    )
    for word in ("first", "second"):
        rows = spark.range(0, 40, 1, 4).selectExpr("id", f"concat('{word} ', id) AS name")
        rows.write.format("delta").mode("overwrite").save(path)
    return path


def test_an_overwrite_with_more_files_than_the_limit_loses_no_key(spark, overwritten, tmp_path):
    runs = Runs(spark, overwritten, tmp_path)
    batches = runs.load(starting_version=0, max_files_per_batch=2)
    assert runs.rows() == rows_of(spark, overwritten)
    assert [batch.num_files for batch in batches] == [2, 2, 8]


def test_a_commit_above_the_default_limit_loses_no_key(spark, tmp_path):
    path = str(tmp_path / "source")
    for word in ("first", "second"):
        rows = pa.table({"id": pa.array(range(600), pa.int64()), "name": [f"{word} {n}" for n in range(600)]})
        deltalake.write_deltalake(path, rows, mode="overwrite", partition_by=["id"], configuration=CHANGES)
    # Spark logs the files that a commit adds before those that it removes
    commit = Path(path) / "_delta_log" / f"{1:020d}.json"
    lines = sorted(commit.read_text().splitlines(), key=lambda line: line.startswith('{"remove"'))
    commit.write_text("\n".join(lines) + "\n")
    runs = Runs(spark, path, tmp_path)
    batches = runs.load(starting_version=0)
    assert runs.rows() == rows_of(spark, path)
    assert [batch.num_files for batch in batches] == [600, 1200]


def test_history_has_no_row_that_never_held(spark, overwritten, tmp_path):
    runs = Runs(spark, overwritten, tmp_path, scd=2)
    runs.load(starting_version=0, max_files_per_batch=2)
    current = rows_of(spark, overwritten, "id", "name", "true")
    closed = rows_of(spark, overwritten, "id", "replace(name, 'second', 'first')", "false")
    assert runs.rows("id", "name", "_is_current") == current + closed


def test_the_driver_refuses_a_part_of_such_a_commit_before_it_writes(spark, overwritten, tmp_path):
    runs = Runs(spark, overwritten, tmp_path)
    limits = {"starting_version": 2, "max_files_per_batch": 4}
    # planned when no sink had a say, and adopted by a stream that says it reads no changes
    runs.session(whole_commits=False, **limits).begin(None)
    session = runs.session(read_change_feed=False, ignore_changes=True, **limits)
    for divides, words in ((True, "which adds and removes rows"), (None, "which may add and remove rows")):
        work = session.begin(runs.sink)
        runs.submit(session, work, lambda batch, known=divides: replace(batch, divides_commit=known))
        failure = session.collect(work).failure
        assert isinstance(failure, BatchRejectedError)
        assert f"has only a part of version 2 of the source, {words}" in str(failure)
    assert not Path(runs.sink_path).exists()

    with pytest.raises(ConfigurationError, match="fds replan merged"):
        runs.load(**limits)
    session.connected.load()
    ledger = session.connected.ledger
    perform(ledger, ActionBuilder(ledger, "cut").replan(), ACTOR)
    runs.load(**limits)
    assert runs.rows() == rows_of(spark, overwritten)


def test_a_stream_rebound_to_a_merge_inside_a_commit_reads_the_commit_again(spark, overwritten, tmp_path):
    limits = {"starting_version": 2, "max_files_per_batch": 4}
    append = Runs(spark, overwritten, tmp_path, DeltaAppendSink(str(tmp_path / "changes")))
    (batch,) = append.load(max_batches=1, applications=1, **limits)
    assert batch.inner_versions == (2,)
    connected = append.session(**limits).connected
    connected.load()
    perform(connected.ledger, ActionBuilder(connected.ledger, "to a merge").replan(new_sink=True), ACTOR)

    merge = Runs(spark, overwritten, tmp_path, name="merging")
    with pytest.raises(ConfigurationError, match=r"inside version 2 .* `fds rewind merged --to 2"):
        merge.load(**limits)
    connected.load()
    perform(
        connected.ledger,
        ActionBuilder(connected.ledger, "from its beginning").rewind(to=2, sink_rows="keep"),
        ACTOR,
    )
    merge.load(**limits)
    assert merge.rows() == rows_of(spark, overwritten)
