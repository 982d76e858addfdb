"""A change feed whose initial snapshot has a key twice is not merged: a delete of one row would delete the other."""

from __future__ import annotations

import json

import deltalake
import pyarrow as pa
import pytest

from airflow_provider_fds.errors import BatchRejectedError
from airflow_provider_fds.ledger.owner import Actor
from airflow_provider_fds.stream.actions.action_builder import ActionBuilder
from airflow_provider_fds.stream.actions.prepared_action import perform
from tests.interop.merging import Runs

CHANGES = {"delta.enableChangeDataFeed": "true"}
ACTOR = Actor(deployment="tests", user="tests", host="tests")


def table(*rows):
    return pa.table({"id": pa.array([row[0] for row in rows], pa.int64()), "name": [row[1] for row in rows]})


def source(folder, *commits):
    """Make a source in which each commit is one file."""
    path = str(folder / "source")
    for rows in commits:
        deltalake.write_deltalake(path, table(*rows), mode="append", configuration=CHANGES)
    return path


def move(runs, name, **options):
    connected = runs.session().connected
    connected.load()
    builder = ActionBuilder(connected.ledger, "again")
    perform(connected.ledger, getattr(builder, name)(**options), ACTOR)


def names(runs):
    return sorted(row[0] for row in runs.rows("name").elements())


@pytest.mark.parametrize(
    ("options", "files"),
    [({}, 1), ({"scd": 2}, 1), ({"columns": ["id"]}, 1), ({}, 100)],
    ids=["newest-rows", "history", "keys-alone", "one-batch"],
)
def test_a_key_twice_in_the_snapshot_is_refused(spark, tmp_path, options, files):
    path = source(tmp_path, [(1, "one"), (2, "two")], [(3, "three"), (2, "zwei")])
    runs = Runs(spark, path, tmp_path, **options)
    refused = r"MERGE_ORDER_UNKNOWN: .*keys must be unique in the source"
    with pytest.raises(BatchRejectedError, match=refused) as it:
        runs.load(max_files_per_batch=files)
    assert '{"id":2}' in str(it.value)
    assert "sequence_by" not in str(it.value)
    if files == 1:
        # in a new epoch, too, which continues in the middle of the snapshot
        move(runs, "replan")
        with pytest.raises(BatchRejectedError, match=refused):
            runs.load(max_files_per_batch=files)
        assert sum(runs.rows("id").values()) == 2

    deltalake.DeltaTable(path).delete("name = 'zwei'")
    move(runs, "rewind", to="start", sink_rows="empty")
    runs.load(max_files_per_batch=files)
    current = "_is_current" if options.get("scd") else "true"
    assert sorted(row[0] for row in runs.rows("id", current).elements() if row[1]) == [1, 2, 3]


def test_a_key_that_the_sink_has_for_another_reason_is_merged(spark, tmp_path):
    path = source(tmp_path, [(1, "one")], [(2, "two")])
    runs = Runs(spark, path, tmp_path)
    # rows that were there before
    deltalake.write_deltalake(runs.sink_path, table((2, "before"), (9, "stays")))
    runs.load(max_files_per_batch=1)
    assert names(runs) == ["one", "stays", "two"]

    # the same snapshot once more
    move(runs, "rewind", to="start", sink_rows="keep")
    runs.load(max_files_per_batch=1)
    assert names(runs) == ["one", "stays", "two"]

    # changes after the snapshot, in the batch that has its end
    move(runs, "rewind", to="start", sink_rows="empty", force_sink=True)
    runs.load(max_files_per_batch=1, max_batches=1, applications=2)
    assert len(names(runs)) == 1
    deltalake.write_deltalake(path, table((1, "uno"), (2, "dos")), mode="append")
    (batch,) = runs.load()
    assert json.loads(batch.start)["isStartingVersion"]
    assert not json.loads(batch.end)["isStartingVersion"]
    assert names(runs) == ["dos", "uno"]


def test_sequence_by_says_which_row_of_a_key_counts(spark, tmp_path):
    path = source(tmp_path, [(1, "a")], [(1, "b")])
    runs = Runs(spark, path, tmp_path, sequence_by="name")
    runs.load(max_files_per_batch=1)
    assert names(runs) == ["b"]
