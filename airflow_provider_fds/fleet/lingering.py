"""The streams of a fleet that have loaded everything, while its run lingers: one thread polls all their tables."""

from __future__ import annotations

import asyncio
import logging
import math
import random
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from airflow_provider_fds.errors import FdsError
from airflow_provider_fds.fleet.in_threads import THREADS
from airflow_provider_fds.ledger.layout import StreamFolder
from airflow_provider_fds.ledger.staging.decisions import read_token
from airflow_provider_fds.source.offset import Offset
from airflow_provider_fds.stream.polling.alignment import table_poller
from airflow_provider_fds.stream.run.linger import LOOK_SECONDS, SHOW_SECONDS, show_live
from airflow_provider_fds.stream.run.purge import purge_stream
from airflow_provider_fds.stream.run.session import StreamSession

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from airflow_provider_fds.delta.storage.storage import Storage
    from airflow_provider_fds.fleet.stream_run import StreamRun
    from airflow_provider_fds.fleet.value import FleetStream
    from airflow_provider_fds.ledger.staging.housekeeping import Retention
    from airflow_provider_fds.stream.connected_stream import StreamContext
    from airflow_provider_fds.stream.polling.poll import TablePoller
    from airflow_provider_fds.stream.run.linger import Linger

logger = logging.getLogger(__name__)

#: Tables that are polled at the same time; ledgers and status files are asked and written in :data:`THREADS`.
_POLLS_AT_ONCE: Final = 64
#: The pause after a poll of all tables is at least this many times its CPU time: a fleet takes less than 4 % of a core.
_PAUSE_TIMES: Final = 26.0
#: Time between two LISTs of a log, which show a table that is gone or was replaced; at most twice as long, so that not
#: all tables are listed at once.
_LIST_SECONDS: Final = 600.0
#: Time for each stream between two status files of one stream: a fleet writes at most about two a second.
_SHOW_EACH_SECONDS: Final = 0.6
#: Time between two times that a run that lingers removes what a stream no longer needs.
_PURGE_SECONDS: Final = 3600.0


def _next_list() -> float:
    return time.monotonic() + _LIST_SECONDS * random.uniform(1, 2)  # noqa: S311  # no secret


class Purges:
    """Removes what the streams of a run no longer need; in a run that lingers at most once an hour.

    Args:
        retention: How long manifests and reports are kept; ``None``: for ever.
    """

    def __init__(self, retention: Retention | None) -> None:
        self._retention = retention
        self._due: dict[str, float] = {}

    def purge(self, run: StreamRun) -> None:
        """Remove what a stream no longer needs, if it is time."""
        now = time.monotonic()
        if self._retention is not None and now >= self._due.get(run.name, 0.0):
            self._due[run.name] = now + _PURGE_SECONDS
            purge_stream(run.session.connected, self._retention)


@dataclass(slots=True, eq=False)
class WaitingStream:
    """A stream that has loaded everything up to a position as of a ledger entry."""

    stream: FleetStream
    context: StreamContext
    position: Offset | None
    entry: int
    refusals: int = 0
    not_before: float = -math.inf
    show_at: float = -math.inf
    list_at: float = field(default_factory=_next_list)
    is_local: bool = False
    poller: TablePoller | None = None

    def report_end(self, watch: Callable[[StreamSession], Callable[[Exception | None], object]]) -> None:
        """Report that the run of the stream has ended. Never raises."""
        try:
            session = StreamSession(self.stream.stream, self.context)
            session.connected.load()
            watch(session)(None)
        except Exception as error:  # noqa: BLE001  # the run has ended for it
            logger.warning("Stream %s: its status was not written: %s", self.stream.name, error)

    def open(self) -> TablePoller:
        """Return the poller of the table; blocks when it is opened first."""
        if self.poller is None:
            table = self.context.open_table(self.stream.stream.table)
            self.is_local = table.is_file_system
            self.poller = table_poller(self.stream.stream, self.context, self.position, table)
        return self.poller


