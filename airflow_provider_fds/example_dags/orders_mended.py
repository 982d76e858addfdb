"""Some of the rows that ``orders_expected`` has rejected are loaded into its sink: negative ids are good after all."""

from __future__ import annotations

import os
from datetime import UTC, datetime

from airflow.sdk import DAG

from airflow_provider_fds import DeltaAppendSink, DeltaIngestOperator, DeltaStream

LAKE = os.environ.get("FDS_EXAMPLE_LAKE", "s3://lake")

with DAG("orders_mended", schedule=None, start_date=datetime(2026, 1, 1, tzinfo=UTC), catchup=False):
    load_again = DeltaIngestOperator(
        task_id="load_again",
        stream=DeltaStream("orders_mended", table=f"{LAKE}/rejects/orders", starting_version=0),
        sink=DeltaAppendSink(f"{LAKE}/tested/orders", where="id < 0", columns=["id"]),
        conn_id="spark_default",
        retries=2,
    )
