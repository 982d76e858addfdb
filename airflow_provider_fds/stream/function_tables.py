"""What the logs of a function's tables show of its writes: which have landed, and whether their rows still exist."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal

from airflow_provider_fds.batch.commit_metadata import read_write_metadata
from airflow_provider_fds.batch.spec import fence_version, txn_batch_id, txn_epoch
from airflow_provider_fds.delta.log import DeltaLog
from airflow_provider_fds.delta.replay import transactions
from airflow_provider_fds.errors import TableNotFoundError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_provider_fds.delta.log import Commit
    from airflow_provider_fds.delta.storage import Storage
    from airflow_provider_fds.ledger.state import StreamState
    from airflow_provider_fds.ledger.values import SinkBinding

#: Number of commits read at once, from the newest backwards.
_WINDOW: Final = 100

#: Operations after which the commits of a table no longer describe its rows.
_BREAKING: Final = ("RESTORE", "CLONE", "CREATE OR REPLACE", "REPLACE")

#: Whether the rows of a commit are in the table: ``unsure`` after a RESTORE to a time, a REPLACE or a CLONE.
Place = Literal["there", "gone", "unsure"]


@dataclass(frozen=True, slots=True)
class WriteFound:
    """The newest transaction of one write in its table.

    Attributes:
        transaction: ``None`` if the table has no transaction of this write or does not exist.
        version: Version of the table that holds it, or ``None`` if log cleanup removed that commit.
        is_undone: Whether the table was restored or replaced since, so that its rows may be gone.
    """

    transaction: int | None
    version: int | None = None
    is_undone: bool = False


@dataclass(frozen=True, slots=True)
class TableWrite:
    """One transaction of a write in its table.

    Attributes:
        version: Version of the table that holds it, or ``None`` if log cleanup removed that commit.
        place: Whether its rows are in the table.
        undone_at: The version that removed them, or may have; ``None`` if they are there.
        digest: Digest of the batch's manifest, or ``None`` if the commit does not record it.
    """

    transaction: int
    version: int | None
    place: Place = "there"
    undone_at: int | None = None
    digest: str | None = None

    @property
    def epoch(self) -> int:
        """Its epoch."""
        return txn_epoch(self.transaction)

    @property
    def batch_id(self) -> int:
        """Its batch; -1 for a fence."""
        return txn_batch_id(self.transaction)

    @property
    def is_fence(self) -> bool:
        """Whether it is the fence of its epoch."""
        return self.batch_id < 0


@dataclass(frozen=True, slots=True)
class TableWrites:
    """What a table's log shows of one write at one point in time.

    Attributes:
        version: Newest version of the table at that time, -1 if there was no table.
        writes: Transactions of the write, in order.
        committed: The last committed batch that wrote the table, or ``None`` if its commit was not found or belongs
            to a closed epoch.
        has_any: Whether the table has any transaction of the write.
    """

    version: int
    writes: tuple[TableWrite, ...] = ()
    committed: TableWrite | None = None
    has_any: bool = False


def find_write(storage: Storage, app_id: str) -> WriteFound:
    """Return the newest transaction of a write, read from the table's own log, however far back it is."""
    log = DeltaLog(storage)
    try:
        newest, earliest = log.latest(), log.earliest()
    except TableNotFoundError:
        return WriteFound(None)
    restores = _Restores()
    for commit in _newest_first(log, earliest, newest):
        found = [a.txn.version for a in commit.actions if a.txn is not None and a.txn.appId == app_id]
        if found:
            return WriteFound(max(found), commit.version, restores.place(commit.version) != "there")
        restores.add(commit)
    is_undone = restores.place(earliest - 1) != "there"
    return WriteFound(transactions(log, newest, [app_id]).get(app_id), None, is_undone)


def read_table_writes(storage: Storage, app_id: str, floor: int) -> TableWrites:
    """Return the transactions of a write later than ``floor`` (exclusive), all read from one version of the table.

    If a transaction occurs twice, the older commit counts: the later one is a reminder without rows.

    Args:
        storage: The table's folder.
        app_id: Transaction application id of the write.
        floor: Transaction of the last committed batch, or of the fence after it.
    """
    log = DeltaLog(storage)
    try:
        newest, earliest = log.latest(), log.earliest()
    except TableNotFoundError:
        return TableWrites(-1)
    restores = _Restores()
    found: dict[int, TableWrite] = {}
    for commit in _newest_first(log, earliest, newest):
        own = [a.txn.version for a in commit.actions if a.txn is not None and a.txn.appId == app_id]
        for transaction in own:
            told = read_write_metadata(None if commit.info is None else commit.info.userMetadata)
            write = restores.write(transaction, commit.version)
            found[transaction] = write if told is None else replace(write, digest=str(told["digest"]))
        restores.add(commit)
        if own and min(own) <= floor:
            break
    else:
        # log cleanup removed the commits, but the table's state has the newest transaction
        known = None if found else transactions(log, newest, [app_id]).get(app_id)
        if known is not None:
            found[known] = TableWrite(known, None, restores.place(earliest - 1), restores.last)
    # a function need not write every table with every batch
    at_floor = found.get(max((transaction for transaction in found if transaction <= floor), default=floor))
    return TableWrites(
        newest,
        tuple(found[transaction] for transaction in sorted(found) if transaction > floor),
        None if at_floor is None or at_floor.is_fence else at_floor,
        bool(found),
    )


def floor_of(state: StreamState) -> int:
    """Return the transaction up to which a function's writes are committed or fenced off."""
    of = state if state.closed is None else state.closed
    return max(of.prev_txn_version or 0, fence_version(of.epoch))


def tables_in_order(sink: SinkBinding) -> dict[str, str]:
    """Return the tables of a function by the names of their writes, in the order in which the writes were declared."""
    names = (app_id.partition("#")[2] for app_id in sink.app_ids)
    return {name: sink.tables[name] for name in names if name in sink.tables}


class _Restores:
    """Which commits still contribute to a table; commits are added from the newest to the oldest."""

    def __init__(self) -> None:
        #: The last commit that removed others, or may have.
        self.last: int | None = None
        self._newest_kept: int | None = None
        self._is_sure = True

    def place(self, version: int) -> Place:
        if self._newest_kept is not None and version > self._newest_kept:
            return "gone"
        return "there" if self._is_sure else "unsure"

    def write(self, transaction: int, version: int) -> TableWrite:
        place = self.place(version)
        return TableWrite(transaction, version, place, None if place == "there" else self.last)

    def add(self, commit: Commit) -> None:
        operation = ((commit.info.operation if commit.info is not None else None) or "").upper()
        if self.place(commit.version) == "gone" or not operation.startswith(_BREAKING):
            return
        self.last = commit.version
        parameters = (commit.info.operationParameters if commit.info is not None else None) or {}
        version = str(parameters.get("version", ""))
        if operation == "RESTORE" and version.isdigit():
            self._newest_kept = int(version)
        else:
            self._is_sure = False


def _newest_first(log: DeltaLog, earliest: int, newest: int) -> Iterator[Commit]:
    last = newest
    while last >= earliest:
        first = max(earliest, last - _WINDOW + 1)
        yield from reversed(list(log.commits(first, last)))
        last = first - 1


__all__ = [
    "Place",
    "TableWrite",
    "TableWrites",
    "WriteFound",
    "find_write",
    "floor_of",
    "read_table_writes",
    "tables_in_order",
]
