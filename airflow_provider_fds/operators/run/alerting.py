"""Reports the incidents of a stream: calls notifiers, and emits asset events. Only for tasks."""

from __future__ import annotations

import copy
import logging
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import Asset

from airflow_provider_fds.command_hints import staging_option
from airflow_provider_fds.errors import StorageError
from airflow_provider_fds.operators.lineage.outlets import is_alert_outlet
from airflow_provider_fds.stream.monitoring.alerts import Found, StreamAlerts, find_alerts, name_in_use
from airflow_provider_fds.stream.monitoring.incidents import MOST_ATTEMPTS, IncidentLog

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from airflow_provider_fds.delta.storage.storage import Storage
    from airflow_provider_fds.stream.connected_stream import ConnectedStream
    from airflow_provider_fds.stream.monitoring.incidents import Incident
    from airflow_provider_fds.stream.monitoring.status import StreamStatus

log = logging.getLogger(__name__)


def state_asset(stream: str) -> Asset:
    """Return the asset whose events are the incidents of a stream."""
    return Asset(f"fds://{stream}/state")


class Alerting:
    """Reports the incidents of streams from one task.

    Args:
        operator: The operator, with an outlet of :func:`~.outlets.alert_outlet`.
        context: The task's context.
        alerts: When to alert, and which notifiers to call; ``None``: no alerts.
    """

    def __init__(self, operator: Any, context: Any, alerts: StreamAlerts | None) -> None:
        self._operator = operator
        self._context = context
        self._is_on = alerts is not None
        self._alerts = alerts or StreamAlerts()
        self._logs: dict[str, tuple[IncidentLog, str]] = {}

    @property
    def observers(self) -> tuple[Callable[[ConnectedStream, StreamStatus | None], None], ...]:
        """The observers of a stream's status: this object, if alerts are on."""
        return (self,) if self._is_on else ()

    def __call__(self, connected: ConnectedStream, status: StreamStatus | None) -> None:
        """Report the incidents that a status shows, unless another task has; ``None``: the run was refused."""
        if status is None:
            table, deployment = connected.table.uri, connected.context.deployment
            found = name_in_use(connected.state, table, deployment, connected.ledger.n)
        else:
            found = find_alerts(status, self._alerts)
        self.tell(connected.staging, connected.stream.name, found, fresh_entry=connected.quarantined_at)

    def tell(self, staging: Storage, stream: str, found: Found, *, fresh_entry: int | None = None) -> None:
        """Begin and end the incidents of a stream, and call the notifiers for those that no task has reported.

        If a notifier fails, a warning is logged, the others are called, and the next check calls it again.
        """
        incidents = IncidentLog(staging, stream)
        if not self._alerts.notifiers:
            incidents.observe(found, fresh_entry=fresh_entry)
        else:
            for incident in incidents.claim(found, fresh_entry=fresh_entry):
                told = self._notify(stream, incident, staging.uri)
                incidents.settle(incident, told, is_told=set(told) >= set(_names(self._alerts.notifiers)))
        self._logs[stream] = incidents, staging.uri

    def tell_all(self, staging: Storage, found: Mapping[str, Found]) -> None:
        """Tell of several streams, by name. One that fails is a warning, so that it does not hide the others.

        Raises:
            StorageError: All have failed.
        """
        failures: list[StorageError] = []
        for stream, one in found.items():
            try:
                self.tell(staging, stream, one)
            except StorageError as error:
                log.warning("Stream %s: its incidents cannot be read or written: %s", stream, error)
                failures.append(error)
        if failures and len(failures) == len(found):
            raise failures[0]

    def emit(self) -> None:
        """Emit the asset events of these incidents, unless another task has. Called just before the task succeeds.

        An error is only logged: the next task that succeeds emits them.
        """
        for stream, (incidents, staging_uri) in self._logs.items():
            try:
                due = () if all(one.is_emitted for one in incidents.last) else incidents.emit()
            except Exception as error:  # noqa: BLE001
                log.warning("Stream %s: the asset events of its alerts were not emitted: %s", stream, error)
                continue
            events = self._context["outlet_events"]
            for outlet in self._operator.outlets:
                if is_alert_outlet(outlet):
                    for incident in due:
                        events[outlet].add(state_asset(stream), extra=_describe(stream, incident, staging_uri))

    def _notify(self, stream: str, incident: Incident, staging_uri: str) -> list[str]:
        """Call the notifiers that were not called yet, and return all that were."""
        alert = _describe(stream, incident, staging_uri)
        log.warning("%s: %s", alert["title"], alert["why"])
        told = list(incident.told)
        for name, notifier in _named(self._alerts.notifiers):
            if name in told:
                continue
            try:
                # rendering changes a notifier, and there may be another incident
                copy.copy(notifier)({**self._context, "fds_alert": alert})
            except (Exception, SystemExit) as error:
                again = "is called again at the next check"
                if incident.attempts >= MOST_ATTEMPTS:
                    again = f"is not called again after {MOST_ATTEMPTS} attempts"
                log.warning(
                    "%s: notifier %s failed and %s: %s: %s",
                    alert["title"],
                    name,
                    again,
                    type(error).__name__,
                    error,
                    exc_info=True,
                )
            else:
                told.append(name)
        return told


def _describe(stream: str, incident: Incident, staging_uri: str) -> dict[str, Any]:
    return {
        "stream": stream,
        "table": incident.table,
        "state": incident.state,
        "version": incident.version,
        "operation": incident.operation,
        "why": incident.why,
        "action": f"{incident.action} {staging_option(staging_uri)}",
        "since": incident.since,
        "title": f"Stream {stream}: {incident.state.replace('_', ' ')}",
    }


def _named(notifiers: Sequence[Callable[[Any], Any]]) -> list[tuple[str, Callable[[Any], Any]]]:
    """Return the notifiers with names that are the same in each attempt."""
    return [(f"{i}:{getattr(one, '__name__', type(one).__name__)}", one) for i, one in enumerate(notifiers)]


def _names(notifiers: Sequence[Callable[[Any], Any]]) -> list[str]:
    return [name for name, _ in _named(notifiers)]
