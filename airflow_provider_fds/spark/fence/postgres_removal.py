"""What a fence removes from a table of PostgreSQL, and when it must not, by the rules of :mod:`.removal`.

The rows are deleted in the transaction that records the fence. A database keeps no log of other writers, so rows count
as the stream's if they have a source version, and no other stream writes to the table. Standard library, Python 3.9
syntax.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_provider_fds.credentials import redacted
from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.sinks.constants import PROVENANCE
from airflow_provider_fds.sinks.postgres import quoted
from airflow_provider_fds.spark.fence.removal import FORCE
from airflow_provider_fds.spark.runtime.failures import RefusalError

if TYPE_CHECKING:
    from airflow_provider_fds.batch.sink.postgres_account import Account
    from airflow_provider_fds.batch.spec import FenceSpec
    from airflow_provider_fds.sinks import PostgresSink

_SOURCE_VERSION = PROVENANCE["_commit_version"]
#: How SQLSTATE begins for rows of other tables that refer to a row, and for other constraints.
_CONSTRAINT = "23"


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
