"""Whether the columns of a batch go into the sink, and the two that tell where a row came from.

Standard library and pyspark, Python 3.9 syntax.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, List

from airflow_provider_fds.spark.failures import RefusalError

if TYPE_CHECKING:
    from airflow_provider_fds.sinks import DeltaSink

#: Columns of a batch, and the names under which a sink with provenance has them.
PROVENANCE = {"_commit_version": "_source_version", "_commit_timestamp": "_source_timestamp"}


def check_columns(spark: Any, sink: DeltaSink, path: str, rows: Any, *, is_there: bool) -> None:
    """Make sure that the sink has, or will have, all columns that it needs for the rows.

    Args:
        spark: The session.
        sink: As declared.
        path: Its place.
        rows: What is to be written.
        is_there: Whether the table exists.

    Raises:
        RefusalError: columns that the sink lacks; columns of its layout that the rows lack.
    """
    if not is_there:
        for name, wanted in (("partition_by", sink.partition_by), ("cluster_by", sink.cluster_by)):
            missing = [c for c in wanted if c.lower() not in {f.lower() for f in rows.columns}]
            if missing:
                raise RefusalError(
                    "SinkSchema",
                    f"the sink {path} is to get {name} {', '.join(missing)}, but a batch has only "
                    f"{', '.join(rows.columns)}: correct {name}",
                )
        return
    if sink.merge_schema:
        return
    there = spark.read.format("delta").load(path).columns
    extra: List[str] = [column for column in rows.columns if column.lower() not in {name.lower() for name in there}]
    if extra:
        raise RefusalError(
            "SinkSchema",
            f"the sink {path} has no column {', '.join(extra)}, the batch has; its columns are "
            f"{', '.join(there)}. Add them (ALTER TABLE … ADD COLUMNS), or let additive changes pass: "
            f"{type(sink).__name__}(…, merge_schema=True)",
        )


def types_differ(spark: Any, path: str, rows: Any) -> RefusalError:
    """Return the refusal of rows with columns of other types than the sink's."""
    sink = spark.read.format("delta").load(path)
    theirs = {field.name.lower(): field.dataType.simpleString() for field in sink.schema.fields}
    differ = [
        f"{field.name} ({field.dataType.simpleString()}, in the sink {theirs[field.name.lower()]})"
        for field in rows.schema.fields
        if theirs.get(field.name.lower(), field.dataType.simpleString()) != field.dataType.simpleString()
    ]
    return RefusalError(
        "SinkSchema",
        f"columns of the batch do not fit into the sink {path}: {', '.join(differ)}. Give the sink's columns "
        "the source's types, or load into another table: another sink, and `fds rebind STREAM --why …`",
    )


def with_provenance(frame: Any, sink: DeltaSink, path: str) -> Any:
    """Return the frame with version and time of the source under the names that a sink has for them.

    Raises:
        RefusalError: the names are taken, or the user's transform dropped the columns.
    """
    taken = [name for name in frame.columns if name.lower() in PROVENANCE.values()]
    if taken:
        raise RefusalError(
            "SinkSchema",
            f"the source has a column {', '.join(taken)} already, and the sink {path} is to get one with "
            "provenance=True: read the source without it, or turn provenance off",
        )
    gone = [name for name in PROVENANCE if name not in frame.columns]
    if gone:
        raise RefusalError(
            "SinkSchema",
            f"provenance=True needs the column {', '.join(gone)} of the batch, and transform {sink.transform} does "
            "not return it: keep it there, or turn provenance off",
        )
    for name, new_name in PROVENANCE.items():
        frame = frame.withColumnRenamed(name, new_name)
    return frame


__all__: List[str] = ["PROVENANCE", "check_columns", "types_differ", "with_provenance"]
