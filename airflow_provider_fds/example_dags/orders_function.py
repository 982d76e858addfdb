"""Hand the new rows to a Python function, in one task: planned before the call, committed after it.

With a connection of type ``spark`` the Spark session starts inside the task; with type ``spark_connect`` it is on that
server.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from airflow.sdk import DAG, task

from airflow_provider_fds import DeltaStream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from airflow_provider_fds.spark import ForeachBatch

LAKE = os.environ.get("FDS_EXAMPLE_LAKE", "s3://lake")

orders = DeltaStream("orders_function", table=f"{LAKE}/orders")

with DAG(
    "orders_function",
    schedule="*/15 * * * *",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
):

    @task.delta_batch(stream=orders, writes=["large"], conn_id="spark_default", retries=2)
    def load_large(df: DataFrame, batch: ForeachBatch, target: str) -> None:
        rows = df.where("id > 100").drop("_commit_version", "_commit_timestamp")
        rows.write.format("delta").mode("append").options(**batch.txn_options("large")).save(target)

    load_large(target=f"{LAKE}/large/orders")
