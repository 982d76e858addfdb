"""Every reader of a driver's report gives the same answer: it uses the report, or says why it cannot."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_fds.batch.report import AttemptReport
from airflow_provider_fds.batch.spec import JobSpec
from airflow_provider_fds.delta.storage.open import open_storage
from airflow_provider_fds.errors import BatchFailedError, BatchRejectedError, FdsError
from airflow_provider_fds.ledger.owner import Owner
from airflow_provider_fds.ledger.staging.log import Ledger
from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.sinks import DeltaAppendSink, ForeachBatchSink
from airflow_provider_fds.spark.runtime.failures import RefusalError, explain
from airflow_provider_fds.spark.writers.foreach_batch_writer import ForeachBatchWriter
from airflow_provider_fds.stream.actions.function_writes import FunctionWrites
from airflow_provider_fds.stream.attempt.batch_failure import failure_kind
from airflow_provider_fds.stream.monitoring import explanation
from tests.unit.stream.epochs.test_epoch_start import leave_fence, load_all, move

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.unit.stream.conftest import Bench


def load(df: Any, batch: Any) -> None:
    """The function of the sink; no test calls it."""


FUNCTION = ForeachBatchSink(f"{__name__}:load")

#: Changes of a report that make it unusable, and what every reader says.
UNUSABLE = [
    pytest.param({"sink_version": 2**64}, "has the sink_version '18446744073709551616'; expected an integer", id="big"),
    pytest.param({"rows_written": -1}, "has the rows_written '-1'; expected an integer from 0", id="negative"),
    pytest.param({"tables": {"a": -5}}, "has the tables '-5'; expected an integer from 0", id="negative of a table"),
    pytest.param({"outcome": "fine"}, "has the outcome 'fine'; expected one of written", id="outcome"),
    pytest.param({"seconds": {"write": "long"}}, "has the seconds 'long'; expected a number", id="type"),
    pytest.param({"format": 2}, "has format 2, but this version of FDS reads format 1", id="format"),
]


@pytest.fixture
def reported(bench: Bench, two_appends: Any) -> Callable[[dict[str, Any]], tuple[Any, Any, JobSpec]]:
    """Let a driver report a batch of the function, change the report, and return session, work and job."""

    def report(changes: dict[str, Any]) -> tuple[Any, Any, JobSpec]:
        session = bench.session()
        work = session.begin(FUNCTION)
        uri = session.job(work, FUNCTION)
        bench.report(session, work, uri, sink_version=None, sink_table_id=None)
        (path,) = bench.staging.glob("orders/attempts/1/0/*.json")
        path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
        storage = open_storage(str(bench.staging))
        return session, work, JobSpec.from_json(storage.get(uri.removeprefix(storage.uri + "/"))[0])

    return report


def of_function(bench: Bench) -> FunctionWrites:
    ledger = Ledger(open_storage(str(bench.staging)), "orders")
    ledger.find()
    return FunctionWrites(ledger, open_storage)


def find(job: JobSpec) -> Any:
    """Look a batch up as the driver does before it calls the function."""
    return ForeachBatchWriter(None, FUNCTION, job, {}).find(job.batches[0])


def test_a_report_with_fields_of_a_newer_driver_is_used_by_every_reader(bench, reported):
    session, work, job = reported({"newer": {"a": [1]}})

    assert of_function(bench).end_of_landed(None) == work.batches[0].end
    assert find(job) is not None
    assert session.collect(work).committed == work.batches


@pytest.mark.parametrize(("changes", "why"), UNUSABLE)
def test_a_report_that_is_not_one_is_refused_by_every_reader_with_the_same_words(bench, reported, changes, why):
    session, work, job = reported(changes)

    failure = session.collect(work).failure
    assert isinstance(failure, BatchFailedError)
    assert (failure.reason_code, failure.retryable) == ("REPORT_REFUSED", True)
    assert why in str(failure)
    with pytest.raises(BatchRejectedError) as refused:
        of_function(bench).end_of_landed(None)
    assert refused.value.reason_code == "REPORT_UNREADABLE"
    assert why in str(refused.value)
    assert [line for line in explanation.explain(session.connected).evidence if why in line]
    with pytest.raises(RefusalError) as found:
        find(job)
    assert why in str(found.value)
    assert "delete the file" in str(found.value)


def test_a_driver_that_finds_such_a_report_fails_the_task_for_good(reported):
    _, _, job = reported({"outcome": "fine"})
    with pytest.raises(RefusalError) as found:
        find(job)

    told = explain(found.value)
    report = AttemptReport("u", 1, 0, "d", "a", "failed", reason=told.reason, retryable=told.retryable)
    assert failure_kind(report) == (BatchRejectedError, Reason.REPORT_UNREADABLE)


@pytest.mark.parametrize(("changes", "why"), UNUSABLE)
def test_a_user_jobs_report_that_is_not_one_commits_nothing(bench, two_appends, changes, why):
    def owner(task: str) -> Owner:
        return Owner(kind="airflow", deployment="test", dag_id="dag", run_id="run-1", task_id=task, is_three_task=True)

    session = bench.session(owner=owner("plan"))
    planned = session.begin(None, user_job=True, max_batches=1).batches[0]
    uuid = session.connected.state.uuid
    name = "user-job-1"
    report = {"format": 1, "uuid": uuid, "epoch": 1, "batch_id": 0, "manifest_digest": planned.digest}
    report |= {"attempt_id": name, "outcome": "written", "rows_written": 7, **changes}
    session.connected.staging.put(f"orders/attempts/1/0/{name}.json", json.dumps(report).encode())
    batch = {"uuid": uuid, "epoch": "1", "batch_id": "0", "digest": planned.digest}

    commits = bench.session(owner=owner("commit"))
    with pytest.raises(FdsError) as refused:
        commits.commit_user_job(batch)
    assert refused.value.reason_code == "REPORT_UNREADABLE"
    assert why in str(refused.value)
    assert commits.connected.load().last_batch_id is None


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"newer": 1}, None),
        ({"sink_version": 2**64}, "has the sink_version '18446744073709551616'; expected an integer"),
        ({"removed_rows": -1}, "has the removed_rows '-1'; expected an integer from 0"),
        ({"outcome": "written"}, "has the outcome 'written'; expected one of fenced"),
        ({"landed": [{"epoch": 1}]}, "the landed of the fence report has missing or unknown fields"),
        ({"format": 2}, "has format 2, but this version of FDS reads format 1"),
    ],
    ids=str,
)
def test_the_report_of_a_fence_is_read_by_the_same_rules(bench, two_appends, sink: DeltaAppendSink, changes, why):
    load_all(bench, sink, "run-1")
    move(bench, "replan")
    session = bench.session("run-2")
    work = session.begin(sink)
    leave_fence(bench, session, session.job(work, sink))
    (path,) = bench.staging.glob("orders/attempts/2/fence/*.json")
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))

    failure = session.collect(work).failure
    assert failure is None if why is None else why in str(failure)
