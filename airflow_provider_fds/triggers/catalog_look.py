"""What the names of polled tables stand for: a poll asks storage only, so the catalog is asked from time to time."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple
from weakref import WeakKeyDictionary

from asgiref.sync import sync_to_async

from airflow_provider_fds.errors import FdsError
from airflow_provider_fds.triggers.pacing import poll_slot

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_provider_fds.hooks.places import TableAddress

log = logging.getLogger(__name__)

#: Seconds between two looks at what a name stands for.
LOOK_SECONDS: Final = 600.0
#: A look that the catalog did not answer is repeated after this many seconds, doubled each time, up to the maximum.
_LONGEST_PAUSE_SECONDS: Final = 8 * LOOK_SECONDS


class Meaning(NamedTuple):
    """What a name stands for.

    Attributes:
        uri: URI of the folder; empty: the name stands for nothing that can be read.
        table_id: Id of the table in the catalog.
        problem: Why it cannot be read; empty: it can.
    """

    uri: str = ""
    table_id: str = ""
    problem: str = ""


@dataclass
class _Look:
    """The looks at one name: the newest answer, and when the next is due."""

    meaning: Meaning | None = None
    due: float = 0.0
    refusals: int = 0
    asking: asyncio.Task[None] | None = None


class CatalogLooks:
    """The looks of all triggers of a process: one for each name, however many streams poll its table.

    Args:
        ask: Returns what a name stands for; blocks.
        clock: Returns seconds that only increase.
    """

    def __init__(
        self, ask: Callable[[TableAddress], Meaning] | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._ask = ask or ask_catalog
        self._clock = clock
        self._looks: dict[TableAddress, _Look] = {}

    async def meaning(self, address: TableAddress | None) -> Meaning | None:
        """Return what a name stood for at the last look, which is made now if it is due.

        Never raises: if the catalog does not answer, the answer before stays in force, and a warning is logged once.

        Args:
            address: The table; ``None``, or without a catalog: there is no name, and nothing is asked.
        """
        if address is None or address.catalog_conn_id is None:
            return None
        look = self._looks.setdefault(address, _Look())
        if look.asking is None and self._clock() >= look.due:
            look.asking = asyncio.ensure_future(self._look(address, look))
        if look.asking is not None:
            # the other triggers still need it if this one is cancelled
            await asyncio.shield(look.asking)
        return look.meaning

    async def change(self, address: TableAddress | None, before: Meaning | None) -> str | None:
        """Return what has changed since ``before``, a sentence without full stop, or ``None`` if nothing has.

        An answer that comes after none at all is no change.
        """
        now = await self.meaning(address)
        if address is None or before is None or now is None or now == before:
            return None
        if now.problem:
            return f"its name can no longer be read: {now.problem}"
        return f"its name {address.table} is now that of another table, or of another folder: {now.uri}"

    async def _look(self, address: TableAddress, look: _Look) -> None:
        try:
            async with poll_slot():
                look.meaning = await sync_to_async(self._ask, thread_sensitive=False)(address)
        except Exception as error:  # noqa: BLE001  # the catalog or Airflow's API server may be restarting
            look.refusals += 1
            pause = min(LOOK_SECONDS * 2.0 ** (min(look.refusals, 10) - 1), _LONGEST_PAUSE_SECONDS)
            level = logging.WARNING if look.refusals == 1 else logging.DEBUG
            log.log(
                level,
                "Table %s is polled where it was, because its catalog did not say where it is: %s: %s",
                address.table,
                type(error).__name__,
                error,
            )
        else:
            if look.refusals:
                log.info("The catalog of table %s answers again.", address.table)
            look.refusals, pause = 0, LOOK_SECONDS
        finally:
            look.asking = None
        look.due = self._clock() + pause


def ask_catalog(address: TableAddress) -> Meaning:
    """Return what a name stands for now. Blocks.

    Raises:
        FdsError: The catalog does not answer; a later attempt may succeed.
    """
    try:
        place = address.place()
    except FdsError as error:
        if error.retryable:
            raise
        return Meaning(problem=str(error))
    return Meaning(place.uri, place.table_id)


_shared: WeakKeyDictionary[asyncio.AbstractEventLoop, CatalogLooks] = WeakKeyDictionary()


def shared_looks() -> CatalogLooks:
    """Return the looks of this process (strictly, of its event loop)."""
    return _shared.setdefault(asyncio.get_running_loop(), CatalogLooks())
