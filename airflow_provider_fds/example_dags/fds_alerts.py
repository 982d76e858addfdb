"""Alerts for all streams, also while their own DAGs are paused: deferred in the triggerer until there is an incident.

A run ends when it has reported an incident; the next one continues.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.sdk import DAG

from airflow_provider_fds import DeltaStreamMonitorOperator, StreamAlerts

log = logging.getLogger(__name__)


def page(context: dict[str, Any]) -> None:
    """Log the alert. An Airflow notifier, such as SmtpNotifier, works as well."""
    alert = context["fds_alert"]
    log.error("%s: %s Run: %s", alert["title"], alert["why"], alert["action"])


with DAG(
    "fds_alerts",
    # when a run is over, the next one begins
    schedule="@continuous",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
):
    DeltaStreamMonitorOperator(
        task_id="monitor",
        poll_interval=timedelta(minutes=1),
        alerts=StreamAlerts(lag=timedelta(hours=1), retention_left=timedelta(days=2), notifiers=[page]),
        retries=3,
    )
