"""The fence: a commit that closes, in the sink, everything older than an epoch.

Delta skips a transaction that is not above the newest one of its application, and refuses it if both are in flight.
Once the sink has the fence's transaction, no writer of an older epoch can land any longer, however long it was paused.
The commit is an append without rows. If the epoch's request asks for it, it is instead the statement that removes the
rows that the epoch reads again, so that removal and transaction can only happen together. Standard library and pyspark,
Python 3.9 syntax.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Dict, Iterable, List, Optional, Tuple

from airflow_provider_fds.batch.report import FenceEvidence, FenceReport, LandedBatch, RemovedRows
from airflow_provider_fds.batch.sink.commit_metadata import fence_metadata, removal_metadata
from airflow_provider_fds.batch.sink.table_account import account
from airflow_provider_fds.batch.transactions import fence_version, txn_epoch
from airflow_provider_fds.fault_points import reach
from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.sinks import DeltaAppendSink
from airflow_provider_fds.spark.fence.empty_append import append_nothing
from airflow_provider_fds.spark.fence.failed_fence import failed_fence
from airflow_provider_fds.spark.fence.removal import Removal
from airflow_provider_fds.spark.runtime.driver_versions import check_versions
from airflow_provider_fds.spark.runtime.failures import RefusalError, is_conflict
from airflow_provider_fds.spark.runtime.hadoop_files import hadoop_path
from airflow_provider_fds.spark.runtime.settings import force, session_conf, transaction_conf
from airflow_provider_fds.spark.sink_log.added_files import AddedFiles
from airflow_provider_fds.spark.sink_log.advice import Advice
from airflow_provider_fds.spark.sink_log.history import History, SinkLog, read_table_id
from airflow_provider_fds.spark.sink_log.other_writers import RowsTaken, refuse_namesakes
from airflow_provider_fds.spark.sink_log.sink_place import check_log_store, check_table

if TYPE_CHECKING:
    from airflow_provider_fds.batch.sink.sink_account import Kept
    from airflow_provider_fds.batch.sink.sink_commit import SinkCommit
    from airflow_provider_fds.batch.spec import FenceSpec, JobSpec
    from airflow_provider_fds.batch.table_writes import TableWrites
    from airflow_provider_fds.sinks import DeltaSink, ForeachBatchSink

#: A zombie may commit between a check and a write, once per batch it still has; more conflicts have another cause.
_MOST_ATTEMPTS = 5

#: Later than every version: a check of the log that reads no commit.
_NONE = sys.maxsize


def close_epochs(spark: Any, spec: JobSpec, fence: FenceSpec, sink: DeltaSink) -> FenceReport:
    """Write the fence if it is not there, and report which batches of older epochs landed before it."""
    try:
        check_versions(spark)
        force(spark)
        return _Fence(spark, spec, fence, sink).close()
    except Exception as e:  # noqa: BLE001 - any error: the report is the only way to convey it
        return failed_fence(spec, fence, e)


class _Fence:
    def __init__(self, spark: Any, spec: JobSpec, fence: FenceSpec, sink: DeltaSink) -> None:
        self._spark = spark
        self._spec = spec
        self._fence = fence
        self._path = hadoop_path(sink.uri, spark)
        self._sink = sink
        self._log = SinkLog(spark, self._path)
        self._added = AddedFiles(spark, self._path, self._log)
        self._known = spec.sink_version
        self._is_older = False
        # a transaction known only from a log checkpoint; once the fence is written, the fence records it
        self._checkpointed: Optional[int] = None
        self._advice = advice = Advice(sink, fence.stream, is_requested=True)
        way_on = advice.rewind()
        self._others = RowsTaken(sink, self._path, self._log, uuid=fence.uuid, breaking_too=False, way_on=way_on)

    def close(self) -> FenceReport:
        check_log_store(self._spark, self._sink, self._path)
        for _ in range(_MOST_ATTEMPTS):
            history = self._history()
            if history is None:
                # fails if a table cannot be created here
                read_table_id(self._spark, self._path)
                return FenceReport(self._fence.uuid, self._fence.epoch, self._spec.attempt_id, "sink_missing")
            check_table(self._spark, self._path)
            fence, others = self._fence, self._sink.other_streams
            refuse_namesakes(history, self._path, fence.stream, fence.uuid, others)
            found = self._find(history)
            if fence.keeps_position and self._known is not None:
                self._others.check(history, self._known, fence.stream, None if found is None else found.version)
            if found is not None:
                return self._report(history, found)
            if self._is_cut(history):
                self._checkpointed = self._log.transaction(self._fence.txn_app_id)
                if self._checkpointed == self._fence.txn_version:
                    raise self._hidden()
            if not self._is_older and (self._fence.removes != "all" or self._sink.keeps_history):
                # a RESTORE that takes such a batch must come before the fence
                self._uncommitted(history, history.kept(self._fence.txn_app_id), history.newest_version + 1, -1)
            if self._fence.removes is None:
                self._write(None)
            else:
                self._remove(history.newest_version)
        raise RefusalError(
            Reason.SINK_BUSY,
            f"stream {self._fence.stream!r}: the fence of epoch {self._fence.epoch} is not in the sink "
            f"{self._path} after {_MOST_ATTEMPTS} attempts, because other writers keep committing. A retry tries "
            "again",
            retryable=True,
        )

    def _history(self) -> Optional[History]:
        """Return the sink's commits since the stream's last one; all of them if the table is older than that."""
        history = self._log.history(self._known)
        if history is not None and self._known is not None and history.newest_version < self._known:
            # another table than the one the stream wrote to, or an older state of it: the ledger already knows its
            # contents
            self._known, self._is_older = None, True
            return self._log.history(None)
        return history

    def _find(self, history: History) -> Optional[SinkCommit]:
        wanted = self._fence.txn_version
        newest = history.newest_transaction(self._fence.txn_app_id)
        if newest is not None and newest > wanted:
            raise RefusalError(
                Reason.EPOCH_OVERTAKEN,
                f"stream {self._fence.stream!r}: the sink {self._path} has transaction {newest} of "
                f"{self._fence.txn_app_id}, which belongs to a later epoch than {self._fence.epoch}. Check the "
                "stream with `fds status`",
                retryable=True,
            )
        return next((c for c in history.commits if c.transaction_of(self._fence.txn_app_id) == wanted), None)

    def _remove(self, newest_version: int) -> None:
        """Remove the rows under the fence's transaction; without such rows, Delta may not have committed."""
        removal = Removal(self._spark, self._fence, self._sink, self._path)
        history = self._log.history(None)
        assert history is not None  # noqa: S101  # the caller has checked it
        removal.check(history)
        metadata = fence_metadata(self._fence, self._spec.attempt_id, newest=self._checkpointed)
        reach("fence.commit.before")
        conf = transaction_conf(self._fence.txn_app_id, self._fence.txn_version, metadata)
        try:
            with session_conf(self._spark, conf):
                self._spark.sql(removal.statement()).collect()
        except Exception as e:
            if is_conflict(e):
                return
            raise
        reach("fence.commit.after")
        after = self._log.history(newest_version)
        if after is not None and self._find(after) is None:
            # commits that landed after newest_version were not checked
            self._write(newest_version)

    def _write(self, removed_to: Optional[int]) -> None:
        metadata = fence_metadata(self._fence, self._spec.attempt_id, removed_to, self._checkpointed)
        reach("fence.commit.before")
        try:
            append_nothing(
                self._spark, self._path, self._fence.txn_app_id, self._fence.txn_version, user_metadata=metadata
            )
        except Exception as e:
            if not is_conflict(e):
                raise
        else:
            reach("fence.commit.after")

    def _report(self, history: History, fence: SinkCommit) -> FenceReport:
        # the newest metaData is the table's, if it is among the commits read
        seen = next((commit.table_id for commit in history.commits if commit.table_id), None)
        removed_to = self._removed_to(fence)
        kept = history.kept(self._fence.txn_app_id, fence.version)
        removed = self._removed(history, kept, fence)
        return FenceReport(
            uuid=self._fence.uuid,
            epoch=self._fence.epoch,
            attempt_id=self._spec.attempt_id,
            outcome="fenced",
            sink_version=fence.version,
            sink_table_id=seen or read_table_id(self._spark, self._path),
            landed=self._landed(
                history,
                fence,
                kept,
                max([-1 if removed_to is None else removed_to, *_gone_before(removed, fence.version)]),
            ),
            has_removed=self._fence.removes is None or removed_to is not None,
            removed_rows=None if removed_to is None else _removed_rows(fence),
            evidence=FenceEvidence(
                newest=self._newest_before(history, fence),
                is_cut=self._is_cut(history),
                broken_at=kept.broken_at,
                removed=removed,
                restored_to=kept.restored_to,
            ),
            warnings=self._others.news(),
        )

    def _is_cut(self, history: History) -> bool:
        """Whether log cleanup removed commits since the stream's last known one."""
        return history.oldest_version > (0 if self._known is None else self._known)

    def _newest_before(self, history: History, fence: SinkCommit) -> Optional[int]:
        """Return the stream's newest transaction before the fence."""
        app_id = self._fence.txn_app_id
        seen = [commit.transaction_of(app_id) for commit in history.commits if commit.version < fence.version]
        # the fence has what the log checkpoint contained before the fence was written
        seen.append((fence.metadata or {}).get("newest", self._checkpointed))
        return max((transaction for transaction in seen if transaction is not None), default=None)

    def _removed(self, history: History, kept: Kept, fence: SinkCommit) -> Tuple[RemovedRows, ...]:
        """Return the removals by fences up to this one, except those that a RESTORE undid.

        A fence that FDS did not write is one, whatever it did.
        """
        found: List[RemovedRows] = []
        for commit in reversed(history.commits):
            epoch = txn_epoch(commit.transaction_of(self._fence.txn_app_id) or 0)
            is_fence = commit.transaction_of(self._fence.txn_app_id) == fence_version(epoch)
            is_removal = commit.removes_rows or commit.metadata is None
            if is_fence and is_removal and commit.version in (*kept.versions, fence.version):
                asked = dict((commit.metadata or {}).get("removes") or {})
                found.append(RemovedRows(epoch, commit.version, asked.get("what"), asked.get("from_version")))
        own = {c.transaction_of(self._fence.txn_app_id): c.metadata or {} for c in history.commits}
        # the fences of epochs that never began have what the log checkpoint contained before them
        known = {self._checkpointed, *(told.get("newest") for at, told in own.items() if at is not None)}
        hidden = (at for at in known - own.keys() if isinstance(at, int) and at == fence_version(txn_epoch(at)))
        return (*found, *(RemovedRows(txn_epoch(at), 0) for at in sorted(hidden)))

    def _hidden(self) -> RefusalError:
        stream, epoch = self._fence.stream, self._fence.epoch
        return RefusalError(
            Reason.SINK_OUT_OF_ORDER,
            f"stream {stream!r}: log cleanup removed the commit that closed the epochs before epoch {epoch} from the "
            f"log of the sink {self._path}. It is unknown which rows it removed. Load everything again: `fds rewind "
            f"{stream} --to start --replace --sink-rows empty --force-sink --why …`",
        )

    def _removed_to(self, fence: SinkCommit) -> Optional[int]:
        """Return the newest version whose rows the fence removed, or ``None`` if it removed something else."""
        removal = dict((fence.metadata or {}).get("removes") or {})
        # a commit that removes rows conflicts with every other commit of the stream, so it has seen all earlier ones
        removed_to = removal.pop("to", fence.version - 1)
        is_wanted = self._fence.removes is not None and removal == removal_metadata(self._fence)
        return int(removed_to) if is_wanted else None

    def _landed(self, history: History, fence: SinkCommit, kept: Kept, removed_to: int) -> Tuple[LandedBatch, ...]:
        if self._is_older:
            return ()
        self._added.check(
            history, fence, f"stream {self._fence.stream!r}: the fence of epoch {self._fence.epoch}", self._again()
        )
        return tuple(
            LandedBatch(
                epoch=int(metadata["epoch"]),
                batch_id=int(metadata["batch_id"]),
                end=metadata["end"],
                digest=metadata["digest"],
                sink_version=version,
            )
            for version, metadata in self._uncommitted(history, kept, fence.version, removed_to)
        )

    def _uncommitted(
        self, history: History, kept: Kept, before: int, removed_to: int
    ) -> List[Tuple[int, Dict[str, Any]]]:
        """Return version and metadata of each uncommitted batch of the stream before a version, oldest first.

        Raises:
            RefusalError: Files of such a batch are missing, so its rows would be taken for loaded.
        """
        known = -1 if self._known is None else self._known
        found: List[Tuple[int, Dict[str, Any]]] = []
        for commit in reversed(history.commits):
            metadata = commit.metadata
            if commit.version >= before or commit.version not in kept.versions or metadata is None:
                continue
            is_batch = metadata.get("uuid") == self._fence.uuid and "batch_id" in metadata
            if is_batch and commit.version > max(known, removed_to):
                what = f"stream {self._fence.stream!r}, epoch {metadata['epoch']}, batch {metadata['batch_id']}"
                self._added.check(history, commit, what, self._again())
                found.append((commit.version, metadata))
        return found

    def _again(self) -> str:
        return self._advice.rewind() if self._fence.removes is not None else self._advice.replan()


