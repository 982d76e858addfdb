"""The changes of a table since a version, read once for any number of watchers. Writes nothing."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from airflow_provider_fds.delta.reader.log import DeltaLog
from airflow_provider_fds.delta.statistics import num_records_fast
from airflow_provider_fds.errors import TableNotFoundError
from airflow_provider_fds.stream.polling.table_condition import has_data

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_provider_fds.delta.commits import Commit
    from airflow_provider_fds.delta.storage.storage import Storage

#: Maximum number of commits that are read for one change; of older ones only the number is known.
MOST_COMMITS: Final = 1000


@dataclass(frozen=True, slots=True)
class SeenVersion:
    """A version of a table that was the newest one.

    Attributes:
        version: The version; -1: there was no table.
        modified_ms: When its commit file was written, in milliseconds since the epoch; ``None`` if that is unknown. If
            the log has another one, the table was replaced.
        table_id: The id of the table in the catalog that shows its log; if the log has another one, the table was
            replaced. ``None``: the log is read as it is.
    """

    version: int
    modified_ms: int | None = None
    table_id: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the attributes as a dict of plain values."""
        found: dict[str, Any] = {"version": self.version, "modified_ms": self.modified_ms}
        return found if self.table_id is None else {**found, "table_id": self.table_id}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> SeenVersion:
        """Return the value that :meth:`to_dict` was called on."""
        modified_ms = values.get("modified_ms")
        return cls(int(values["version"]), None if modified_ms is None else int(modified_ms), values.get("table_id"))


@dataclass(frozen=True, slots=True)
class TableChange:
    """Commits with data.

    Attributes:
        first_version: The first of them.
        last_version: The last of them, inclusive.
        operations: Their operations in alphabetical order, each once, as writers name them (``WRITE``, ``MERGE`` …).
        rows: Rows of the files that they added, by the log's statistics; ``None`` if a file has none. A writer that
            changes a row by writing its file again also adds the rows that it copied; a deletion vector adds none.
    """

    first_version: int
    last_version: int
    operations: tuple[str, ...]
    rows: int | None


@dataclass(frozen=True, slots=True)
class _Summary:
    operation: str
    rows: int | None


