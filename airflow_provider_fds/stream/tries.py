"""What one try leaves in staging: its name, the job for Spark, the reports of the driver."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING
from uuid import uuid4

from airflow_provider_fds.batch.spec import TryReport, job_name, report_name
from airflow_provider_fds.fault_points import reach

if TYPE_CHECKING:
    from airflow_provider_fds.batch.spec import JobSpec
    from airflow_provider_fds.stream.connect import ConnectedStream
    from airflow_provider_fds.stream.result import RunWork


def new_try_id() -> str:
    """Return a name that no other try of the stream has; it begins with the time."""
    return f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{uuid4().hex[:12]}"


def put_job(connected: ConnectedStream, folder: str, spec: JobSpec) -> str:
    """Write a job into a folder of staging, and return its URI as Spark reads it."""
    data = spec.to_json()
    key = f"{folder}/{job_name(spec.try_id, data)}"
    connected.staging.put(key, data)
    reach("job.after")
    return connected.staging_location(key)


def read_report(connected: ConnectedStream, tries: str, work: RunWork, batch_id: int) -> TryReport | None:
    """Return what the driver reported of a transaction of a try, ``None`` if nothing.

    Args:
        connected: The stream.
        tries: The folder of reports in staging.
        work: What the try has to do.
        batch_id: The batch, or the last one of a transaction of several.
    """
    try:
        data, _ = connected.staging.get(f"{tries}/{report_name(work.epoch, batch_id, work.try_id)}")
    except FileNotFoundError:
        return None
    return TryReport.from_json(data)


__all__ = ["new_try_id", "put_job", "read_report"]
