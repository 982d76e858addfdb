"""FDS with EMR Serverless: the client token of the job run is the plan's token."""

from __future__ import annotations

import os
from datetime import UTC, datetime

from airflow.providers.amazon.aws.operators.emr import EmrServerlessStartJobOperator
from airflow.sdk import DAG

from airflow_provider_fds import DeltaAppendSink, DeltaCommitOperator, DeltaPlanOperator, DeltaStream
from airflow_provider_fds.spark import spark_conf

LAKE = os.environ.get("FDS_EXAMPLE_LAKE", "s3://lake")

orders = DeltaStream("orders_on_emr_serverless", table=f"{LAKE}/orders")
sink = DeltaAppendSink(f"{LAKE}/emr_serverless/orders")
DELTA = "/usr/share/aws/delta/lib/delta-spark.jar,/usr/share/aws/delta/lib/delta-storage.jar"


class StartJob(EmrServerlessStartJobOperator):
    """The operator, with a client token that is rendered."""

    template_fields = (*EmrServerlessStartJobOperator.template_fields, "client_request_token")


with DAG(
    "orders_on_emr_serverless",
    schedule="*/15 * * * *",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
):
    plan = DeltaPlanOperator(task_id="plan", stream=orders, ship_modules=True, retries=2)
    conf = {**spark_conf(), "spark.jars": DELTA, "spark.submit.pyFiles": "{{ ti.xcom_pull('plan', key='py_files') }}"}
    load = StartJob(
        task_id="load",
        application_id="00f1g2h3example",
        execution_role_arn="arn:aws:iam::123456789012:role/fds-spark",
        client_request_token=plan.output["token"],
        name=plan.output["token"],
        job_driver={
            "sparkSubmit": {
                "entryPoint": f"{LAKE}/code/load_orders.py",
                "entryPointArguments": [sink.uri, "--fds-batch", plan.output["batch"]],
                "sparkSubmitParameters": " ".join(f"--conf {name}={value}" for name, value in conf.items()),
            }
        },
        waiter_delay=30,
        waiter_max_attempts=120,
        retries=2,
    )
    commit = DeltaCommitOperator(task_id="commit", batch=plan.output, verify=sink, retries=2)
    plan >> load >> commit
