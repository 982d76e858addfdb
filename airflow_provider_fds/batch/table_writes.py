"""What a table's own log says of one write of a user's function: one account, for the driver and for Airflow.

Standard library only, Python 3.9 syntax.
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


__all__: List[str] = ["TableWrite", "table_writes"]
