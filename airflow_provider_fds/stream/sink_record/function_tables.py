"""What the logs of a function's tables show of its writes: which have landed, and whether their rows still exist."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from airflow_provider_fds.batch.sink_account import kept
from airflow_provider_fds.batch.spec import fence_version, txn_batch_id, txn_epoch
from airflow_provider_fds.delta.reader.log import DeltaLog
from airflow_provider_fds.delta.reader.replay import transactions
from airflow_provider_fds.errors import TableNotFoundError
from airflow_provider_fds.stream.sink_record.sink_commits import newest_commits

if TYPE_CHECKING:
    from airflow_provider_fds.batch.sink_account import Kept
    from airflow_provider_fds.delta.storage.storage import Storage
    from airflow_provider_fds.ledger.state import StreamState
    from airflow_provider_fds.ledger.values import SinkBinding

#: Higher than every transaction.
_NEWEST: Final = 1 << 63


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
        place: Whether its rows are in the table: ``there``, ``gone`` or ``unsure``.
        undone_at: The version that removed them, or may have; ``None`` if they are there.
        digest: Digest of the batch's manifest, or ``None`` if the commit does not record it.
    """

    transaction: int
    version: int | None
    place: str = "there"
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
    commits = newest_commits(log, earliest, newest, lambda commit: app_id in commit.transactions)
    place = kept(commits, app_id).place
    if commits and app_id in commits[0].transactions:
        version = commits[0].version
        return WriteFound(commits[0].transactions[app_id], version, place(version) != "there")
    hidden = transactions(log, newest, [app_id]).get(app_id)
    return WriteFound(hidden, None, hidden is not None and place(earliest - 1) != "there")


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
    commits = newest_commits(log, earliest, newest, lambda commit: commit.transactions.get(app_id, _NEWEST) <= floor)
    account = kept(commits, app_id)
    found: dict[int, TableWrite] = {}
    for commit in reversed(commits):
        transaction = commit.transactions.get(app_id)
        if transaction is not None:
            digest = None if commit.write is None else str(commit.write["digest"])
            found[transaction] = _write(account, transaction, commit.version, digest)
    if not found:
        # log cleanup removed the commits, but the table's state has the newest transaction
        known = transactions(log, newest, [app_id]).get(app_id)
        if known is not None:
            hidden = _write(account, known, earliest - 1, None)
            found[known] = replace(hidden, version=None)
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


def _write(account: Kept, transaction: int, version: int, digest: str | None) -> TableWrite:
    return TableWrite(transaction, version, account.place(version), account.undone_at(version), digest)


__all__ = [
    "TableWrite",
    "TableWrites",
    "WriteFound",
    "find_write",
    "floor_of",
    "read_table_writes",
    "tables_in_order",
]
