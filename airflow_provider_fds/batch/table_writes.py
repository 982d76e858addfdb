"""What a table's own log says of one write of a user's function, as values; ``sink/table_account.py`` makes them.

The report of a fence has the driver's account. Standard library only, Python 3.9 syntax.
"""
# The driver may run Python 3.9, so the annotations stay in its syntax.
# ruff: noqa: UP006, UP035, UP045

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional, Tuple

from airflow_provider_fds.batch.transactions import txn_batch_id, txn_epoch


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
