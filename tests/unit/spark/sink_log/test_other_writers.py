"""What commits of others in a sink mean, without Spark."""

from __future__ import annotations

import json

import pytest

from airflow_provider_fds.batch.sink.commit_metadata import commit_metadata
from airflow_provider_fds.batch.sink.sink_commit import SinkCommit, changes_rows, takes_rows
from airflow_provider_fds.sinks import DeltaAppendSink
from airflow_provider_fds.spark.sink_log.history import SinkLog
from airflow_provider_fds.spark.sink_log.other_writers import RowsTaken
from tests.unit.spark.batches import batch


def removing(operation, metadata=None, **metrics):
    return SinkCommit(1, operation, {k: str(v) for k, v in metrics.items()}, metadata, removes_rows=True)


@pytest.mark.parametrize(
    ("commit", "expected"),
    [
        (removing("WRITE", numRemovedFiles=3), True),
        (removing("DELETE", numDeletedRows=4, numCopiedRows=2), True),
        (removing("TRUNCATE"), True),
        (removing("what another engine calls it"), True),
        (removing("MERGE", numTargetRowsDeleted=1), True),
        (removing("MERGE"), True),
        (removing("MERGE", numTargetRowsDeleted=0), False),
        (removing("MERGE", num_target_rows_deleted=0), False),
        (removing("UPDATE"), False),
        (removing("WRITE", numDeletedRows=0, numCopiedRows=7), False),
        (removing("DELETE", {"fds": 1, "uuid": batch().uuid}), False),
        # of another stream: a replacement, a fence that empties the sink or closes a history, a merge
        (removing("WRITE", {"fds": 1, "uuid": "another stream's"}), True),
        (removing("DELETE", {"fds": 1, "uuid": "another stream's", "removes": {"what": "all"}}), True),
        (removing("UPDATE", {"fds": 1, "uuid": "another stream's", "removes": {"what": "all"}}), True),
        (removing("MERGE", {"fds": 1, "uuid": "another stream's"}, numTargetRowsDeleted=1), False),
        (removing("RESTORE"), False),
        (SinkCommit(1, "OPTIMIZE", {}, None), False),
    ],
)
def test_rows_are_taken_by_what_a_commit_removes_not_by_its_name(commit, expected):
    assert takes_rows(commit, batch().uuid) is expected


@pytest.mark.parametrize(
    ("commit", "expected"),
    [
        (removing("UPDATE", numUpdatedRows=3), True),
        (removing("UPDATE"), True),
        (removing("UPDATE", numUpdatedRows=0), False),
        (removing("UPDATE", num_updated_rows=0), False),
        (removing("MERGE", numTargetRowsUpdated=1), True),
        (removing("MERGE", numTargetRowsUpdated=0), False),
        (removing("MERGE", {"fds": 1, "uuid": "another stream's"}, numTargetRowsUpdated=1), False),
        (removing("DELETE", numDeletedRows=1), False),
        (SinkCommit(1, "UPDATE", {}, None), False),
    ],
)
def test_rows_are_changed_by_updates_and_by_merges_of_others_that_update(commit, expected):
    assert changes_rows(commit, batch().uuid) is expected


def test_a_restore_counts_where_it_is_not_refused():
    assert takes_rows(removing("RESTORE"), batch().uuid, breaking_too=True)


class Log:
    """The log of a sink on disk: commits of actions."""

    def __init__(self, folder):
        self.folder = folder / "_delta_log"
        self.folder.mkdir()
        self.log = SinkLog(None, str(folder))
        self._count = 0

    def commit(self, *actions, operation="WRITE", **info):
        lines = [{"commitInfo": {"operation": operation, **info}}, *actions]
        (self.folder / f"{self._count:020}.json").write_text("\n".join(json.dumps(line) for line in lines))
        self._count += 1

    def warnings(self, since=0):
        taken = RowsTaken(DeltaAppendSink("/sink"), "/sink", self.log, uuid=batch().uuid, breaking_too=False)
        taken.check(self.log.history(None), since, "orders")
        return taken


@pytest.fixture
def log(tmp_path):
    return Log(tmp_path)


def add(path):
    return {"add": {"path": path, "dataChange": True}}


def remove(path, *, data_change=True):
    return {"remove": {"path": path, "dataChange": data_change}}


OURS = {"userMetadata": commit_metadata(batch(), "try-1", {})}


@pytest.mark.parametrize(
    ("commits", "is_told"),
    [
        ([([add("theirs")], {}), ([remove("theirs")], {})], False),
        (
            [
                ([add("theirs")], {}),
                ([remove("theirs"), add("theirs")], {"operation": "DELETE"}),
                ([remove("theirs")], {}),
            ],
            False,
        ),
        ([([remove("ours")], {})], True),
        ([([add("theirs")], {}), ([remove("theirs"), remove("ours")], {})], True),
        (
            [([remove("ours", data_change=False), add("joined")], {"operation": "OPTIMIZE"}), ([remove("joined")], {})],
            True,
        ),
        ([([add("copy")], {"operationMetrics": {"numCopiedRows": "1"}}), ([remove("copy")], {})], True),
        ([([remove("of before the log")], {})], True),
        (
            [
                ([add("theirs")], {}),
                ([remove("theirs"), add("new")], {"operationParameters": {"predicate": "p = 1"}}),
                ([remove("new")], {}),
            ],
            True,
        ),
    ],
)
def test_files_that_others_filled_with_rows_of_their_own_are_theirs_to_remove(log, commits, is_told):
    log.commit(add("ours"), **OURS)
    for actions, info in commits:
        log.commit(*actions, **info)
    assert bool(log.warnings().news()) is is_told


def test_a_warning_is_logged_once_and_many_are_summarised(log):
    log.commit(add("ours"), **OURS)
    for _ in range(9):
        log.commit(remove("ours"), operation="DELETE")
    taken = log.warnings()
    told = taken.news()
    assert len(told) == 6
    assert "version 1 of the sink /sink (DELETE), by another writer" in told[0]
    assert told[-1] == "The same holds for 4 later versions of the sink /sink, up to 9"
    assert taken.news() == ()
