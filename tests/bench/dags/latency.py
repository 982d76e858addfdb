"""Two ways to load a table as soon as it grows, on a Spark Connect server: see ../latency.py."""

import os
from datetime import UTC, datetime

from airflow.sdk import DAG

from airflow_provider_fds import DeltaAppendSink, DeltaIngestOperator, DeltaStream, DeltaTableVersionSensor

LAKE = os.environ["FDS_BENCH_LAKE"]


def ingest(name: str, *, wait: bool) -> DeltaIngestOperator:
    return DeltaIngestOperator(
        task_id="ingest",
        stream=DeltaStream(name, table=f"{LAKE}/{name}"),
        sink=DeltaAppendSink(f"{LAKE}/{name}_sink"),
        conn_id="spark_connect",
        **({"wait": True, "poll_interval": 1} if wait else {}),
    )


BEGIN = datetime(2026, 1, 1, tzinfo=UTC)

with DAG("sensor", schedule="@continuous", start_date=BEGIN, max_active_runs=1):
    sensor = DeltaTableVersionSensor(
        task_id="wait", stream=DeltaStream("sensor", table=f"{LAKE}/sensor"), deferrable=True, poll_interval=1
    )
    sensor >> ingest("sensor", wait=False)

with DAG("waiting", schedule="@continuous", start_date=BEGIN, max_active_runs=1):
    ingest("waiting", wait=True)
