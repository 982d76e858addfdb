"""The writer of ``PostgresSink``: each batch lands in the table once, or fails with the reason.

Spark makes the rows as lines of COPY text, and the driver copies them, partition by partition, inside the one
transaction that locks the stream in the account, refuses a closed epoch, skips a batch that is there, and records the
batch. There is no staging table that could be emptied or filled twice, and executors need no password. Standard library
and pyspark, Python 3.9 syntax; psycopg is imported when a connection is opened.
"""

from __future__ import annotations

import json
import time
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Dict, Optional, Tuple, Union

from airflow_provider_fds.batch.sink.postgres_account import FENCE, Account, Entry
from airflow_provider_fds.batch.sink.postgres_connection import at_most, connected, psycopg
from airflow_provider_fds.batch.sink.sink_commit import SinkCommit
from airflow_provider_fds.batch.transactions import fence_version, txn_version
from airflow_provider_fds.batch.version_ranges import describe_range
from airflow_provider_fds.fault_points import reach
from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.spark.fence.postgres_fence import close_epochs
from airflow_provider_fds.spark.runtime.failures import RefusalError
from airflow_provider_fds.spark.runtime.postgres_errors import refusals
from airflow_provider_fds.spark.runtime.postgres_tables import unsuitable
from airflow_provider_fds.spark.sink_log.advice import Advice
from airflow_provider_fds.spark.sink_log.postgres_streams import register
from airflow_provider_fds.spark.writers.postgres.postgres_columns import addition, creation, fitted, table_columns
from airflow_provider_fds.spark.writers.postgres.postgres_rows import rows_of
from airflow_provider_fds.spark.writers.postgres.replaced_interval import ReplacedInterval
from airflow_provider_fds.spark.writers.rows.merge_changes import MergeChanges
from airflow_provider_fds.spark.writers.rows.prepared_rows import prepared
from airflow_provider_fds.spark.writers.writer import Landed, Writer

if TYPE_CHECKING:
    from airflow_provider_fds.batch.report import FenceReport
    from airflow_provider_fds.batch.spec import BatchSpec, FenceSpec, JobSpec
    from airflow_provider_fds.sinks import PostgresSink
    from airflow_provider_fds.spark.writers.postgres.postgres_rows import AppendedRows, MergedRows

#: How long a batch waits for another driver of its stream.
_LOCK_SECONDS = 60.0
#: How long COMMIT may take; then the connection is cut, and the account says what became of it.
_COMMIT_SECONDS = 60.0
#: How often, and after which pauses, the account is asked for a batch whose COMMIT had no answer.
_PAUSES = (0.0, 1.0, 2.0, 4.0, 8.0)
#: No version of a source is later.
_NEWEST = (1 << 63) - 1


