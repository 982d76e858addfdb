"""What a run says of a batch that its attempt has not loaded."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import deltalake
import pyarrow as pa
import pytest

from airflow_provider_fds import errors
from airflow_provider_fds.errors import SourceFilesGoneError
from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.sinks import DeltaAppendSink, ForeachBatchSink
from tests.unit.stream.epochs.test_epoch_start import leave_fence, load_all, move

if TYPE_CHECKING:
    from pathlib import Path

    from airflow_provider_fds.stream import RunWork, StreamSession
    from tests.unit.stream.conftest import Bench


def not_found(bench: Bench, session: StreamSession, work: RunWork, sink: DeltaAppendSink, file: str) -> Any:
    """The failure of a batch of which Spark does not find a file."""
    named = f" ({file})" if file else ""
    report = {
        "outcome": "failed",
        "retryable": False,
        "error_class": "FAILED_READ_FILE.FILE_NOT_EXIST",
        "error_message": f"batch 0: Spark does not find a data file{named}, and nothing was written",
    }
    bench.report(session, work, session.job(work, sink), **report)
    return session.collect(work).failure


def data_files(bench: Bench) -> list[Path]:
    """Make the data files that the handmade log lists."""
    files = []
    for commit in sorted((bench.table / "_delta_log").glob("*.json")):
        for line in commit.read_text().splitlines():
            if "add" in (action := json.loads(line)):
                files.append(bench.table / action["add"]["path"])
                files[-1].touch()
    return files


def test_files_that_are_gone_are_an_error_of_their_own_and_the_batch_stays_planned(
    bench: Bench, two_appends: Any, sink: DeltaAppendSink
) -> None:
    first, *_ = data_files(bench)
    first.unlink()
    session = bench.session()
    work = session.begin(sink)
    failure = not_found(bench, session, work, sink, f"file:{first}")
    assert isinstance(failure, SourceFilesGoneError)
    assert not failure.retryable
    assert failure.table == str(bench.table)
    for words in (
        f"batch 0 of {bench.table} (versions 0 to 2)",
        first.name,
        "VACUUM",
        "restore the files",
        "`fds replan orders --why …`, then `fds skip orders --version 0-2 --why …`",
        "delta.deletedFileRetentionDuration",
    ):
        assert words in str(failure)
    assert session.connected.state.last_batch_id is None

    # the files are back
    again = bench.session("run-2")
    left = again.begin(sink)
    assert left.batches == work.batches
    bench.report(again, left, again.job(left, sink))
    assert again.collect(left).committed == work.batches


def test_a_file_of_the_snapshot_is_given_up_only_with_a_new_snapshot(
    bench: Bench, two_appends: Any, sink: DeltaAppendSink
) -> None:
    first, *_ = data_files(bench)
    first.unlink()
    session = bench.session(stream=bench.stream(starting_version=None))
    said = str(not_found(bench, session, session.begin(sink), sink, f"file:{first}"))
    assert "to continue without the file, use `fds rewind orders --sink-rows keep|empty --to start --why …`" in said
    assert "fds skip" not in said


@pytest.mark.parametrize("spelled", ["file:{}", "file://{}", ""])
def test_a_file_that_is_there_is_not_visible_to_spark_and_no_row_is_given_up(
    bench: Bench, two_appends: Any, sink: DeltaAppendSink, spelled: str
) -> None:
    file = data_files(bench)[-1]
    session = bench.session()
    # without a name, the driver could not tell which file
    failure = not_found(bench, session, session.begin(sink), sink, spelled.format(file))
    assert type(failure) is errors.BatchFailedError
    assert (failure.reason_code, failure.retryable) == (Reason.SOURCE_FILES_NOT_VISIBLE, True)
    assert "Airflow sees it, so it is not known to be lost: mount the table's folder" in str(failure)
    for words in ("VACUUM", "fds skip", "fds rewind", "fds replan"):
        assert words not in str(failure)


def test_without_a_named_file_the_files_of_the_batch_are_looked_for_until_one_is_missing(
    bench: Bench, two_appends: Any, sink: DeltaAppendSink
) -> None:
    *_, last = data_files(bench)
    last.unlink()
    session = bench.session()
    failure = not_found(bench, session, session.begin(sink), sink, "")
    assert isinstance(failure, SourceFilesGoneError)
    assert last.name in str(failure)


def test_a_file_of_the_sink_is_not_taken_for_one_of_the_batch(
    bench: Bench, two_appends: Any, sink: DeltaAppendSink
) -> None:
    data_files(bench)
    session = bench.session()
    failure = not_found(bench, session, session.begin(sink), sink, "file:/sink/part-1.parquet")
    assert type(failure) is errors.BatchRejectedError
    assert "(file:/sink/part-1.parquet)" in str(failure)
    assert "It is not a file of the batch" in str(failure)
    assert "VACUUM" not in str(failure)


def test_a_table_whose_folder_is_not_mounted_here_either_is_not_called_vacuumed(
    bench: Bench, two_appends: Any, sink: DeltaAppendSink
) -> None:
    first, *_ = data_files(bench)
    session = bench.session()
    work = session.begin(sink)
    bench.table.rename(bench.table.with_name("elsewhere"))
    with pytest.raises(errors.TableNotFoundError):
        not_found(bench, session, work, sink, f"file:{first}")


def test_a_sink_that_only_spark_does_not_find_is_not_called_missing(
    bench: Bench, two_appends: Any, sink: DeltaAppendSink
) -> None:
    deltalake.write_deltalake(sink.uri, pa.table({"id": [1]}))
    session = bench.session()
    work = session.begin(sink)
    report = {
        "outcome": "failed",
        "retryable": False,
        "reason": "SINK_MISSING",
        "error_message": "`fds rewind --to start`",
    }
    bench.report(session, work, session.job(work, sink), **report)
    failure = session.collect(work).failure
    assert failure is not None
    assert (failure.reason_code, failure.retryable) == (Reason.SINK_NOT_VISIBLE, True)
    assert "fds rewind" not in str(failure)
    assert "mount its folder" in str(failure)


@pytest.mark.parametrize("where", ["there", "gone", "another", "unknown"])
@pytest.mark.parametrize("is_function", [False, True])
def test_a_sink_is_only_called_missing_if_it_is_gone_as_seen_from_here(
    bench: Bench, two_appends: Any, tmp_path: Path, *, where: str, is_function: bool
) -> None:
    table = tmp_path / "written"
    sink = ForeachBatchSink("jobs:load", writes={"kept": str(table)}) if is_function else DeltaAppendSink(str(table))
    session = bench.session(stream=bench.stream(max_versions_per_batch=1))
    work = session.begin(sink, max_batches=1)
    deltalake.write_deltalake(table, pa.table({"id": [1]}))
    if is_function:
        uuid = session.connected.state.uuid
        done = deltalake.CommitProperties(app_transactions=[deltalake.Transaction(f"fds:{uuid}#kept", 1 << 32 | 1)])
        deltalake.write_deltalake(table, pa.table({"id": [1]}), mode="append", commit_properties=done)
        bench.report(session, work, session.job(work, sink), sink_version=None, sink_table_id=None, tables={"kept": 1})
        assert session.collect(work).failure is None
        work = session.begin(sink, max_batches=1)
    if where in ("gone", "another"):
        shutil.rmtree(table)
    if where == "another":
        for _ in range(3):
            deltalake.write_deltalake(table, pa.table({"id": [1]}), mode="append")
    if where == "unknown":
        commit = table / "_delta_log" / f"{0:020}.json"
        commit.rename(tmp_path / "outside")
        commit.symlink_to(tmp_path / "outside")
    report = {
        "outcome": "failed",
        "retryable": False,
        "reason": "SINK_MISSING",
        "error_message": "`fds rewind --to start`",
    }
    bench.report(session, work, session.job(work, sink), **report)
    failure = session.collect(work).failure
    assert failure is not None
    is_gone = where == "gone" or (where == "another" and is_function)
    assert failure.reason_code == (Reason.SINK_MISSING if is_gone else Reason.SINK_NOT_VISIBLE)
    assert ("fds rewind" in str(failure)) is is_gone
    assert ("Airflow could not look for it" in str(failure)) is (where == "unknown")


@pytest.mark.parametrize(
    ("error_class", "retryable", "name"),
    [
        ("SINK_SCHEMA_MISMATCH", False, "SchemaMismatchError"),
        ("DELTA_FAILED_TO_MERGE_FIELDS", False, "SchemaMismatchError"),
        ("USER_FUNCTION_FAILED", False, "UserFunctionError"),
        ("USER_FUNCTION_INTERRUPTED", True, "BatchFailedError"),
        ("DELTA_CONCURRENT_TRANSACTION", True, "ConcurrentWriteError"),
        ("SPARK_OUT_OF_MEMORY", True, "SparkMemoryError"),
        ("SPARK_CONNECT_LOST", True, "ServerLostError"),
        ("SINK_BUSY", True, "ConcurrentWriteError"),
        ("EPOCH_OVERTAKEN", True, "EpochOvertakenError"),
        ("BATCH_NOT_COMMITTED", True, "BatchNotCommittedError"),
        ("SPARK_SESSION_ENDED", True, "SessionEndedError"),
        ("OPERATION_CANCELED", True, "SessionEndedError"),
        ("SINK_OUT_OF_ORDER", False, "BatchRejectedError"),
        ("Py4JJavaError", True, "BatchFailedError"),
    ],
)
def test_the_class_of_the_error_says_what_kind_of_failure_it_was(
    bench: Bench, two_appends: Any, sink: DeltaAppendSink, error_class: str, retryable: bool, name: str
) -> None:
    session = bench.session()
    work = session.begin(sink)
    failed = {"outcome": "failed", "retryable": retryable, "error_class": error_class, "error_message": "said so"}
    failed["reason"] = error_class if error_class in Reason.__members__ else None
    bench.report(session, work, session.job(work, sink), **failed)
    failure = session.collect(work).failure
    assert type(failure) is getattr(errors, name)
    assert failure.retryable is retryable
    assert failure.error_class == error_class
    # only what the driver knows nothing more of
    assert (failure.reason_code == "BATCH_FAILED") == (error_class == "Py4JJavaError")


@pytest.mark.parametrize(
    ("error_class", "code"),
    [
        ("SINK_BUSY", "SINK_BUSY"),
        ("EPOCH_OVERTAKEN", "EPOCH_OVERTAKEN"),
        ("SPARK_SESSION_ENDED", "SPARK_SESSION_ENDED"),
    ],
)
def test_a_fence_that_was_not_written_fails_with_the_reason_and_its_epoch_stays_requested(
    bench: Bench, two_appends: Any, sink: DeltaAppendSink, error_class: str, code: str
) -> None:
    load_all(bench, sink, "run-1")
    move(bench, "replan")
    session = bench.session("run-2")
    work = session.begin(sink)
    leave_fence(
        bench,
        session,
        session.job(work, sink),
        outcome="failed",
        error_class=error_class,
        error_message="said so",
        reason=error_class,
    )
    failure = session.collect(work).failure
    assert failure is not None
    assert (failure.reason_code, failure.retryable, failure.exit_code) == (code, True, 6)
    assert session.connected.load().phase == "requested"


def test_a_batch_that_took_too_long_has_a_reason_of_its_own(
    bench: Bench, two_appends: Any, sink: DeltaAppendSink
) -> None:
    session = bench.session()
    work = session.begin(sink)
    failed = {"outcome": "failed", "error_class": "BATCH_TIMED_OUT", "error_message": "not finished after 10 s"}
    failed["reason"] = failed["error_class"]
    bench.report(session, work, session.job(work, sink), **failed)
    failure = session.collect(work).failure
    assert failure is not None
    assert (failure.retryable, failure.reason_code) == (True, "BATCH_TIMED_OUT")
