"""Load a range of a table once, and leave the position of its stream alone: "Trigger DAG" asks for start and end.

Each range is a stream of its own, so a range that failed continues where it stopped, and one that is finished is
skipped. Versions that the live stream loads itself are refused.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime

from airflow.sdk import DAG, Param

from airflow_provider_fds import DeltaAppendSink, DeltaIngestOperator, DeltaStream

LAKE = os.environ.get("FDS_EXAMPLE_LAKE", "s3://lake")

#: The live stream, as in its own DAG: it began in 2026, and older orders are loaded on request.
orders = DeltaStream("orders_since_2026", table=f"{LAKE}/orders", starting_timestamp="2026-01-01")

with DAG(
    "orders_backfill",
    schedule=None,
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    params={
        "start": Param("earliest", type="string", description="first version or time (UTC), or earliest", minLength=1),
        "end": Param("live_start", type="string", description="last version or time (UTC), or live_start", minLength=1),
    },
    doc_md=__doc__,
):
    DeltaIngestOperator(
        task_id="load",
        stream=orders.backfill(start="{{ params.start }}", end="{{ params.end }}"),
        sink=DeltaAppendSink(f"{LAKE}/since_2026/orders"),
        conn_id="spark_default",
        retries=2,
    )
