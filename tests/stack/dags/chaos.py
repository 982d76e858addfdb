"""DAGs that run all the time, on sources that grow all the time, while things die: see test_chaos.py."""

import os
from datetime import UTC, datetime, timedelta

from airflow.sdk import DAG

from airflow_provider_fds import DeltaAppendSink, DeltaIngestOperator, DeltaStream, DeltaTableVersionSensor

LAKE = os.environ["FDS_TEST_LAKE"]

for name in ("chaos", "chaos_killed", "chaos_stalled"):
    stream = DeltaStream(name, table=f"{LAKE}/{name}/orders", max_files_per_batch=200)
    with DAG(
        name,
        schedule="@continuous",
        start_date=datetime(2026, 1, 1, tzinfo=UTC),
        max_active_runs=1,
        is_paused_upon_creation=True,
        default_args={"retries": 50, "retry_delay": timedelta(seconds=0.1)},
    ):
        wait = DeltaTableVersionSensor(task_id="wait", stream=stream, deferrable=True, poll_interval=1)
        ingest = DeltaIngestOperator(
            task_id="ingest", stream=stream, sink=DeltaAppendSink(f"{LAKE}/{name}/bronze"), conn_id="spark_default"
        )
        wait >> ingest
