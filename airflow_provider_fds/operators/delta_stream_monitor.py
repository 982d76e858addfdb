"""``DeltaStreamMonitorOperator``: send the metrics of all streams, also while their DAGs are paused."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.providers.common.compat.sdk import BaseOperator

from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.hooks.failures import task_failures
from airflow_provider_fds.hooks.settings import poll_interval_seconds, staging_uri
from airflow_provider_fds.operators.lineage.outlets import add_alert_outlet
from airflow_provider_fds.triggers.poll_arguments import removed_problems

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow_provider_fds.stream.monitoring.alerts import StreamAlerts


class DeltaStreamMonitorOperator(BaseOperator):
    """Sends the gauges of all streams of a staging folder for some time, deferred in the triggerer.

    Contract:
        - The task occupies a worker only briefly; a trigger does the rest. It ends after ``duration``: with
          ``schedule="@continuous"`` the next run continues.
        - A round reads the ledgers, and costs one request for the table of each stream that has not changed.
        - With ``alerts`` the run ends early, with success, when a stream has a new incident: it calls the notifiers and
          emits an event of the asset ``fds://<stream>/state``. The next run continues, so the DAG needs
          ``schedule="@continuous"``.
        - Every fifth round writes the status file of each stream, for the page "Delta streams".
        - The metrics go to where ``[metrics]`` of Airflow sends its own; without that, the task logs a warning.
        - A stream whose table cannot be read with ``storage_conn_id`` counts as needing attention.

    Misuse:
        Two of them for one staging folder send everything twice.

    Args:
        staging: Staging folder; ``None``: ``[fds] staging``.
        storage_conn_id: Airflow connection of staging and of all tables; ``None``: the environment's credentials.
        poll_interval: Time between two rounds; default ``[fds] poll_interval``.
        duration: How long one run lasts.
        alerts: Which notifiers to call, once per incident of a stream, and the thresholds; see :class:`StreamAlerts`.
            ``None``: no alerts.

    Examples:
        >>> from airflow_provider_fds import DeltaStreamMonitorOperator
        >>> DeltaStreamMonitorOperator(task_id="monitor").duration.days
        1
    """

    template_fields: Sequence[str] = ("staging", "storage_conn_id")
    ui_color = "#d9f2e6"

    def __init__(
        self,
        *,
        staging: str | None = None,
        storage_conn_id: str | None = None,
        poll_interval: timedelta | None = None,
        duration: timedelta = timedelta(days=1),
        alerts: StreamAlerts | None = None,
        **kwargs: Any,
    ) -> None:
        problems = removed_problems(kwargs)
        problems += ["interval is poll_interval now."] if "interval" in kwargs else []
        problems += [
            f"{name} must be a positive timedelta, got {value!r}."
            for name, value in (("poll_interval", poll_interval), ("duration", duration))
            if value is not None and not (isinstance(value, timedelta) and value > timedelta())
        ]
        if problems:
            raise ConfigurationError(*problems, subject=f"task {kwargs.get('task_id')!r}")
        super().__init__(**kwargs)
        self.staging = staging
        self.storage_conn_id = storage_conn_id
        self.poll_interval = poll_interval
        self.duration = duration
        self.alerts = alerts
        add_alert_outlet(self, alerts)

    def execute(self, context: Any) -> NoReturn:
        """Defer to the trigger."""
        from airflow_provider_fds.hooks.stats import are_on
        from airflow_provider_fds.hooks.storage import storage_options
        from airflow_provider_fds.triggers.delta_stream_monitor import DeltaStreamMonitorTrigger

        with task_failures(context):
            seconds = poll_interval_seconds() if self.poll_interval is None else self.poll_interval.total_seconds()
            staging = staging_uri(self.staging, "fds_monitor")
            storage_options(self.storage_conn_id, staging)
        if self.alerts is None and not are_on():
            self.log.warning("Airflow sends no metrics: set statsd_on, otel_on or statsd_datadog_enabled in [metrics].")
        trigger = DeltaStreamMonitorTrigger(
            staging=staging,
            interval=seconds,
            until=time.time() + self.duration.total_seconds(),
            storage_conn_id=self.storage_conn_id,
            alerts=None if self.alerts is None else self.alerts.thresholds(),
            has_notifiers=self.alerts is not None and bool(self.alerts.notifiers),
        )
        self.defer(trigger=trigger, method_name="execute_complete")

    def execute_complete(self, context: Any, event: Mapping[str, Any]) -> int:
        """Report the incidents that the trigger has found, and return the number of rounds."""
        if event["status"] == "alerts":
            from airflow_provider_fds.hooks.places import open_folder
            from airflow_provider_fds.operators.run.alerting import Alerting
            from airflow_provider_fds.stream.monitoring.alerts import Found

            with task_failures(context):
                staging = open_folder(self.storage_conn_id, staging_uri(self.staging, "fds_monitor"))
                alerting = Alerting(self, context, self.alerts)
                alerting.tell_all(staging, {name: Found.from_dict(one) for name, one in event["streams"].items()})
                alerting.emit()
        return int(event["rounds"])
