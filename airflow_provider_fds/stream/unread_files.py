"""How many data files, and bytes of them, a stream still has to read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from airflow_provider_fds.source.offset import Offset

if TYPE_CHECKING:
    from airflow_provider_fds.ledger.state import StreamState
    from airflow_provider_fds.stream.connect import ConnectedStream

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
    """Counts the data files of unread commits, before the stream's filters. Each commit is read once.

    Keep it for as long as a stream is watched: it remembers what it has counted.
    """

    def __init__(self) -> None:
        self._commits: dict[int, list[int]] = {}

    def count(self, connected: ConnectedStream, newest: int) -> Amount | None:
        """Return what is left to read up to version ``newest`` (inclusive), or ``None`` if it is unknown.

        Planned batches are counted as planned, and later commits by the files that they add with new data. More than
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
            sizes = self._commits[version][passed if version == first else 0 :]
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
        if known < newest:
            for commit in connected.log.commits(known + 1, newest):
                adds = (action.add for action in commit.actions if action.add is not None)
                self._commits[commit.version] = [add.size or 0 for add in adds if add.changes_data]


def _amount_of_plan(state: StreamState) -> Amount:
    return Amount(sum(batch.num_files for batch in state.planned), sum(batch.num_bytes for batch in state.planned))


__all__ = ["Amount", "UnreadFiles", "planned_amount"]
