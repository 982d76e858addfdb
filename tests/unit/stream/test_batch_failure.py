"""What a run says of a batch that its attempt has not loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_fds import errors
from airflow_provider_fds.errors import SourceFilesGoneError

if TYPE_CHECKING:
    from airflow_provider_fds.sinks import DeltaTableSink
    from tests.unit.stream.conftest import Bench


def test_files_that_are_gone_are_an_error_of_their_own_and_the_batch_stays_planned(
    bench: Bench, two_appends: Any, sink: DeltaTableSink
) -> None:
    session = bench.session()
    work = session.begin(sink)
    gone = {
        "outcome": "failed",
        "retryable": False,
        "error_class": "FAILED_READ_FILE.FILE_NOT_EXIST",
        "error_message": "data files of the batch are missing (file:/lake/part-7.parquet)",
    }
    bench.report(session, work, session.job(work, sink), **gone)
    collected = session.collect(work)

    failure = collected.failure
    assert isinstance(failure, SourceFilesGoneError)
    assert not failure.retryable
    assert failure.table == str(bench.table)
    for words in (
        f"batch 0 of {bench.table} (versions 0 to 2)",
        "part-7.parquet",
        "restore the files",
        "`fds replan orders --why …`, then `fds skip orders --version 0-2 --why …`",
        "delta.deletedFileRetentionDuration",
    ):
        assert words in str(failure)
    assert (collected.committed, session.connected.state.last_batch_id) == ((), None)

    # the files are back
    again = bench.session("run-2")
    left = again.begin(sink)
    assert left.batches == work.batches
    bench.report(again, left, again.job(left, sink))
    assert again.collect(left).committed == work.batches


@pytest.mark.parametrize(
    ("error_class", "retryable", "name"),
    [
        ("SinkSchema", False, "SchemaMismatchError"),
        ("DELTA_FAILED_TO_MERGE_FIELDS", False, "SchemaMismatchError"),
        ("UserFunctionFailed", False, "UserFunctionError"),
        ("UserFunctionFailed", True, "BatchFailedError"),
        ("DELTA_CONCURRENT_TRANSACTION", True, "ConcurrentWriteError"),
        ("OutOfMemory", True, "SparkMemoryError"),
        ("ServerLost", True, "ServerLostError"),
        ("OutOfTurn", False, "BatchRejectedError"),
        ("Py4JJavaError", True, "BatchFailedError"),
    ],
)
def test_the_class_of_the_error_says_what_kind_of_failure_it_was(
    bench: Bench, two_appends: Any, sink: DeltaTableSink, error_class: str, retryable: bool, name: str
) -> None:
    session = bench.session()
    work = session.begin(sink)
    failed = {"outcome": "failed", "retryable": retryable, "error_class": error_class, "error_message": "said so"}
    bench.report(session, work, session.job(work, sink), **failed)
    failure = session.collect(work).failure
    assert type(failure) is getattr(errors, name)
    assert failure.retryable is retryable
    assert failure.error_class == error_class


def test_a_batch_that_took_too_long_has_a_reason_of_its_own(
    bench: Bench, two_appends: Any, sink: DeltaTableSink
) -> None:
    session = bench.session()
    work = session.begin(sink)
    failed = {"outcome": "failed", "error_class": "StreamTimeout", "error_message": "not finished after 10 s"}
    bench.report(session, work, session.job(work, sink), **failed)
    failure = session.collect(work).failure
    assert failure is not None
    assert (failure.retryable, failure.reason_code) == (True, "BATCH_TIMED_OUT")
