"""Rows within a second: a run that has loaded everything keeps its Spark, and stays for what comes next."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta

from airflow.sdk import DAG

from airflow_provider_fds import DeltaAppendSink, DeltaIngestOperator, DeltaStream

LAKE = os.environ.get("FDS_EXAMPLE_LAKE", "s3://lake")

orders = DeltaStream("orders_live", table=f"{LAKE}/orders", starting_version="earliest")
bronze = DeltaAppendSink(f"{LAKE}/live/orders")

with DAG(
    "orders_live",
    # the next run starts when this one has ended, and waits without a worker
    schedule="@continuous",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    max_active_runs=1,
):
    DeltaIngestOperator(
        task_id="ingest", stream=orders, sink=bronze, wait=True, linger=timedelta(minutes=10), retries=2
    )
