"""A DAG that starts its work when a Delta table has changed, without a stream, Spark or a staging folder."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta

from airflow.sdk import DAG, task

from airflow_provider_fds import DeltaTableVersionSensor

LAKE = os.environ.get("FDS_EXAMPLE_LAKE", "s3://lake")

with DAG(
    "orders_watch",
    schedule=timedelta(hours=1),
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
):
    changed = DeltaTableVersionSensor(
        task_id="changed",
        table=f"{LAKE}/orders",
        changed_since="last_run",
        deferrable=True,
        # a table without new data ends the run as skipped; the next run looks at the same changes again
        timeout=3000,
        soft_fail=True,
        retries=2,
    )

    @task
    def refresh(version: int) -> int:
        """Do something with the table as it is at this version."""
        print(f"orders changed, now at version {version}")  # noqa: T201
        return version

    refresh(changed.output)
