"""The poll of one table for the watchers of a triggerer: when to poll, and which watchers to notify."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

from asgiref.sync import sync_to_async

from airflow_provider_fds.errors import TableNotFoundError
from airflow_provider_fds.stream.polling.table_changes import TableChanges
from airflow_provider_fds.triggers.catalog_look import shared_looks
from airflow_provider_fds.triggers.pacing import pause_seconds, poll_slot

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Hashable

    from airflow_provider_fds.hooks.places import TableAddress
    from airflow_provider_fds.stream.polling.table_changes import SeenVersion
    from airflow_provider_fds.triggers.catalog_look import Meaning

log = logging.getLogger(__name__)

#: Every Nth poll lists the log, which shows whether the table is gone or was replaced, and asks what its name means.
_RECHECK_EVERY: Final = 20
#: Watchers that start within this time get the same answer.
_GATHERING_SECONDS: Final = 0.2


@dataclass(frozen=True, slots=True)
class Tick:
    """The newest version of a table, as sent to its watchers.

    Attributes:
        changes: What has changed in the table.
        newest: The newest version.
        stored: Called once Airflow has stored the events that watchers fired for this tick.
    """

    changes: TableChanges
    newest: SeenVersion
    stored: list[Callable[[], Awaitable[None]]] = field(default_factory=list)


class Watchers:
    """The watchers of one table in this process: how often they want it polled, and who waits for an answer."""

    def __init__(self) -> None:
        self._intervals: dict[object, float] = {}
        self._asked = asyncio.Event()
        self._later: asyncio.TimerHandle | None = None

    def join(self, watcher: object, interval: float) -> None:
        """Poll at least every ``interval`` seconds, and send the watcher the newest version soon."""
        self._intervals[watcher] = interval
        self.ask()

    def leave(self, watcher: object) -> None:
        """Forget a watcher."""
        self._intervals.pop(watcher, None)

    def ask(self) -> None:
        """Ask for a tick without waiting for a change."""
        self._asked.set()

    def ask_in(self, seconds: float) -> None:
        """Ask later, for all who asked for it before then, too: one by one they would ask more and more often."""
        loop = asyncio.get_running_loop()
        if self._later is not None:
            if self._later.when() <= loop.time() + seconds:
                return
            self._later.cancel()
        self._later = loop.call_later(seconds, self._ask_now)

    def _ask_now(self) -> None:
        self._later = None
        self.ask()

    def answered(self) -> None:
        """Record that all watchers get a tick now."""
        self._asked.clear()

    @property
    def interval(self) -> float:
        """The shortest interval that a watcher wants, in seconds."""
        return min(self._intervals.values(), default=60.0)

    async def asked_within(self, seconds: float) -> bool:
        """Return ``True`` as soon as a watcher asks, ``False`` if none does in time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, seconds)):
                await self._asked.wait()
                await asyncio.sleep(_GATHERING_SECONDS)
        return self._asked.is_set()


_shared: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[Hashable, Watchers]] = WeakKeyDictionary()


def watchers_of(key: Hashable) -> Watchers:
    """Return the watchers that share the poll ``key`` in this event loop."""
    return _shared.setdefault(asyncio.get_running_loop(), {}).setdefault(key, Watchers())


async def ticks(table: TableAddress, watchers: Watchers) -> AsyncIterator[Tick]:
    """Poll a table for ever. Yields a tick when its newest version changes, and when a watcher asks.

    A failed poll is logged and repeated after the interval, doubled each time, up to five minutes. If the watcher
    raised an error instead, Airflow would restart it every few seconds. If the table has a name in a catalog that gets
    another meaning, the table that it then stands for is polled.
    """
    changes: TableChanges | None = None
    meaning: Meaning | None = None
    looks = shared_looks()
    polls = refusals = 0
    clock = asyncio.get_running_loop().time
    while True:
        is_new = False
        now = await looks.meaning(table)
        is_other, meaning = meaning is not None and now != meaning, now
        try:
            async with poll_slot():
                is_absent = changes is None or changes.is_absent
                if changes is None or is_absent or refusals or is_other:
                    changes = await sync_to_async(_opened, thread_sensitive=False)(table, changes)
                is_checked = polls % _RECHECK_EVERY == 0 or refusals > 0 or is_absent or is_other
                is_new = await (asyncio.to_thread(changes.check) if is_checked else changes.poll())
        except Exception as error:  # noqa: BLE001  # storage or Airflow's API server may be restarting
            refusals += 1
            log.warning(
                "Polling table %s failed (%d in a row): %s: %s", table.table, refusals, type(error).__name__, error
            )
        else:
            refusals = 0
            polls += 1
        due = clock() + pause_seconds(watchers.interval, refusals)
        if is_new and (tick := _tick(changes, watchers)) is not None:
            yield tick
        while await watchers.asked_within(due - clock()):
            due = min(due, clock() + watchers.interval) if not refusals else due
            if (tick := _tick(changes, watchers)) is not None:
                yield tick


def _opened(table: TableAddress, changes: TableChanges | None) -> TableChanges:
    """Open the table, with the connections as they are now. Blocks.

    A name that the catalog does not have yet is a table without versions; a name that it had is an error.
    """
    try:
        storage = table.open()
    except TableNotFoundError:
        if changes is not None and not changes.is_absent:
            raise
        storage = None
    if changes is None:
        return TableChanges(storage)
    changes.reopen(storage)
    return changes


def _tick(changes: TableChanges | None, watchers: Watchers) -> Tick | None:
    watchers.answered()
    if changes is None or changes.newest is None:
        # the first poll that succeeds is an answer
        return None
    return Tick(changes, changes.newest)
