"""Day by day: each run loads what was committed in its own day. Catch up, clear and backfill as with any other DAG."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta

from airflow.sdk import DAG

from airflow_provider_fds import DeltaIngestOperator, DeltaReplaceSink, DeltaStream, DeltaTableVersionSensor

try:
    from airflow.sdk import CronDataIntervalTimetable
except ImportError:
    # Airflow 3.1
    from airflow.timetables.interval import CronDataIntervalTimetable

LAKE = os.environ.get("FDS_EXAMPLE_LAKE", "s3://lake")

orders = DeltaStream("orders_daily", table=f"{LAKE}/orders", read="data_interval")

#: Every row records its source version, so a repeated run replaces exactly what it wrote.
daily = DeltaReplaceSink(f"{LAKE}/daily/orders", provenance=True)

with DAG(
    "orders_daily",
    schedule=CronDataIntervalTimetable("0 0 * * *", timezone="UTC"),
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    doc_md=__doc__,
):
    complete = DeltaTableVersionSensor(
        task_id="complete",
        stream=orders,
        wait_for="interval_complete",
        grace=timedelta(hours=2),
        deferrable=True,
        retries=2,
    )
    load = DeltaIngestOperator(task_id="load", stream=orders, sink=daily, retries=2)
    complete >> load
