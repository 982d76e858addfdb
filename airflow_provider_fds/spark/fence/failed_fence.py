"""The report of a fence that was not written. Standard library and pyspark, Python 3.9 syntax."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_fds.batch.report import FenceReport
from airflow_provider_fds.spark.runtime.failures import explain, shortened

if TYPE_CHECKING:
    from airflow_provider_fds.batch.spec import FenceSpec, JobSpec


def failed_fence(spec: JobSpec, fence: FenceSpec, error: Exception, about: str = "") -> FenceReport:
    """Return the report of a fence that failed with ``error``.

    Args:
        spec: The job.
        fence: Its fence.
        error: Why it failed.
        about: What the message begins with.
    """
    failure = explain(error)
    return FenceReport(
        uuid=fence.uuid,
        epoch=fence.epoch,
        attempt_id=spec.attempt_id,
        outcome="failed",
        error_class=failure.error_class,
        reason=failure.reason,
        error_message=shortened(about + failure.message),
        retryable=failure.retryable,
    )