def _gone_before(removed: Iterable[RemovedRows], fence_at: int) -> List[int]:
    """Return the versions up to which every uncommitted batch is gone; another statement does not record this.

    A rewind moves backwards, so such a batch begins after the rows from which a fence removes.
    """
    return [one.sink_version for one in removed if one.what is not None and one.sink_version < fence_at]


def _removed_rows(fence: SinkCommit) -> Optional[int]:
    """Return the number of rows that the fence removed, or closed in a history."""
    names = {"DELETE": "numDeletedRows", "UPDATE": "numUpdatedRows"}
    return fence.metric(names[fence.operation]) if fence.operation in names else 0


def close_writes(spark: Any, spec: JobSpec, fence: FenceSpec, sink: ForeachBatchSink) -> FenceReport:
    """Write the missing fence of each named write, and report what its table has of the write.

    Returns the report of the first that fails.
    """
    found: Dict[str, TableWrites] = {}
    for name, uri in sink.tables.items():
        report = _close_write(spark, spec, replace(fence, write=name), uri)
        if report.outcome == "failed":
            return report
        found.update(report.tables)
    outcome = "fenced" if found else "sink_missing"
    return FenceReport(fence.uuid, fence.epoch, spec.attempt_id, outcome, writes=tuple(found), tables=found)


