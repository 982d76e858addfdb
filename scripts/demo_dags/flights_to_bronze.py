"""The demo's DAG: the README's, with the paths that demo.py gives."""

import os
from datetime import UTC, datetime, timedelta

from airflow.sdk import DAG

from airflow_provider_fds import DeltaIngestOperator, DeltaStream, DeltaTableSink, DeltaTableVersionSensor

flights = DeltaStream("flights_to_bronze", table=os.environ["FDS_DEMO_SOURCE"])

with DAG(
    "flights_to_bronze",
    schedule="@continuous",
    # without it the first run has an interval of no length, and Airflow finds no date for the second
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    max_active_runs=1,
    default_args={"retries": 2, "retry_delay": timedelta(seconds=5)},
):
    wait = DeltaTableVersionSensor(task_id="wait", stream=flights, deferrable=True, poll_interval=1)
    ingest = DeltaIngestOperator(
        task_id="ingest",
        stream=flights,
        sink=DeltaTableSink(os.environ["FDS_DEMO_SINK"]),
        conn_id="spark_default",
    )
    wait >> ingest
