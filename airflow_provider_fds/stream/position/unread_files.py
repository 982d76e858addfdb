"""How many data files, and bytes of them, a stream still has to read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from airflow_provider_fds.source.offset import Offset

if TYPE_CHECKING:
    from airflow_provider_fds.delta.actions import Metadata
    from airflow_provider_fds.ledger.state import StreamState
    from airflow_provider_fds.stream.connected_stream import ConnectedStream

#: Commits that are read to count their files; the files of a stream that lags further are unknown.
_MOST_COMMITS: Final = 1_000


class Amount(NamedTuple):
    """Data files, and their bytes."""

    files: int = 0
    size_bytes: int = 0


def planned_amount(state: StreamState, newest: int) -> Amount | None:
    """Return what is left of a stream if its plan says all of it, else ``None``. Reads nothing.

    Args:
        state: The stream's state.
        newest: The last version that it has to read.
    """
    if state.position is None:
        return None
    end = Offset.from_json(state.planned[-1].end if state.planned else state.position)
    if end.is_initial_snapshot or end.version <= newest:
        return None
    return _amount_of_plan(state)


class UnreadFiles:
    """Counts the data files of unread commits that the stream reads. Each commit is read once.

    Keep it for as long as a stream is watched: it remembers what it has counted.
    """

    def __init__(self) -> None:
        self._commits: dict[int, list[tuple[int, int]]] = {}
        self._metadata: Metadata | None = None

    def count(self, connected: ConnectedStream, newest: int) -> Amount | None:
        """Return what is left to read up to version ``newest`` (inclusive), or ``None`` if it is unknown.

        Planned batches are counted as planned, and later commits by the files that the stream reads of them. More than
        1,000 commits are not counted.

        Errors of the log are raised.
        """
        state = connected.state
        if state.position is None or (known := planned_amount(state, newest)) is not None:
            return None if state.position is None else known
        files, size = _amount_of_plan(state)
        start = Offset.from_json(state.planned[-1].end if state.planned else state.position)
        first, passed = start.version, start.next_index
        if start.is_initial_snapshot:
            snapshot = connected.frozen_snapshot()
            if snapshot is None:
                return None
            left = max(0, snapshot.num_files - passed)
            files += left
            size += snapshot.num_bytes * left // max(1, snapshot.num_files)
            first, passed = first + 1, 0
        if newest - first >= _MOST_COMMITS:
            return None
        self._read(connected, first, newest)
        for version in range(first, newest + 1):
            sizes = [one for index, one in self._commits[version] if version > first or index >= passed]
            files += len(sizes)
            size += sum(sizes)
        return Amount(files, size)

    def _read(self, connected: ConnectedStream, first: int, newest: int) -> None:
        for version in [known for known in self._commits if not first <= known <= newest]:
            del self._commits[version]
        if first not in self._commits:
            # the stream was moved back, or begins anew
            self._commits.clear()
        known = max(self._commits, default=first - 1)
        if known >= newest:
            return
        from airflow_provider_fds.source.changes.classify import CommitContent, Emit, classify
        from airflow_provider_fds.source.planning.files_read import FilesRead

        log, options = connected.log, connected.stream.options
        files_read = FilesRead(options, log.table_uri)
        if files_read.has_filter and (self._metadata is None or not self._commits):
            self._metadata = log.state_at(known + 1).metadata
        for commit in log.commits(known + 1, newest):
            content = CommitContent.of(commit.version, commit.actions, table=log.table_uri)
            self._metadata = content.metadata or self._metadata
            is_read = isinstance(classify(content, options, table=log.table_uri), Emit)
            found = files_read.of_commit(commit, content, self._metadata) if is_read else ()
            self._commits[commit.version] = [(index, file.size or 0) for index, file in found]


def _amount_of_plan(state: StreamState) -> Amount:
    return Amount(sum(batch.num_files for batch in state.planned), sum(batch.num_bytes for batch in state.planned))
