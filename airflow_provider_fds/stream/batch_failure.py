"""The error for a batch that an attempt did not load, with what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from airflow_provider_fds.errors import (
    BatchFailedError,
    BatchRejectedError,
    ConcurrentWriteError,
    SchemaMismatchError,
    ServerLostError,
    SourceFilesGoneError,
    SparkMemoryError,
    UserFunctionError,
)
from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.stream.batch_versions import describe_versions

if TYPE_CHECKING:
    from airflow_provider_fds.batch.report import AttemptReport, FenceReport
    from airflow_provider_fds.ledger.values import PlannedBatch, SnapshotRef

#: Error class of an attempt report: a file that the batch lists is missing from storage.
_FILES_GONE = "FAILED_READ_FILE.FILE_NOT_EXIST"

#: What the driver itself refuses, by the error class in its report: the reason codes of a batch that a retry would not
#: load either.
DRIVER_REASONS: Final = {
    "BatchDoubled": Reason.BATCH_DOUBLED,
    "CommitDivided": Reason.COMMIT_DIVIDED,
    "EpochNotClosed": Reason.EPOCH_NOT_CLOSED,
    "LogStoreUnavailable": Reason.SINK_LOG_STORE_UNSAFE,
    "LoginRefused": Reason.SPARK_CONNECT_REFUSED,
    "ManifestMissing": Reason.MANIFEST_MISSING,
    "MergeOrder": Reason.MERGE_ORDER_UNKNOWN,
    "NoDelta": Reason.SPARK_VERSION_MISMATCH,
    "NoTls": Reason.SPARK_CONNECT_REFUSED,
    "OutOfTurn": Reason.SINK_OUT_OF_ORDER,
    "RowsDiffer": Reason.ROWS_DIFFER,
    "RowsOutside": Reason.ROWS_OUTSIDE_INTERVAL,
    "Settings": Reason.SPARK_SETTING_REFUSED,
    "SingleDriverLogStore": Reason.SINK_LOG_STORE_UNSAFE,
    "Sink": Reason.SINK_UNSUITABLE,
    "SinkAppendOnly": Reason.SINK_APPEND_ONLY,
    "SinkCommitsElsewhere": Reason.SINK_COMMITS_ELSEWHERE,
    "SinkInStaging": Reason.SINK_PLACE_REFUSED,
    "SinkInsideTable": Reason.SINK_PLACE_REFUSED,
    "SinkIsSource": Reason.SINK_PLACE_REFUSED,
    "SinkLogGap": Reason.SINK_LOG_DAMAGED,
    "SinkMissing": Reason.SINK_MISSING,
    "SinkNotPartitioned": Reason.SINK_UNSUITABLE,
    "SinkOfNamesake": Reason.SINK_OF_NAMESAKE,
    "SinkOptions": Reason.SINK_OPTION_UNUSABLE,
    "SinkOverwritten": Reason.SINK_OVERWRITTEN,
    "SinkReplaced": Reason.SINK_REPLACED,
    "SinkShared": Reason.SINK_SHARED,
    "TransactionRetention": Reason.SINK_FORGETS_BATCHES,
    "VersionMismatch": Reason.SPARK_VERSION_MISMATCH,
}

#: Prefixes of error classes in attempt reports, by the exception they map to: errors that are permanent, and errors
#: that a retry may solve.
_REJECTED: Final[tuple[tuple[tuple[str, ...], type[BatchFailedError]], ...]] = (
    (
        ("SinkSchema", "DELTA_FAILED_TO_MERGE", "DELTA_MERGE_INCOMPATIBLE", "DELTA_METADATA_MISMATCH"),
        SchemaMismatchError,
    ),
    (("UserFunction",), UserFunctionError),
)
_FAILED: Final[tuple[tuple[tuple[str, ...], type[BatchFailedError]], ...]] = (
    (("DELTA_CONCURRENT_", "DELTA_PROTOCOL_CHANGED", "DELTA_METADATA_CHANGED"), ConcurrentWriteError),
    (("OutOfMemory",), SparkMemoryError),
    (("ServerLost",), ServerLostError),
)

#: Reason codes of errors that a retry may solve and that have no exception of their own, likewise.
_INTERRUPTED: Final = {
    "UserFunction": Reason.USER_FUNCTION_INTERRUPTED,
    "StreamTimeout": Reason.BATCH_TIMED_OUT,
}


def batch_failure(
    stream: str, table: str, batch: PlannedBatch, report: AttemptReport | None, snapshot: SnapshotRef | None = None
) -> BatchFailedError:
    """Return the error for a batch that is not done.

    Args:
        stream: Name of the stream.
        table: Its table, as the stream names it.
        batch: The batch.
        report: The attempt's report about it, or ``None`` if Spark ended without a report.
        snapshot: The frozen snapshot of the epoch, if there is one.
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
    if report.error_class == _FILES_GONE:
        return SourceFilesGoneError(
            f"{found}. To load the batch, restore the files from a backup or an earlier version of the objects and run "
            f"stream {stream!r} again; to continue without its rows, use `fds replan {stream} --why …`, then `fds skip "
            f"{stream} --version {_range(batch)} --why …`; if OPTIMIZE or an update rewrote the files, empty the sink "
            f"and use `fds reset {stream} --why …` without a start option on the stream, which loads the current "
            "table. To prevent this, run the stream more often than VACUUM, or raise "
            "delta.deletedFileRetentionDuration",
            error_class=report.error_class,
            table=table,
            version=batch.first_version,
        )
    kind, reason = failure_kind(report)
    return kind(found, error_class=report.error_class, table=table, version=batch.first_version, reason=reason)


def failure_kind(report: AttemptReport | FenceReport) -> tuple[type[BatchFailedError], Reason | None]:
    """Return the exception class for the error class that the driver reported, and its reason if it has several."""
    name = report.error_class or ""
    if not report.retryable:
        kind = next((kind for classes, kind in _REJECTED if name.startswith(classes)), BatchRejectedError)
        return kind, DRIVER_REASONS.get(name) if kind is BatchRejectedError else None
    kind = next((kind for classes, kind in _FAILED if name.startswith(classes)), BatchFailedError)
    if kind is not BatchFailedError:
        return kind, None
    return kind, next((reason for classes, reason in _INTERRUPTED.items() if name.startswith(classes)), None)


def _range(batch: PlannedBatch) -> str:
    first, last = batch.first_version, batch.last_version
    return str(first) if first == last else f"{first}-{last}"
