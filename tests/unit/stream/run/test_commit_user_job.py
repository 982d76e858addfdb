from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_fds.batch.report import AttemptReport, report_name
from airflow_provider_fds.batch.transactions import txn_app_id, txn_version
from airflow_provider_fds.errors import ConfigurationError, LedgerError, VerificationError
from airflow_provider_fds.ledger.owner import Owner
from airflow_provider_fds.sinks import DeltaAppendSink
from tests.conftest import LogBuilder

if TYPE_CHECKING:
    from pathlib import Path


def owner(task: str, run: str = "run-1") -> Owner:
    return Owner(kind="airflow", deployment="test", dag_id="dag", run_id=run, task_id=task, is_three_task=True)


def planned(bench: Any, run: str = "run-1") -> dict[str, str]:
    session = bench.session(run, owner=owner("plan", run))
    work = session.begin(None, user_job=True, max_batches=1)
    batch = work.batches[0]
    state = session.connected.state
    return {"uuid": state.uuid, "epoch": "1", "batch_id": str(batch.batch_id), "digest": batch.digest}


def sink_with(tmp_path: Path, uuid: str, version: int | None) -> DeltaAppendSink:
    sink = LogBuilder(tmp_path / "sink")
    sink.log.mkdir(parents=True)
    sink.create()
    if version is not None:
        sink.commit(sink.add(), {"txn": {"appId": txn_app_id(uuid), "version": version, "lastUpdated": 1}})
    return DeltaAppendSink(str(sink.root))


def test_the_commit_task_moves_the_offset_over_what_the_plan_task_of_its_run_planned(bench, two_appends):
    batch = planned(bench)
    result = bench.session(owner=owner("commit")).commit_user_job(batch)

    assert (result.first_batch_id, result.last_version, result.rows, result.files) == (0, 2, None, 5)


def test_the_commit_shows_the_rows_that_the_job_reported_last(bench, two_appends):
    batch = planned(bench)
    session = bench.session(owner=owner("commit"))
    for number, rows in (("1", 7), ("2", 50)):
        report = AttemptReport(batch["uuid"], 1, 0, batch["digest"], f"user-job-{number}", "written", rows_written=rows)
        session.connected.staging.put(f"orders/attempts/{report_name(1, 0, report.attempt_id)}", report.to_json())
    other = replace(report, attempt_id="user-job-3", manifest_digest="another plan's", rows_written=1)
    session.connected.staging.put(f"orders/attempts/{report_name(1, 0, other.attempt_id)}", other.to_json())

    assert session.commit_user_job(batch).rows == 50


def test_a_retried_commit_task_returns_the_result_again(bench, two_appends):
    batch = planned(bench)
    first = bench.session(owner=owner("commit")).commit_user_job(batch)

    assert bench.session(owner=owner("commit")).commit_user_job(batch) == first


def test_another_run_cannot_commit_the_batch(bench, two_appends):
    batch = planned(bench)
    with pytest.raises(LedgerError, match="run-1"):
        bench.session("run-2", owner=owner("commit", "run-2")).commit_user_job(batch)


def test_a_batch_that_is_not_from_a_plan_is_refused(bench, two_appends):
    planned(bench)
    with pytest.raises(ConfigurationError, match="lacks uuid, digest"):
        bench.session(owner=owner("commit")).commit_user_job({"epoch": "1", "batch_id": "0"})


def test_a_batch_of_another_stream_of_the_same_name_is_refused(bench, two_appends):
    batch = planned(bench)
    with pytest.raises(LedgerError, match="created again"):
        bench.session(owner=owner("commit")).commit_user_job({**batch, "uuid": "other"})


def test_a_batch_that_is_no_longer_planned_is_refused(bench, two_appends):
    batch = planned(bench)
    with pytest.raises(LedgerError, match="no longer planned"):
        bench.session(owner=owner("commit")).commit_user_job({**batch, "batch_id": "4"})


def test_a_verified_commit_requires_exactly_the_batchs_transaction_in_the_sink(bench, two_appends, tmp_path):
    batch = planned(bench)
    sink = sink_with(tmp_path, batch["uuid"], txn_version(1, 0))

    assert bench.session(owner=owner("commit")).commit_user_job(batch, verify=sink).batches == 1


@pytest.mark.parametrize("version", [None, txn_version(1, 1), 7])
def test_a_job_that_did_not_write_the_batchs_transaction_is_not_committed(bench, two_appends, tmp_path, version):
    batch = planned(bench)
    sink = sink_with(tmp_path, batch["uuid"], version)
    session = bench.session(owner=owner("commit"))

    with pytest.raises(VerificationError, match=f"has {version}"):
        session.commit_user_job(batch, verify=sink)
    assert session.connected.load().last_batch_id is None


def test_a_source_that_changed_under_the_job_blocks_the_batch_until_a_person_accepts(bench, two_appends, log_builder):
    from airflow_provider_fds.ledger.entries.commit_entries import Accepted

    batch = planned(bench)
    (log_builder.log / f"{2:020d}.json").unlink()
    session = bench.session(owner=owner("commit"))
    with pytest.raises(VerificationError, match="fds accept"):
        session.commit_user_job(batch)
    session.connected.execute(Accepted(epoch=1, batch_id=0, why="compared"))

    assert session.commit_user_job(batch).batches == 1


def test_a_cleared_plan_task_does_not_hand_out_the_next_batch(bench, two_appends):
    batch = planned(bench)
    bench.session(owner=owner("commit")).commit_user_job(batch)
    again = bench.session(owner=owner("plan")).begin(None, user_job=True, max_batches=1, retry=True)

    assert again.status == "done"


@pytest.mark.parametrize("operation", ["RESTORE", "CLONE", "CREATE OR REPLACE TABLE AS SELECT"])
def test_a_transaction_whose_rows_a_restore_or_replace_took_away_is_not_believed(
    bench, two_appends, tmp_path, operation
):
    batch = planned(bench)
    sink = sink_with(tmp_path, batch["uuid"], txn_version(1, 0))
    log = LogBuilder(tmp_path / "sink")
    log.version = 1
    log.commit({"remove": {"path": "a", "dataChange": True, "deletionTimestamp": 0}}, operation=operation)

    session = bench.session(owner=owner("commit"))
    with pytest.raises(VerificationError, match="restored or replaced after version 1"):
        session.commit_user_job(batch, verify=sink)
    assert session.connected.state.last_committed is None
