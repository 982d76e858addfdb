"""``DeltaTableVersionTrigger``: wait for new data in a Delta table, with one request per poll."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from airflow.triggers.base import BaseTrigger, TriggerEvent
from asgiref.sync import sync_to_async

from airflow_provider_fds.errors import FdsError, StorageError
from airflow_provider_fds.hooks.places import TableAddress
from airflow_provider_fds.hooks.position import read_standing
from airflow_provider_fds.hooks.stats import send, send_status, write_wait
from airflow_provider_fds.hooks.stream_context import reading_context
from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.stream import DeltaStream
from airflow_provider_fds.stream.connected_stream import ConnectedStream
from airflow_provider_fds.stream.monitoring.metrics import poll_error
from airflow_provider_fds.stream.polling.alignment import table_poller
from airflow_provider_fds.stream.polling.poll import PollResult, TablePoller
from airflow_provider_fds.stream.position.unread_files import UnreadFiles
from airflow_provider_fds.triggers.catalog_look import shared_looks
from airflow_provider_fds.triggers.pacing import note_start, pause_seconds, poll_slot

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from airflow_provider_fds.stream.polling.interval_poll import IntervalPoller
    from airflow_provider_fds.stream.polling.table_condition import ConditionPoller
    from airflow_provider_fds.stream.polling.watermark import WatermarkPoller
    from airflow_provider_fds.triggers.catalog_look import Meaning

    Poller: TypeAlias = TablePoller | IntervalPoller | WatermarkPoller | ConditionPoller

#: Data that was waiting for more is polled this long after its wait is over.
_AFTER_DUE_SECONDS: Final = 0.1


class DeltaTableVersionTrigger(BaseTrigger):
    """Fires once, when a table has a version with data that a stream has not committed.

    An unchanged table costs one HEAD request per poll. The trigger writes nothing except the status file of a stream
    whose data wait.

    Polls:
        - A new commit is read only to see whether it has data for the stream.
        - The first poll and every ``recheck_every``-th poll read the position again, because another run may have
          committed, and list the log, which shows whether the table is gone, cleaned up or replaced. They also send
          metrics, if ``[metrics]`` of Airflow is switched on (docs/metrics.md). If data wait for more or for another
          stream, they write the status file (docs/ui.md).
        - What a name in a catalog stands for is looked up every 10 minutes, once for all triggers of the process. If it
          is another folder or table, the trigger fires, and the run says what is wrong. A catalog that does not answer
          then does not end the wait.
        - Data below the stream's ``min_batch_bytes`` is not reported until ``max_batch_wait`` has passed. The trigger
          then fires even if no commit has come since.

    Events:
        - ``{"status": "success", "version": int, "reason": str}``: there is data, or the position must move before log
          cleanup reaches it, or is lost, or the stream cannot pass the next version, or the stream is finished (the
          sensor is then skipped). ``version`` is the newest one seen, or -1. The event is a hint, not a promise: it may
          arrive twice or late, and another run may have committed meanwhile, so the receiver must poll again.
        - ``{"status": "error", "error": str, "message": str, "retryable": bool}``: there is no table, the
          configuration is invalid, or storage refused ``max_refusals`` times in a row.

    The arguments are plain values, because Airflow stores them in its database. They contain no credentials: the
    trigger looks the connection up where it runs.

    Args:
        stream: The stream, as returned by :meth:`DeltaStream.to_dict`.
        staging: URI of the staging folder; ``None``: as configured where the trigger runs.
        deployment: Name of the Airflow installation; ``None``: as configured where the trigger runs.
        poll_interval: Seconds between two polls.
        recheck_every: Every Nth poll lists the log and reads the position again.
        max_refusals: Number of consecutive polls refused by storage or Airflow after which the trigger gives up.
        pauses_first: Whether to pause for a poll interval before the first poll: for a task that was woken and found
            nothing.
        obsolete: Arguments that an older or newer version of FDS has stored; ignored.
    """

    def __init__(
        self,
        *,
        stream: Mapping[str, Any],
        staging: str | None = None,
        deployment: str | None = None,
        poll_interval: float = 60.0,
        recheck_every: int = 20,
        max_refusals: int = 10,
        pauses_first: bool = False,
        **obsolete: Any,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.stream = dict(stream)
        self.staging = staging
        self.deployment = deployment
        self.poll_interval = float(poll_interval)
        self.recheck_every = max(1, int(recheck_every))
        self.max_refusals = max(1, int(max_refusals))
        self.pauses_first = bool(pauses_first)
        self._unread = UnreadFiles()
        self._open: Poller | None = None
        self._meaning: Meaning | None = None
        if obsolete:
            self.log.info(
                "Ignoring the arguments %s of this trigger: they come from another version of FDS.", sorted(obsolete)
            )

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and all arguments that another triggerer needs to continue."""
        return (
            "airflow_provider_fds.triggers.delta_table_version.DeltaTableVersionTrigger",
            {
                "stream": self.stream,
                "staging": self.staging,
                "deployment": self.deployment,
                "poll_interval": self.poll_interval,
                "recheck_every": self.recheck_every,
                "max_refusals": self.max_refusals,
                "pauses_first": self.pauses_first,
            },
        )

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Poll until there is something to report, report it, and end."""
        note_start()
        polls = refusals = 0
        if self.pauses_first:
            await asyncio.sleep(self._pause_seconds(0))
        while True:
            try:
                found = await self._poll(is_recheck=polls % self.recheck_every == 0)
            except FdsError as error:
                refusals += 1
                await asyncio.to_thread(self._count_error)
                if not error.retryable or refusals >= self.max_refusals:
                    yield self._error_event(error, refusals)
                    return
                self._log_refusal(error, refusals)
            except Exception as error:  # noqa: BLE001  # Airflow's API server may be restarting
                refusals += 1
                await asyncio.to_thread(self._count_error)
                if refusals >= self.max_refusals:
                    yield self._error_event(error, refusals)
                    return
                self._log_refusal(error, refusals)
            else:
                polls += 1
                refusals = 0
                if found is not None:
                    yield self._success_event(found)
                    return
            await asyncio.sleep(self._pause_until_due(refusals))

    @property
    def _address(self) -> TableAddress | None:
        """The table, ``None`` if none is polled."""
        stream = self.stream
        return TableAddress(str(stream["table"]), stream.get("storage_conn_id"), stream.get("catalog_conn_id"))

    async def _poll(self, *, is_recheck: bool) -> PollResult | None:
        """Poll once, in a recheck from the position of the stream on; return what there is to report."""
        looks = shared_looks()
        if self._open is not None and not is_recheck:
            if (change := await looks.change(self._address, self._meaning)) is not None:
                return PollResult(-1, reason=f"stopped: {change}")
            async with poll_slot():
                return await self._open.poll()
        # before the table is opened: a change that comes between is noticed
        self._meaning = await looks.meaning(self._address)
        async with poll_slot():
            self._open, found = await self._reopened()
            if self._open is not None:
                found = await asyncio.to_thread(self._open.check)
            await sync_to_async(self._send_status, thread_sensitive=False)(self._open)
            return found

    async def _reopened(self) -> tuple[Poller | None, PollResult | None]:
        """Return what :meth:`_poller` does; the same poller while the catalog does not say where the table is."""
        try:
            return await sync_to_async(self._poller, thread_sensitive=False)()
        except StorageError as error:
            if self._open is None or error.reason_code != Reason.CATALOG_UNAVAILABLE:
                raise
            self.log.warning("Table %s is polled where it was: %s", self.stream.get("table"), error)
            return self._open, None

    def _pause_until_due(self, refusals: int) -> float:
        """Return the pause, which ends when data that is waiting for more need not wait any longer."""
        pause = self._pause_seconds(refusals)
        poller = self._open
        waiting = poller.waiting if isinstance(poller, TablePoller) and not refusals else None
        return pause if waiting is None else min(pause, waiting.seconds_left + _AFTER_DUE_SECONDS)

    def _poller(self) -> tuple[Poller | None, PollResult | None]:
        """Look up the connection and the position. Blocks, so it must run in a thread.

        Returns:
            A poller of the table, or what a run must do in any case; neither while a person must decide first.
        """
        stream = DeltaStream.from_dict(self.stream)
        stream_context = reading_context(stream, staging=self.staging, deployment=self.deployment)
        standing = read_standing(stream, stream_context)
        if standing.pause is not None or standing.found is not None:
            return None, standing.found
        return table_poller(stream, stream_context, standing.position, standing.table), None

    def _send_status(self, poller: Poller | None = None) -> None:
        """Send the gauges of the stream, if the installation sends metrics, and write what its data wait for.

        Blocks, so it must run in a thread.
        """
        send_status(self._connected, self._unread)
        held = (poller.held or poller.waiting) if isinstance(poller, TablePoller) else None
        if held is not None:
            write_wait(self._connected, held.describe(), self.poll_interval * self.recheck_every)

    def _connected(self) -> ConnectedStream:
        stream = DeltaStream.from_dict(self.stream)
        return ConnectedStream(stream, reading_context(stream, staging=self.staging, deployment=self.deployment))

    def _count_error(self) -> None:
        send(lambda: [poll_error(str(self.stream.get("name")))])

    def _pause_seconds(self, refusals: int) -> float:
        return pause_seconds(self.poll_interval, refusals)

    def _log_refusal(self, error: Exception, refusals: int) -> None:
        self.log.warning(
            "Poll %d of at most %d of table %s was refused: %s: %s",
            refusals,
            self.max_refusals,
            self.stream.get("table"),
            type(error).__name__,
            error,
        )

    def _success_event(self, found: PollResult) -> TriggerEvent:
        payload = {"status": "success", "version": found.newest_version, "reason": found.reason}
        return TriggerEvent(payload)  # type: ignore[no-untyped-call]

    def _error_event(self, error: Exception, refusals: int) -> TriggerEvent:
        is_retryable = getattr(error, "retryable", True)
        name, text = type(error).__name__, str(error)
        if is_retryable:
            text = (
                f"{refusals} polls in a row of table {self.stream.get('table')} were refused, the last one with: "
                f"{text}. Check the connection {self.stream.get('storage_conn_id')!r} and the store, then clear "
                "the task."
            )
        if not isinstance(error, FdsError):
            error = StorageError(text, table=self.stream.get("table"), reason=Reason.AIRFLOW_UNAVAILABLE)
        payload = {"status": "error", "error": name, "message": text, "retryable": is_retryable, **error.facts()}
        return TriggerEvent(payload)  # type: ignore[no-untyped-call]
