"""Two DAGs whose drivers run in a cluster: ``keeps_worker`` waits for its driver, ``leaves_worker`` does not."""

import os
import sys
from datetime import timedelta

from airflow.sdk import DAG

from airflow_provider_fds import DeltaAppendSink, DeltaIngestOperator, DeltaStream
from airflow_provider_fds.fault_points import ASKED_BY, MARKS_IN
from tests.standalone_cluster import SMALL

LAKE = os.environ["FDS_TEST_LAKE"]

for name in ("keeps_worker", "leaves_worker"):
    with DAG(name, schedule=None, default_args={"retries": 2, "retry_delay": timedelta(seconds=1)}):
        DeltaIngestOperator(
            task_id="ingest",
            stream=DeltaStream(name, table=f"{LAKE}/{name}"),
            sink=DeltaAppendSink(f"{LAKE}/{name}_sink"),
            # made by the test
            conn_id="cluster",
            deploy_mode="cluster",
            **({"deferrable": True, "poll_interval": 1} if name == "leaves_worker" else {}),
            driver_memory="600m",
            conf={**SMALL, "spark.cores.max": "1", "spark.driver.host": "127.0.0.1"},
            # the driver stands still until the test lets it go on
            env_vars={
                "PYSPARK_PYTHON": sys.executable,
                ASKED_BY: "stop@driver.commit.before",
                MARKS_IN: f"{LAKE}/{name}_marks",
            },
        )
