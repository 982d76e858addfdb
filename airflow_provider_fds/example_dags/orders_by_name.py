"""A DAG that loads a table by its name into another one, in a Hive metastore: connection ``hive`` has its address."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta

from airflow.sdk import DAG

from airflow_provider_fds import DeltaAppendSink, DeltaIngestOperator, DeltaStream, DeltaTableVersionSensor

LAKE = os.environ.get("FDS_EXAMPLE_LAKE", "s3://lake")

orders = DeltaStream("orders_by_name", table="sales.orders", catalog_conn_id="hive", starting_version="earliest")
loaded = DeltaAppendSink(
    "sales.orders_loaded", catalog_conn_id="hive", create=True, location=f"{LAKE}/by_name/orders", merge_schema=True
)

with DAG(
    "orders_by_name",
    schedule=timedelta(minutes=15),
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
):
    wait = DeltaTableVersionSensor(task_id="wait", stream=orders, timeout=600, soft_fail=True, retries=2)
    ingest = DeltaIngestOperator(task_id="ingest", stream=orders, sink=loaded, retries=2)
    wait >> ingest
