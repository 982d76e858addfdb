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

if TYPE_CHECKING:
    from airflow_provider_fds.batch.report import AttemptReport
    from airflow_provider_fds.ledger.values import PlannedBatch

#: Error class of an attempt report: a file that the batch lists is missing from storage.
_FILES_GONE = "FAILED_READ_FILE.FILE_NOT_EXIST"

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


def batch_failure(stream: str, table: str, batch: PlannedBatch, report: AttemptReport | None) -> BatchFailedError:
    """Return the error for a batch that is not done.

    Args:
        stream: Name of the stream.
        table: Its table, as the stream names it.
        batch: The batch.
        report: The attempt's report about it, ``None`` if there is none.
    """
    what = f"batch {batch.batch_id} (versions {batch.first_version} to {batch.last_version} of {table})"
    if report is None:
        return BatchFailedError(
            f"{what} was not finished: Spark ended without a report for it. Nothing of it was committed; a retry "
            "checks the sink first and works on the same rows",
            table=table,
        )
    found = f"{what} failed with {report.error_class}: {report.error_message}"
    if report.error_class == _FILES_GONE:
        return SourceFilesGoneError(
            f"{found}. The batch stays planned and the offset does not move: restore the files from a backup or "
            f"an earlier version of the objects, and the next run of stream {stream!r} loads the batch. To "
            f"continue without its rows: `fds replan {stream} --why …`, then `fds skip {stream} --version "
            f"{_range(batch)} --why …`. If OPTIMIZE or an update rewrote the files, the rows are still in the "
            f"table: empty the sink and run `fds reset {stream} --why …` without a start option on the stream, "
            "which loads the current table. To prevent this, run the stream more often than VACUUM, or keep "
            "removed files for longer (delta.deletedFileRetentionDuration)",
            error_class=report.error_class,
            table=table,
        )
    return _kind(report)(found, error_class=report.error_class, table=table)


def _kind(report: AttemptReport) -> type[BatchFailedError]:
    """Return the exception class for the error class that the driver reported."""
    name = report.error_class or ""
    if not report.retryable:
        return next((kind for classes, kind in _REJECTED if name.startswith(classes)), BatchRejectedError)
    return next((kind for classes, kind in _FAILED if name.startswith(classes)), BatchFailedError)


def _range(batch: PlannedBatch) -> str:
    first, last = batch.first_version, batch.last_version
    return str(first) if first == last else f"{first}-{last}"
