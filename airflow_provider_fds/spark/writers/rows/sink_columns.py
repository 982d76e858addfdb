"""Checks that the columns of a batch fit the sink, and adds the two provenance columns.

Which types fit is the rule of ``batch/column_fit.py``. Standard library and pyspark, Python 3.9 syntax.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Dict, Optional, Union

from airflow_provider_fds.batch.column_fit import ColumnFit, column_fit, describe_misfit
from airflow_provider_fds.batch.column_meaning import SinkChange, column_types, moved_problem
from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.sinks.constants import PROVENANCE
from airflow_provider_fds.spark.runtime.failures import RefusalError
from airflow_provider_fds.spark.runtime.sql import quoted_name

if TYPE_CHECKING:
    from airflow_provider_fds.batch.column_fit import Widening
    from airflow_provider_fds.batch.spec import BatchSpec
    from airflow_provider_fds.sinks import DeltaSink, PostgresSink
    from airflow_provider_fds.spark.sink_log.history import SinkLog


def check_layout(sink: DeltaSink, path: str, rows: Any) -> None:
    """Check that the rows that create the sink have the columns of its layout.

    Raises:
        RefusalError: They lack one.
    """
    there = {name.lower() for name in rows.columns}
    for name, wanted in (("partition_by", sink.partition_by), ("cluster_by", sink.cluster_by)):
        missing = [column for column in wanted if column.lower() not in there]
        if missing:
            raise RefusalError(
                Reason.SINK_SCHEMA_MISMATCH,
                f"the sink {path} needs {name} {', '.join(missing)}, but a batch has only {', '.join(rows.columns)}. "
                f"Correct {name}",
            )


def checked_fit(
    sink: DeltaSink, path: str, batch: Dict[str, Any], there: Dict[str, Any], widening: Callable[[], Widening]
) -> ColumnFit:
    """Return how a batch fits the columns of the sink, which exists.

    Args:
        sink: As declared.
        path: Its location.
        batch: Schema of the rows to be written, as Delta's schema JSON.
        there: Schema of the sink, likewise.
        widening: Returns how far the write widens the sink's types.

    Raises:
        RefusalError: The sink lacks columns, or cannot hold all values of a column.
    """
    found = column_fit(batch, there)
    if found.unfit:
        found = column_fit(batch, there, widening())
    if problems := found.problems(adds=sink.merge_schema):
        text = describe_misfit(batch, there, problems, path, type(sink).__name__)
        raise RefusalError(Reason.SINK_SCHEMA_MISMATCH, text)
    return found


def refuse_moved(
    spark: Any, sink: DeltaSink, path: str, log: SinkLog, rows: Any, batch: BatchSpec, since: Optional[int]
) -> None:
    """Refuse a batch that feeds columns of the sink from other columns of the source than before.

    Args:
        spark: The session.
        sink: As declared.
        path: Its location.
        log: Its log.
        rows: The rows to be written.
        batch: The batch, with its columns.
        since: Version of the sink at which ``batch.fed`` was recorded.

    Raises:
        RefusalError: The sink has not renamed its columns as the source has.
    """
    history = log.history(since)
    changes = [
        SinkChange(commit.operation, commit.parameters, commit.properties is not None)
        for commit in reversed(history.commits if history is not None else ())
        if since is None or commit.version > since
    ]
    problem = moved_problem(
        batch.fed,
        changes,
        batch.columns,
        spark.read.format("delta").load(path).schema.jsonValue(),
        column_types(rows.schema.jsonValue()),
        path=path,
        by_key=sink.needs_keys,
        keeps_history=sink.keeps_history,
        keys=getattr(sink, "keys", ()),
    )
    if problem is not None:
        raise RefusalError(Reason.SINK_SCHEMA_MISMATCH, problem)


def same_values(sink: DeltaSink, rows: Any) -> Dict[str, Any]:
    """Return the columns that have the same string or whole number in all rows, by the sink's declaration.

    Text in a column of another type may be written in several ways.
    """
    wanted = sink.same_values
    if not wanted:
        return {}
    kinds = {str: ("string",), int: ("byte", "short", "integer", "long")}
    types = {field["name"].lower(): field["type"] for field in rows.schema.jsonValue()["fields"]}
    return {name: value for name, value in wanted.items() if types.get(name) in kinds[type(value)]}


def with_casts(rows: Any, found: ColumnFit) -> Any:
    """Return the rows with the wider types that the sink has for their values."""
    if not found.casts:
        return rows
    from pyspark.sql.types import StructType

    fields = [{"name": n.lower(), "type": kind, "nullable": True, "metadata": {}} for n, kind in found.casts.items()]
    types = {field.name: field.dataType for field in StructType.fromJson({"type": "struct", "fields": fields}).fields}
    # of the frame itself: a function of pyspark's would be of another kind over Spark Connect
    columns = [(name, rows[quoted_name(name)]) for name in rows.columns]
    return rows.select(*(c.cast(types[n.lower()]).alias(n) if n.lower() in types else c for n, c in columns))


def with_provenance(frame: Any, sink: Union[DeltaSink, PostgresSink], path: str) -> Any:
    """Return the frame with version and time of the source under the sink's names for them.

    Raises:
        RefusalError: The names are taken, or the user's transform dropped the columns.
    """
    taken = [name for name in frame.columns if name.lower() in PROVENANCE.values()]
    if taken:
        raise RefusalError(
            Reason.SINK_SCHEMA_MISMATCH,
            f"the source already has a column {', '.join(taken)}, which provenance=True would add to the sink "
            f"{path}. Read the source without it, or turn provenance off",
        )
    gone = [name for name in PROVENANCE if name not in frame.columns]
    if gone:
        raise RefusalError(
            Reason.SINK_SCHEMA_MISMATCH,
            f"provenance=True needs the column {', '.join(gone)} of the batch, but transform {sink.transform} "
            "does not return it. Keep it there, or turn provenance off",
        )
    for name, new_name in PROVENANCE.items():
        frame = frame.withColumnRenamed(name, new_name)
    return frame