class LingeringStreams:
    """The streams of a run that lingers and have nothing to do.

    A stream leaves with :meth:`news`, and is kept again when it has loaded what came. The run ends for all of them
    together: without data in any table in the time of ``linger``.

    Args:
        linger: How long the run stays, and how it waits.
    """

    def __init__(self, linger: Linger) -> None:
        self._linger = linger
        self._streams: dict[str, WaitingStream] = {}
        #: How often in a row a stream had something to do, and then had not.
        self._in_vain: dict[str, int] = {}
        self._until: float | None = None
        self._look_at = time.monotonic() + LOOK_SECONDS
        #: By staging folder: its storage, and the token of decisions that was read last.
        self._tokens: dict[str, tuple[Storage, str | None]] = {}

    def keep(
        self,
        stream: FleetStream,
        context: StreamContext,
        position: Offset | None,
        entry: int,
        *,
        has_committed: bool | None = None,
    ) -> None:
        """Poll the table of a stream from now on.

        Args:
            stream: The stream.
            context: Its context.
            position: Its committed offset; ``None``: its start is in the future.
            entry: The last entry of its ledger that this position takes into account.
            has_committed: Whether the stream, which was opened, had something to load; ``None``: it was not opened.
        """
        name, now = stream.name, time.monotonic()
        kept = self._streams[name] = WaitingStream(stream, context, position, entry)
        if has_committed:
            self._until = now + self._linger.seconds
            self._in_vain.pop(name, None)
        elif has_committed is not None:
            count = self._in_vain[name] = self._in_vain.get(name, -1) + 1
            # the first time, it was opened only to see
            kept.not_before = now + self._linger.pause_seconds(count) if count else -math.inf

    def keep_after(self, run: StreamRun) -> None:
        """Poll the table of a stream that has loaded everything, unless it does not go on."""
        session, connected = run.session, run.session.connected
        try:
            if not session.scope.goes_on():
                return
        except FdsError as error:
            logger.warning("Stream %s does not wait for more in this run: %s", run.name, error)
            return
        position = connected.state.position
        self.keep(
            run.stream,
            session.context,
            None if position is None else Offset.from_json(position),
            connected.ledger.n,
            has_committed=session.has_committed,
        )

    def news(self, *, waits: bool) -> list[tuple[FleetStream, StreamContext]]:
        """Return the streams that have something to do; none if the run is to end, which polls them no more.

        Args:
            waits: Whether to poll until there is such a stream; otherwise all tables are polled once.
        """
        linger = self._linger
        if self._until is None:
            self._until = time.monotonic() + linger.seconds
        with asyncio.Runner() as loop:
            while self._streams and not linger.is_late(self._until if waits else math.inf):
                began = time.process_time()
                found = loop.run(self._polled()) + self._decided()
                if found or not waits:
                    return self._leave(found)
                self._show()
                pause = max(linger.pause_seconds(0), _PAUSE_TIMES * (time.process_time() - began))
                linger.pause(min(pause, max(0.0, self._until - time.monotonic())))
        if waits and self._streams:
            linger.log_end("Fleet")
        return []

    def shown_live(self) -> list[WaitingStream]:
        """Return the streams that others still see as live when the run ends."""
        return [one for one in self._streams.values() if one.show_at > 0]

    def _leave(self, found: Iterable[WaitingStream]) -> list[tuple[FleetStream, StreamContext]]:
        left = dict.fromkeys(found)
        for one in left:
            del self._streams[one.stream.name]
        return [(one.stream, one.context) for one in left]

    async def _polled(self) -> list[WaitingStream]:
        """Poll each table, and return the streams that have something to do."""
        now, slots = time.monotonic(), asyncio.Semaphore(_POLLS_AT_ONCE)
        due = [one for one in self._streams.values() if one.not_before <= now]

        async def poll(one: WaitingStream) -> bool:
            async with slots:
                return await self._has_news(one)

        found = await asyncio.gather(*(poll(one) for one in due))
        self._linger.adapt(is_local=all(one.is_local for one in due))
        return [one for one, has_news in zip(due, found, strict=True) if has_news]

    async def _has_news(self, one: WaitingStream) -> bool:
        try:
            poller = one.poller if one.poller is not None else await asyncio.to_thread(one.open)
            is_listed = time.monotonic() >= one.list_at
            one.list_at = _next_list() if is_listed else one.list_at
            found = await (asyncio.to_thread(poller.check) if is_listed else poller.poll())
        except Exception as error:  # noqa: BLE001  # the next plan says what is wrong, and the others are polled
            if not isinstance(error, FdsError) or not error.retryable:
                return True
            one.refusals += 1
            one.not_before = time.monotonic() + self._linger.pause_seconds(one.refusals)
            logger.warning("Stream %s: a poll was refused, FDS tries again: %s", one.stream.name, error)
            return False
        one.refusals = 0
        return found is not None

    def _decided(self) -> list[WaitingStream]:
        """Return, from time to time, the streams about which a person has decided something: one GET if nobody has."""
        if time.monotonic() < self._look_at:
            return []
        self._look_at = time.monotonic() + LOOK_SECONDS
        folders: dict[str, list[WaitingStream]] = {}
        for one in self._streams.values():
            folders.setdefault(one.context.staging_uri, []).append(one)
        return [one for uri, streams in folders.items() for one in self._decided_in(uri, streams)]

    def _decided_in(self, uri: str, streams: list[WaitingStream]) -> list[WaitingStream]:
        staging, before = self._tokens.get(uri) or (streams[0].context.open_staging(), None)
        token = read_token(staging)
        if token is None or token == before:
            return []

        def has_entry(one: WaitingStream) -> bool:
            return staging.head(StreamFolder(one.stream.name).entry(one.entry + 1)) is not None

        try:
            with ThreadPoolExecutor(THREADS, thread_name_prefix="fds-fleet") as threads:
                found = list(threads.map(has_entry, streams))
        except FdsError as error:
            logger.warning("The ledgers of the fleet cannot be asked, FDS tries again: %s", error)
            return []
        self._tokens[uri] = (staging, token)
        return [one for one, is_new in zip(streams, found, strict=True) if is_new]

    def _show(self) -> None:
        """Write from time to time that the run is there, for those who watch the streams: of a few streams at once."""
        seconds = max(SHOW_SECONDS, _SHOW_EACH_SECONDS * len(self._streams))
        now = time.monotonic()
        due = [one for one in self._streams.values() if one.show_at <= now][:THREADS]

        def show(one: WaitingStream) -> None:
            try:
                connected = StreamSession(one.stream.stream, one.context).connected
                connected.load()
            except Exception as error:  # noqa: BLE001  # the next plan says what is wrong
                logger.warning("Stream %s: its status was not written: %s", one.stream.name, error)
                return
            show_live(connected, 2 * seconds)

        for one in due:
            one.show_at = now + seconds
        if due:
            with ThreadPoolExecutor(len(due), thread_name_prefix="fds-fleet") as threads:
                list(threads.map(show, due))
