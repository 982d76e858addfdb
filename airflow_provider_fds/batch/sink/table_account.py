"""What a table's own log says of one write of a user's function: one account, for the driver and for Airflow.

Both read it from the last committed batch on. Standard library only, Python 3.9 syntax.
"""
# The driver may run Python 3.9, so the annotations stay in its syntax.
# ruff: noqa: UP006, UP035, UP045

from __future__ import annotations

from typing import TYPE_CHECKING, Dict, Optional, Sequence, Tuple

from airflow_provider_fds.batch.sink.sink_account import kept
from airflow_provider_fds.batch.table_writes import TableWrite, TableWrites

if TYPE_CHECKING:
    from airflow_provider_fds.batch.sink.sink_commit import SinkCommit


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
