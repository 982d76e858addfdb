"""The writer of ``DeltaAppendSink``: each batch lands in a Delta table once, or fails with the reason.

All batches of a stream share one transaction application id, and Delta neither commits a transaction version twice nor
one below the newest. A skip is invisible, so the commit is looked up in the table's history. Standard library and
pyspark, Python 3.9 syntax.
"""

from __future__ import annotations

import json
import random
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ContextManager, Dict, Optional, Sequence, Tuple

from airflow_provider_fds.batch.column_fit import ColumnFit, widening_of
from airflow_provider_fds.batch.sink.commit_metadata import commit_metadata
from airflow_provider_fds.batch.sink.loaded_streams import Loaded
from airflow_provider_fds.batch.transactions import fence_version
from airflow_provider_fds.fault_points import reach
from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.sinks.constants import PROVENANCE
from airflow_provider_fds.spark.fence.close_epochs import close_epochs
from airflow_provider_fds.spark.fence.registration import ensure_registered
from airflow_provider_fds.spark.runtime.attempt_identity import is_connect
from airflow_provider_fds.spark.runtime.failures import RefusalError, has_condition, is_conflict
from airflow_provider_fds.spark.runtime.hadoop_files import hadoop_path
from airflow_provider_fds.spark.runtime.settings import file_size_conf, session_conf, transaction_conf
from airflow_provider_fds.spark.runtime.sql import literal, quoted_name, temporary_view
from airflow_provider_fds.spark.sink_log.added_files import AddedFiles
from airflow_provider_fds.spark.sink_log.advice import Advice
from airflow_provider_fds.spark.sink_log.history import History, SinkLog, quoted, read_properties
from airflow_provider_fds.spark.sink_log.other_writers import refuse_overlap
from airflow_provider_fds.spark.sink_log.sink_place import check_place
from airflow_provider_fds.spark.sink_log.sink_state import SinkState
from airflow_provider_fds.spark.sink_log.sink_transactions import give_transactions
from airflow_provider_fds.spark.writers.after_commit import write_until_committed
from airflow_provider_fds.spark.writers.rows.prepared_rows import prepared
from airflow_provider_fds.spark.writers.rows.repeated_hours import refuse_repeated_hours
from airflow_provider_fds.spark.writers.rows.sink_columns import (
    check_layout,
    checked_fit,
    refuse_moved,
    same_values,
    with_casts,
    with_provenance,
)
from airflow_provider_fds.spark.writers.writer import Landed, Writer

if TYPE_CHECKING:
    from airflow_provider_fds.batch.column_fit import Widening
    from airflow_provider_fds.batch.report import FenceReport
    from airflow_provider_fds.batch.sink.sink_commit import SinkCommit
    from airflow_provider_fds.batch.spec import BatchSpec, FenceSpec, JobSpec
    from airflow_provider_fds.sinks import DeltaSink

#: CREATE TABLE lost against another writer.
_EXISTS_ALREADY = ("TABLE_OR_VIEW_ALREADY_EXISTS", "DELTA_TABLE_ALREADY_EXISTS")

#: Data intervals are written concurrently, and tables created; a write that conflicts is repeated this many times.
_ATTEMPTS = 6


