"""What reaches callbacks, XCom and the log of a task that fails."""

from __future__ import annotations

import json
import textwrap
import traceback
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import deltalake
import pytest
from airflow.providers.common.compat.sdk import AirflowException

from airflow_provider_fds import DeltaAppendSink, DeltaIngestOperator, DeltaStream
from airflow_provider_fds.backends.base import Outcome
from airflow_provider_fds.errors import BatchFailedError, FdsError, SchemaMismatchError, StorageError, ViolationError
from airflow_provider_fds.hooks.exceptions import TaskFailedError, TaskInterruptedError
from airflow_provider_fds.hooks.failures import check_event, task_failures
from airflow_provider_fds.operators.run.ingest_run import IngestRun
from airflow_provider_fds.operators.run.spark_failure import explained
from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.stream.attempt.result import Collected, RunWork

DAG_TEXT = """
import json
from datetime import datetime
from pathlib import Path
from airflow.sdk import DAG
from airflow_provider_fds import DeltaPlanOperator, DeltaStream

def record(context):
    error = context["exception"]
    names = ("reason_code", "table", "version", "operation")
    told = {name: getattr(error, name, "missing") for name in names}
    told["type"], told["text"] = type(error).__name__, str(error)
    told["cause"] = type(getattr(error, "error", None)).__name__
    Path("{told}").write_text(json.dumps(told))

with DAG("{dag_id}", schedule=None, start_date=datetime(2026, 1, 1)):
    DeltaPlanOperator(
        task_id="plan",
        stream=DeltaStream("{dag_id}", table="{lake}/orders", options={"starting_version": 1}),
        on_failure_callback=record,
    )
"""


@pytest.fixture
def failed(installation, lake, tmp_path):
    """Runs a plan that fails; returns the run and what its ``on_failure_callback`` found in ``context``."""

    def run() -> tuple[Any, dict[str, Any]]:
        text = textwrap.dedent(DAG_TEXT)
        told = tmp_path / "told.json"
        for name, value in (("told", told), ("lake", lake.uri), ("dag_id", f"errors_{uuid4().hex}")):
            text = text.replace("{" + name + "}", str(value))
        run = installation.run(installation.add(text))
        assert run.state("plan") == "failed"
        return run, json.loads(told.read_text())

    return run


def test_a_callback_and_the_xcom_get_the_facts_of_an_error_that_a_retry_cannot_fix(failed, lake):
    lake.append("orders", 1, 2)
    deltalake.DeltaTable(lake.root / "orders").delete("id = 1")
    run, told = failed()
    facts = {name: told[name] for name in ("reason_code", "table", "version", "operation")}
    assert (facts["reason_code"], facts["version"]) == ("SOURCE_ROWS_CHANGED", 1)
    assert facts["table"] == f"{lake.uri}/orders"
    assert facts["operation"].startswith("DELETE")
    assert (told["type"], told["cause"]) == ("TaskFailedError", "ViolationError")
    assert (
        told["text"]
        .splitlines()[-1]
        .startswith(f"reason_code=SOURCE_ROWS_CHANGED table={lake.uri}/orders version=1 operation=DELETE")
    )
    assert run.xcom("plan", "fds_error") == {"error": "ViolationError", **facts}


def test_an_error_that_a_retry_may_fix_reaches_the_callback_as_it_is(failed, lake):
    for number in range(3):
        lake.append("orders", number)
    (lake.root / "orders" / "_delta_log" / f"{1:020d}.json").write_bytes(b"")
    run, told = failed()
    assert (told["type"], told["reason_code"], told["version"]) == ("TornFileError", "LOG_FILE_INCOMPLETE", 1)
    assert told["text"].splitlines()[-1].startswith("reason_code=LOG_FILE_INCOMPLETE table=")
    assert run.xcom("plan", "fds_error")["reason_code"] == "LOG_FILE_INCOMPLETE"


def context_of(pushed: dict[str, Any]) -> dict[str, Any]:
    return {"ti": SimpleNamespace(xcom_push=lambda key, value: pushed.update({key: value}))}


