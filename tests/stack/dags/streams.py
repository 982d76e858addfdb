"""One DAG per test, so that the tests may run in any order.

``grows`` waits for a table, deferred, and loads the new rows; ``stops`` finds a version that its stream cannot pass;
``asks`` and ``asks_elsewhere`` ask a person about one; ``endless`` has a function that only ends with its process.
"""

import json
import os
from datetime import timedelta
from pathlib import Path

from airflow.sdk import DAG, BaseNotifier

from airflow_provider_fds import DeltaAppendSink, DeltaIngestOperator, DeltaStream, ForeachBatchSink, StreamAlerts

LAKE = os.environ["FDS_TEST_LAKE"]

for name in ("grows",):
    with DAG(name, schedule=None, default_args={"retries": 2, "retry_delay": timedelta(seconds=1)}):
        DeltaIngestOperator(
            task_id="ingest",
            stream=DeltaStream(name, table=f"{LAKE}/{name}"),
            sink=DeltaAppendSink(f"{LAKE}/{name}_sink"),
            conn_id="spark_default",
            # a sensor waits in chaos.py
            wait=True,
            poll_interval=1,
        )


class Told(BaseNotifier):
    """Appends each alert to a file."""

    def notify(self, context):
        with Path(LAKE, "told").open("a") as file:
            file.write(json.dumps({**context["fds_alert"], "run": context["ti"].run_id}) + "\n")


with DAG("stops", schedule=None):
    DeltaIngestOperator(
        task_id="ingest",
        stream=DeltaStream("stops", table=f"{LAKE}/stops", starting_version=2, on_violation="quarantine"),
        sink=DeltaAppendSink(f"{LAKE}/stops_sink"),
        conn_id="spark_default",
        # a skipped task emits no event
        on_no_data="succeed",
        alerts=StreamAlerts(notifiers=[Told()]),
    )


for name in ("asks", "asks_elsewhere"):
    with DAG(name, schedule=None, default_args={"retries": 3, "retry_delay": timedelta(seconds=1)}):
        DeltaIngestOperator(
            task_id="ingest",
            stream=DeltaStream(name, table=f"{LAKE}/{name}", starting_version=2, on_violation="ask"),
            sink=DeltaAppendSink(f"{LAKE}/{name}_sink"),
            conn_id="spark_default",
        )


with DAG("endless", schedule=None, default_args={"retries": 3, "retry_delay": timedelta(seconds=1)}):
    DeltaIngestOperator(
        task_id="ingest",
        stream=DeltaStream("endless", table=f"{LAKE}/endless"),
        sink=ForeachBatchSink("endless:work"),
        conn_id="spark_default",
        py_files=str(Path(__file__).parents[1] / "endless.py"),
    )
