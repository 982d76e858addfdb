"""The demo's DAGs, with the paths that demo.py gives: one loads the table, one watches the stream."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from airflow.sdk import DAG

from airflow_provider_fds import (
    DeltaAppendSink,
    DeltaIngestOperator,
    DeltaStream,
    DeltaStreamMonitorOperator,
    StreamAlerts,
)

flights = DeltaStream(
    "flights_to_bronze",
    table=os.environ["FDS_DEMO_SOURCE"],
    catalog_conn_id=os.environ.get("FDS_DEMO_CATALOG"),
    on_violation="quarantine",
)


def tell(context: dict[str, Any]) -> None:
    """Write the alert to a file that demo.py prints. Elsewhere this is a notifier, such as SmtpNotifier."""
    with Path(os.environ["FDS_DEMO_ALERTS"]).open("a") as alerts:
        alerts.write(json.dumps(context["fds_alert"]) + "\n")


defaults = {"retries": 2, "retry_delay": timedelta(seconds=5)}
# without a start date the first run has an interval of no length, and Airflow finds no date for the second
start = datetime(2026, 1, 1, tzinfo=UTC)

with DAG("flights_to_bronze", schedule="@continuous", start_date=start, max_active_runs=1, default_args=defaults):
    DeltaIngestOperator(
        task_id="ingest",
        stream=flights,
        sink=DeltaAppendSink(os.environ["FDS_DEMO_SINK"]),
        conn_id="spark_default",
        wait=True,
        poll_interval=1,
        alerts=StreamAlerts(notifiers=[tell]),
    )

with DAG("fds_monitor", schedule="@continuous", start_date=start, max_active_runs=1, default_args=defaults):
    # each stream's status, also while its DAG is paused, and the asset events of its alerts
    DeltaStreamMonitorOperator(
        task_id="monitor", poll_interval=timedelta(seconds=1), alerts=StreamAlerts(notifiers=[tell])
    )
