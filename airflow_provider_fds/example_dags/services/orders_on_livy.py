"""FDS with Apache Livy: the name of the batch session is the plan's token."""

from __future__ import annotations

import os
from datetime import UTC, datetime

from airflow.providers.apache.livy.operators.livy import LivyOperator
from airflow.sdk import DAG

from airflow_provider_fds import DeltaAppendSink, DeltaCommitOperator, DeltaPlanOperator, DeltaStream
from airflow_provider_fds.spark import spark_conf

LAKE = os.environ.get("FDS_EXAMPLE_LAKE", "s3://lake")

orders = DeltaStream("orders_on_livy", table=f"{LAKE}/orders")
sink = DeltaAppendSink(f"{LAKE}/livy/orders")

with DAG(
    "orders_on_livy",
    schedule="*/15 * * * *",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
):
    plan = DeltaPlanOperator(task_id="plan", stream=orders, ship_modules=True, retries=2)
    load = LivyOperator(
        task_id="load",
        livy_conn_id="livy_default",
        name=plan.output["token"],
        file=f"{LAKE}/code/load_orders.py",
        py_files=[plan.output["py_files"]],
        args=[sink.uri],
        conf={
            **spark_conf(),
            "spark.fds.batch": plan.output["batch"],
            "spark.jars.packages": "io.delta:delta-spark_2.12:3.3.2",
            "spark.yarn.maxAppAttempts": "1",
        },
        polling_interval=10,
        retries=2,
    )
    commit = DeltaCommitOperator(task_id="commit", batch=plan.output, verify=sink, retries=2)
    plan >> load >> commit
