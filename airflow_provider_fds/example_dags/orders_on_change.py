"""A DAG that Airflow runs when a Delta table has new data, without a time-based schedule or a waiting task."""

from __future__ import annotations

import os

from airflow.sdk import DAG, Asset, AssetWatcher

from airflow_provider_fds import DeltaAppendSink, DeltaIngestOperator, DeltaStream, DeltaTableChangeTrigger

LAKE = os.environ.get("FDS_EXAMPLE_LAKE", "s3://lake")

orders = DeltaStream("orders_on_change", table=f"{LAKE}/orders")
changed = Asset(
    "orders_changed",
    watchers=[AssetWatcher(name="orders", trigger=DeltaTableChangeTrigger(stream=orders, poll_interval=15))],
)

with DAG("orders_on_change", schedule=[changed], max_active_runs=1):
    DeltaIngestOperator(task_id="ingest", stream=orders, sink=DeltaAppendSink(f"{LAKE}/on_change/orders"), retries=2)
