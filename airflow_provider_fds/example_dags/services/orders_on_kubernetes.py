"""FDS with the Spark operator of Kubernetes: the name of the SparkApplication is the plan's token."""

from __future__ import annotations

import os
from datetime import UTC, datetime

from airflow.providers.cncf.kubernetes.operators.spark_kubernetes import SparkKubernetesOperator
from airflow.sdk import DAG

from airflow_provider_fds import DeltaAppendSink, DeltaCommitOperator, DeltaPlanOperator, DeltaStream
from airflow_provider_fds.spark import spark_conf

LAKE = os.environ.get("FDS_EXAMPLE_LAKE", "s3://lake")

orders = DeltaStream("orders_on_kubernetes", table=f"{LAKE}/orders")
sink = DeltaAppendSink(f"{LAKE}/kubernetes/orders")

with DAG(
    "orders_on_kubernetes",
    schedule="*/15 * * * *",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
):
    plan = DeltaPlanOperator(task_id="plan", stream=orders, ship_modules=True, retries=2)
    application = {
        "apiVersion": "sparkoperator.k8s.io/v1beta2",
        "kind": "SparkApplication",
        "metadata": {"name": plan.output["token"]},
        "spec": {
            "type": "Python",
            "mode": "cluster",
            # with Delta's JARs and those of the lake's file system
            "image": "registry.example/spark-delta:4.2.0",
            "sparkVersion": "4.2.0",
            "mainApplicationFile": f"{LAKE}/code/load_orders.py",
            "arguments": [sink.uri, "--fds-batch", plan.output["batch"]],
            "deps": {"pyFiles": [plan.output["py_files"]]},
            "sparkConf": spark_conf(),
            "restartPolicy": {"type": "Never"},
            "driver": {"cores": 1, "memory": "1g", "serviceAccount": "spark"},
            "executor": {"instances": 2, "cores": 1, "memory": "2g"},
        },
    }
    load = SparkKubernetesOperator(
        task_id="load",
        namespace="spark",
        template_spec=application,
        random_name_suffix=False,
        kubernetes_conn_id="kubernetes_default",
        retries=2,
    )
    commit = DeltaCommitOperator(task_id="commit", batch=plan.output, verify=sink, retries=2)
    plan >> load >> commit
