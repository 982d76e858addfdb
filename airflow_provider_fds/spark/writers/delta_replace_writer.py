"""The writer of ``DeltaReplaceSink``: the rows of a data interval replace those that an earlier run of it wrote.

Standard library and pyspark, Python 3.9 syntax.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Dict, List

from airflow_provider_fds.batch.sink.loaded_streams import Loaded, LoadedStream, pieces, table_id_of
from airflow_provider_fds.batch.sink.replaced_rows import ReplacedRows, describe_replaced
from airflow_provider_fds.batch.transactions import stream_uuid
from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.spark.runtime.failures import RefusalError, has_condition, shortened
from airflow_provider_fds.spark.sink_log.other_writers import intervals_replaced
from airflow_provider_fds.spark.writers.delta_append_writer import DeltaAppendWriter

if TYPE_CHECKING:
    from airflow_provider_fds.batch.sink.sink_commit import SinkCommit
    from airflow_provider_fds.batch.spec import BatchSpec, JobSpec
    from airflow_provider_fds.sinks import DeltaReplaceSink
    from airflow_provider_fds.spark.sink_log.history import History
    from airflow_provider_fds.spark.writers.writer import Landed

#: Delta refuses rows that do not satisfy replaceWhere only while this is on.
_CONSTRAINT_CHECK = "spark.databricks.delta.replaceWhere.constraintCheck.enabled"

_ROWS_OUTSIDE = ("DELTA_REPLACE_WHERE_MISMATCH",)


class DeltaReplaceWriter(DeltaAppendWriter):
    """Writes an interval with ``replaceWhere``, or over the partitions that contain its rows.

    Everything else is the same as for appends: one transaction, with checks before and after. Earlier changes to the
    table are ignored, because the rows of an earlier generation need not be there any longer.
    """

    _breaking_matters = False

    def __init__(self, spark: Any, sink: DeltaReplaceSink, job: JobSpec, settings: Dict[str, str]) -> None:
        super().__init__(spark, sink, job, settings)
        self._replace = sink
        # other predicates tell whose rows they mean
        self._overlap_matters = sink.replaces_by_version
        spark.conf.set(_CONSTRAINT_CHECK, "true")

    @property
    def reads_rows_once(self) -> bool:
        """False: before the table is created, a job looks for rows outside the interval."""
        return False

    @property
    def tests_rows(self) -> bool:
        """Whether the table is to be created: Delta tests only what it writes into a table that exists."""
        return self.table_id is None and self._replace.replace_where is not None

    def append(self, frame: Any, batch: BatchSpec) -> Landed:
        """Replace earlier rows by the rows of the batch; see :meth:`DeltaAppendWriter.append`."""
        try:
            return super().append(frame, batch)
        except RefusalError:
            raise
        except Exception as error:
            if has_condition(error, *_ROWS_OUTSIDE):
                raise self._outside(batch, shortened(str(error))) from error
            raise

    def _write(self, rows: Any, batch: BatchSpec) -> None:
        if self.tests_rows:
            outside = rows.where(f"NOT coalesce(({self._replace.replace_where}), false)").limit(1).collect()
            if outside:
                raise self._outside(batch, "")
        super()._write(rows, batch)

    def _outside(self, batch: BatchSpec, error: str) -> RefusalError:
        return RefusalError(
            Reason.ROWS_OUTSIDE_INTERVAL,
            f"{batch.describe()}: rows of the interval do not satisfy replace_where "
            f"({self._replace.replace_where}), so a repeated run would not replace them; nothing was "
            "written. An interval has the rows that were committed during it: replace by its source "
            f"versions (provenance=True without a predicate), or correct the predicate. {error}",
        )

    def _refuse_rows_of_others(self, batch: BatchSpec) -> None:
        """Refuse to replace rows that another stream may have written."""
        super()._refuse_rows_of_others(batch)
        known = (batch.uuid, *self._sink.other_streams)
        others = [one for uuid, one in self._loaded.streams.items() if one.pieces and uuid not in known]
        found = self._replaced_rows(batch).of_others(others) if others else None
        if found is not None:
            what = describe_replaced(self._replace.replaced_rows, self._path, found)
            raise RefusalError(Reason.SINK_SHARED, f"{batch.describe()} {what}")

    def _replaced_rows(self, batch: BatchSpec) -> ReplacedRows:
        partitions = self._partitions() if self._replace.dynamic_partition_overwrite else []
        values = self._replace.replaced_values(partitions)
        return ReplacedRows(table_id_of(batch.end), values, self._replace.replaced_versions)

    def _written_since_the_look(self, commit: SinkCommit) -> List[str]:
        """Return warnings about batches of other streams that came between the look at the sink and the replacement."""
        seen = Loaded.of_commit(commit)
        history = None if seen is None else self._log.history(seen.to + 1)
        if history is None or self._job.allow_overlap:
            return []
        batch, warnings = self._job.batches[0], []
        for other in history.commits:
            told = other.metadata or {}
            is_other = "end" in told and told["uuid"] not in (batch.uuid, *self._sink.other_streams)
            if not is_other or other.version >= commit.version:
                continue
            loaded = LoadedStream(told["stream"]).with_batch(told, other.version)
            if self._replaced_rows(batch).of_others([loaded]) is not None:
                warnings.append(
                    f"version {other.version} of the sink {self._path} was written by stream {loaded.name!r} while "
                    f"stream {batch.stream!r} replaced {self._replace.replaced_rows}: version {commit.version} may "
                    "have removed its rows. Compare the two versions, and load missing rows of stream "
                    f"{loaded.name!r} again"
                )
        return warnings

    def _landed(self, commit: SinkCommit, batch: BatchSpec) -> Landed:
        since = self._written_since_the_look(commit)
        landed = super()._landed(commit, batch)
        landed = replace(landed, warnings=(*landed.warnings, *since))
        intervals = intervals_replaced(self._log, commit)
        if not intervals:
            return landed
        more = f" and {len(intervals) - 1} more" if len(intervals) > 1 else ""
        warning = (
            f"version {commit.version} of the sink {self._path}, interval "
            f"{(commit.metadata or {}).get('interval')} of stream {self._job.batches[0].stream!r}, has replaced "
            f"rows of interval {intervals[0]}{more}: it replaces more than its own interval. Make the partitions "
            "or the predicate as narrow as the interval, or replace by version (provenance=True alone), then "
            "clear the runs of the intervals that lack rows"
        )
        return replace(landed, warnings=(*landed.warnings, warning))

    def _with_mode(self, writer: Any, created: bool) -> Any:
        if self._replace.dynamic_partition_overwrite:
            if not self._partitions():
                raise RefusalError(
                    Reason.SINK_UNSUITABLE,
                    f"the sink {self._path} has no partitions, so dynamic_partition_overwrite would replace the "
                    "whole table. Set partition_by for a new table, or replace by a predicate: replace_where='…'",
                )
            mode = "dynamic"
        else:
            # a session set to dynamic must not change what the predicate means
            mode = "static"
            writer = writer.option("replaceWhere", self._replace.replace_where)
        return writer.option("partitionOverwriteMode", mode).mode("error" if created else "overwrite")

    def _refuse_versions_of_others(self, history: History, batch: BatchSpec) -> None:
        """Refuse to replace by version alone where rows of another source table may have the same versions."""
        if not self._replace.replaces_by_version:
            # versions of two source tables are the same numbers
            return
        loaded = self._log.loaded(history).streams
        sources = {piece.table_id for piece in pieces(batch.start, batch.end, -1)}
        for stream in loaded.values():
            for piece in stream.pieces:
                if piece.table_id not in sources:
                    has_rows = f"version {piece.sink_version} has rows of another table, by stream {stream.name!r}"
                    raise self._shared(batch, has_rows)
        if self._state.version is not None:
            # the first look of the stream has seen what was there before
            return
        # a stream whose rows were removed is known from its commits
        known = {batch.uuid, *loaded, *((commit.metadata or {}).get("uuid") for commit in history.commits)}
        unknown = {stream_uuid(app_id) or app_id for app_id in self._log.transactions()} - known
        if unknown:
            raise self._shared(
                batch, f"the sink's log does not show which table the stream with uuid {min(unknown)} read"
            )

    def _shared(self, batch: BatchSpec, what: str) -> RefusalError:
        return RefusalError(
            Reason.SINK_SHARED,
            f"{batch.describe()} replaces rows of the sink {self._path} by their source version alone, but "
            f"{what}, and rows of two tables can have the same version. Nothing was written. Use a separate sink "
            "for the stream, or set replace_where to a predicate that only rows of this stream match, such as "
            "\"origin = 'orders' AND _source_version BETWEEN {first_version} AND {last_version}\"",
        )

    def _check_turn(self, history: History, batch: BatchSpec) -> None:
        """Refuse a generation that a later one has replaced; what came before it is replaced by it."""
        self._refuse_versions_of_others(history, batch)
        newest = self._state.newest_transaction(history, batch)
        if newest is not None and newest >= batch.txn_version:
            raise RefusalError(
                Reason.SINK_OUT_OF_ORDER,
                f"{batch.describe()} is out of order: the sink {self._path} has transaction {newest} of "
                f"{batch.txn_app_id}, but this one would be {batch.txn_version}. The interval was loaded again in "
                "the meantime; nothing was written",
            )
