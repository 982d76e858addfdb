"""FDS with Google Dataproc: the plan's token is the id of the job and of the request."""

from __future__ import annotations

import os
from datetime import UTC, datetime

from airflow.providers.google.cloud.operators.dataproc import DataprocSubmitJobOperator
from airflow.sdk import DAG

from airflow_provider_fds import DeltaAppendSink, DeltaCommitOperator, DeltaPlanOperator, DeltaStream
from airflow_provider_fds.spark import spark_conf

LAKE = os.environ.get("FDS_EXAMPLE_LAKE", "s3://lake")

orders = DeltaStream("orders_on_dataproc", table=f"{LAKE}/orders")
sink = DeltaAppendSink(f"{LAKE}/dataproc/orders")

with DAG(
    "orders_on_dataproc",
    schedule="*/15 * * * *",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
):
    plan = DeltaPlanOperator(task_id="plan", stream=orders, ship_modules=True, retries=2)
    load = DataprocSubmitJobOperator(
        task_id="load",
        project_id="lake-project",
        region="europe-west1",
        request_id=plan.output["token"],
        job={
            "reference": {"job_id": plan.output["token"]},
            "placement": {"cluster_name": "spark"},
            "pyspark_job": {
                "main_python_file_uri": f"{LAKE}/code/load_orders.py",
                "python_file_uris": [plan.output["py_files"]],
                "args": [sink.uri, "--fds-batch", plan.output["batch"]],
                "properties": {**spark_conf(), "spark.jars.packages": "io.delta:delta-spark_2.12:3.3.2"},
            },
        },
        retries=2,
    )
    commit = DeltaCommitOperator(task_id="commit", batch=plan.output, verify=sink, retries=2)
    plan >> load >> commit
