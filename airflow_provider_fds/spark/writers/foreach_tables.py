"""The named tables that a user's function writes: what their logs show of a batch.

Standard library and pyspark, Python 3.9 syntax.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Sequence, Set

from airflow_provider_fds.batch.spec import fence_version, txn_app_id, txn_batch_id, txn_epoch
from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.spark.fence.empty_append import append_nothing
from airflow_provider_fds.spark.runtime.failures import RefusalError, is_conflict
from airflow_provider_fds.spark.runtime.hadoop_files import hadoop_path
from airflow_provider_fds.spark.sink_log.history import History, SinkLog
from airflow_provider_fds.spark.sink_log.other_writers import refuse_namesakes
from airflow_provider_fds.spark.sink_log.sink_place import check_table

if TYPE_CHECKING:
    from airflow_provider_fds.batch.spec import BatchSpec
    from airflow_provider_fds.sinks import ForeachBatchSink

#: Later than every version: a check of the log that reads no commit.
_NONE = sys.maxsize

#: Number of commits first read to find a write; it grows fourfold with each step.
_WINDOW = 50


class WrittenTables:
    """The tables of a sink's writes, throughout one job."""

    def __init__(self, spark: Any, sink: ForeachBatchSink, known: Dict[str, int]) -> None:
        self._spark = spark
        self._paths = {name: hadoop_path(uri, spark) for name, uri in sink.tables.items()}
        self._logs = {name: SinkLog(spark, path) for name, path in self._paths.items()}
        self._known = dict(known)
        self._versions: Dict[str, int] = {}
        self._checked: Set[str] = set()
        self._warned = False
        self._unknown = [name for name in sink.names if name not in self._paths]
        self._function = sink.function
        self._others = sink.other_streams

    def prepare(self, batch: BatchSpec, *, is_repeated: bool) -> None:
        """Check, before the function is called, that Delta accepts each write once and in turn.

        Args:
            batch: The batch.
            is_repeated: Whether another attempt may have called the function with it.

        Raises:
            RefusalError: A table forgets transactions too soon, already has a later transaction of this write or has
                this one from another batch, was restored to a version before what was written, or is written by a
                stream of the same name with another ledger.
        """
        self._warn()
        for name in self._logs:
            if not self._check_new_commits(name, batch):
                continue
            if name not in self._checked or is_repeated:
                check_table(self._spark, self._paths[name])
                newest = self._newest(name, batch)
                self._checked.add(name)
                if newest == batch.txn_version:
                    self._check_same(name, batch, is_repeated=is_repeated)
                if is_repeated and newest == batch.txn_version:
                    self._remind(name, batch)
            if is_repeated:
                self._tell(name, batch, is_before=True)

    def check_landed(self, batch: BatchSpec, asked: Sequence[str]) -> None:
        """Check, after the function has returned, which writes are in the tables.

        Args:
            batch: The batch.
            asked: Names of the writes whose options the function requested.

        Raises:
            RefusalError: Delta skipped a write because of a later transaction, so its rows are nowhere; or a table was
                restored in the meantime, or another stream of the same name has written to it.
        """
        for name in self._logs:
            if self._check_new_commits(name, batch) and name in asked:
                self._newest(name, batch)
            self._tell(name, batch, is_before=False)

    def check_kept(self, batch: BatchSpec) -> None:
        """Check that what an earlier attempt has written and reported is still there.

        Raises:
            RefusalError: A table was restored or replaced since.
        """
        for name, log in self._logs.items():
            history = log.history(_NONE)
            self._check_there(name, batch, history)
            if history is not None and self._newest(name, batch) is not None:
                self._check_kept(name, batch)

    def versions(self, batch: BatchSpec) -> Dict[str, int]:
        """Return, if known, the version of each table that holds the newest transaction of its write."""
        for name in self._logs:
            app_id, history = txn_app_id(batch.uuid, write=name), self._since_last(name, batch)
            commits = () if history is None else history.commits
            own = [commit.version for commit in commits if app_id in commit.transactions]
            if own:
                self._known[name] = own[0]
        return dict(self._known)

    def _check_there(self, name: str, batch: BatchSpec, history: Optional[History]) -> None:
        """Check that a table which the stream has written exists and has that write's transactions."""
        known = self._known.get(name)
        newest = None if history is None else self._logs[name].transaction(txn_app_id(batch.uuid, write=name))
        if known is None:
            self._check_closed(name, batch, newest)
            return
        if newest is not None and history is not None and history.newest_version >= known:
            return
        raise RefusalError(
            Reason.SINK_MISSING,
            f"stream {batch.stream!r}, epoch {batch.epoch}, batch {batch.batch_id}: the table {self._paths[name]} "
            f"of write {name!r} was removed, restored from a copy, or created again after the stream had written "
            "to it. Restore it, or remove the rows from the other tables and load everything again: `fds reset "
            f"{batch.stream} --sink-rows keep --why …`",
        )

    def _check_closed(self, name: str, batch: BatchSpec, newest: Optional[int]) -> None:
        """Check that a table which was not fenced when the epoch began has no write of an earlier epoch."""
        if newest is None or newest >= fence_version(batch.epoch) or txn_batch_id(newest) < 0:
            # none, one of this epoch, or the fence from before the stream moved to another sink
            return
        raise RefusalError(
            Reason.EPOCH_NOT_CLOSED,
            f"stream {batch.stream!r}, epoch {batch.epoch}, batch {batch.batch_id}: the table {self._paths[name]} "
            f"has batch {txn_batch_id(newest)} of epoch {txn_epoch(newest)} of write {name!r}, and that epoch was "
            "not closed there, because the table was missing or not named when the new one began. If a leftover "
            "driver created the table since then, its rows are loaded again: remove them. Then `fds replan "
            f"{batch.stream} --why …` closes the old epochs in the table",
        )

    def _check_new_commits(self, name: str, batch: BatchSpec) -> bool:
        """Check the new commits of a table; return whether it exists. The first check goes back to the last write."""
        log, known = self._logs[name], self._versions.get(name)
        history = log.history(_NONE if known is None else known + 1)
        self._versions[name] = -1 if history is None else history.newest_version
        if known is None:
            self._check_there(name, batch, history)
        if history is None:
            return False
        if known is None or known > history.newest_version:
            uuids = {app_id.partition("#")[0] for app_id in log.transactions()} - {txn_app_id(batch.uuid)}
            history = log.history(None) if uuids else None
            self._check_kept(name, batch)
        elif any(commit.is_breaking for commit in history.commits):
            self._check_kept(name, batch)
        if history is not None:
            refuse_namesakes(history, self._paths[name], batch.stream, batch.uuid, self._others)
        return True

    def _since_last(self, name: str, batch: BatchSpec) -> Optional[History]:
        """Return the commits of a table since the last write or fence before this batch, or all commits."""
        app_id, log, commits = txn_app_id(batch.uuid, write=name), self._logs[name], _WINDOW
        while True:
            history = log.history(_NONE)
            down_to = 0 if history is None else max(0, history.newest_version - commits)
            history = log.history(down_to)
            if history is None:
                return None
            for position, commit in enumerate(history.commits):
                if commit.transactions.get(app_id, batch.txn_version) < batch.txn_version:
                    return History(history.newest_version, history.commits[: position + 1])
            if down_to == 0 or history.oldest_version > down_to:
                return history
            commits *= 4

    def _check_same(self, name: str, batch: BatchSpec, *, is_repeated: bool) -> None:
        """Check that the transaction for which Delta skips this write belongs to this batch and no other."""
        app_id, history = txn_app_id(batch.uuid, write=name), self._since_last(name, batch)
        commits = () if history is None else history.commits
        own = [c for c in commits if c.transactions.get(app_id) == batch.txn_version]
        told = {str(c.write["digest"]) for c in own if c.write is not None}
        if told <= {batch.manifest_digest} and (told or is_repeated):
            return
        where = f"version {own[-1].version} of {self._paths[name]}" if own else self._paths[name]
        what = "is of another batch with this number" if told else "exists, but no attempt has started this batch"
        raise RefusalError(
            Reason.SINK_OUT_OF_ORDER,
            f"stream {batch.stream!r}, epoch {batch.epoch}, batch {batch.batch_id}: the write {name!r} in {where} "
            f"{what}, so the ledger is older than the table, and Delta would silently skip the write. Restore the "
            "newest copy of the staging folder. If there is none, remove the rows of version "
            f"{batch.first_version} and later from the tables, then run `fds rewind {batch.stream} --to-version "
            f"{batch.first_version} --sink-rows keep --why …`",
        )

    def _check_kept(self, name: str, batch: BatchSpec) -> None:
        """Check that the rows of the write before this batch are in the table, and those of this batch if written."""
        app_id, history = txn_app_id(batch.uuid, write=name), self._since_last(name, batch)
        if history is None or not history.commits:
            return
        kept = history.kept(app_id)
        # an earlier batch, whose commit log cleanup removed, was there too
        newest = self._logs[name].transaction(app_id)
        has_last = history.commits[-1].transactions.get(app_id, batch.txn_version) < batch.txn_version
        is_hidden = history.oldest_version > 0 and newest is not None and newest < batch.txn_version
        if kept.broken_at is not None and (has_last or is_hidden):
            raise RefusalError(
                Reason.SINK_REPLACED,
                f"stream {batch.stream!r}, epoch {batch.epoch}, batch {batch.batch_id}: the table "
                f"{self._paths[name]} was restored or replaced at version {kept.broken_at}, after {name!r} had "
                "written earlier batches to it, so it may lack rows. Remove the rows of the first missing batch "
                f"and of later ones from the tables, then run `fds rewind {batch.stream} --to-batch N --sink-rows "
                "keep --why …`",
            )
        # if it occurs twice, the later one is a reminder without rows
        own = [c.version for c in history.commits if c.transactions.get(app_id) == batch.txn_version]
        broken_at = -1 if kept.broken_at is None else kept.broken_at
        if not own or (own[-1] in kept.versions and broken_at < own[-1]):
            return
        raise RefusalError(
            Reason.SINK_REPLACED,
            f"stream {batch.stream!r}, epoch {batch.epoch}, batch {batch.batch_id}: version {own[-1]} of "
            f"{self._paths[name]} was the write {name!r} of this batch, and the table was restored or replaced "
            "since then, so its rows may be missing. Delta would skip the write if it was repeated. Check the "
            f"tables: `fds replan {batch.stream} --why …` asks which writes of the batch they have",
        )

    def _newest(self, name: str, batch: BatchSpec) -> Optional[int]:
        """Return the newest transaction of a write in its table. Raises ``RefusalError`` if it is a later one."""
        app_id = txn_app_id(batch.uuid, write=name)
        newest = self._logs[name].transaction(app_id)
        if newest is not None and newest > batch.txn_version:
            raise RefusalError(
                Reason.SINK_OUT_OF_ORDER,
                f"stream {batch.stream!r}, epoch {batch.epoch}, batch {batch.batch_id}: the table "
                f"{self._paths[name]} has transaction {newest} of {app_id}, which is later than "
                f"{batch.txn_version}, so Delta silently skips the write {name!r} of this batch. Another attempt "
                "has continued with later batches or a new epoch, or the ledger is older than the table: compare "
                "the table with the stream's history",
            )
        return newest

    def _remind(self, name: str, batch: BatchSpec) -> None:
        """Commit the transaction of a write again, because its commit exists but Delta itself may have forgotten it.

        A log checkpoint drops transactions older than the retention that the table had at that time. If Delta still
        knows the transaction, it skips this commit.
        """
        try:
            append_nothing(
                self._spark, self._paths[name], txn_app_id(batch.uuid, write=name), batch.txn_version, _REMINDER
            )
        except Exception as error:
            if not is_conflict(error):
                raise

    def _tell(self, name: str, batch: BatchSpec, *, is_before: bool) -> None:
        newest = self._logs[name].transaction(txn_app_id(batch.uuid, write=name))
        is_there = newest == batch.txn_version
        what = f"FDS batch {batch.batch_id}: write {name!r} is {'' if is_there else 'not '}in {self._paths[name]}"
        if is_before:
            tail = ", by an earlier attempt; it is not written again" if is_there else " yet, after an earlier attempt"
            print(f"{what}{tail}", flush=True)
        elif not is_there:
            print(f"{what}: the function has written no rows of it", flush=True)

    def _warn(self) -> None:
        """Print once per job what is not checked."""
        if self._warned or not self._unknown:
            return
        self._warned = True
        print(
            f"FDS WARNING: function {self._function} writes {', '.join(map(repr, self._unknown))} to tables that FDS "
            "does not know, so it cannot check whether they forget transactions "
            "(delta.setTransactionRetentionDuration) or which writes have landed. Name them: writes={name: table}",
            flush=True,
        )


#: ``userMetadata`` of a commit without rows.
_REMINDER = "FDS: no rows, the transaction of a batch that is there"

__all__: List[str] = ["WrittenTables"]
