"""Two ways to load days, in one DAG that `airflow backfill create` runs for days of the past."""

import os
from datetime import UTC, datetime

from airflow.sdk import DAG, CronDataIntervalTimetable

from airflow_provider_fds import DeltaAppendSink, DeltaIngestOperator, DeltaReplaceSink, DeltaStream

LAKE = os.environ["FDS_TEST_LAKE"]

orders = DeltaStream("orders", table=f"{LAKE}/orders", starting_version="latest")
by_day = DeltaStream("by_day", table=f"{LAKE}/orders", read="data_interval")

with DAG(
    "days",
    schedule=CronDataIntervalTimetable("0 0 * * *", timezone="UTC"),
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    is_paused_upon_creation=True,
):
    replaced = DeltaIngestOperator(
        task_id="replaced", stream=by_day, sink=DeltaReplaceSink(f"{LAKE}/replaced", provenance=True)
    )
    appended = DeltaIngestOperator(
        task_id="appended",
        stream=orders.backfill(
            start="{{ data_interval_start }}", end="{{ data_interval_end.subtract(microseconds=1000) }}"
        ),
        sink=DeltaAppendSink(f"{LAKE}/appended"),
    )
    # the position of the stream itself is not for a run of the past
    refused = DeltaIngestOperator(task_id="refused", stream=orders, sink=DeltaAppendSink(f"{LAKE}/refused"))
    replaced >> appended >> refused
