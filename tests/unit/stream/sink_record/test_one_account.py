"""Everybody who asks a sink's log gets the same answer: the fence, its check, recovery, function tables, overlaps."""

from __future__ import annotations

import json

import pytest

from airflow_provider_fds.batch.report import FenceEvidence, FenceReport, LandedBatch
from airflow_provider_fds.batch.sink.sink_commit import parse_commit
from airflow_provider_fds.batch.transactions import fence_version, txn_version
from airflow_provider_fds.delta.reader.log import DeltaLog
from airflow_provider_fds.delta.storage.local import LocalStorage
from airflow_provider_fds.spark.sink_log.history import SinkLog
from airflow_provider_fds.stream.actions.recovery import ask_sink
from airflow_provider_fds.stream.sink_record.before_fence import problem_before
from airflow_provider_fds.stream.sink_record.function_tables import read_table_writes
from airflow_provider_fds.stream.sink_record.sink_commits import sink_commit
from tests.unit.batch.sink.test_sink_account import LOGS, UUID, offset, other

WRITE = f"fds:{UUID}#kept"


@pytest.fixture(params=LOGS)
def asked(request, tmp_path):
    """A sink with this log, and the place of the batches in versions 1, 2 and 3."""
    log, places = LOGS[request.param]
    folder = tmp_path / "sink" / "_delta_log"
    folder.mkdir(parents=True)
    for one in (other(0, "CREATE TABLE"), *log):
        actions = [{"commitInfo": one["info"]}]
        if one["version"] == 0:
            actions.append({"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}})
            actions.append({"metaData": {"id": "s", "schemaString": '{"type":"struct","fields":[]}'}})
        if "txn" in one:
            actions += [{"txn": one["txn"]}, {"txn": {"appId": WRITE, "version": one["txn"]["version"]}}]
        (folder / f"{one['version']:020}.json").write_text("".join(json.dumps(action) + "\n" for action in actions))
    batches = {one["version"]: one["txn"]["version"] for one in log if "txn" in one}
    return folder.parent, dict(enumerate(places.split(), 1)), batches


def commits_of(sink):
    log = DeltaLog(LocalStorage(str(sink)))
    return list(log.commits(0, log.latest()))


def test_the_driver_and_the_worker_read_the_same_of_a_commit(asked):
    sink, _, _ = asked
    paths = sorted((sink / "_delta_log").glob("*.json"))
    assert [sink_commit(commit) for commit in commits_of(sink)] == [
        parse_commit(version, path.read_bytes()) for version, path in enumerate(paths)
    ]


def test_the_fence_sees_what_its_check_wants(asked):
    sink, places, batches = asked
    there = SinkLog(None, str(sink)).history(None).kept(f"fds:{UUID}").versions
    landed = [LandedBatch(1, 0, "", "", version) for version in batches if version in there]
    newest = max(batches.values())
    assert {batch.sink_version for batch in landed} >= {v for v, place in places.items() if place == "there"}
    assert not {batch.sink_version for batch in landed} & {v for v, place in places.items() if place == "gone"}

    def report(*found):
        evidence = FenceEvidence(newest=newest, is_cut=False, broken_at=None, removed=(), restored_to=None)
        return FenceReport(UUID, 2, "try", "fenced", sink_version=9, landed=found, evidence=evidence)

    assert problem_before(report(*landed), commits_of(sink), is_removing=False) is None
    for batch in landed:
        others = [one for one in landed if one is not batch]
        problem = problem_before(report(*others), commits_of(sink), is_removing=False)
        assert problem.startswith(f"version {batch.sink_version} of the sink is batch")


def test_recovery_continues_after_the_newest_batch_that_is_there(asked):
    sink, places, batches = asked
    account = ask_sink(LocalStorage(str(sink)), UUID)
    there = [v for v in batches if places.get(v, "there") == "there"]
    assert (account.broke_at is None) == bool(there)
    if there:
        assert (account.version, account.end) == (max(there), offset(batches[max(there)] - txn_version(1, 0) + 1))


def test_a_function_table_has_the_writes_that_are_there(asked):
    sink, places, batches = asked
    found = read_table_writes(LocalStorage(str(sink)), WRITE, fence_version(1))
    assert {write.version: write.place for write in found.writes} == {v: places.get(v, "there") for v in batches}
