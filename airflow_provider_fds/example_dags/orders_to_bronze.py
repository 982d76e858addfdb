"""Load a growing Delta table into another one, as soon as it grows.

The sensor waits in the triggerer, without a worker, until the table has data that the stream has not committed; the
operator loads it exactly once. ``@continuous`` starts the next run when one has ended.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime

from airflow.sdk import DAG

from airflow_provider_fds import DeltaAppendSink, DeltaIngestOperator, DeltaStream, DeltaTableVersionSensor

LAKE = os.environ.get("FDS_EXAMPLE_LAKE", "s3://lake")

orders = DeltaStream(
    "orders_to_bronze",
    table=f"{LAKE}/orders",
    storage_conn_id=os.environ.get("FDS_EXAMPLE_STORAGE_CONN_ID"),
)

with DAG(
    "orders_to_bronze",
    schedule="@continuous",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    max_active_runs=1,
    # a version that the stream cannot pass fails every run: let Airflow pause the DAG instead of looping
    max_consecutive_failed_dag_runs=3,
):
    wait = DeltaTableVersionSensor(task_id="wait", stream=orders, deferrable=True, retries=2)
    ingest = DeltaIngestOperator(
        task_id="ingest",
        stream=orders,
        sink=DeltaAppendSink(f"{LAKE}/bronze/orders"),
        conn_id="spark_default",
        retries=2,
    )
    wait >> ingest
