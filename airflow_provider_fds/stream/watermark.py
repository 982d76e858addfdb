"""Waiting for the watermark of a stream: what its runs have committed, not what its table has."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from airflow_provider_fds.delta.timestamps import parse_moment
from airflow_provider_fds.ledger.position import watermark_at
from airflow_provider_fds.source.event_time import time_text
from airflow_provider_fds.source.offset import Offset
from airflow_provider_fds.stream.poll import PollResult
from airflow_provider_fds.stream.stream_end import finished_reason

if TYPE_CHECKING:
    from airflow_provider_fds.stream.connect import ConnectedStream

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


def moment_text(moment: datetime | str) -> str:
    """Return a point in time as watermarks are written; without a zone it is UTC.

    Raises:
        ConfigurationError: It is no time.

    >>> moment_text("2026-01-02 00:00:00+01:00")
    '2026-01-01T23:00:00.000000Z'
    """
    found = moment if isinstance(moment, datetime) else parse_moment(moment)
    if found.tzinfo is None:
        found = found.replace(tzinfo=UTC)
    return time_text((found - _EPOCH) // _MICROSECOND)


def watermark_problem(*, has_column: bool, by_interval: bool) -> str | None:
    """Return why a stream never has a watermark, or ``None`` if it may have one."""
    if by_interval:
        return "has read='data_interval' and no watermark: its intervals are loaded in any order"
    return None if has_column else "has no event_time_column, so it has no watermark"


class WatermarkPoller:
    """Polls the ledger of a stream until its watermark reaches a time. A poll reads staging, never the table.

    Args:
        connected: The stream.
        at: The time, as :func:`moment_text` returns it.
    """

    def __init__(self, connected: ConnectedStream, at: str) -> None:
        self._connected = connected
        self._at = at
        self.watermark: str | None = None

    def check(self) -> PollResult | None:
        """Read the ledger and return a result if the watermark has reached the time, or never will move again.

        The result's version is the last one that is committed.

        Raises:
            CheckpointError: The checkpoint does not belong to the ledger.
            LedgerError: The stream belongs to another Airflow installation or table, or has been retired.
            StorageError: Staging does not answer.
        """
        state = self._connected.load()
        if state.position is None:
            return None
        self.watermark = watermark_at(state.position, state.watermark)
        version = Offset.from_json(state.position).version - 1
        if self.watermark is not None and self.watermark >= self._at:
            return PollResult(version, has_data=False, reason=f"watermark {self.watermark} has reached {self._at}")
        # the rest of the table will never be read
        finished = finished_reason(self._connected)
        return None if finished is None else PollResult(version, has_data=False, reason=finished)

    async def poll(self) -> PollResult | None:
        """Run :meth:`check` in a thread."""
        return await asyncio.to_thread(self.check)


__all__ = ["WatermarkPoller", "moment_text", "watermark_problem"]
