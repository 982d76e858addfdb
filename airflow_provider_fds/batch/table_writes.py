"""What a table's own log says of one write of a user's function: one account, for the driver and for Airflow.

Both read it from the last committed batch on, and the report of a fence has the driver's. Standard library only, Python
3.9 syntax.
"""
# The driver may run Python 3.9, so the annotations stay in its syntax.
# ruff: noqa: UP006, UP035, UP045

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Dict, List, Optional, Sequence, Tuple

from airflow_provider_fds.batch.sink_account import kept
from airflow_provider_fds.batch.spec import txn_batch_id, txn_epoch

if TYPE_CHECKING:
    from airflow_provider_fds.batch.sink_commit import SinkCommit


@dataclass(frozen=True)
class TableWrite:
    """One transaction of a write in its table.

    Attributes:
        version: Version of the table that holds it, or ``None`` if log cleanup removed that commit.
        place: Whether its rows are in the table: ``there``, ``gone`` or ``unsure``.
        undone_at: The version that removed them, or may have; ``None`` if they are there.
        digest: Digest of the batch's manifest, or ``None`` if the commit does not record it.
    """

    transaction: int
    version: Optional[int]
    place: str = "there"
    undone_at: Optional[int] = None
    digest: Optional[str] = None

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


@dataclass(frozen=True)
class TableWrites:
    """What a table's log shows of one write at one point in time.

    Attributes:
        version: Newest version of the table at that time, -1 if there was no table.
        writes: Transactions of the write after the floor, in order.
        committed: The newest transaction up to the floor: the last committed batch that wrote the table, or the fence
            of the epoch. ``None`` if there is none.
        newest: Its newest transaction, ``None`` if it has none.
        is_new: Whether the log goes back to version 0 and has no transaction of the write up to the floor.
        broken_at: The RESTORE, REPLACE or CLONE that removed, or may have removed, committed rows; else ``None``.
        restored_to: The version to which a RESTORE at ``broken_at`` restored the table, ``None`` if it is unknown.
    """

    version: int
    writes: Tuple[TableWrite, ...] = ()
    committed: Optional[TableWrite] = None
    newest: Optional[TableWrite] = None
    is_new: bool = False
    broken_at: Optional[int] = None
    restored_to: Optional[int] = None

    def is_another(self, version: int, *, has_earlier: bool = True) -> bool:
        """Whether it is not the table whose ``version`` has a transaction of the write.

        Args:
            version: Newest known version of the table with a transaction; 0 if only the fence is known.
            has_earlier: Whether that transaction, or one before it, is not after the floor.
        """
        return self.newest is None or self.version < version or (self.is_new and has_earlier)


#: There is no table.
NO_TABLE = TableWrites(-1, is_new=True)


def account(commits: Sequence[SinkCommit], app_id: str, newest: Optional[int], floor: int) -> TableWrites:
    """Return what the log shows of a write.

    Args:
        commits: The table's newest commits without a gap, oldest first: from the last transaction up to the floor on,
            or all there are.
        app_id: Transaction application id of the write.
        newest: Newest transaction in the table's state; see :func:`table_writes`.
        floor: Transaction of the last committed batch, or of the fence after it.
    """
    found = table_writes(commits, app_id, newest)
    # a function need not write every table with every batch
    at_floor = next((write for write in reversed(found) if write.transaction <= floor), None)
    broken = kept(commits, app_id)
    return TableWrites(
        commits[-1].version,
        tuple(write for write in found if write.transaction > floor),
        at_floor,
        found[-1] if found else None,
        is_new=at_floor is None and commits[0].version == 0,
        # without a commit up to the floor, the table may be younger than that
        broken_at=None if at_floor is None else broken.broken_at,
        restored_to=None if at_floor is None else broken.restored_to,
    )


def table_writes(commits: Sequence[SinkCommit], app_id: str, newest: Optional[int]) -> Tuple[TableWrite, ...]:
    """Return the transactions of a write, in order.

    If a transaction occurs twice, the older commit counts: the later one is a reminder without rows.

    Args:
        commits: The table's newest commits without a gap, oldest first.
        app_id: Transaction application id of the write.
        newest: Newest transaction in the table's state, which outlives its commit; ``None`` if there is none.
    """
    account = kept(commits, app_id)
    found: Dict[int, TableWrite] = {}
    for commit in reversed(commits):
        transaction = commit.transactions.get(app_id)
        if transaction is not None:
            place, undone_at = account.place(commit.version), account.undone_at(commit.version)
            digest = None if commit.write is None else str(commit.write["digest"])
            found[transaction] = TableWrite(transaction, commit.version, place, undone_at, digest)
    if not found and newest is not None:
        before = commits[0].version - 1
        found[newest] = TableWrite(newest, None, account.place(before), account.undone_at(before))
    return tuple(found[transaction] for transaction in sorted(found))


__all__: List[str] = ["NO_TABLE", "TableWrite", "TableWrites", "account", "table_writes"]
