"""``DeltaStreamMonitorTrigger``: send metrics of all streams of a staging folder, and write their status files."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import BaseTrigger, TriggerEvent
from asgiref.sync import sync_to_async

from airflow_provider_fds.hooks.places import open_folder, places_for
from airflow_provider_fds.hooks.settings import deployment
from airflow_provider_fds.hooks.stats import send
from airflow_provider_fds.hooks.storage import connections_looked_up_once, storage_options
from airflow_provider_fds.ledger.owner import Actor, Owner
from airflow_provider_fds.stream.connected_stream import StreamContext
from airflow_provider_fds.stream.monitoring.incident_watch import IncidentWatch
from airflow_provider_fds.stream.monitoring.metrics import status_samples
from airflow_provider_fds.stream.monitoring.monitor import StreamMonitor

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from airflow_provider_fds.ledger.state import StreamState
    from airflow_provider_fds.places import Places
    from airflow_provider_fds.stream.monitoring.metrics import Sample
    from airflow_provider_fds.stream.monitoring.status import StreamStatus


class DeltaStreamMonitorTrigger(BaseTrigger):
    """Sends the gauges of all streams at each interval, and fires once its time is over.

    A round that fails because storage or Airflow does not answer is logged, and the next one follows. Every fifth round
    writes the status file of each stream. With ``alerts`` the trigger also ends incidents, and fires when a task must
    report one.

    Events:
        ``{"status": "success", "rounds": int}``: the time is over.
        ``{"status": "alerts", "rounds": int, "streams": {name: …}}``: these streams have an incident that a
        task must report; the values are those of :meth:`~.alerts.Found.to_dict`.

    Args:
        staging: URI of the staging folder.
        interval: Seconds between two rounds.
        until: When to fire, in seconds since the epoch; the last round is before it.
        storage_conn_id: Airflow connection of staging and of all tables; ``None``: the environment's credentials.
        recheck_every: Every Nth round reads all ledgers and logs; see :class:`~.monitor.StreamMonitor`.
        alerts: Thresholds, see :meth:`~.alerts.StreamAlerts.thresholds`; ``None``: do not check for incidents.
        has_notifiers: Whether the task that resumes has notifiers.
        obsolete: Arguments that an older or newer version of FDS has stored; ignored.
    """

    def __init__(
        self,
        *,
        staging: str,
        interval: float,
        until: float,
        storage_conn_id: str | None = None,
        recheck_every: int = 20,
        alerts: Mapping[str, float | None] | None = None,
        has_notifiers: bool = False,
        **obsolete: Any,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.staging = staging
        self.interval = float(interval)
        self.until = float(until)
        self.storage_conn_id = storage_conn_id
        self.recheck_every = max(1, int(recheck_every))
        self.alerts = None if alerts is None else dict(alerts)
        self.has_notifiers = has_notifiers
        if obsolete:
            self.log.info(
                "Ignoring the arguments %s of this trigger: they come from another version of FDS.", sorted(obsolete)
            )

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and all arguments that another triggerer needs to continue."""
        return (
            "airflow_provider_fds.triggers.delta_stream_monitor.DeltaStreamMonitorTrigger",
            {
                "staging": self.staging,
                "interval": self.interval,
                "until": self.until,
                "storage_conn_id": self.storage_conn_id,
                "recheck_every": self.recheck_every,
                "alerts": self.alerts,
                "has_notifiers": self.has_notifiers,
            },
        )

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Send metrics until the time is over, or a task must tell of an incident."""
        watch = None if self.alerts is None else IncidentWatch(self.alerts, self.has_notifiers, self.interval)
        monitor = StreamMonitor(self._context, places_for=self._places_for, recheck_every=self.recheck_every)
        rounds = 0
        while True:
            began = time.time()
            due = await sync_to_async(self._round, thread_sensitive=False)(monitor, watch)
            rounds += 1
            if due:
                yield TriggerEvent({"status": "alerts", "rounds": rounds, "streams": due})  # type: ignore[no-untyped-call]
                return
            pause = max(0.0, self.interval - (time.time() - began))
            if time.time() + pause >= self.until:
                break
            await asyncio.sleep(pause)
        await asyncio.sleep(max(0.0, self.until - time.time()))
        yield TriggerEvent({"status": "success", "rounds": rounds})  # type: ignore[no-untyped-call]

    def _round(self, monitor: StreamMonitor, watch: IncidentWatch | None) -> dict[str, Any]:
        """Send the gauges of all streams, and return the incidents to tell. Blocks, so it must run in a thread."""
        with connections_looked_up_once():
            return self._watch(monitor, watch)

    def _watch(self, monitor: StreamMonitor, watch: IncidentWatch | None) -> dict[str, Any]:
        try:
            statuses = monitor.poll()
        except Exception as error:  # noqa: BLE001  # storage or Airflow's API server may be restarting
            self.log.warning("This round failed: %s: %s", type(error).__name__, error)
            return {}
        samples: list[Sample] = [sample for status in statuses for sample in status_samples(status)]
        send(lambda: samples)
        self._write_status_files(monitor, statuses)
        stuck = [f"{one.name}: {one.condition.replace('_', ' ')}" for one in statuses if one.needs_attention]
        self.log.info("%d streams; %s", len(statuses), "; ".join(stuck) or "none needs attention")
        if watch is None:
            return {}
        try:
            staging = open_folder(self.storage_conn_id, self.staging)
            return {name: found.to_dict() for name, found in watch.check(staging, statuses).items()}
        except Exception as error:  # noqa: BLE001
            self.log.warning("The incidents cannot be read: %s: %s", type(error).__name__, error)
            return {}

    def _write_status_files(self, monitor: StreamMonitor, statuses: list[StreamStatus]) -> None:
        try:
            failure = monitor.write_status_files(statuses, interval_seconds=self.interval)
        except Exception as error:  # noqa: BLE001  # as above
            self.log.warning("No status file was written: %s: %s", type(error).__name__, error)
            return
        if failure is not None:
            self.log.warning("Status files were not written: %s", failure)

    def _context(self) -> StreamContext:
        name = deployment()
        return StreamContext(
            staging_uri=self.staging,
            staging_options=storage_options(self.storage_conn_id, self.staging),
            deployment=name,
            actor=Actor(deployment=name),
            owner=Owner(kind="airflow", deployment=name),
            owner_is_running=lambda _owner: True,
        )

    def _places_for(self, state: StreamState) -> Places:
        return places_for(self.storage_conn_id, state)
