"""One DAG per test, so that the tests may run in any order: wait, deferred, for a table, then load what is new."""

import os
from datetime import timedelta

from airflow.sdk import DAG

from airflow_provider_fds import DeltaIngestOperator, DeltaStream, DeltaTableSink, DeltaTableVersionSensor

LAKE = os.environ["FDS_TEST_LAKE"]

for name in ("grows",):
    stream = DeltaStream(name, table=f"{LAKE}/{name}")
    with DAG(name, schedule=None, default_args={"retries": 2, "retry_delay": timedelta(seconds=1)}):
        wait = DeltaTableVersionSensor(task_id="wait", stream=stream, deferrable=True, poll_interval=1)
        ingest = DeltaIngestOperator(
            task_id="ingest", stream=stream, sink=DeltaTableSink(f"{LAKE}/{name}_sink"), conn_id="spark_default"
        )
        wait >> ingest

waits = DeltaStream("waits", table=f"{LAKE}/waits")
with DAG("waits", schedule=None):
    DeltaIngestOperator(
        task_id="ingest",
        stream=waits,
        sink=DeltaTableSink(f"{LAKE}/waits_sink"),
        conn_id="spark_default",
        wait=True,
        poll_interval=1,
    )