class TableChanges:
    """The newest version of a table, and the changes since earlier ones.

    A commit has data if it adds or removes a file that changes data. :meth:`poll` costs one HEAD while nothing is new.
    :meth:`check` lists the log; a new version costs two more HEADs. Each commit is read once for all
    watchers (:meth:`since`).

    Args:
        storage: Storage of the table; ``None``: its catalog has no table of this name yet.

    Attributes:
        newest: The newest version that was seen; ``None`` before the first :meth:`check`.
    """

    def __init__(self, storage: Storage | None) -> None:
        self._log = None if storage is None else DeltaLog(storage)
        self._summaries: dict[int, _Summary | None] = {}
        self._found: dict[tuple[SeenVersion, SeenVersion], asyncio.Task[TableChange | None]] = {}
        self.newest: SeenVersion | None = None

    @property
    def is_absent(self) -> bool:
        """Whether the catalog had no table of this name when it was opened."""
        return self._log is None

    def reopen(self, storage: Storage | None) -> None:
        """Continue with another connection to the same table."""
        self._log = None if storage is None else DeltaLog(storage)

    def check(self) -> bool:
        """List the log, and return whether the newest version has changed. Blocks."""
        before, log = self.newest, self._log
        try:
            version = -1 if log is None else log.latest()
        except TableNotFoundError:
            version = -1
        self.newest = SeenVersion(version, self._written_at(version), None if log is None else log.catalog_table_id)
        if before is not None and (version < before.version or self._is_replaced(before)):
            self._summaries.clear()
        return self.newest != before

    async def poll(self) -> bool:
        """Return whether the newest version has changed: one HEAD if not, else :meth:`check` in a thread."""
        log, newest = self._log, self.newest
        if log is not None and newest is not None and not await log.probe_async(newest.version + 1):
            return False
        return await asyncio.to_thread(self.check)

    async def since(self, seen: SeenVersion, newest: SeenVersion) -> TableChange | None:
        """Return the commits with data after ``seen`` (exclusive), up to ``newest`` (inclusive), ``None`` if none.

        If the table was replaced since, all its commits count. If log cleanup removed commits after ``seen``, or if
        there are more than :data:`MOST_COMMITS`, those that are not read count as data of unknown size.
        """
        if seen == newest:
            return None
        key = (seen, newest)
        task = self._found.get(key)
        if task is None:
            self._found = {other: found for other, found in self._found.items() if other[1] == newest}
            task = self._found[key] = asyncio.ensure_future(asyncio.to_thread(self._read, seen, newest.version))
            task.add_done_callback(lambda done: self._forget_failure(key, done))
        # the other watchers still need it if this one is cancelled
        return await asyncio.shield(task)

    def _forget_failure(self, key: tuple[SeenVersion, SeenVersion], done: asyncio.Task[TableChange | None]) -> None:
        if (done.cancelled() or done.exception() is not None) and self._found.get(key) is done:
            del self._found[key]

    def _read(self, seen: SeenVersion, newest: int) -> TableChange | None:
        log = self._log
        if newest < 0 or log is None:
            return None
        first = 0 if seen.version > newest or self._is_replaced(seen) else seen.version + 1
        if first > newest:
            return None
        earliest = first if log.probe(first) else max(first, log.earliest())
        start = max(earliest, newest - MOST_COMMITS + 1)
        found = {version: summary for version, summary in self._summarised(log, start, newest) if summary is not None}
        if start > first:
            return TableChange(first, max(found, default=newest), _operations(found), None)
        if not found:
            return None
        counts = [summary.rows for summary in found.values()]
        rows = None if None in counts else sum(count or 0 for count in counts)
        return TableChange(min(found), max(found), _operations(found), rows)

    def _summarised(self, log: DeltaLog, first: int, last: int) -> list[tuple[int, _Summary | None]]:
        summaries = self._summaries
        unread = first
        while unread <= last and unread in summaries:
            unread += 1
        if unread <= last:
            for commit in log.commits(unread, last):
                summaries[commit.version] = _summary(commit)
        found = [(version, summaries[version]) for version in range(first, last + 1)]
        for version in sorted(summaries)[:-MOST_COMMITS]:
            summaries.pop(version, None)
        return found

    def _is_replaced(self, seen: SeenVersion) -> bool:
        """Whether the log now has a different commit for that version."""
        table_id = None if self._log is None else self._log.catalog_table_id
        if seen.table_id is not None and table_id is not None:
            return seen.table_id != table_id
        if seen.version < 0 or seen.modified_ms is None:
            return False
        newest = self.newest
        if newest is not None and seen.version == newest.version:
            return newest.modified_ms is not None and newest.modified_ms != seen.modified_ms
        # of a version that is not the newest any more it is read anew: from a check or from a watcher's stored cursor
        now = self._written_at(seen.version)
        return now is not None and now != seen.modified_ms

    def _written_at(self, version: int) -> int | None:
        return None if version < 0 or self._log is None else self._log.written_at(version)


def _operations(found: Mapping[int, _Summary]) -> tuple[str, ...]:
    return tuple(sorted({summary.operation for summary in found.values()}))


def _summary(commit: Commit) -> _Summary | None:
    if not has_data(commit):
        return None
    rows: int | None = 0
    # a file that is removed and added again only got another deletion vector
    removed = {action.remove.path for action in commit.actions if action.remove is not None}
    for action in commit.actions:
        if rows is not None and action.add is not None and action.add.changes_data and action.add.path not in removed:
            count = num_records_fast(action.add.stats)
            rows = None if count is None else rows + count
    info = commit.info
    return _Summary((info.operation if info is not None else None) or "UNKNOWN", rows)