class PostgresWriter(Writer):
    """Loads into a table of PostgreSQL; opens a connection for each batch."""

    _sink: PostgresSink

    def __init__(self, spark: Any, sink: PostgresSink, job: JobSpec, settings: Dict[str, str]) -> None:
        super().__init__(spark, sink, job, settings)
        self._target_id: Optional[str] = None
        one = job.batches[0]
        self._advice = Advice(sink, one.stream, is_interval=one.interval is not None)

    @property
    def table_id(self) -> Optional[str]:
        """Id of the table in the account, ``None`` until the stream has looked at it."""
        return self._target_id

    @classmethod
    def close_epochs(cls, spark: Any, job: JobSpec, fence: FenceSpec, sink: Any) -> FenceReport:  # noqa: ARG003
        """Close older epochs by a row of the account; see :func:`.fence.postgres_fence.close_epochs`."""
        return close_epochs(job, fence, sink)

    def find(self, batch: BatchSpec) -> Optional[Landed]:
        """Return the batch's commit if the account has it, else ``None``; checks table, server and order.

        Raises:
            RefusalError: The sink differs from what was recorded, or it is not this batch's turn.
        """
        with refusals(batch.describe()), connected(self._sink.conn_id) as connection:
            account = self._account(connection)
            is_there = self._check_target(connection, account)
            connection.rollback()
            account.create()
            if not is_there:
                return None
            account.begin(lock_seconds=_LOCK_SECONDS)
            known = self._known(account, batch)
            landed = self._find(account, batch, known)
            if known is None and batch.interval is not None:
                # other intervals of a new stream must not wait for the rows of this one
                register(account, self._require_target(), self._sink, batch, self._advice)
            connection.commit()
            return landed

    @property
    def tests_rows(self) -> bool:
        """Whether there are keys and an order to test."""
        return self._sink.needs_keys

    def prepare(self, frame: Any, batch: BatchSpec) -> Any:
        """Return the rows after the sink's ``where``, ``transform``, ``columns`` and ``constant_columns``."""
        if self._sink.needs_keys:
            MergeChanges(self._sink, self._sink.describe(), batch, batch.describe()).refuse_part(frame)
        return prepared(frame, self._sink)

    def append(self, frame: Any, batch: BatchSpec) -> Landed:
        """Write the batch and return its commit, made by this attempt or by a concurrent one that was faster.

        Raises:
            RefusalError: Columns do not fit, the epoch is closed, or the number of rows is not the batch's.
        """
        what = batch.describe()
        known = self._target_id
        try:
            with refusals(what), rows_of(self._spark, frame, self._sink, batch, what) as rows:
                return self._append(rows, batch)
        except Exception:
            # a table that was created or registered in the transaction is not
            self._target_id = known
            raise

    def _append(self, rows: Union[AppendedRows, MergedRows], batch: BatchSpec) -> Landed:
        what, sink = batch.describe(), self._sink
        with connected(sink.conn_id) as connection:
            account = self._account(connection)
            account.begin(lock_seconds=_LOCK_SECONDS)
            self._create_or_evolve(connection, account, rows.types, batch)
            columns = table_columns(connection, sink.parts)
            chosen = fitted(columns, rows.types, sink, what)
            reach("driver.commit.before")
            known = self._known(account, batch)
            if (landed := self._find(account, batch, known)) is not None:
                return landed
            target = self._require_target()
            if known is None:
                register(account, target, sink, batch, self._advice)
            self._refuse_overlap(account, batch)
            replaced: Optional[ReplacedInterval] = None
            warnings: Tuple[str, ...] = ()
            if sink.replaces:
                since = 0 if known is None else known[1]
                replaced = ReplacedInterval(account, target, self._job, batch, sink, since)
                warnings = replaced.remove(connection, chosen)
                if (older := self._lacks_intervals(batch, known)) is not None:
                    warnings = (older, *warnings)
            count = rows.write(connection, chosen)
            # the write has locked the table, so that from here on it stays as it is
            now = account.target()
            if now is None or now.id != target or table_columns(connection, sink.parts) != columns:
                raise RefusalError(
                    Reason.SINK_BUSY,
                    f"{what}: {sink.describe()} was just changed. Nothing was written; a retry looks again",
                    retryable=True,
                )
            # another stream may have committed while this one copied: the lock lets one at a time look and commit
            account.lock_target(target)
            self._refuse_overlap(account, batch)
            if replaced is not None:
                replaced.check()
            entry = Entry(
                batch.epoch, batch.batch_id, batch.manifest_digest, count, batch.end,
                1 + account.version(batch.uuid, target), self._job.attempt_id, interval=batch.interval or "",
            )  # fmt: skip
            source, versions = _source(batch)
            if sink.replaces and batch.interval_versions is not None:
                versions = (batch.interval_versions[0], batch.interval_versions[1])
            account.record(batch.uuid, target, entry, source, versions)
            reach("driver.commit.before")
            try:
                with at_most(connection, _COMMIT_SECONDS):
                    connection.commit()
            except psycopg().OperationalError as error:
                return self._after_lost_answer(batch, error)
            reach("driver.commit.after")
            return replace(self._landed(entry), warnings=warnings)

    def _create_or_evolve(self, connection: Any, account: Account, types: Dict[str, str], batch: BatchSpec) -> None:
        """Create the table in this transaction, or add columns to it in one of their own, if the sink may do so.

        To add a column keeps readers out until the transaction ends, so that it must not wait for the rows.
        """
        sink, what = self._sink, batch.describe()
        if self._may_create:
            account.lock_name()
            if account.target() is None:
                connection.execute(creation(types, sink, what))
                return
        if not sink.merge_schema:
            return
        added = addition(table_columns(connection, sink.parts), types, sink, what)
        if added is None or self._find(account, batch, self._known(account, batch)) is not None:
            return
        connection.execute(added)
        connection.commit()
        account.begin(lock_seconds=_LOCK_SECONDS)

    @property
    def _may_create(self) -> bool:
        """Whether a missing table is one that the stream has not written to, and is created."""
        return self._sink.create and self._job.sink_table_id is None and self._target_id is None

    def _after_lost_answer(self, batch: BatchSpec, error: Exception) -> Landed:
        """Return the batch if it was committed although COMMIT had no answer; else raise ``error``.

        The lock waits for the transaction of the lost connection, so what the account says then is final.
        """
        for pause in _PAUSES:
            time.sleep(pause)
            with suppress(psycopg().OperationalError), connected(self._sink.conn_id) as connection:
                account = self._account(connection)
                account.begin(lock_seconds=_LOCK_SECONDS)
                if self._sink.create:
                    account.lock_name()
                landed = None
                if account.target() is not None:
                    landed = self._find(account, batch, self._known(account, batch))
                if landed is not None:
                    return landed
                break
        raise error

    # What the account says ------------------------------------------------------------------------------------------

    def _account(self, connection: Any) -> Account:
        return Account(connection, self._sink.account, self._sink.parts)

    def _check_target(self, connection: Any, account: Account) -> bool:
        """Refuse a table that is missing, or that cannot keep what is committed; return whether it is there.

        A missing one may be created by the first batch.
        """
        sink = self._sink
        target = account.target()
        if target is None and not self._may_create:
            gone = "the stream has written to it, but it is" if self._job.sink_table_id is not None else "it is"
            raise RefusalError(
                Reason.SINK_MISSING,
                f"{sink.describe()}: {gone} missing in the database, or its schema is hidden from this role. "
                + (
                    "Create it, or let the first batch do so (create=True)"
                    if self._job.sink_table_id is None
                    else "Restore it"
                ),
            )
        problem = account.problem()
        if problem is not None:
            raise RefusalError(Reason.SINK_UNSUITABLE, f"{sink.describe()}: the server is unsuitable: {problem}")
        if target is None:
            return False
        if (problem := unsuitable(connection, sink.parts)) is not None:
            raise RefusalError(Reason.SINK_UNSUITABLE, f"{sink.describe()} {problem}. Use ordinary tables")
        return True

    def _known(self, account: Account, batch: BatchSpec) -> Optional[Tuple[int, int]]:
        """Lock the stream, and return its epoch and version in the account, ``None`` if it is new there.

        Of a data interval, it locks the interval and returns its generation.

        Raises:
            RefusalError: The table was replaced or restored, or the epoch of the batch is closed.
        """
        target = account.target()
        if target is None:
            raise RefusalError(Reason.SINK_MISSING, f"{self._sink.describe()} is gone. Restore it")
        self._target_id = account.registered(target)
        wanted = self._job.sink_table_id
        if wanted is not None and wanted != self._target_id:
            # a table that was restored from a dump has another oid, and all rows
            load = "load" if self._sink.needs_keys else "remove the stream's rows that it may have, then load"
            raise RefusalError(
                Reason.SINK_REPLACED,
                f"{self._sink.describe()} is another table than the one that the stream has written to: it was dropped "
                "and created again, or it or the account was restored from a dump. If one dump had both, "
                f'the page "Sinks" says how the account knows the table again, by its id {wanted}. Else '
                f"{load} everything into it by {self._advice.from_start()}",
            )
        if batch.interval is None:
            known = account.lock(batch.uuid, self._target_id)
        else:
            known = self._lock_interval(account, batch, self._target_id)
        if known is not None and known[0] > batch.epoch:
            raise RefusalError(
                Reason.EPOCH_OVERTAKEN,
                f"{batch.describe()} was not written: {self._sink.describe()} is in "
                f"{'epoch' if batch.interval is None else 'generation'} {known[0]}, which somebody has begun since",
                retryable=True,
            )
        return known

    def _lock_interval(self, account: Account, batch: BatchSpec, target: str) -> Optional[Tuple[int, int]]:
        """Lock the data interval; a later generation ends a driver that hangs, so that a retry gets the lock."""
        try:
            return account.lock_interval(batch.uuid, target, str(batch.interval))
        except psycopg().errors.LockNotAvailable:
            if batch.epoch > 1:
                with connected(self._sink.conn_id) as connection:
                    other = self._account(connection)
                    for pid in other.holders(batch.uuid, target, batch.interval):
                        other.end(pid)
            raise

    def _find(self, account: Account, batch: BatchSpec, known: Optional[Tuple[int, int]]) -> Optional[Landed]:
        target = self._require_target()
        entry = None
        if known is not None:
            entry = account.entry(batch.uuid, target, batch.epoch, batch.batch_id, batch.interval)
        if entry is not None and entry.digest == batch.manifest_digest:
            return self._landed(entry)
        older = self._lacks_intervals(batch, known)
        if entry is None and older is not None and not self._sink.replaces:
            raise RefusalError(Reason.SINK_OUT_OF_ORDER, f"{older}. Nothing was written")
        newest = None if known is None else account.newest(batch.uuid, target, batch.interval)
        if entry is None and self._sink.replaces and (newest is None or newest.epoch < batch.epoch):
            # whatever earlier generations wrote is replaced
            return None
        found = None if newest is None else _transaction(newest)
        expected = batch.prev_txn_version
        # a sink that the stream had left was closed at an earlier epoch, and has nothing of those since
        is_left = expected is None and newest is not None and newest.epoch < batch.epoch and newest.batch == FENCE
        if entry is None and (found == expected or is_left):
            return None
        if entry is None and expected is None and newest is not None and newest.epoch < batch.epoch:
            raise RefusalError(
                Reason.SINK_APPEARED,
                f"{batch.describe()} was not written: {self._sink.describe()} was missing when the epoch began. "
                f"It has transaction {found} of the stream, from an epoch that was already closed",
                retryable=True,
            )
        has = "no transaction" if found is None else f"transaction {found}"
        lacks = expected is not None and (found or 0) < expected
        again = self._advice.after(found, batch.epoch) if lacks else ""
        what = (
            f"the table lacks committed batches, because it was restored from a copy. Load them again by {again}"
            if lacks
            else f"another run has continued, so there is nothing to do; or the ledger is older than the table: "
            f"{self._advice.recover()}"
        )
        raise RefusalError(
            Reason.SINK_OUT_OF_ORDER,
            f"{batch.describe()} is out of order: {self._sink.describe()} has {has} of the stream as its newest; "
            f"expected {'none' if expected is None else expected} before {batch.txn_version}. Nothing was written: "
            f"{what}",
        )

    def _lacks_intervals(self, batch: BatchSpec, known: Optional[Tuple[int, int]]) -> Optional[str]:
        """Return that data intervals that were committed are gone, and what to do, or ``None``.

        The transactions of one interval do not show that another one is missing; the number of the stream's commits
        does.
        """
        committed = self._job.sink_version
        has = 0 if known is None else known[1]
        if batch.interval is None or committed is None or has >= committed:
            return None
        return (
            f"{batch.describe()}: {self._sink.describe()} is at commit {has} of the stream, but the ledger knows "
            f"commit {committed}, so the database was restored from an older copy and lacks data intervals. Load them "
            f"again by {self._advice.rewind()}"
        )

    def _refuse_overlap(self, account: Account, batch: BatchSpec) -> None:
        """Refuse versions that another stream has loaded: rows would be there twice, or older ones replace newer."""
        source, versions = _source(batch)
        if self._job.allow_overlap or source is None or versions[0] is None or versions[1] is None:
            return
        span, others = (versions[0], versions[1]), self._sink.other_streams
        merges = self._sink.needs_keys
        if merges and self._sink.sequence_by is not None:
            # which row of a key is the newest does not depend on the order of the streams
            return
        found = account.overlap(
            batch.uuid, self._require_target(), source, (span[0], _NEWEST) if merges else span, others
        )
        if found is not None:
            harm = "could replace newer ones" if merges else "would be there twice"
            raise RefusalError(
                Reason.SINK_HAS_ROWS,
                f"{batch.describe()}: stream {found[0]!r} has loaded {describe_range(*found[1:])} of the same "
                f"table into {self._sink.describe()}, so rows of {describe_range(*span)} {harm}. "
                "If the two load different rows, set allow_overlap=True on this stream (`fds`: --allow-overlap)",
            )

    def _landed(self, entry: Entry) -> Landed:
        metadata = {"attempt": entry.attempt, "digest": entry.digest, "settings": {}}
        commit = SinkCommit(entry.version, "COPY", {"numOutputRows": str(entry.rows)}, metadata)
        return Landed(commit, by_this_attempt=entry.attempt == self._job.attempt_id)

    def _require_target(self) -> str:
        assert self._target_id is not None  # noqa: S101  # the lock has set it
        return self._target_id


def _source(batch: BatchSpec) -> Tuple[Optional[str], Tuple[Optional[int], Optional[int]]]:
    """Return the source table's id and the versions whose rows a batch has; a snapshot has those of all before it."""
    try:
        end = json.loads(batch.end)
        table = str(end["reservoirId"])
        first = 0 if end.get("isStartingVersion") else batch.first_version
    except (ValueError, KeyError, TypeError):
        return None, (None, None)
    return table, (first, batch.last_version)


def _transaction(entry: Entry) -> int:
    return fence_version(entry.epoch) if entry.batch == FENCE else txn_version(entry.epoch, entry.batch)
