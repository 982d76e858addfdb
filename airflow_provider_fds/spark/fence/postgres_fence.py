"""The fence in PostgreSQL: a row of the account that closes everything older than an epoch.

The fence takes the lock of the stream, which a driver of an older epoch holds while it writes, reads what has landed,
and raises the epoch. In the same transaction it removes the rows that the epoch reads again, if it is asked to.
A driver that gets the lock later sees the epoch and is refused. One that holds it, however long it was paused, is ended
by the server. Standard library and pyspark, Python 3.9 syntax.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Sequence, Tuple

from airflow_provider_fds.batch.report import FenceEvidence, FenceReport, LandedBatch, RemovedRows
from airflow_provider_fds.batch.sink.postgres_account import FENCE, Account, Entry
from airflow_provider_fds.batch.sink.postgres_connection import at_most, connected
from airflow_provider_fds.batch.transactions import fence_version, txn_version
from airflow_provider_fds.fault_points import reach
from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.spark.fence.failed_fence import failed_fence
from airflow_provider_fds.spark.fence.postgres_removal import PostgresRemoval, written_rows
from airflow_provider_fds.spark.runtime.failures import RefusalError
from airflow_provider_fds.spark.runtime.postgres_errors import refusals
from airflow_provider_fds.spark.sink_log.advice import Advice
from airflow_provider_fds.spark.sink_log.postgres_streams import register

if TYPE_CHECKING:
    from airflow_provider_fds.batch.spec import FenceSpec, JobSpec
    from airflow_provider_fds.sinks import PostgresSink

#: Each attempt ends whoever holds the lock; other drivers of the stream may be waiting for it.
_MOST_ATTEMPTS = 10
_LOCK_SECONDS = 2.0
_COMMIT_SECONDS = 60.0


def close_epochs(spec: JobSpec, fence: FenceSpec, sink: PostgresSink) -> FenceReport:
    """Write the fence if it is not there, and report which batches of older epochs landed before it."""
    try:
        with refusals(f"stream {fence.stream!r}: the fence of epoch {fence.epoch}"):
            return _Fence(spec, fence, sink).close()
    except Exception as e:  # noqa: BLE001 - any error: the report is the only way to convey it
        return failed_fence(spec, fence, e)


class _Fence:
    def __init__(self, spec: JobSpec, fence: FenceSpec, sink: PostgresSink) -> None:
        self._spec = spec
        self._fence = fence
        self._sink = sink

    def close(self) -> FenceReport:
        """Close the epochs, and end the holder of the lock as often as it takes."""
        fence = self._fence
        for _ in range(_MOST_ATTEMPTS):
            try:
                return self._close()
            except Exception as error:
                if getattr(error, "sqlstate", None) != "55P03":
                    raise
                self._end_holders()
        raise RefusalError(
            Reason.SINK_BUSY,
            f"stream {fence.stream!r}: the fence of epoch {fence.epoch} is not in {self._sink.describe()}: other "
            f"transactions held the stream's lock{' or the table' if fence.removes else ''} {_MOST_ATTEMPTS} times. A "
            "retry tries again",
            retryable=True,
        )

    def _close(self) -> FenceReport:
        fence, sink = self._fence, self._sink
        with connected(sink.conn_id) as connection:
            account = Account(connection, sink.account, sink.parts)
            if account.target() is None:
                return FenceReport(fence.uuid, fence.epoch, self._spec.attempt_id, "sink_missing")
            connection.rollback()
            account.create()
            account.begin(lock_seconds=_LOCK_SECONDS)
            target = account.target()
            if target is None:
                return FenceReport(fence.uuid, fence.epoch, self._spec.attempt_id, "sink_missing")
            if (problem := account.problem()) is not None:
                raise RefusalError(Reason.SINK_UNSUITABLE, f"{sink.describe()}: the server is unsuitable: {problem}")
            target_id = account.registered(target)
            known = account.lock(fence.uuid, target_id)
            found = None if known is None else account.entry(fence.uuid, target_id, fence.epoch, FENCE)
            if found is not None:
                report = self._report(account, target_id, found)
                connection.commit()
                return report
            if known is None:
                register(account, target_id, sink, fence, Advice(sink, fence.stream))
            elif known[0] >= fence.epoch:
                raise RefusalError(
                    Reason.EPOCH_OVERTAKEN,
                    f"stream {fence.stream!r}: {sink.describe()} is in epoch {known[0]} of the stream, later than "
                    f"{fence.epoch}. Check the stream with `fds status`",
                    retryable=True,
                )
            version = 1 + (0 if known is None else known[1])
            what = fence.removes or ""
            removed = PostgresRemoval(connection, fence, sink).remove(account, target_id) if what else 0
            entry = Entry(fence.epoch, FENCE, what, removed, "", version, self._spec.attempt_id, fence.from_version)
            account.record(fence.uuid, target_id, entry, versions=(fence.from_version, None))
            report = self._report(account, target_id, entry)
            reach("fence.commit.before")
            with at_most(connection, _COMMIT_SECONDS):
                connection.commit()
            reach("fence.commit.after")
            return report

    def _report(self, account: Account, target_id: str, fence: Entry) -> FenceReport:
        since, known = self._spec.sink_version, self._spec.sink_table_id
        if known is not None and known != target_id:
            # another table: the ledger knows what the stream has written to the one before
            since = None
        entries = [entry for entry in account.since(self._fence.uuid, target_id, 0) if entry.version < fence.version]
        newest = max((_transaction(entry) for entry in entries), default=None)
        removals = [entry for entry in (*entries, fence) if entry.batch == FENCE and entry.digest]
        wanted = (self._fence.removes or "", self._fence.from_version)
        has_removed = (fence.digest, fence.first_version) == wanted
        # a rewind moves backwards, so a batch that was not committed begins after the rows from which a fence removes
        gone = max((entry.version for entry in removals if entry is not fence or has_removed), default=0)
        return FenceReport(
            uuid=self._fence.uuid,
            epoch=self._fence.epoch,
            attempt_id=self._spec.attempt_id,
            outcome="fenced",
            sink_version=fence.version,
            sink_table_id=target_id,
            landed=tuple(
                LandedBatch(entry.epoch, entry.batch, entry.end, entry.digest, entry.version)
                for entry in entries
                if entry.batch != FENCE and entry.version > max(since or 0, gone)
            ),
            has_removed=has_removed,
            removed_rows=fence.rows if has_removed and fence.digest else None,
            evidence=FenceEvidence(
                newest=newest,
                removed=tuple(
                    RemovedRows(entry.epoch, entry.version, entry.digest, entry.first_version) for entry in removals
                ),
            ),
            warnings=self._difference(entries, fence) if has_removed and fence.digest else (),
        )

    def _difference(self, before: Sequence[Entry], fence: Entry) -> Tuple[str, ...]:
        """Return a warning if the fence removed another number of rows than the stream had written."""
        written = written_rows(before, fence.digest, fence.first_version)
        if written.least <= fence.rows <= written.most:
            return ()
        why = (
            "another writer had removed rows, which are loaded again unless the source no longer has them"
            if fence.rows < written.least
            else "the others were of other writers, and are not loaded again"
        )
        text = (
            f"the fence of epoch {fence.epoch} removed {fence.rows} rows from {self._sink.describe()}, and the account "
            f"says that the stream wrote {written.describe()} of them: {why}"
        )
        return (text,)

    def _end_holders(self) -> None:
        sink = self._sink
        with connected(sink.conn_id) as connection:
            account = Account(connection, sink.account, sink.parts)
            target = account.target()
            if target is None or target.id is None:
                return
            for pid in account.holders(self._fence.uuid, target.id):
                account.end(pid)


def _transaction(entry: Entry) -> int:
    return fence_version(entry.epoch) if entry.batch == FENCE else txn_version(entry.epoch, entry.batch)
