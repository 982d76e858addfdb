"""The same on a schedule: no sensor is needed, and a run that finds nothing new is skipped in about a second."""

from __future__ import annotations

import logging
import os
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.sdk import DAG

from airflow_provider_fds import DeltaAppendSink, DeltaIngestOperator, DeltaStream

log = logging.getLogger(__name__)

LAKE = os.environ.get("FDS_EXAMPLE_LAKE", "s3://lake")

orders = DeltaStream("orders_every_15_minutes", table=f"{LAKE}/orders", starting_version="earliest")


def alert(context: dict[str, Any]) -> None:
    """Report why the task failed."""
    error = context.get("exception")
    if getattr(error, "reason_code", None) == "SOURCE_ROWS_DELETED":
        log.error("%s: version %s deletes rows (%s)", error.table, error.version, error.operation)


with DAG(
    "orders_cron",
    schedule="*/15 * * * *",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    # a missed run has no data of its own: the next run loads everything since the last one
    catchup=False,
    max_active_runs=1,
):
    DeltaIngestOperator(
        task_id="ingest",
        stream=orders,
        sink=DeltaAppendSink(f"{LAKE}/cron/orders", provenance=True),
        conn_id="spark_default",
        retries=2,
        # start no further batch after this; the next run continues
        run_time_limit=timedelta(minutes=12),
        on_failure_callback=alert,
    )
