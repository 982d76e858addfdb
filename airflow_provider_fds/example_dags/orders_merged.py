"""One row per key, updated by the changes of the source; and the same changes handed to your own function.

The source records its changes (``delta.enableChangeDataFeed`` = ``true``).
"""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

from airflow.sdk import DAG

from airflow_provider_fds import DeltaIngestOperator, DeltaMergeSink, DeltaStream, ForeachBatchSink

LAKE = os.environ.get("FDS_EXAMPLE_LAKE", "s3://lake")
FUNCTIONS = str(Path(__file__).with_name("jobs") / "orders_functions.py")

with DAG(
    "orders_merged",
    schedule="*/15 * * * *",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
):
    merge = DeltaIngestOperator(
        task_id="merge",
        stream=DeltaStream("orders_changes", table=f"{LAKE}/orders", read_change_feed=True),
        sink=DeltaMergeSink(
            f"{LAKE}/silver/orders",
            keys=["id"],
            where="id > 0",
            transform="orders_functions:with_title",
            cluster_by=["id"],
            properties={"delta.enableChangeDataFeed": "true"},
        ),
        py_files=FUNCTIONS,
        conn_id="spark_default",
        retries=2,
    )
    split = DeltaIngestOperator(
        task_id="split",
        stream=DeltaStream("orders_split", table=f"{LAKE}/orders", read_change_feed=True),
        sink=ForeachBatchSink("orders_functions:split", writes=["kept", "gone"]),
        py_files=FUNCTIONS,
        # settings of the session that the function reads
        conf={"spark.orders.kept": f"{LAKE}/split/kept", "spark.orders.gone": f"{LAKE}/split/gone"},
        conn_id="spark_default",
        retries=2,
    )
    merge >> split
