"""The files of one attempt in staging: its name, the job for Spark, the driver's reports."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final
from uuid import uuid4

import msgspec

from airflow_provider_fds.batch.checked_json import SPEC_FORMAT
from airflow_provider_fds.batch.report import OUTCOMES, AttemptReport, report_name
from airflow_provider_fds.batch.spec import job_name
from airflow_provider_fds.delta.damage import DAMAGE, describe
from airflow_provider_fds.errors import BatchFailedError
from airflow_provider_fds.fault_points import reach
from airflow_provider_fds.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_provider_fds.batch.spec import JobSpec
    from airflow_provider_fds.ledger.log import Ledger
    from airflow_provider_fds.ledger.values import PlannedBatch
    from airflow_provider_fds.stream.connect import ConnectedStream
    from airflow_provider_fds.stream.evidence import ReportedBatch, SinkLog

#: Counters of a report; each may be absent.
_COUNTS: Final = ("sink_version", "rows_planned", "rows_written", "files_written", "bytes_written", "rows_read")


class _Format(msgspec.Struct):
    format: int


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
    connected: ConnectedStream, folder: str, batch: ReportedBatch, attempt_id: str, sink: SinkLog | None
) -> AttemptReport | None:
    """Return the driver's report about a transaction of an attempt, or ``None`` if the attempt left no report.

    Anyone who can write to the folder can write a report. A report therefore counts only for this batch and this
    attempt, and the sink's log must confirm that the batch is done.

    Args:
        connected: The stream.
        folder: The folder of reports in staging.
        batch: The batch, or the last batch of a transaction that has several.
        attempt_id: The attempt.
        sink: The sink's log, or ``None`` if the sink has no table known to FDS.

    Raises:
        BatchFailedError: The file is not a report, belongs to another batch or attempt, or contradicts the sink.
    """
    name = report_name(batch.epoch, batch.batch_id, attempt_id)
    try:
        data, _ = connected.staging.get(f"{folder}/{name}")
    except FileNotFoundError:
        return None
    report = _decoded(connected, name, data)
    expected = {
        "uuid": batch.uuid,
        "epoch": batch.epoch,
        "batch_id": batch.batch_id,
        "manifest_digest": batch.digest,
        "attempt_id": attempt_id,
    }
    for field, wanted in expected.items():
        if (found := getattr(report, field)) != wanted:
            raise refused(
                connected, name, f"it belongs to another batch or attempt: {field} is {found!r}, expected {wanted!r}"
            )
    if sink is not None and report.is_done:
        sink.check_batch(batch, report.sink_version, report.rows_written, report.sink_table_id)
    return report


def is_reported_done(ledger: Ledger, epoch: int, batch: PlannedBatch) -> bool:
    """Whether any attempt's driver says that it is done with a batch: for a function, that it has returned."""
    return any(report.is_done for report in _reports(ledger, epoch, batch))


def last_report(ledger: Ledger, epoch: int, batch: PlannedBatch) -> AttemptReport | None:
    """Return what the driver of the last attempt on a batch says, or ``None`` if no attempt has left a report."""
    # the name of an attempt begins with its time
    return max(_reports(ledger, epoch, batch), key=lambda report: report.attempt_id, default=None)


def _reports(ledger: Ledger, epoch: int, batch: PlannedBatch) -> Iterator[AttemptReport]:
    for meta in ledger.storage.list_after(ledger.folder.attempt_reports(epoch, batch.batch_id)):
        if not meta.key.endswith(".json") or meta.key.endswith((".started.json", ".job.json")):
            continue
        try:
            report = AttemptReport.from_json(ledger.storage.get(meta.key)[0])
        except (FileNotFoundError, TypeError, ValueError):
            continue
        found = (report.uuid, report.epoch, report.batch_id, report.manifest_digest)
        if found == (ledger.state.uuid, epoch, batch.batch_id, batch.digest):
            yield report


def refused(connected: ConnectedStream, name: str, why: str) -> BatchFailedError:
    """Return the error for a report that cannot be used."""
    return BatchFailedError(
        f"stream {connected.stream.name!r}: the report {connected.folder.attempts}/{name} cannot be used: {why}. "
        "Nothing was committed from it; a retry checks the sink and works on the same rows. If this happens "
        "again, find out who else can write to the folder",
        error_class="ReportRefused",
        table=connected.stream.table,
        reason=Reason.REPORT_REFUSED,
    )


def _decoded(connected: ConnectedStream, name: str, data: bytes) -> AttemptReport:
    try:
        written_by = msgspec.json.decode(data, type=_Format).format
        if written_by != SPEC_FORMAT:
            raise refused(
                connected, name, f"it has format {written_by}, but this version of FDS reads format {SPEC_FORMAT}"
            )
        report = msgspec.json.decode(data, type=AttemptReport)
    except DAMAGE as error:
        raise refused(connected, name, f"it is not a report ({describe(error)})") from error
    if report.outcome not in OUTCOMES:
        raise refused(connected, name, f"its outcome is {report.outcome!r}, expected one of {', '.join(OUTCOMES)}")
    counts = [getattr(report, field) for field in _COUNTS]
    if any(count is not None and count < 0 for count in (*counts, *report.seconds.values())):
        raise refused(connected, name, "it has a negative number")
    return report


__all__ = ["is_reported_done", "last_report", "new_attempt_id", "put_job", "read_report", "refused"]
