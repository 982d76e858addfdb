"""Two ways to load a table as soon as it grows, on a Spark Connect server, and a task that does nothing.

See ../latency.py.
"""

import os
from datetime import UTC, datetime
from pathlib import Path

from airflow.sdk import DAG, BaseOperator

from airflow_provider_fds import DeltaAppendSink, DeltaIngestOperator, DeltaStream, DeltaTableVersionSensor
from tests.bench.file_trigger import FileTrigger, files_in

LAKE = os.environ["FDS_BENCH_LAKE"]


def ingest(name: str, *, wait: bool) -> DeltaIngestOperator:
    return DeltaIngestOperator(
        task_id="ingest",
        stream=DeltaStream(name, table=f"{LAKE}/{name}"),
        sink=DeltaAppendSink(f"{LAKE}/{name}_sink"),
        conn_id="spark_connect",
        **({"wait": True, "poll_interval": 1} if wait else {}),
    )


class Nothing(BaseOperator):
    """Waits in the triggerer for one more file, and writes one: what Airflow itself takes."""

    def execute(self, context):
        folder = f"{LAKE}/nothing"
        self.defer(trigger=FileTrigger(folder=folder, seen=files_in(folder)), method_name="resumed")

    def resumed(self, context, event):
        Path(f"{LAKE}/nothing_sink", str(event["files"])).touch()


BEGIN = datetime(2026, 1, 1, tzinfo=UTC)

with DAG("sensor", schedule="@continuous", start_date=BEGIN, max_active_runs=1):
    sensor = DeltaTableVersionSensor(
        task_id="wait", stream=DeltaStream("sensor", table=f"{LAKE}/sensor"), deferrable=True, poll_interval=1
    )
    sensor >> ingest("sensor", wait=False)

with DAG("waiting", schedule="@continuous", start_date=BEGIN, max_active_runs=1):
    ingest("waiting", wait=True)

with DAG("nothing", schedule="@continuous", start_date=BEGIN, max_active_runs=1):
    Nothing(task_id="wait")
