"""For an existing Spark job: FDS plans the batch, the job loads it, FDS moves the offset.

The batch is a Delta table with the new rows; ``jobs/load_orders.py`` reads it like any other.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import DAG

from airflow_provider_fds import DeltaAppendSink, DeltaCommitOperator, DeltaPlanOperator, DeltaStream
from airflow_provider_fds.spark import spark_conf

LAKE = os.environ.get("FDS_EXAMPLE_LAKE", "s3://lake")

orders = DeltaStream("orders_user_job", table=f"{LAKE}/orders")
sink = DeltaAppendSink(f"{LAKE}/own/orders")

with DAG(
    "orders_three_tasks",
    schedule="*/15 * * * *",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
):
    plan = DeltaPlanOperator(task_id="plan", stream=orders, retries=2)
    load = SparkSubmitOperator(
        task_id="load",
        application=str(Path(__file__).with_name("jobs") / "load_orders.py"),
        application_args=[sink.uri],
        packages="io.delta:delta-spark_4.2_2.13:4.4.0",
        # where the job's current_batch(spark) finds it
        conf={**spark_conf(), "spark.fds.batch": plan.output["batch"]},
        conn_id="spark_default",
        retries=2,
    )
    commit = DeltaCommitOperator(task_id="commit", batch=plan.output, verify=sink, retries=2)
    plan >> load >> commit
