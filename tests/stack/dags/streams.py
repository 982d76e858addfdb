"""One DAG per test, so that the tests may run in any order: wait for a table, deferred, and load the new rows."""

import os
from datetime import timedelta

from airflow.sdk import DAG

from airflow_provider_fds import DeltaIngestOperator, DeltaStream, DeltaTableSink

LAKE = os.environ["FDS_TEST_LAKE"]

for name in ("grows",):
    with DAG(name, schedule=None, default_args={"retries": 2, "retry_delay": timedelta(seconds=1)}):
        DeltaIngestOperator(
            task_id="ingest",
            stream=DeltaStream(name, table=f"{LAKE}/{name}"),
            sink=DeltaTableSink(f"{LAKE}/{name}_sink"),
            conn_id="spark_default",
            # a sensor waits in chaos.py
            wait=True,
            poll_interval=1,
        )