class DeltaAppendWriter(Writer):
    """Appends to a Delta table; remembers the table's state between the batches of a job."""

    _sink: DeltaSink

    def __init__(self, spark: Any, sink: DeltaSink, job: JobSpec, settings: Dict[str, str]) -> None:
        super().__init__(spark, sink, job, settings)
        self._path = hadoop_path(sink.uri, spark)
        self._log = SinkLog(spark, self._path)
        self._added = AddedFiles(spark, self._path, self._log)
        one = job.batches[0]
        self._advice = Advice(sink, one.stream, is_interval=one.interval is not None)
        self._state = SinkState(
            spark, sink, self._path, self._log, job, self._advice, breaking_matters=self._breaking_matters
        )
        #: By batch.
        self._landed_at: Dict[int, int] = {}
        #: What the streams had loaded when the sink was looked at last; a sink that does not exist has nothing.
        self._loaded = Loaded()
        #: By the version of the sink's schema, and the schema of the batch.
        self._fits: Dict[Tuple[Optional[int], str], ColumnFit] = {}
        #: Of the batch that is being written.
        self._fit = ColumnFit()
        self._same_values: Dict[str, Any] = {}

    #: Whether rows that were loaded earlier may be permanently lost after a RESTORE or a similar operation.
    _breaking_matters = True

    #: Whether a batch may not land where another stream has loaded the same rows.
    _overlap_matters = True

    @property
    def reads_rows_once(self) -> bool:
        """Whether one action reads all rows: not if a statement creates the table, or the write goes on by itself."""
        return not self._sink.cluster_by and self._job.linger_seconds is None

    @property
    def table_id(self) -> Optional[str]:
        """``metaData.id`` of the sink, ``None`` until it exists."""
        return self._state.table_id

    @classmethod
    def close_epochs(cls, spark: Any, job: JobSpec, fence: FenceSpec, sink: Any) -> FenceReport:
        """Close older epochs by an empty append with a higher transaction; see :func:`.fence.close_epochs`."""
        return close_epochs(spark, job, fence, sink)

    def find(self, batch: BatchSpec) -> Optional[Landed]:
        """Check the sink before a write; return the batch's commit if an earlier attempt made it, else ``None``.

        Raises:
            RefusalError: The sink differs from what was recorded, or it is not this batch's turn.
        """
        check_place(self._spark, self._sink, self._path, batch)
        history = self._state.look()
        if history is None:
            return None
        commit = self._found(history, batch)
        if commit is None:
            self._check_turn(history, batch)
            self._loaded = self._log.loaded(history)
            if not self._job.allow_overlap:
                self._refuse_rows_of_others(batch)
            return None
        self._check_files(history, commit, batch)
        return self._landed(commit, batch)

    def _refuse_rows_of_others(self, batch: BatchSpec) -> None:
        """Refuse a batch with rows that another stream has loaded into the sink."""
        if self._overlap_matters:
            refuse_overlap(self._loaded, batch, self._path, self._sink.other_streams)

    def prepare(self, frame: Any, batch: BatchSpec) -> Any:  # noqa: ARG002
        """Return the rows after the sink's ``where``, ``transform``, ``columns`` and ``constant_columns``."""
        return prepared(frame, self._sink)

    def append(self, frame: Any, batch: BatchSpec) -> Landed:
        """Write the batch and return its commit, made by this attempt or by a concurrent one that was faster.

        Raises:
            RefusalError: Columns do not fit, or the sink has no commit of the batch afterwards.
        """
        for attempt in range(1, _ATTEMPTS):
            is_repeated = batch.interval is not None or self.table_id is None
            try:
                return self._append(frame, batch)
            except Exception as error:
                if not is_repeated or not (is_conflict(error) or has_condition(error, *_EXISTS_ALREADY)):
                    raise
            # another interval was faster, or another stream has created the table; the same transaction lands once
            time.sleep(random.uniform(0.1, 0.3) * 2**attempt)  # noqa: S311  # no secret is made of it
            landed = self.find(batch)
            if landed is not None:
                return landed
        return self._append(frame, batch)

    def _append(self, frame: Any, batch: BatchSpec) -> Landed:
        rows = self._rows(frame)
        if batch.columns and self.table_id is not None:
            refuse_moved(self._spark, self._sink, self._path, self._log, rows, batch, self._fed_since(batch))
        rows = self._fitted(rows)
        refuse_repeated_hours(self._spark, rows, self._partitions, self._path)
        self._same_values = same_values(self._sink, rows)
        if self.table_id is not None and self._state.version is None:
            others = self._sink.other_streams
            ensure_registered(self._spark, self._log, self._path, stream=batch.stream, uuid=batch.uuid, others=others)
        reach("driver.commit.before")
        try:
            with session_conf(self._spark, file_size_conf(self._sink)):
                self._commit(rows, batch)
            reach("driver.commit.after")
        except Exception as error:
            if not is_conflict(error) and not has_condition(error, *_EXISTS_ALREADY):
                raise
            landed = self._find_again(batch)
            if landed is None:
                raise
            return landed
        began = time.monotonic()
        landed = self._find_again(batch)
        if landed is None:
            raise RefusalError(
                Reason.SINK_OUT_OF_ORDER,
                f"{batch.describe()}: Delta skipped the write, because the sink {self._path} already has "
                f"transaction {batch.txn_version} of {batch.txn_app_id} or a later one, but its history has no "
                "commit of this batch: a later run has continued, or the sink was restored. Nothing was written; "
                "the next run checks the sink and says what to do",
            )
        return replace(landed, looked_seconds=time.monotonic() - began)

    def _fed_since(self, batch: BatchSpec) -> Optional[int]:
        """Return the sink's version at which what feeds its columns was recorded."""
        if batch.fed_batch is not None:
            return self._landed_at[batch.fed_batch]
        return self._job.sink_version if batch.fed_since is None else batch.fed_since

    def _rows(self, frame: Any) -> Any:
        """Return the columns to be written for the batch."""
        return with_provenance(frame, self._sink, self._path) if self._sink.provenance else frame.drop(*PROVENANCE)

    def _commit(self, rows: Any, batch: BatchSpec) -> None:
        """Write the rows; an application that lingers does not wait for what Delta does after the commit."""
        newest, stays = self._log.newest_version, self._job.linger_seconds is not None
        if newest is None or not stays or not self._sink.leaves_session_as_it_is or is_connect(self._spark):
            self._write(rows, batch)
        else:
            write_until_committed(self._spark, self._path, newest, batch, lambda: self._write(rows, batch))

    def _write(self, rows: Any, batch: BatchSpec) -> None:
        """Commit the rows under the batch's transaction, or let Delta skip them."""
        created = self.table_id is None
        if created and self._sink.cluster_by:
            self._create_clustered(rows, batch)
            return
        writer = self._with_mode(rows.write.format("delta"), created)
        if created:
            if self._sink.partition_by:
                writer = writer.partitionBy(*self._sink.partition_by)
            writer = writer.options(**self._sink.properties)
        else:
            give_transactions(self._spark, self._path, self._log, batch.txn_app_id, batch.prev_txn_version)
        if self._sink.merge_schema:
            writer = writer.option("mergeSchema", "true")
        writer = (
            writer.option("txnAppId", batch.txn_app_id)
            .option("txnVersion", str(batch.txn_version))
            .option("userMetadata", self._metadata(batch))
        )
        # not insertInto, which may ignore the transaction
        writer.save(self._path)

    def _create_clustered(self, rows: Any, batch: BatchSpec) -> None:
        """Create the table in SQL: a DataFrame writer silently ignores clusterBy for a path."""
        columns = ", ".join(quoted_name(name) for name in self._sink.cluster_by)
        properties = ", ".join(f"{literal(name)} = {literal(text)}" for name, text in self._sink.properties.items())
        with temporary_view(self._spark, rows) as view, self._transaction(batch):
            self._spark.sql(
                f"CREATE TABLE {quoted(self._path)} USING delta CLUSTER BY ({columns}) "
                f"{f'TBLPROPERTIES ({properties}) ' if properties else ''}AS SELECT * FROM {view}"
            )

    def _transaction(self, batch: BatchSpec) -> ContextManager[None]:
        """Make SQL statements within the context commit as the batch."""
        conf = transaction_conf(batch.txn_app_id, batch.txn_version, self._metadata(batch))
        return session_conf(self._spark, conf)

    def _metadata(self, batch: BatchSpec) -> str:
        seen = self._loaded.to_metadata()
        job = self._job
        more = (self._sink.kind, seen, self._same_values, job.expectations)
        return commit_metadata(batch, job.attempt_id, self._settings, *more)

    def _with_mode(self, writer: Any, created: bool) -> Any:
        """Set how the rows are combined with the existing ones."""
        return writer.mode("error" if created else "append")

    def _partitions(self) -> Sequence[str]:
        """Return the columns by which the table is partitioned, or will be."""
        if self.table_id is None:
            return self._sink.partition_by
        if not is_connect(self._spark):
            # a statement takes longer
            log = self._spark._jvm.org.apache.spark.sql.delta.DeltaLog.forTable(self._spark._jsparkSession, self._path)
            snapshot = log.unsafeVolatileSnapshot()
            if snapshot.version() == self._log.newest_version:
                columns = snapshot.metadata().partitionColumns()
                return [columns.apply(place) for place in range(columns.size())]
        detail = self._spark.sql(f"DESCRIBE DETAIL {quoted(self._path)}").select("partitionColumns").collect()
        return list(detail[0]["partitionColumns"])

    def _find_again(self, batch: BatchSpec) -> Optional[Landed]:
        history = self._state.history()
        if history is None:
            return None
        commit = self._found(history, batch)
        if commit is None:
            self._state.check_namesakes(history)
            return None
        self._state.recognize(history, commit)
        self._check_files(history, commit, batch)
        return self._landed(commit, batch)

    def _check_files(self, history: History, commit: SinkCommit, batch: BatchSpec) -> None:
        self._added.check(history, commit, batch.describe(), self._advice.load_again())

    def _landed(self, commit: SinkCommit, batch: BatchSpec) -> Landed:
        self._landed_at[batch.batch_id] = commit.version
        self._state.record(commit.version)
        is_mine = (commit.metadata or {}).get("attempt") == self._job.attempt_id
        return Landed(commit, by_this_attempt=is_mine, warnings=self._state.rows_taken.news())

    def _found(self, history: History, batch: BatchSpec) -> Optional[SinkCommit]:
        """Return the commit that holds the batch, or ``None`` if the batch has not landed.

        Raises:
            RefusalError: There are two, though Delta makes one: it had forgotten the first.
        """
        commit = history.find(batch)
        landed = history.all_of(batch)
        if commit is not None and len(landed) > 1:
            versions = " and ".join(str(one.version) for one in reversed(landed))
            raise RefusalError(
                Reason.BATCH_DOUBLED,
                f"{batch.describe()} is in the sink {self._path} more than once, as versions {versions}: "
                f"Delta had forgotten transaction {batch.txn_version} of {batch.txn_app_id} when the later one "
                "was written. Remove the rows of the later version, and find out who set "
                "delta.setTransactionRetentionDuration",
            )
        return commit

    def _check_turn(self, history: History, batch: BatchSpec) -> None:
        newest = self._state.newest_transaction(history, batch)
        expected = batch.prev_txn_version
        is_older = newest is not None and newest < fence_version(batch.epoch)
        if is_older and expected is None and batch.interval is None:
            raise RefusalError(
                Reason.SINK_APPEARED,
                f"{batch.describe()} was not written: the sink {self._path} was missing when the epoch "
                f"began, or the stream had another sink then. It has transaction {newest} of {batch.txn_app_id}, "
                "from an epoch that was already closed",
                retryable=True,
            )
        if newest != expected:
            if newest is None and expected is not None:
                # commits before the last known one were not read
                newest = self._log.transaction(batch.txn_app_id)
            found = "no transaction" if newest is None else f"transaction {newest}"
            raise RefusalError(
                Reason.SINK_OUT_OF_ORDER,
                f"{batch.describe()} is out of order: the sink {self._path} has {found} of "
                f"{batch.txn_app_id} as its newest; expected {'none' if expected is None else expected} before "
                f"{batch.txn_version}. Nothing was written: {self._advice.out_of_turn(history, batch, newest)}",
            )

    def _fitted(self, rows: Any) -> Any:
        """Return the rows with the sink's types, which hold all their values; refuse rows that do not fit."""
        if self.table_id is None:
            check_layout(self._sink, self._path, rows)
            return rows
        batch = self._written_schema(rows)
        key = (self._state.schema_since, json.dumps(batch))
        if key not in self._fits:
            self._fits[key] = checked_fit(self._sink, self._path, batch, self._state.columns(), self._widening)
        self._fit = self._fits[key]
        return with_casts(rows, self._fit)

    def _written_schema(self, rows: Any) -> Dict[str, Any]:
        """Return the schema of what is written, as Delta's schema JSON."""
        schema: Dict[str, Any] = rows.schema.jsonValue()
        return schema

    def _widening(self) -> Widening:
        """Return how far a write widens the sink's types."""
        merge_schema = self._sink.merge_schema
        return widening_of(read_properties(self._spark, self._path) if merge_schema else {}, merge_schema=merge_schema)
