"""Checks a driver's report against the account of a database, as :mod:`.evidence` does against a Delta log."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

from airflow_provider_fds.batch.sink.postgres_account import FENCE, Account, Entry, Namesake
from airflow_provider_fds.batch.sink.postgres_connection import (
    NoPsycopgError,
    UnknownConnectionError,
    connected,
    psycopg,
)
from airflow_provider_fds.batch.transactions import fence_version, txn_version
from airflow_provider_fds.stream.sink_record.evidence import Evidence, ReportedBatch

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from airflow_provider_fds.batch.report import FenceReport, LandedBatch
    from airflow_provider_fds.sinks import PostgresSink
    from airflow_provider_fds.stream.connected_stream import ConnectedStream

logger = logging.getLogger(__name__)

_Found = TypeVar("_Found")


class DatabaseEvidence(Evidence):
    """The account of one database sink, if this worker may read it."""

    def __init__(self, connected_stream: ConnectedStream, sink: PostgresSink) -> None:
        super().__init__(connected_stream, sink.describe())
        self._sink = sink

    def check_batch(self, batch: ReportedBatch, version: int | None, rows: int | None, table_id: str | None) -> None:
        """Compare a report with the account. Raises as :meth:`.evidence.Evidence.check_batch`."""
        what = batch.describe()

        def problem(account: Account) -> str | None:
            found = account.entry(batch.uuid, table_id or "", batch.epoch, batch.batch_id, batch.interval)
            if found is None or found.digest != batch.digest:
                return f"the account of table id {table_id} does not have this batch"
            if found.version != version or found.rows != rows:
                return (
                    f"the account says version {found.version} and {found.rows} rows, the report {version} and {rows}"
                )
            return None

        self._check(what, table_id, problem)

    def check_fence(
        self,
        uuid: str,
        epoch: int,
        version: int | None,
        landed: tuple[LandedBatch, ...],
        removal: dict[str, Any] | None = None,
        table_id: str | None = None,
    ) -> None:
        """Compare the report of a fence, of what landed before it and of what it removed, with the account.

        Raises as :meth:`check_batch`.
        """

        def problem(account: Account) -> str | None:
            found = account.entry(uuid, table_id or "", epoch, FENCE)
            if found is None or found.version != version:
                return f"the account of table id {table_id} does not have this fence"
            asked = removal or {}
            if removal is not None and (found.digest, found.first_version) != (
                asked["what"], asked["from_version"]
            ):  # fmt: skip
                return "the account does not say that the fence removed the rows"
            for batch in landed:
                entry = account.entry(uuid, table_id or "", batch.epoch, batch.batch_id)
                if entry is None or (entry.digest, entry.end, entry.version) != (
                    batch.digest, batch.end, batch.sink_version
                ):  # fmt: skip
                    return f"the account does not have batch {batch.batch_id} of epoch {batch.epoch} as the report says"
            return None

        self._check(f"the fence of epoch {epoch}", table_id, problem)

    def check_before_fence(self, report: FenceReport, known: int | None, *, is_removing: bool) -> None:
        """Compare what a report says of the commits before a fence with the account. Raises as :meth:`check_batch`."""

        def problem(account: Account) -> str | None:
            table_id, fence = report.sink_table_id or "", report.sink_version or 0
            told = {batch.sink_version for batch in report.landed}
            before = [entry for entry in account.since(report.uuid, table_id, 0) if entry.version < fence]
            gone = max((entry.version for entry in before if entry.batch == FENCE and entry.digest), default=0)
            if not is_removing and (known is None or known < fence):
                for entry in before:
                    is_new = entry.batch != FENCE and entry.version > max(known or 0, gone)
                    if is_new and entry.version not in told:
                        return f"the account has batch {entry.batch} of epoch {entry.epoch}, but the report omits it"
            newest = max((_transaction(entry) for entry in before), default=None)
            said = None if report.evidence is None else report.evidence.newest
            return None if newest == said else f"the newest transaction is {newest}, but the report says {said}"

        self._check(f"the fence of epoch {report.epoch}", report.sink_table_id, problem)

    def check_missing(self, epoch: int) -> None:
        """Refuse a report of a missing table if the table exists. Raises as :meth:`check_batch`."""

        def problem(account: Account) -> str | None:
            return None if account.target() is None else "its report says that there is no sink, but the table exists"

        self._check(f"the fence of epoch {epoch}", None, problem)

    def namesake(self, others: Collection[str]) -> Namesake | None:
        """Return another stream of the same name in the account, or ``None``."""
        connected_stream = self._connected

        def find(account: Account) -> Namesake | None:
            target = account.target()
            if target is None or target.id is None:
                return None
            uuid = connected_stream.state.uuid or str(UUID(int=0))
            return account.namesake(uuid, target.id, connected_stream.stream.name, tuple(others))

        return self._read(find)

    def _check(self, what: str, table_id: str | None, problem: Callable[[Account], str | None]) -> None:
        found = self._read(lambda account: self._problem(account, table_id, problem))
        if found is not None:
            raise self._refused(what, found)

    def _read(self, find: Callable[[Account], _Found | None]) -> _Found | None:
        """Return what a function finds in the account, or ``None`` if it finds nothing or cannot look."""
        if not self._is_readable:
            return None
        try:
            with connected(self._sink.conn_id) as connection:
                account = Account(connection, self._sink.account, self._sink.parts)
                # a standby may lack what the primary has committed
                connection.execute("SET TRANSACTION READ ONLY")
                is_standby = account.is_standby()
                found = None if is_standby else find(account)
        except (NoPsycopgError, UnknownConnectionError) as error:
            self._refuse_reading(error)
        except Exception as error:
            if not isinstance(error, psycopg().Error):
                raise
            self._refuse_reading(error)
        else:
            if not is_standby:
                return found
            self._refuse_reading(UnknownConnectionError("the server is a standby, which may lack the newest commits"))
        return None

    @staticmethod
    def _problem(account: Account, table_id: str | None, problem: Callable[[Account], str | None]) -> str | None:
        target = account.target()
        now = None if target is None else target.id
        if table_id is not None and now != table_id:
            return f"the report is about table id {table_id}, but the table there has {now}"
        return problem(account)


def _transaction(entry: Entry) -> int:
    return fence_version(entry.epoch) if entry.batch == FENCE else txn_version(entry.epoch, entry.batch)
