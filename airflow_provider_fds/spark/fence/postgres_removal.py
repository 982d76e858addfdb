"""What a fence removes from a table of PostgreSQL, and when it must not, by the rules of :mod:`.removal`.

The rows are deleted in the transaction that records the fence. A database keeps no log of other writers, so rows count
as the stream's if they have a source version, no other stream writes to the table, and they are not more than the
account says that the stream wrote. Standard library, Python 3.9 syntax.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Iterable, List, Optional

from airflow_provider_fds.batch.sink.postgres_account import FENCE
from airflow_provider_fds.credentials import redacted
from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.sinks.constants import PROVENANCE
from airflow_provider_fds.sinks.postgres import quoted
from airflow_provider_fds.spark.fence.removal import FORCE
from airflow_provider_fds.spark.runtime.failures import RefusalError
from airflow_provider_fds.spark.runtime.postgres_tables import changed_by_delete

if TYPE_CHECKING:
    from airflow_provider_fds.batch.sink.postgres_account import Account, Entry
    from airflow_provider_fds.batch.spec import FenceSpec
    from airflow_provider_fds.sinks import PostgresSink

_SOURCE_VERSION = PROVENANCE["_commit_version"]
#: How SQLSTATE begins for rows of other tables that refer to a row, and for other constraints.
_CONSTRAINT = "23"


@dataclass(frozen=True)
class WrittenRows:
    """How many rows the account expects a removal to take: a batch on both sides of its version gives only bounds."""

    least: int
    most: int

    def describe(self) -> str:
        """Return the number, or both bounds."""
        return f"{self.least}" if self.least == self.most else f"{self.least} to {self.most}"


def written_rows(entries: Iterable[Entry], what: str, from_version: Optional[int]) -> WrittenRows:
    """Return how many rows a removal takes from what the stream has written.

    Args:
        entries: The stream's commits before the removal, oldest first.
        what: As in ``FenceSpec.removes``.
        from_version: As in ``FenceSpec``.
    """
    held: List[_Held] = []
    for entry in entries:
        if entry.batch != FENCE:
            held.append(_Held(entry.first_version, entry.last_version, entry.rows, entry.rows))
        elif entry.digest:
            held = [left for batch in held if (left := batch.after(entry.digest, entry.first_version)) is not None]
    least = most = 0
    for batch in held:
        left = batch.after(what, from_version)
        if left is None:
            least += batch.least
        if left != batch:
            most += batch.most
    return WrittenRows(least, most)


@dataclass(frozen=True)
class _Held:
    """What the table has of a batch: versions of the source (inclusive), and bounds of the number of rows."""

    first: Optional[int]
    last: Optional[int]
    least: int
    most: int

    def after(self, what: str, from_version: Optional[int]) -> Optional[_Held]:
        """Return what a removal leaves of it, or ``None``."""
        version = from_version or 0
        if what == "all" or (self.first is not None and self.first >= version):
            return None
        if self.last is not None and self.last < version:
            return self
        return _Held(self.first, version - 1, 0, self.most)


class PostgresRemoval:
    """The removal that a fence is asked for.

    Args:
        connection: With the transaction of the fence.
        fence: With ``removes``.
        sink: The table.
    """

    def __init__(self, connection: Any, fence: FenceSpec, sink: PostgresSink) -> None:
        self._connection = connection
        self._fence = fence
        self._sink = sink
        self._table = quoted(*sink.parts)

    def remove(self, account: Account, target: str) -> int:
        """Delete exactly the rows that are read again; return their number.

        Args:
            account: Of the table.
            target: Its id there.

        Raises:
            RefusalError: The rows cannot be told from others, or a trigger or a constraint keeps some; the transaction
                must end.
        """
        run = self._connection.execute
        # rows that a policy hides would stay: an error instead
        run("SELECT set_config('row_security', 'off', true)")
        # what others insert after the check would be removed, too
        run(f"LOCK TABLE {self._table} IN SHARE ROW EXCLUSIVE MODE")
        self._check(account, target)
        which = (
            "" if self._fence.removes == "all" else f" WHERE {_SOURCE_VERSION} >= {int(self._fence.from_version or 0)}"
        )
        removed = self._delete(which)
        if self._has(which):
            raise self._refusal(Reason.ROWS_DIFFER, "rows are still in it, because a trigger keeps them")
        written = written_rows(
            account.since(self._fence.uuid, target, 0), self._fence.removes or "", self._fence.from_version
        )
        if removed > written.most and not self._fence.is_forced:
            raise self._refusal(
                Reason.SINK_SHARED,
                f"{removed} rows would be removed, but the account says that the stream wrote {written.describe()} of "
                "them, so it may not load the others again",
                FORCE,
            )
        return removed

    def _delete(self, which: str) -> int:
        try:
            return int(self._connection.execute(f"DELETE FROM {self._table}{which}").rowcount)
        except Exception as error:
            state = getattr(error, "sqlstate", None) or ""
            if not state.startswith(_CONSTRAINT):
                raise
            why = f"a constraint keeps its rows ({state}: {redacted(str(error).strip())})"
            raise self._refusal(Reason.SINK_UNSUITABLE, why) from error

    def _check(self, account: Account, target: str) -> None:
        columns = self._connection.execute(f"SELECT * FROM {self._table} LIMIT 0").description
        has_version = _SOURCE_VERSION in [column.name for column in columns]
        if self._fence.removes == "rows" and not has_version:
            raise self._refusal(
                Reason.SINK_SCHEMA_MISMATCH,
                f"it has no column {_SOURCE_VERSION}, so it is unknown which rows are read again",
            )
        if self._fence.removes == "rows":
            changed = changed_by_delete(self._connection, self._sink.parts, only_itself=True)
            if changed is not None:
                why = f"a removal would take, or change, rows that are not read again: {changed}"
                raise self._refusal(Reason.SINK_UNSUITABLE, why)
        if self._fence.is_forced:
            return
        if (other := account.other_stream(self._fence.uuid, target)) is not None:
            raise self._refusal(Reason.SINK_SHARED, f"stream {other!r} writes to it, too", FORCE)
        if self._has(f" WHERE {_SOURCE_VERSION} IS NULL" if has_version else ""):
            raise self._refusal(
                Reason.SINK_SHARED,
                f"it has rows without {_SOURCE_VERSION}, which the stream may not load again",
                FORCE,
            )

    def _has(self, which: str) -> bool:
        return self._connection.execute(f"SELECT 1 FROM {self._table}{which} LIMIT 1").fetchone() is not None

    def _refusal(self, reason: Reason, why: str, way: str = "") -> RefusalError:
        name = self._fence.stream
        to = "N" if self._fence.removes == "rows" else "start"
        keep = f"`fds rewind {name} --replace --to {to} --sink-rows keep --why …`"
        ways = f"{way}. " if way else ""
        return RefusalError(
            reason,
            f"stream {name!r}: nothing was removed from {self._sink.describe()}: {why}. {ways}To leave the rows, "
            f"or remove them yourself, use {keep}",
        )
