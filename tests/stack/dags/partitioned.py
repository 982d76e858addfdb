"""A DAG with a partition for each day, and one that runs for each partition: see test_partitions.py."""

import os
from datetime import UTC, datetime

import airflow.sdk
from airflow.sdk import DAG, Asset, task

from airflow_provider_fds import DeltaAppendSink, DeltaIngestOperator, DeltaStream

LAKE = os.environ["FDS_TEST_LAKE"]
DAYS = Asset("days", uri="test://days")

# Airflow 3.1 has none
if hasattr(airflow.sdk, "CronPartitionTimetable"):
    from airflow.sdk import CronPartitionTimetable, PartitionedAssetTimetable

    with DAG(
        "by_partition",
        schedule=CronPartitionTimetable("0 0 * * *", timezone="UTC", run_offset=-1, key_format="%Y-%m-%d"),
        start_date=datetime(2026, 1, 1, tzinfo=UTC),
        catchup=False,
        is_paused_upon_creation=True,
    ):
        DeltaIngestOperator(
            task_id="load",
            stream=DeltaStream("days", table=f"{LAKE}/orders", read="data_interval"),
            sink=DeltaAppendSink(f"{LAKE}/days"),
            outlets=[DAYS],
        )

    with DAG("consumer", schedule=PartitionedAssetTimetable(assets=DAYS), is_paused_upon_creation=True):

        @task
        def day(dag_run=None) -> str:
            """Return the partition of the run."""
            return dag_run.partition_key

        day()
