"""The poll of one table as a shared stream of Airflow's triggerer (Airflow 3.3)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from airflow_provider_fds.fault_points import reach
from airflow_provider_fds.triggers.table_poll import ticks

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from airflow.triggers.shared_stream import AdvanceItem, SharedStreamProducer

    from airflow_provider_fds.hooks.places import TableAddress
    from airflow_provider_fds.triggers.table_poll import Tick, Watchers
else:
    try:
        from airflow.triggers.shared_stream import SharedStreamProducer
    except ModuleNotFoundError:
        # before Airflow 3.3, which asks for no producer; the module is imported all the same by what reads a package
        SharedStreamProducer = object

log = logging.getLogger(__name__)


class TablePollProducer(SharedStreamProducer):
    """Polls a table once for all its watchers, and has them move their cursors when Airflow has stored their events.

    Args:
        table: The table.
        watchers: Its watchers in this process.
    """

    def __init__(self, table: TableAddress, watchers: Watchers) -> None:
        self._table = table
        self._watchers = watchers

    async def open_stream(self) -> AsyncIterator[tuple[Tick, Tick]]:
        """Yield ticks, each also as what comes back in :meth:`advance`."""
        async for tick in ticks(self._table, self._watchers):
            yield tick, tick

    async def advance(self, batch: Sequence[AdvanceItem]) -> None:
        """Move the cursors of watchers whose events are in Airflow's database.

        If the event of a watcher was not stored, Airflow restarts that watcher, and it continues from its cursor. The
        tick does not show which watcher that is, so none of its cursors moves. The others move with their next event.
        """
        for item in batch:
            tick: Tick = item.broker_payload
            if not item.outcome.is_clean:
                continue
            for stored in tick.stored:
                reach("watcher.stored")
                try:
                    await stored()
                except Exception as error:  # noqa: BLE001  # an error would end the poll of all watchers
                    _log_unmoved(self._table.table, error)


def _log_unmoved(table: str, error: Any) -> None:
    log.warning(
        "The cursor of a watcher of %s was not moved: %s: %s. If the triggerer ends before the next event, this one is "
        "repeated.",
        table,
        type(error).__name__,
        error,
    )
