"""Send the metrics of all streams, also while their own DAGs are paused: deferred in the triggerer, without a worker.

Where the metrics go is in the section ``[metrics]`` of Airflow's configuration.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from airflow.sdk import DAG

from airflow_provider_fds import DeltaStreamMonitorOperator

with DAG(
    "fds_monitor",
    # when a run is over, the next one begins
    schedule="@continuous",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
):
    DeltaStreamMonitorOperator(task_id="monitor", poll_interval=timedelta(minutes=1), retries=3)
