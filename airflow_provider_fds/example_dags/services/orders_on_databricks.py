"""FDS with Databricks: the idempotency token of the run is the plan's token.

A Python task takes no files beside its job, so ``jobs/load_orders_alone.py`` needs none.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime

from airflow.providers.databricks.operators.databricks import DatabricksSubmitRunOperator
from airflow.sdk import DAG

from airflow_provider_fds import DeltaAppendSink, DeltaCommitOperator, DeltaPlanOperator, DeltaStream
from airflow_provider_fds.spark import spark_conf

LAKE = os.environ.get("FDS_EXAMPLE_LAKE", "s3://lake")

orders = DeltaStream("orders_on_databricks", table=f"{LAKE}/orders")
sink = DeltaAppendSink(f"{LAKE}/databricks/orders")
#: Databricks has Delta itself.
OWN = ("spark.sql.extensions", "spark.sql.catalog.spark_catalog")

with DAG(
    "orders_on_databricks",
    schedule="*/15 * * * *",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
):
    plan = DeltaPlanOperator(task_id="plan", stream=orders, retries=2)
    load = DatabricksSubmitRunOperator(
        task_id="load",
        databricks_conn_id="databricks_default",
        idempotency_token=plan.output["token"],
        run_name="load_orders",
        new_cluster={
            "spark_version": "16.4.x-scala2.12",
            "node_type_id": "m6gd.large",
            "num_workers": 2,
            "spark_conf": {name: value for name, value in spark_conf().items() if name not in OWN},
        },
        spark_python_task={
            "python_file": f"{LAKE}/code/load_orders_alone.py",
            "parameters": [
                sink.uri,
                plan.output["manifest"],
                plan.output["txn_app_id"],
                plan.output["txn_version"],
            ],
        },
        retries=2,
    )
    commit = DeltaCommitOperator(task_id="commit", batch=plan.output, verify=sink, retries=2)
    plan >> load >> commit
