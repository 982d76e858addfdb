"""The writer of ``DeltaMergeSink``: one row, or one history, per key. Standard library and pyspark, Python 3.9 syntax.

Only the statement differs from appends: the transaction and the checks before and after are the same. A first batch
writes what the merge would leave, and so creates the table in one commit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, Optional, Set

from airflow_provider_fds.batch.sink.first_load import has_only_snapshot, snapshot_of
from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.sinks.merge import VALIDITY
from airflow_provider_fds.spark.runtime.failures import RefusalError
from airflow_provider_fds.spark.runtime.settings import hash_join_conf, session_conf
from airflow_provider_fds.spark.runtime.sql import quoted_name, temporary_view
from airflow_provider_fds.spark.runtime.versions import minor
from airflow_provider_fds.spark.sink_log.history import quoted
from airflow_provider_fds.spark.writers.delta_append_writer import DeltaAppendWriter
from airflow_provider_fds.spark.writers.rows.merge_changes import ORDER, MergeChanges, merge_rows
from airflow_provider_fds.spark.writers.rows.merge_sql import key_twice
from airflow_provider_fds.spark.writers.rows.prepared_rows import CHANGE_TYPE

if TYPE_CHECKING:
    from airflow_provider_fds.batch.column_fit import Widening
    from airflow_provider_fds.batch.spec import BatchSpec, JobSpec
    from airflow_provider_fds.sinks import DeltaMergeSink

#: Earlier versions merge only columns that the table has: Spark 3.5 lacks the syntax, Delta 4.0 the support.
_EVOLVES_SINCE = (4, 2)


class DeltaMergeWriter(DeltaAppendWriter):
    """Merges batches by key, in the order of the source's commits."""

    # the same rows again change nothing
    _overlap_matters = False

    def __init__(self, spark: Any, sink: DeltaMergeSink, job: JobSpec, settings: Dict[str, str]) -> None:
        super().__init__(spark, sink, job, settings)
        self._merge = sink

    @property
    def reads_rows_once(self) -> bool:
        """False: before the merge, a job looks whether keys and order are complete."""
        return False

    @property
    def tests_rows(self) -> bool:
        """True: for keys and order."""
        return True

    def prepare(self, frame: Any, batch: BatchSpec) -> Any:
        """Return the changes of a batch, which must have all of each commit."""
        self._changes(batch).refuse_part(frame)
        return super().prepare(frame, batch)

    def _changes(self, batch: BatchSpec) -> MergeChanges:
        return MergeChanges(self._merge, self._path, batch, batch.describe())

    def _rows(self, frame: Any) -> Any:
        """Return the changes: the columns to be written, and the columns that order the changes."""
        return merge_rows(frame, self._merge, self._path)

    def _fitted(self, rows: Any) -> Any:
        if self._merge.keeps_history:
            self._check_validity(rows)
        return super()._fitted(rows)

    def _written_schema(self, rows: Any) -> Dict[str, Any]:
        schema = super()._written_schema(rows.drop(*ORDER, CHANGE_TYPE))
        if not self._merge.keeps_history:
            return schema
        added = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in VALIDITY.items()]
        return {**schema, "fields": [*schema["fields"], *added]}

    def _widening(self) -> Widening:
        return super()._widening() if minor(self._spark.version) >= _EVOLVES_SINCE else "no"

    def _check_validity(self, rows: Any) -> None:
        taken = [name for name in rows.columns if name.lower() in VALIDITY]
        if taken:
            raise RefusalError(
                Reason.SINK_SCHEMA_MISMATCH,
                f"the batch already has a column {', '.join(taken)}, which scd=2 adds to {self._path}. Omit it "
                "with columns=…, or rename it with transform=…",
            )
        if self.table_id is None:
            return
        there = self._lower_names()
        missing = [name for name in VALIDITY if name not in there]
        if missing:
            raise RefusalError(
                Reason.SINK_SCHEMA_MISMATCH,
                f"the sink {self._path} has no column {', '.join(missing)}, where scd=2 records how long a row "
                "was current. Let the first batch create the table, or add the columns and fill them for the "
                "existing rows",
            )

    def _write(self, rows: Any, batch: BatchSpec) -> None:
        changes = self._changes(batch)
        with temporary_view(self._spark, rows) as view:
            sql = changes.sql(view, rows, self._first_snapshot(rows, batch))
            changes.check_order(self._spark, sql, self._partitions)
            if self.table_id is None:
                first = sql.first_history() if self._merge.keeps_history else sql.first_rows()
                super()._write(self._spark.sql(first), batch)
                return
            table, evolves = quoted(self._path), self._sink.merge_schema
            if evolves and (self._fit.widened or minor(self._spark.version) < _EVOLVES_SINCE):
                self._evolve(rows.select(*map(quoted_name, sql.columns)))
                evolves = False
            merge = sql.upsert_history(table, evolves) if self._merge.keeps_history else sql.upsert(table, evolves)
            joins = session_conf(self._spark, hash_join_conf(self._spark, batch.num_bytes))
            try:
                with joins, self._transaction(batch):
                    self._spark.sql(merge).collect()
            except Exception as error:
                key = key_twice(error)
                if sql.snapshot is None or key is None:
                    raise
                raise changes.twice(key, sql.snapshot) from error

    def _first_snapshot(self, rows: Any, batch: BatchSpec) -> Optional[int]:
        """Return the version of the initial snapshot whose keys must be new in the sink, or ``None``.

        They must be if changes are merged, and the sink has nothing but earlier files of this snapshot. With
        ``sequence_by``, several rows may have a key.
        """
        snapshot = snapshot_of(batch)
        if snapshot is None or self._merge.sequence_by is not None or CHANGE_TYPE not in rows.columns:
            return None
        is_first = self.table_id is not None and self._log.tells(lambda commits: has_only_snapshot(commits, batch))
        return snapshot.end[0] if is_first else None

    def _evolve(self, rows: Any) -> None:
        """Add the columns that the sink lacks, and widen its types, by an append without rows before the merge.

        A MERGE itself adds columns since Spark 4.2, but may cast values to the sink's type instead of widening it. An
        attempt that dies between the two commits leaves columns without values; the next attempt finds them there.
        """
        there = self._lower_names()
        if self._fit.widened or any(name.lower() not in there for name in rows.columns):
            rows.where("false").write.format("delta").mode("append").option("mergeSchema", "true").save(self._path)

    def _lower_names(self) -> Set[str]:
        return {field["name"].lower() for field in self._state.columns()["fields"]}
