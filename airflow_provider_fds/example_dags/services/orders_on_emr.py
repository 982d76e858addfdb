"""FDS with Amazon EMR on EC2: one step, whose name is the plan's token, and a sensor that waits for it."""

from __future__ import annotations

import os
from datetime import UTC, datetime

from airflow.providers.amazon.aws.operators.emr import EmrAddStepsOperator
from airflow.providers.amazon.aws.sensors.emr import EmrStepSensor
from airflow.sdk import DAG

from airflow_provider_fds import DeltaAppendSink, DeltaCommitOperator, DeltaPlanOperator, DeltaStream
from airflow_provider_fds.spark import spark_conf

LAKE = os.environ.get("FDS_EXAMPLE_LAKE", "s3://lake")

orders = DeltaStream("orders_on_emr", table=f"{LAKE}/orders")
sink = DeltaAppendSink(f"{LAKE}/emr/orders")
CLUSTER = "j-3KVTXXXXXX7UG"
DELTA = "/usr/share/aws/delta/lib/delta-spark.jar,/usr/share/aws/delta/lib/delta-storage.jar"

with DAG(
    "orders_on_emr",
    schedule="*/15 * * * *",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
):
    plan = DeltaPlanOperator(task_id="plan", stream=orders, ship_modules=True, retries=2)
    # an XCom within a text is rendered by a template
    conf = {
        **spark_conf(),
        "spark.fds.batch": "{{ ti.xcom_pull('plan', key='batch') }}",
        "spark.yarn.maxAppAttempts": "1",
    }
    settings = [word for name, value in conf.items() for word in ("--conf", f"{name}={value}")]
    step = {
        "Name": plan.output["token"],
        "ActionOnFailure": "CONTINUE",
        "HadoopJarStep": {
            "Jar": "command-runner.jar",
            "Args": [
                *("spark-submit", "--deploy-mode", "cluster", "--jars", DELTA, *settings),
                *("--py-files", plan.output["py_files"], f"{LAKE}/code/load_orders.py", sink.uri),
            ],
        },
    }
    load = EmrAddStepsOperator(task_id="load", job_flow_id=CLUSTER, steps=[step], retries=2)
    loaded = EmrStepSensor(
        task_id="loaded", job_flow_id=CLUSTER, step_id="{{ ti.xcom_pull('load')[0] }}", poke_interval=30, retries=2
    )
    commit = DeltaCommitOperator(task_id="commit", batch=plan.output, verify=sink, retries=2)
    plan >> load >> loaded >> commit
