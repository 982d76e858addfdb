"""Rows are tested before they are written: bad ones are counted, left out, or put into a table of their own."""

from __future__ import annotations

import os
from datetime import UTC, datetime

from airflow.sdk import DAG

from airflow_provider_fds import DeltaAppendSink, DeltaIngestOperator, DeltaStream

LAKE = os.environ.get("FDS_EXAMPLE_LAKE", "s3://lake")

with DAG("orders_expected", schedule="@hourly", start_date=datetime(2026, 1, 1, tzinfo=UTC), catchup=False):
    ingest = DeltaIngestOperator(
        task_id="ingest",
        stream=DeltaStream(
            "orders_expected",
            table=f"{LAKE}/orders",
            expect={"id < 1000": "warn", "id <> 0": "drop", "id > 0": "reject", "id IS NOT NULL": "fail"},
            max_rejected=0.5,
            rejects=f"{LAKE}/rejects/orders",
        ),
        sink=DeltaAppendSink(f"{LAKE}/tested/orders", columns=["id"]),
        conn_id="spark_default",
        retries=2,
    )
