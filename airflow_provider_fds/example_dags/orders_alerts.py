"""Alerts for one stream: a run that puts the stream into quarantine is skipped, and calls a notifier once."""

from __future__ import annotations

import logging
import os
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.sdk import DAG

from airflow_provider_fds import DeltaAppendSink, DeltaIngestOperator, DeltaStream, StreamAlerts

log = logging.getLogger(__name__)

LAKE = os.environ.get("FDS_EXAMPLE_LAKE", "s3://lake")


def page(context: dict[str, Any]) -> None:
    """Log the alert. An Airflow notifier, such as SmtpNotifier, works as well."""
    alert = context["fds_alert"]
    log.error("%s: %s Run: %s", alert["title"], alert["why"], alert["action"])


with DAG(
    "orders_alerts",
    schedule="*/15 * * * *",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
):
    DeltaIngestOperator(
        task_id="ingest",
        stream=DeltaStream(
            "orders_alerts", table=f"{LAKE}/orders", starting_version="earliest", on_violation="quarantine"
        ),
        sink=DeltaAppendSink(f"{LAKE}/alerts/orders"),
        conn_id="spark_default",
        alerts=StreamAlerts(lag=timedelta(hours=1), retention_left=timedelta(days=2), notifiers=[page]),
        retries=2,
    )
