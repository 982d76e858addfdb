"""Several tables by dynamic task mapping, each with its own stream and sink, in parallel."""

from __future__ import annotations

import os
from datetime import UTC, datetime

from airflow.sdk import DAG

from airflow_provider_fds import DeltaAppendSink, DeltaIngestOperator, DeltaStream

LAKE = os.environ.get("FDS_EXAMPLE_LAKE", "s3://lake")
TABLES = ("orders", "customers")

with DAG(
    "many_tables", schedule="@hourly", start_date=datetime(2026, 1, 1, tzinfo=UTC), catchup=False, max_active_runs=1
):
    DeltaIngestOperator.partial(
        task_id="ingest",
        conn_id="spark_default",
        retries=2,
        # maximum number of concurrent Spark applications
        max_active_tis_per_dagrun=2,
        map_index_template="{{ task.stream.name }}",
    ).expand_kwargs(
        [
            {
                "stream": DeltaStream(f"many_{table}", table=f"{LAKE}/{table}"),
                "sink": DeltaAppendSink(f"{LAKE}/many/{table}"),
            }
            for table in TABLES
        ]
    )
