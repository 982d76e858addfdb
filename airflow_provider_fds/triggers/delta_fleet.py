"""``DeltaFleetTrigger``: wait until any of many Delta tables has something new, with one request per table and poll."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from airflow.triggers.base import BaseTrigger, TriggerEvent
from asgiref.sync import sync_to_async

from airflow_provider_fds.delta.storage.open import open_storage
from airflow_provider_fds.fleet.positions import KnownPositions
from airflow_provider_fds.fleet.value import FleetStream
from airflow_provider_fds.hooks.places import TableAddress
from airflow_provider_fds.hooks.position import read_standing
from airflow_provider_fds.hooks.storage import connections_looked_up_once
from airflow_provider_fds.hooks.stream_context import reading_context
from airflow_provider_fds.ledger.layout import StreamFolder
from airflow_provider_fds.stream.polling.alignment import table_poller
from airflow_provider_fds.triggers.catalog_look import shared_looks
from airflow_provider_fds.triggers.pacing import note_start, pause_seconds, poll_slot

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from airflow_provider_fds.stream.polling.poll import PollResult, TablePoller
    from airflow_provider_fds.triggers.catalog_look import Meaning

#: Streams that an event names.
_MOST_NAMES: Final = 20


class DeltaFleetTrigger(BaseTrigger):
    """Fires once, when a table of a fleet has a version with data that its stream has not committed.

    An unchanged table costs one HEAD request per poll. The trigger writes nothing. It begins at the positions that the
    last run of the fleet has remembered, and reads the ledgers of the other streams.

    Polls:
        - As for :class:`DeltaTableVersionTrigger`, a new commit is read only to see whether it has data for its stream.
        - The first poll and every ``recheck_every``-th poll also look for new ledger entries, because another run may
          have committed or a person may have decided. All except the first also list the logs, which shows whether a
          table is gone, cleaned up or replaced.
        - A stream that is held or in quarantine is not polled until somebody decides.
        - Tables that appear in a pattern are found by the next run, not by the trigger.
        - What a name in a catalog stands for is looked up every 10 minutes, as for :class:`DeltaTableVersionTrigger`.

    Events:
        ``{"status": "success", "streams": [str, …], "reason": str}``. The event is a hint: the task polls again. A
        table that cannot be polled ``max_refusals`` times in a row, or at all, is a reason to fire, too: the run says
        what is wrong with it.

    Args:
        streams: The streams with their sinks, as returned by :meth:`FleetStream.to_dict`.
        fleet: Name of the fleet.
        staging: URI of the staging folder with the positions of the fleet.
        deployment: Name of the Airflow installation.
        poll_interval: Seconds between two polls.
        recheck_every: Every Nth poll reads the ledgers again, as far as they have changed.
        max_refusals: Number of consecutive refused polls of a table after which the trigger fires.
        pauses_first: Whether to pause before the first poll: for a task that was woken and found nothing.
        obsolete: Arguments that an older or newer version of FDS has stored; ignored.
    """

    def __init__(
        self,
        *,
        streams: Sequence[Mapping[str, Any]],
        fleet: str,
        staging: str,
        deployment: str,
        poll_interval: float = 60.0,
        recheck_every: int = 20,
        max_refusals: int = 10,
        pauses_first: bool = False,
        **obsolete: Any,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.streams = [dict(one) for one in streams]
        self.fleet = fleet
        self.staging = staging
        self.deployment = deployment
        self.poll_interval = float(poll_interval)
        self.recheck_every = max(1, int(recheck_every))
        self.max_refusals = max(1, int(max_refusals))
        self.pauses_first = bool(pauses_first)
        self._pollers: dict[str, TablePoller] = {}
        self._refusals: dict[str, int] = {}
        #: The tables by name that are polled, and what their names stood for when they were opened.
        self._addresses: dict[str, TableAddress] = {}
        self._meanings: dict[str, Meaning | None] = {}
        if obsolete:
            self.log.info("Ignoring the arguments %s: they come from another version of FDS.", sorted(obsolete))

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and all arguments that another triggerer needs to continue."""
        names = ("streams", "fleet", "staging", "deployment", "poll_interval", "recheck_every", "max_refusals")
        return (
            "airflow_provider_fds.triggers.delta_fleet.DeltaFleetTrigger",
            {**{name: getattr(self, name) for name in names}, "pauses_first": self.pauses_first},
        )

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Poll until there is something to report, report it, and end."""
        note_start()
        polls = 0
        if self.pauses_first:
            await asyncio.sleep(pause_seconds(self.poll_interval, 0))
        while True:
            news: dict[str, str] = {}
            is_recheck = polls % self.recheck_every == 0
            if is_recheck:
                await self._look()
                async with poll_slot():
                    news = await sync_to_async(self._open, thread_sensitive=False)()
            # the run that has just ended, or another one, lists the logs now and then
            is_listed = is_recheck and polls > 0
            found = await asyncio.gather(*(self._poll(name, is_listed=is_listed) for name in self._pollers))
            news |= {name: reason for name, reason in zip(self._pollers, found, strict=True) if reason is not None}
            if news:
                yield self._event(news)
                return
            polls += 1
            await asyncio.sleep(pause_seconds(self.poll_interval, 0))

    async def _look(self) -> None:
        """Look up what the names of the tables stand for, before they are opened."""
        if not self._addresses:
            for stream in (one["stream"] for one in self.streams):
                conn_id = stream.get("catalog_conn_id")
                if conn_id is not None:
                    address = TableAddress(str(stream["table"]), stream.get("storage_conn_id"), conn_id)
                    self._addresses[str(stream["name"])] = address
        looks = shared_looks()
        found = await asyncio.gather(*(looks.meaning(address) for address in self._addresses.values()))
        self._meanings = dict(zip(self._addresses, found, strict=True))

    async def _poll(self, name: str, *, is_listed: bool) -> str | None:
        """Poll the table of a stream, or list its log; return why it is news, or ``None``."""
        change = await shared_looks().change(self._addresses.get(name), self._meanings.get(name))
        if change is not None:
            return change
        try:
            async with poll_slot():
                poller = self._pollers[name]
                found = await (asyncio.to_thread(poller.check) if is_listed else poller.poll())
        except Exception as error:  # noqa: BLE001  # one table must not keep the others from being polled
            return self._refused(name, error)
        self._refusals.pop(name, None)
        return None if found is None else found.reason

    def _refused(self, name: str, error: Exception) -> str | None:
        count = self._refusals[name] = self._refusals.get(name, 0) + 1
        is_retryable = getattr(error, "retryable", True)
        if is_retryable and count < self.max_refusals:
            self.log.warning("Stream %s: poll %d was refused: %s: %s", name, count, type(error).__name__, error)
            return None
        return f"{type(error).__name__}: {error}"

    def _open(self) -> dict[str, str]:
        """Look up where each stream is; return those that have something to do in any case. Blocks."""
        news: dict[str, str] = {}
        pollers: dict[str, TablePoller] = {}
        with connections_looked_up_once():
            known: KnownPositions | None = None
            for one in map(FleetStream.from_dict, self.streams):
                try:
                    context = reading_context(
                        one.stream, staging=one.stream.staging or None, deployment=self.deployment
                    )
                    if known is None:
                        staging = open_storage(self.staging, context.staging_options)
                        known = KnownPositions(staging, self.fleet, self.deployment)
                        known.load()
                    found, poller = self._standing(one, context, known)
                except Exception as error:  # noqa: BLE001  # one stream must not keep the others from being polled
                    if one.name in self._pollers:
                        pollers[one.name] = self._pollers[one.name]
                    if (reason := self._refused(one.name, error)) is not None:
                        news[one.name] = reason
                    continue
                if found is not None:
                    news[one.name] = found.reason
                if poller is not None:
                    pollers[one.name] = poller
        self._pollers = pollers
        return news

    def _standing(
        self, one: FleetStream, context: Any, known: KnownPositions
    ) -> tuple[PollResult | None, TablePoller | None]:
        """Return what a stream must do in any case, and the poller of its table unless a person must decide first."""
        if (remembered := known.of(one)) is not None:
            entry = StreamFolder(one.name).entry(remembered.entry + 1)
            if context.open_staging().head(entry) is None:
                poller = table_poller(one.stream, context, remembered.offset)
                if one.stream.catalog_conn_id is None or poller.table_uri == remembered.table:
                    return None, poller
        standing = read_standing(one.stream, context)
        if standing.pause is not None or standing.found is not None:
            is_over = standing.found is not None and standing.found.is_finished
            return (None if is_over else standing.found), None
        return None, table_poller(one.stream, context, standing.position, standing.table)

    def _event(self, news: Mapping[str, str]) -> TriggerEvent:
        reason = "; ".join(f"{name}: {why}" for name, why in list(news.items())[:_MOST_NAMES])
        payload = {"status": "success", "streams": list(news)[:_MOST_NAMES], "reason": reason}
        return TriggerEvent(payload)  # type: ignore[no-untyped-call]
