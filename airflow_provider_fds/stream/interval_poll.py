"""Waiting for a data interval to be complete. Writes nothing."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from airflow_provider_fds.delta.log import DeltaLog
from airflow_provider_fds.delta.timestamps import CommitTimestamps
from airflow_provider_fds.stream.data_interval import instant_ms, instant_text
from airflow_provider_fds.stream.poll import PollResult

if TYPE_CHECKING:
    from airflow_provider_fds.delta.storage import Storage


class IntervalPoller:
    """Polls a table until nothing more can come into an interval.

    That is so when a commit at or after its end is there, since commit times rise; or, where a table may be silent for
    long, when ``grace`` has passed since the end. What is committed later than that belongs to the next interval.

    Args:
        storage: Storage of the table.
        end: End of the interval (exclusive), with a zone.
        grace: ``None``: only a commit will do.
    """

    def __init__(self, storage: Storage, end: datetime, grace: timedelta | None) -> None:
        self._log = DeltaLog(storage)
        self._end = end
        self._grace = grace
        self._newest: int | None = None

    def check(self) -> PollResult | None:
        """Look at all that is there, and say whether the interval is complete.

        Raises:
            TableNotFoundError: There is no table.
        """
        newest = self._log.latest()
        if newest != self._newest:
            found = CommitTimestamps(self._log).at_or_after(instant_ms(self._end))
            if found is not None:
                reason = f"version {found} was committed at or after {instant_text(self._end)}"
                return PollResult(newest, has_data=False, reason=reason)
            self._newest = newest
        return self._grace_passed()

    async def poll(self) -> PollResult | None:
        """Look with one HEAD if there is no new version; else as :meth:`check` does, in a thread."""
        if self._newest is not None and not await self._log.probe_async(self._newest + 1):
            return self._grace_passed()
        return await asyncio.to_thread(self.check)

    def _grace_passed(self) -> PollResult | None:
        if self._grace is None or self._newest is None or datetime.now(UTC) < self._end + self._grace:
            return None
        reason = f"no commit has reached {instant_text(self._end)}, and {self._grace} have passed since"
        return PollResult(self._newest, has_data=False, reason=reason)