def test_an_xcom_that_airflow_refuses_does_not_hide_the_error():
    def refuse(key: str, value: object) -> None:
        raise ConnectionError

    with pytest.raises(StorageError, match="503"), task_failures({"ti": SimpleNamespace(xcom_push=refuse)}):
        raise StorageError("503")


@pytest.mark.parametrize("kind", [ViolationError, StorageError])
def test_a_failure_is_told_once_and_without_the_errors_behind_it(kind):
    error = kind(message := f"version {5} deletes rows", table="s3://lake/t")
    error.__cause__ = AirflowException("Cannot execute: spark-submit --conf a=b. Error code is: 1.")
    with pytest.raises(Exception, match=message) as caught, task_failures({}):
        raise error
    log = "".join(traceback.format_exception(caught.value))
    assert log.count(message) == 1
    assert "Cannot execute" not in log
    assert log.rstrip().splitlines()[-1].startswith("reason_code=")


@pytest.mark.parametrize("is_killed", [True, False])
def test_a_task_that_airflow_kills_says_so(is_killed):
    task = DeltaIngestOperator(task_id="t", stream=DeltaStream("s", table="s3://b/t"), sink=DeltaAppendSink("s3://b/s"))
    error = AirflowException("Cannot execute: spark-submit --conf a=b. Error code is: 143.\nLast spark-submit output:")
    failure = BatchFailedError("Spark ended without a report for it", reason=Reason.SPARK_ENDED_EARLY)

    def run_spark(_application: Any) -> Outcome:
        if is_killed:
            task.on_kill()
        return Outcome(error)

    task.run_spark = run_spark
    task.spark = SimpleNamespace(finds_drivers=False, attaches_to=lambda _: False, cancel=lambda: None)
    work = RunWork("work", 1)
    session = SimpleNamespace(
        stream=task.stream,
        job=lambda *_, **__: "spec",
        collect=lambda *_, **__: Collected((), (), failure),
        is_out_of_time=False,
        driver=SimpleNamespace(left=lambda *_: None),
    )
    with pytest.raises(BatchFailedError) as caught:
        IngestRun(task, {}).work(session, task.sink, work)
    assert caught.value.reason_code == ("TASK_KILLED" if is_killed else "SPARK_ENDED_EARLY")
    assert ("Airflow killed this task" in str(caught.value)) is is_killed
    assert ("Spark-submit ended with exit code 143" in str(caught.value)) is not is_killed
    assert "--conf" not in str(caught.value)


def test_what_spark_reported_before_a_kill_is_told():
    failure = SchemaMismatchError("batch 3 failed with SINK_SCHEMA_MISMATCH: the sink lacks column b", version=7)
    told = explained(failure, None, was_killed=True)
    assert (told.reason_code, told.retryable, told.version) == ("TASK_KILLED", True, 7)
    assert "Spark's report: batch 3 failed with SINK_SCHEMA_MISMATCH" in str(told)


def test_the_error_of_a_trigger_keeps_its_facts():
    error = ViolationError("deletes rows", table="s3://lake/t", version=7, operation="DELETE")
    event = {"status": "error", "error": "ViolationError", "message": str(error), "retryable": False, **error.facts()}
    for is_retryable, kind in ((False, TaskFailedError), (True, TaskInterruptedError)):
        pushed: dict[str, Any] = {}
        with pytest.raises(kind, match="deletes rows") as caught:
            check_event(context_of(pushed), {**event, "retryable": is_retryable})
        assert FdsError.facts(caught.value) == error.facts()
        assert str(caught.value).endswith(
            "reason_code=SOURCE_ROWS_DELETED table=s3://lake/t version=7 operation=DELETE"
        )
        assert pushed == {"fds_error": {"error": "ViolationError", **error.facts()}}


def test_an_event_of_an_older_triggerer_has_no_facts():
    event = {"status": "error", "error": "LogGapError", "message": "version 3 is missing", "retryable": False}
    with pytest.raises(TaskFailedError) as caught:
        check_event({}, event)
    assert str(caught.value) == "LogGapError: version 3 is missing"
    assert caught.value.reason_code is None
