"""What a task may wait for in a table without a stream: a version, or a commit with data. Writes nothing."""

from __future__ import annotations

import asyncio
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from airflow_provider_fds.batch.version_ranges import describe_range
from airflow_provider_fds.delta.moments import parse_instant
from airflow_provider_fds.delta.reader.log import DeltaLog
from airflow_provider_fds.delta.reader.timestamps import CommitTimestamps
from airflow_provider_fds.errors import TableNotFoundError
from airflow_provider_fds.stream.polling.poll import PollResult
from airflow_provider_fds.stream.position.data_interval import instant_ms

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_provider_fds.delta.commits import Commit
    from airflow_provider_fds.delta.storage.storage import Storage


@dataclass(frozen=True, slots=True)
class TableCondition:
    """A condition on the commits of a table; exactly one of the first three attributes is set.

    Attributes:
        version: The table has this version.
        after_version: A later version than this one (exclusive) has data; -1 for any version.
        committed_after: A version committed at this time or later (inclusive) has data; a time that
            :func:`parse_instant` reads.
        after_modified_ms: With ``after_version``: when the file of that commit was written, in milliseconds since the
            epoch. If the log has another one, the table was replaced, and any version with data counts. ``None`` to
            not compare it.
    """

    version: int | None = None
    after_version: int | None = None
    committed_after: str | None = None
    after_modified_ms: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the attributes that are set, as a dict of plain values."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> TableCondition:
        """Return the condition that :meth:`to_dict` was called on."""
        return cls(**values)

    def describe(self) -> str:
        """Return the condition in words, as the object of "waiting for"."""
        if self.version is not None:
            return f"version {self.version}"
        if self.after_version is not None:
            return "a commit with data" + (f" after version {self.after_version}" if self.after_version >= 0 else "")
        return f"a commit with data at or after {self.committed_after}"


class ConditionPoller:
    """Polls a table until a condition holds.

    A commit has data if it adds or removes a file that changes data: OPTIMIZE, changes of the schema and empty commits
    do not count. A poll costs one HEAD while nothing is new (:meth:`poll`). :meth:`check` costs one or two requests and
    a GET for each commit that was not read before; with a commit time it also searches the log for that time, in the
    same way as a start by time.

    A table that does not exist yet has no version: the poller waits for it.

    Args:
        storage: Storage of the table.
        condition: What to wait for.
    """

    def __init__(self, storage: Storage, condition: TableCondition) -> None:
        self._log = DeltaLog(storage)
        self._condition = condition
        self._instant_ms = (
            None if condition.committed_after is None else instant_ms(parse_instant(condition.committed_after))
        )
        self._next: int | None = None if condition.after_version is None else condition.after_version + 1
        self._newest: int | None = None
        self.absence: str | None = None

    @property
    def newest(self) -> int | None:
        """The newest version that was seen; ``None`` before the first check, -1 while there is no table."""
        return self._newest

    def check(self) -> PollResult | None:
        """Read the log and return a result if the condition holds."""
        with self._log.one_answer():
            return self._check()

    def _check(self) -> PollResult | None:
        self.absence = None
        try:
            newest = self._log.latest()
        except TableNotFoundError as error:
            self._newest, self.absence = -1, str(error)
            return None
        if self._condition.version is not None:
            self._newest = newest
            return self._reached(newest, self._condition.version)
        found = self._changed(newest)
        self._newest = newest
        return found

    async def poll(self) -> PollResult | None:
        """Poll with one HEAD if there is no new version; otherwise run :meth:`check` in a thread."""
        if self._newest is not None and not await self._log.probe_async(self._newest + 1):
            return None
        return await asyncio.to_thread(self.check)

    def _reached(self, newest: int, version: int) -> PollResult | None:
        if newest < version:
            return None
        return PollResult(newest, reason=f"it has version {version}")

    def _changed(self, newest: int) -> PollResult | None:
        if self._was_replaced():
            self._next = 0
        first = self._first(newest)
        if first is None:
            return None
        if first > newest + 1:
            reason = f"its log now ends before version {first - 1}: the table was replaced or restored"
            return PollResult(newest, reason=reason)
        earliest = first if first > newest or self._log.probe(first) else self._log.earliest()
        if earliest > first:
            reason = f"log cleanup removed {describe_range(first, earliest - 1)}, which may have had data"
            return PollResult(newest, reason=reason)
        for commit in self._log.commits(first, newest):
            if has_data(commit):
                return PollResult(newest, reason=f"version {commit.version} has data")
            self._next = commit.version + 1
        return None

    def _was_replaced(self) -> bool:
        """Whether the commit that was seen is another one now: its version then says nothing about this table."""
        condition = self._condition
        if condition.after_modified_ms is None or condition.after_version is None:
            return False
        written_at = self._log.written_at(condition.after_version)
        return written_at is not None and written_at != condition.after_modified_ms

    def _first(self, newest: int) -> int | None:
        """Return the first version that may satisfy the condition and was not read before."""
        if self._next is None and self._instant_ms is not None:
            found = CommitTimestamps(self._log).at_or_after(self._instant_ms)
            # a commit after the listing is left to the next poll
            self._next = found if found is not None and found <= newest else None
        return self._next


def has_data(commit: Commit) -> bool:
    """Whether a commit adds or removes a file that changes data."""
    return any(
        (action.add is not None and action.add.changes_data)
        or (action.remove is not None and action.remove.changes_data)
        for action in commit.actions
    )
