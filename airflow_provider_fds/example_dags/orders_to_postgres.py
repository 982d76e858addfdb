"""Load the new rows of a Delta table into a table of PostgreSQL, each row once, and only the columns that it has.

Create the table first (``CREATE TABLE public.orders (id bigint, …)``), and install ``airflow-provider-fds[postgres]``
where the Spark driver runs. The connection ``warehouse`` is one of type ``postgres``.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime

from airflow.sdk import DAG

from airflow_provider_fds import DeltaIngestOperator, DeltaStream, PostgresSink

LAKE = os.environ.get("FDS_EXAMPLE_LAKE", "s3://lake")

with DAG("orders_to_postgres", schedule="@hourly", start_date=datetime(2026, 1, 1, tzinfo=UTC), catchup=False):
    ingest = DeltaIngestOperator(
        task_id="ingest",
        stream=DeltaStream("orders_to_postgres", table=f"{LAKE}/orders"),
        sink=PostgresSink("public.orders", conn_id="warehouse", columns=["id"], provenance=True),
        conn_id="spark_default",
        retries=2,
    )
