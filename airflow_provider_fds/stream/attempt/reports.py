"""The files of one attempt in staging: its name, the job for Spark, the driver's reports."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeVar
from uuid import uuid4

from airflow_provider_fds.batch.report import (
    STARTED,
    UNREADABLE_ADVICE,
    AttemptReport,
    FenceReport,
    decode,
    report_name,
)
from airflow_provider_fds.batch.spec import job_name
from airflow_provider_fds.errors import BatchFailedError, BatchRejectedError
from airflow_provider_fds.fault_points import reach
from airflow_provider_fds.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_provider_fds.batch.spec import JobSpec
    from airflow_provider_fds.ledger.staging.log import Ledger
    from airflow_provider_fds.ledger.values import PlannedBatch
    from airflow_provider_fds.stream.connected_stream import ConnectedStream
    from airflow_provider_fds.stream.sink_record.evidence import Evidence, ReportedBatch

_Report = TypeVar("_Report", AttemptReport, FenceReport)


def new_attempt_id() -> str:
    """Return a name that is unique among the stream's attempts; it begins with the current time."""
    return f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{uuid4().hex[:12]}"


def put_job(connected: ConnectedStream, folder: str, spec: JobSpec) -> str:
    """Write a job to a folder of staging and return the URI that Spark reads it from."""
    data = spec.to_json()
    key = f"{folder}/{job_name(spec.attempt_id, data)}"
    connected.staging.put(key, data)
    reach("job.after")
    return connected.staging_location(key)


def read_report(
    connected: ConnectedStream, folder: str, batch: ReportedBatch, attempt_id: str, sink: Evidence | None
) -> AttemptReport | None:
    """Return the driver's report about a transaction of an attempt, or ``None`` if the attempt left no report.

    Anyone who can write to the folder can write a report. A report therefore counts only for this batch and this
    attempt, and the sink's log must confirm that the batch is done.

    Args:
        connected: The stream.
        folder: The folder of reports in staging.
        batch: The batch, or the last batch of a transaction that has several.
        attempt_id: The attempt.
        sink: The sink's own evidence, or ``None`` if the sink has no table known to FDS.

    Raises:
        BatchFailedError: The file is not a report, belongs to another batch or attempt, or contradicts the sink.
    """
    key = f"{folder}/{report_name(batch.epoch, batch.batch_id, attempt_id)}"
    try:
        data, _ = connected.staging.get(key)
    except FileNotFoundError:
        return None
    report = decoded(AttemptReport, data, connected, key)
    other = report.differs_from(
        uuid=batch.uuid,
        epoch=batch.epoch,
        batch_id=batch.batch_id,
        digest=batch.digest,
        attempt_id=attempt_id,
    )
    if other is not None:
        raise refused(connected, key, other)
    if sink is not None and report.is_done:
        sink.check_batch(batch, report.sink_version, report.rows_written, report.sink_table_id)
    return report


def reports_about(ledger: Ledger, epoch: int, batch: PlannedBatch, prefix: str = "") -> Iterator[AttemptReport]:
    """Yield the reports about a batch, that of the newest attempt first.

    Args:
        ledger: The stream's ledger.
        epoch: Epoch of the batch.
        batch: The batch.
        prefix: What the names of the attempts begin with.

    Raises:
        BatchRejectedError: A file is not a report: it may be the one that says that the batch is done.
    """
    folder = ledger.folder.attempt_reports(epoch, batch.batch_id)
    # the name of an attempt has its time
    for key in sorted((meta.key for meta in ledger.storage.list_after(folder)), reverse=True):
        attempt_id = key.rsplit("/", 1)[-1].removesuffix(".json")
        if not key.endswith(".json") or key.endswith((STARTED, ".job.json")):
            continue
        if not attempt_id.startswith(prefix):
            continue
        try:
            data, _ = ledger.storage.get(key)
        except FileNotFoundError:
            # retention has removed it in the meantime
            continue
        try:
            report = decode(AttemptReport, data)
        except ValueError as error:
            raise BatchRejectedError(
                f"stream {ledger.folder.name!r}: the report {ledger.storage.uri}/{key} cannot be used: {error}. "
                f"{UNREADABLE_ADVICE}",
                error_class=Reason.REPORT_UNREADABLE,
                table=ledger.state.table,
                reason=Reason.REPORT_UNREADABLE,
            ) from error
        other = report.differs_from(
            uuid=ledger.state.uuid, epoch=epoch, batch_id=batch.batch_id, digest=batch.digest, attempt_id=attempt_id
        )
        if other is None:
            yield report


def decoded(kind: type[_Report], data: bytes, connected: ConnectedStream, key: str) -> _Report:
    """Return the report of an attempt that a retry would follow; see :func:`.batch.report.decode`.

    Raises:
        BatchFailedError: The file is not a report.
    """
    try:
        return decode(kind, data)
    except ValueError as error:
        raise refused(connected, key, str(error)) from error


def refused(connected: ConnectedStream, key: str, why: str) -> BatchFailedError:
    """Return the error for a report that cannot be used."""
    return BatchFailedError(
        f"stream {connected.stream.name!r}: the report {key} cannot be used: {why}. "
        "Nothing was committed from it; a retry checks the sink and works on the same rows. If this happens "
        "again, find out who else can write to the folder",
        error_class=Reason.REPORT_REFUSED,
        table=connected.stream.table,
        reason=Reason.REPORT_REFUSED,
    )
