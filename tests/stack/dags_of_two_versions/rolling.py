"""DAGs that an earlier FDS can read as well: see test_rolling_upgrade.py."""

import os
from datetime import timedelta
from pathlib import Path

from airflow.sdk import DAG, task

import airflow_provider_fds
from airflow_provider_fds import DeltaAppendSink, DeltaIngestOperator, DeltaStream, DeltaTableVersionSensor

LAKE = os.environ["FDS_TEST_LAKE"]


@task
def version(name: str) -> None:
    """Write down which version the workers have."""
    Path(LAKE, f"{name}.version").write_text(airflow_provider_fds.__file__)


for name in ("triggerer_first", "workers_first", "driver_between"):
    stream = DeltaStream(name, table=f"{LAKE}/{name}", max_files_per_batch=1)
    retries = {"retries": 20, "retry_delay": timedelta(seconds=0.1)}
    with DAG(name, schedule=None, is_paused_upon_creation=False, default_args=retries):
        wait = DeltaTableVersionSensor(task_id="wait", stream=stream, deferrable=True, poll_interval=1)
        ingest = DeltaIngestOperator(
            task_id="ingest", stream=stream, sink=DeltaAppendSink(f"{LAKE}/{name}_sink"), conn_id="spark_default"
        )
        version(name) >> wait >> ingest
