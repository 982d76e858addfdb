"""Watches for incidents of many streams. Reads the record of a stream only if its states have changed."""

from __future__ import annotations

import logging
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from airflow_provider_fds.errors import StorageError
from airflow_provider_fds.stream.monitoring.alerts import StreamAlerts, find_alerts
from airflow_provider_fds.stream.monitoring.incidents import IncidentLog

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from airflow_provider_fds.delta.storage.storage import Storage
    from airflow_provider_fds.stream.monitoring.alerts import Found
    from airflow_provider_fds.stream.monitoring.incidents import Incident
    from airflow_provider_fds.stream.monitoring.status import StreamStatus

#: Streams that are read at the same time; on an object store the time is spent waiting.
_THREADS: Final = 16
#: Maximum number of streams that one check returns; the others follow at the next one.
MOST_STREAMS: Final = 100

_log: Final = logging.getLogger(__name__)


class IncidentWatch:
    """Ends the incidents of streams that have left their state, and finds those that a task must report.

    Args:
        thresholds: As :meth:`~.alerts.StreamAlerts.thresholds` returns them.
        has_notifiers: Whether that task has notifiers; if not, it only emits asset events.
        pause: Seconds before a notifier that has failed is called again.
    """

    def __init__(self, thresholds: Mapping[str, float | None], has_notifiers: bool, pause: float) -> None:
        self._alerts = StreamAlerts.from_thresholds(thresholds)
        self._has_notifiers = has_notifiers
        self._pause = pause
        self._known: dict[str, tuple[Incident, ...]] = {}

    def check(self, staging: Storage, statuses: Iterable[StreamStatus]) -> dict[str, Found]:
        """Return the states of the streams with an incident that a task must report, by name.

        A stream whose incidents cannot be read is a warning, so that it does not hide the others.
        """
        found = [(status.name, find_alerts(status, self._alerts)) for status in statuses]
        self._known = {name: self._known[name] for name, _ in found if name in self._known}
        with ThreadPoolExecutor(_THREADS) as threads:
            is_due = list(threads.map(lambda one: self._is_due(staging, *one), found))
        due = [one for one, is_due_now in zip(found, is_due, strict=True) if is_due_now]
        return dict(due[:MOST_STREAMS])

    def _is_due(self, staging: Storage, name: str, found: Found) -> bool:
        try:
            return self._find_due(staging, name, found)
        except StorageError as error:
            _log.warning("The incidents of stream %s cannot be read or written: %s", name, error)
            return False

    def _find_due(self, staging: Storage, name: str, found: Found) -> bool:
        """Whether a task must report an incident of this stream; ends those that are over."""
        known = self._known.get(name)
        if known is not None and not self._has_changed(known, found):
            return False
        log = IncidentLog(staging, name)
        is_new = _has_new(found, log.open())
        if not is_new:
            # ends what is over; a task begins what is new when it reports it
            log.observe(found)
        self._known[name] = log.last
        return is_new or any(self._must_tell(one) for one in log.last)

    def _has_changed(self, known: tuple[Incident, ...], found: Found) -> bool:
        open_now = {(one.state, one.key) for one in known}
        alerts = {(one.state, one.key) for one in found.alerts}
        is_over = any(found.ends(*one) for one in open_now - alerts)
        return is_over or _has_new(found, known) or any(self._must_tell(one) for one in known)

    def _must_tell(self, incident: Incident) -> bool:
        return not incident.is_emitted or (self._has_notifiers and incident.is_due(time.time(), self._pause))


def _has_new(found: Found, incidents: Iterable[Incident]) -> bool:
    """Whether an alert is about none of the open incidents."""
    return not all(any(one.is_of(alert) for one in incidents) for alert in found.alerts)
