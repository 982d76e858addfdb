"""Many tables in one Spark application: a stream and a sink for each, and a result for each."""

from __future__ import annotations

import os
from datetime import UTC, datetime

from airflow.sdk import DAG

from airflow_provider_fds import DeltaAppendSink, DeltaFleetOperator, DeltaStream, FleetStream

LAKE = os.environ.get("FDS_EXAMPLE_LAKE", "s3://lake")
TABLES = ("orders", "customers")

with DAG("fleet", schedule="@hourly", start_date=datetime(2026, 1, 1, tzinfo=UTC), catchup=False, max_active_runs=1):
    DeltaFleetOperator(
        task_id="load",
        streams=[
            FleetStream(
                DeltaStream(f"fleet_{table}", table=f"{LAKE}/{table}"),
                DeltaAppendSink(f"{LAKE}/fleet/{table}"),
            )
            for table in TABLES
        ],
        parallelism=8,
        on_stream_failure="fail_at_end",
        retries=2,
    )
