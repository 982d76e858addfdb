"""Polls a table until a data interval is complete. Writes nothing."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from airflow_provider_fds.delta.reader.log import DeltaLog
from airflow_provider_fds.delta.reader.timestamps import CommitTimestamps
from airflow_provider_fds.durations import format_duration
from airflow_provider_fds.stream.polling.poll import PollResult
from airflow_provider_fds.stream.position.data_interval import instant_ms, instant_text

if TYPE_CHECKING:
    from airflow_provider_fds.delta.storage.storage import Storage


class IntervalPoller:
    """Polls a table until an interval is complete.

    It is complete once there is a commit at or after its end, since commit times only increase; or, for a table that
    may have no commits for a long time, once ``grace`` has passed since the end. Later commits belong to the next
    interval.

    Args:
        storage: Storage of the table.
        end: End of the interval (exclusive), with a time zone.
        grace: Time to wait after the end; ``None`` to wait for a commit.
    """

    def __init__(self, storage: Storage, end: datetime, grace: timedelta | None) -> None:
        self._log = DeltaLog(storage)
        self._end = end
        self._grace = grace
        self._newest: int | None = None

    def check(self) -> PollResult | None:
        """Read the log and return a result if the interval is complete.

        Raises:
            TableNotFoundError: There is no table.
        """
        with self._log.one_answer():
            return self._check()

    def _check(self) -> PollResult | None:
        newest = self._log.latest()
        if newest != self._newest:
            found = CommitTimestamps(self._log).at_or_after(instant_ms(self._end))
            if found is not None:
                reason = f"version {found} was committed at or after {instant_text(self._end)}"
                return PollResult(newest, reason=reason)
            self._newest = newest
        return self._grace_passed()

    async def poll(self) -> PollResult | None:
        """Poll with one HEAD if there is no new version; otherwise run :meth:`check` in a thread."""
        if self._newest is not None and not await self._log.probe_async(self._newest + 1):
            return self._grace_passed()
        return await asyncio.to_thread(self.check)

    def _grace_passed(self) -> PollResult | None:
        if self._grace is None or self._newest is None or datetime.now(UTC) < self._end + self._grace:
            return None
        waited = format_duration(self._grace)
        reason = f"no commit has reached {instant_text(self._end)}, but {waited} have passed since then"
        return PollResult(self._newest, reason=reason)
