"""Waiting for the watermark of a stream: what its runs have committed, not what its table has."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from airflow_provider_fds.ledger.position import watermark_at
from airflow_provider_fds.source.offset import Offset
from airflow_provider_fds.stream.polling.poll import PollResult
from airflow_provider_fds.stream.position.stream_end import finished_reason

if TYPE_CHECKING:
    from airflow_provider_fds.stream.connected_stream import ConnectedStream


class WatermarkPoller:
    """Polls the ledger of a stream until its watermark reaches a time. A poll reads staging, never the table.

    Args:
        connected: The stream.
        at: The time, as :func:`~airflow_provider_fds.delta.moments.moment_text` returns it.
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
            return PollResult(version, reason=f"watermark {self.watermark} has reached {self._at}")
        # the rest of the table will never be read
        finished = finished_reason(self._connected)
        return None if finished is None else PollResult(version, reason=finished)

    async def poll(self) -> PollResult | None:
        """Run :meth:`check` in a thread."""
        return await asyncio.to_thread(self.check)
