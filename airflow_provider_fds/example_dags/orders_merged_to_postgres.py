"""Keep a table of PostgreSQL like a Delta table that records its changes: one row per key, deleted ones deleted.

Create the table first (``CREATE TABLE public.orders_now (id bigint PRIMARY KEY, …)``), with the columns of the source,
and install ``airflow-provider-fds[postgres]`` where the Spark driver runs. The connection ``warehouse`` is one of type
``postgres``. The source records its changes (``delta.enableChangeDataFeed`` = ``true``).
"""

from __future__ import annotations

import os
from datetime import UTC, datetime

from airflow.sdk import DAG

from airflow_provider_fds import DeltaIngestOperator, DeltaStream, PostgresSink

LAKE = os.environ.get("FDS_EXAMPLE_LAKE", "s3://lake")

with DAG(
    "orders_merged_to_postgres",
    schedule="*/15 * * * *",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
):
    merge = DeltaIngestOperator(
        task_id="merge",
        stream=DeltaStream("orders_merged_to_postgres", table=f"{LAKE}/orders", read_change_feed=True),
        sink=PostgresSink("public.orders_now", conn_id="warehouse", mode="merge", keys=["id"], columns=["id"]),
        conn_id="spark_default",
        retries=2,
    )
