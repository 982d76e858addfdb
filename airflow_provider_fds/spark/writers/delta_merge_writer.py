"""The writer of ``DeltaMergeSink``: one row, or one history, per key. Standard library and pyspark, Python 3.9 syntax.

Only the statement differs from appends: the transaction and the checks before and after are the same. A first batch
writes what the merge would leave, and so creates the table in one commit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, List, Set

from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.sinks.merge import VALIDITY
from airflow_provider_fds.spark.runtime.failures import RefusalError
from airflow_provider_fds.spark.runtime.settings import hash_join_conf, session_conf
from airflow_provider_fds.spark.runtime.sql import quoted_name, temporary_view
from airflow_provider_fds.spark.runtime.versions import minor
from airflow_provider_fds.spark.sink_log.history import quoted
from airflow_provider_fds.spark.writers.delta_append_writer import DeltaAppendWriter
from airflow_provider_fds.spark.writers.merge_sql import MergeSql
from airflow_provider_fds.spark.writers.prepared_rows import CHANGE_TYPE, COMMIT_TIMESTAMP, COMMIT_VERSION
from airflow_provider_fds.spark.writers.sink_columns import with_provenance

if TYPE_CHECKING:
    from airflow_provider_fds.batch.column_fit import Widening
    from airflow_provider_fds.batch.spec import BatchSpec, JobSpec
    from airflow_provider_fds.sinks import DeltaMergeSink

_ORDER = (COMMIT_VERSION, COMMIT_TIMESTAMP)

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

    def prepare(self, frame: Any, batch: BatchSpec) -> Any:
        """Return the changes of a batch, which must have all of each commit."""
        if CHANGE_TYPE in frame.columns:
            self._refuse_part(batch)
        return super().prepare(frame, batch)

    def _refuse_part(self, batch: BatchSpec) -> None:
        """Refuse a batch of changes with only part of a commit, unless the source's log shows that this is harmless."""
        inner = batch.inner_versions
        if not inner or batch.divides_commit is False:
            return
        which = f"version {inner[0]}" if len(inner) == 1 else "versions " + " and ".join(map(str, inner))
        is_known = "adds and removes rows" if batch.divides_commit else "may add and remove rows"
        raise RefusalError(
            Reason.COMMIT_DIVIDED,
            f"{self._describe(batch)} has only a part of {which} of the source, which {is_known}. A merge into "
            f"{self._path} needs all of it to know which keys still exist. Nothing was written; plan again with "
            f"`fds replan {batch.stream} --why …`",
        )

    def _rows(self, frame: Any) -> Any:
        """Return the changes: the columns to be written, and the columns that order the changes."""
        rows = frame
        if self._sink.provenance:
            # keep the originals for the order
            named = with_provenance(rows, self._sink, self._path)
            rows = named.selectExpr("*", "_source_version AS _commit_version", "_source_timestamp AS _commit_timestamp")
        needed = [*self._merge.keys, *([self._merge.sequence_by] if self._merge.sequence_by else []), *_ORDER]
        there = {name.lower() for name in rows.columns}
        missing = [name for name in needed if name.lower() not in there]
        if missing:
            by = "the batch lacks" if self._sink.transform is None else f"transform {self._sink.transform} must return"
            raise RefusalError(
                Reason.SINK_SCHEMA_MISMATCH,
                f"the merge into {self._path} needs the columns {', '.join(needed)}; {by} {', '.join(missing)}. "
                f"The columns are {', '.join(rows.columns)}",
            )
        return rows

    def _fitted(self, rows: Any) -> Any:
        if self._merge.keeps_history:
            self._check_validity(rows)
        return super()._fitted(rows)

    def _written_schema(self, rows: Any) -> Dict[str, Any]:
        schema = super()._written_schema(rows.drop(*_ORDER, CHANGE_TYPE))
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
        if self._table_id is None:
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
        data = [name for name in rows.columns if name.lower() not in (*_ORDER, CHANGE_TYPE)]
        with temporary_view(self._spark, rows) as view:
            sql = MergeSql(
                view,
                self._merge.keys,
                tuple(data),
                self._merge.sequence_by,
                has_change_types=CHANGE_TYPE in rows.columns,
            )
            self._check_order(sql, batch)
            if self._table_id is None:
                first = sql.first_history() if self._merge.keeps_history else sql.first_rows()
                super()._write(self._spark.sql(first), batch)
                return
            table, evolves = quoted(self._path), self._sink.merge_schema
            if evolves and (self._fit.widened or minor(self._spark.version) < _EVOLVES_SINCE):
                self._evolve(rows.select(*map(quoted_name, data)))
                evolves = False
            merge = sql.upsert_history(table, evolves) if self._merge.keeps_history else sql.upsert(table, evolves)
            joins = session_conf(self._spark, hash_join_conf(self._spark, batch.num_bytes))
            with joins, self._transaction(batch):
                self._spark.sql(merge).collect()

    def _evolve(self, rows: Any) -> None:
        """Add the columns that the sink lacks, and widen its types, by an append without rows before the merge.

        A MERGE itself adds columns since Spark 4.2, but may cast values to the sink's type instead of widening it. An
        attempt that dies between the two commits leaves columns without values; the next attempt finds them there.
        """
        there = self._lower_names()
        if self._fit.widened or any(name.lower() not in there for name in rows.columns):
            rows.where("false").write.format("delta").mode("append").option("mergeSchema", "true").save(self._path)

    def _lower_names(self) -> Set[str]:
        return {name.lower() for name in self._spark.read.format("delta").load(self._path).columns}

    def _check_order(self, sql: MergeSql, batch: BatchSpec) -> None:
        """Refuse a batch whose rows lack a key or an order within their key, or are not the planned rows."""
        found = self._spark.sql(sql.problems()).collect()[0]
        if self._sink.takes_all_rows and batch.num_rows not in (None, found["num_rows"]):
            raise RefusalError(
                Reason.ROWS_DIFFER,
                f"{self._describe(batch)} cannot be merged into {self._path}: Spark reads {found['num_rows']:,} rows, "
                f"but the source's log counts {batch.num_rows:,}. Nothing was written. Find out why: source files may "
                "have been changed in place, or settings may exclude files",
            )
        keys = ", ".join(self._merge.keys)
        order = "the commit of the source" if sql.sequence_by is None else f"{sql.sequence_by} and commit of the source"
        problems = []
        if found["null_keys"]:
            problems.append(f"{found['null_keys']:,} rows have NULL in a key ({keys}), such as {found['null_key']}")
        if found["null_sequences"]:
            problems.append(
                f"{found['null_sequences']:,} rows have NULL in sequence_by ({sql.sequence_by}), such as "
                f"{found['null_sequence']}"
            )
        if found["ties"]:
            problems.append(
                f"{found['ties']:,} times, several rows of one key ({keys}) have the same {order}, such as "
                f"{found['tie']}, so it is unknown which one is the last"
            )
        if found["odd_types"]:
            problems.append(f"{found['odd_types']:,} rows have an invalid _change_type, such as {found['odd_type']!r}")
        if problems:
            raise RefusalError(
                Reason.MERGE_ORDER_UNKNOWN,
                f"{self._describe(batch)} cannot be merged into {self._path}: {'; '.join(problems)}. Nothing was "
                "written. Correct the source, exclude such rows (where='…'), resolve them in your own function "
                "(transform='pkg.module:function'), or choose other keys or another sequence_by",
            )


__all__: List[str] = ["DeltaMergeWriter"]
