"""What a driver would report, for benchmarks without Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow_provider_fds.batch.report import AttemptReport
    from airflow_provider_fds.batch.spec import BatchSpec, JobSpec


def written(job: JobSpec, batch: BatchSpec, sink_version: int) -> AttemptReport:
    """Return the report that all rows of a batch are in the sink."""
    # imported here: some benchmarks measure what a process imports
    from airflow_provider_fds.batch.report import AttemptReport

    return AttemptReport(
        uuid=batch.uuid,
        epoch=batch.epoch,
        batch_id=batch.batch_id,
        manifest_digest=batch.manifest_digest,
        attempt_id=job.attempt_id,
        outcome="written",
        sink_version=sink_version,
        sink_table_id="sink",
        rows_written=batch.num_rows,
    )