def _close_write(spark: Any, spec: JobSpec, fence: FenceSpec, uri: str) -> FenceReport:
    # the session decides which log store the function uses; the fence commits through the same one
    table = DeltaAppendSink(uri, allow_single_driver_s3=True)
    try:
        log = SinkLog(spark, hadoop_path(uri, spark))
        history = log.history(_NONE)
        if history is None or log.transaction(fence.txn_app_id) != fence.txn_version:
            # what landed is read below, from each write's last commit on; here only new commits are read
            known = None if history is None else history.newest_version
            report = close_epochs(spark, replace(spec, sink_version=known, sink_table_id=None), fence, table)
            if report.outcome != "fenced":
                return report
        tables = _account(log, fence)
        return FenceReport(
            fence.uuid, fence.epoch, spec.attempt_id, "fenced" if tables else "sink_missing", tables=tables
        )
    except Exception as error:  # noqa: BLE001 - any error: the report is the only way to convey it
        return failed_fence(spec, fence, error, f"write {fence.write!r} in {uri}: ")


def _account(log: SinkLog, fence: FenceSpec) -> Dict[str, TableWrites]:
    """Return what the table has of a write since its last committed batch, by the write's name."""
    committed = fence.committed or 0
    history = log.since_transaction(fence.txn_app_id, committed + 1)
    if history is None:
        return {}
    newest = log.transaction(fence.txn_app_id)
    return {fence.write or "": account(history.commits[::-1], fence.txn_app_id, newest, committed)}
