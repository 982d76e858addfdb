"""The error for a batch that an attempt did not load, with what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from airflow_provider_fds.errors import (
    BatchFailedError,
    BatchNotCommittedError,
    BatchRejectedError,
    ConcurrentWriteError,
    EpochOvertakenError,
    SchemaMismatchError,
    ServerLostError,
    SessionEndedError,
    SourceFilesGoneError,
    SparkMemoryError,
    UserFunctionError,
)
from airflow_provider_fds.ledger.rewind_options import sink_rows_option
from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.source.offset import Offset
from airflow_provider_fds.stream.attempt.batch_versions import describe_versions

if TYPE_CHECKING:
    from airflow_provider_fds.batch.report import AttemptReport, FenceReport
    from airflow_provider_fds.ledger.values import PlannedBatch, SinkBinding, SnapshotRef
    from airflow_provider_fds.stream.position.missing_files import MissingFile

#: Error class of an attempt report: Spark does not find a file that it was to read.
FILE_NOT_FOUND: Final = "FAILED_READ_FILE.FILE_NOT_EXIST"

#: Errors with a class of their own, by their reason.
_CLASSES: Final[dict[Reason, type[BatchFailedError]]] = {
    **{
        kind.reason: kind
        for kind in (
            BatchNotCommittedError,
            ConcurrentWriteError,
            EpochOvertakenError,
            SchemaMismatchError,
            ServerLostError,
            SessionEndedError,
            SparkMemoryError,
            UserFunctionError,
        )
    },
    Reason.SINK_BUSY: ConcurrentWriteError,
}

#: Reasons of errors of Spark and Delta, by the beginning of their conditions.
_FOREIGN: Final[tuple[tuple[tuple[str, ...], Reason], ...]] = (
    (("DELTA_FAILED_TO_MERGE", "DELTA_MERGE_INCOMPATIBLE", "DELTA_METADATA_MISMATCH"), Reason.SINK_SCHEMA_MISMATCH),
    (("DELTA_CONCURRENT_", "DELTA_PROTOCOL_CHANGED", "DELTA_METADATA_CHANGED"), Reason.CONCURRENT_WRITE),
    (("OPERATION_CANCELED",), Reason.SPARK_SESSION_ENDED),
)


def batch_failure(
    stream: str,
    table: str,
    batch: PlannedBatch,
    report: AttemptReport | None,
    snapshot: SnapshotRef | None = None,
    missing: MissingFile | None = None,
    *,
    sink: SinkBinding | None = None,
) -> BatchFailedError:
    """Return the error for a batch that is not done.

    Args:
        stream: Name of the stream.
        table: Its table, as the stream names it.
        batch: The batch.
        report: The attempt's report about it, or ``None`` if Spark ended without a report.
        snapshot: The frozen snapshot of the epoch, if there is one.
        missing: What is known of the file that Spark does not find, according to the report.
        sink: The sink that the stream is bound to.
    """
    what = f"batch {batch.batch_id} of {table} ({describe_versions([batch], snapshot)})"
    if report is None:
        return BatchFailedError(
            f"{what} was not finished: Spark ended without a report for it. Nothing of it was committed; a retry "
            "checks the sink first and works on the same rows",
            table=table,
            version=batch.first_version,
            reason=Reason.SPARK_ENDED_EARLY,
        )
    found = f"{what} failed with {report.error_class}: {report.error_message}"
    if missing is not None:
        facts = {"error_class": report.error_class, "table": table, "version": batch.first_version}
        rows = sink_rows_option(sink, to_start=True)
        return _file_not_found(stream, batch, what, found, missing, facts, rows)
    kind, reason = failure_kind(report)
    return kind(found, error_class=report.error_class, table=table, version=batch.first_version, reason=reason)


def with_ending(failure: BatchFailedError, ending: Exception | str | None) -> BatchFailedError:
    """Add how Spark ended, if that is known, to the error of a batch that its driver has not reported."""
    if ending is not None and failure.reason_code == Reason.SPARK_ENDED_EARLY:
        failure.args = (f"{failure}. {ending}",)
    return failure


def _file_not_found(
    stream: str, batch: PlannedBatch, what: str, found: str, missing: MissingFile, facts: dict[str, Any], rows: str
) -> BatchFailedError:
    """Return the error for a file that Spark does not find, with advice to give up its rows only if it is gone."""
    if missing.state == "gone":
        without = (
            f"to continue without its rows, use `fds replan {stream} --why …`, then `fds skip {stream} --version "
            f"{_range(batch)} --why …`; if OPTIMIZE or an update rewrote the files, use"
        )
        if Offset.from_json(batch.start).is_initial_snapshot:
            # a decision on a version keeps out a commit, and the snapshot has the rows of many
            without = "to continue without the file, use"
        return SourceFilesGoneError(
            f"{what} was not loaded: its data file {missing.what} was removed from the table's storage by VACUUM or by "
            "hand after the batch was planned. To load the batch, restore the files from a backup or an earlier "
            f"version of the objects and run stream {stream!r} again; {without} `fds rewind {stream}{rows} --to start "
            "--why …` without a start option on the stream, which loads the current table. To prevent this, run the "
            "stream more often than VACUUM, or raise delta.deletedFileRetentionDuration",
            **facts,
        )
    if missing.state == "foreign":
        return BatchRejectedError(
            f"{found}. It is not a file of the batch, but one of the sink or of a table that your code reads. Restore "
            "it, or mount its folder on every Spark worker",
            **facts,
        )
    seen = "Airflow sees it" if missing.state == "there" else f"Airflow could not look for it ({missing.what})"
    return BatchFailedError(
        f"{found}. {seen}, so it is not known to be lost: mount the table's folder on the Spark driver and on every "
        "Spark worker, or let Spark read that storage. A retry works on the same rows",
        reason=Reason.SOURCE_FILES_NOT_VISIBLE,
        **facts,
    )


def failure_kind(report: AttemptReport | FenceReport) -> tuple[type[BatchFailedError], Reason | None]:
    """Return the exception class for what the driver reported, and the reason, ``None``: that of the class."""
    general = BatchFailedError if report.retryable else BatchRejectedError
    reason = reason_of(report)
    kind = general if reason is None else _CLASSES.get(reason, general)
    # Delta's errors are of one condition, but not all for a retry
    return (kind, reason) if kind.retryable == report.retryable else (general, None)


def reason_of(report: AttemptReport | FenceReport) -> Reason | None:
    """Return the reason of a failure that this version knows, or ``None`` if there is none."""
    if report.reason is not None:
        return Reason(report.reason) if report.reason in Reason.__members__ else None
    name = report.error_class or ""
    return next((reason for classes, reason in _FOREIGN if name.startswith(classes)), None)


def _range(batch: PlannedBatch) -> str:
    first, last = batch.first_version, batch.last_version
    return str(first) if first == last else f"{first}-{last}"
