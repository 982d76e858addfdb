"""Checks that the columns of a batch fit the sink, and adds the two provenance columns.

Standard library and pyspark, Python 3.9 syntax.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Set, Tuple

from airflow_provider_fds.spark.failures import RefusalError

if TYPE_CHECKING:
    from airflow_provider_fds.sinks import DeltaSink

#: Provenance columns of a batch, and their names in the sink.
PROVENANCE = {"_commit_version": "_source_version", "_commit_timestamp": "_source_timestamp"}

_FRACTIONS = ("float", "double", "decimal")

#: For each target type, the types whose cast to it may change values without an error.
_ROUNDED: Dict[str, Tuple[str, ...]] = {
    "byte": _FRACTIONS,
    "short": _FRACTIONS,
    "integer": _FRACTIONS,
    "long": _FRACTIONS,
    "decimal": ("float", "double"),
    "float": ("double", "decimal", "integer", "long"),
    "double": ("decimal", "long"),
    "date": ("timestamp", "timestamp_ntz"),
}

#: Names and types of columns.
Columns = List[Tuple[str, str]]

#: Limits of the table of conflicts, because the message of a report is limited too.
_SHOWN_COLUMNS = 8
_SHOWN_CHARS = 24

#: Pairs of types.
Types = Tuple[Tuple[str, str], ...]


def check_columns(spark: Any, sink: DeltaSink, path: str, rows: Any, *, is_there: bool) -> None:
    """Check that the sink has, or will have, all columns that it needs for the rows.

    Args:
        spark: The session.
        sink: As declared.
        path: Its location.
        rows: The rows to be written.
        is_there: Whether the table exists.

    Raises:
        RefusalError: The sink lacks columns, or the rows lack columns of its layout.
    """
    if not is_there:
        for name, wanted in (("partition_by", sink.partition_by), ("cluster_by", sink.cluster_by)):
            missing = [c for c in wanted if c.lower() not in {f.lower() for f in rows.columns}]
            if missing:
                raise RefusalError(
                    "SinkSchema",
                    f"the sink {path} needs {name} {', '.join(missing)}, but a batch has only "
                    f"{', '.join(rows.columns)}. Correct {name}",
                )
        return
    if sink.merge_schema:
        return
    there = spark.read.format("delta").load(path).schema
    known = {field.name.lower() for field in there.fields}
    if any(column.lower() not in known for column in rows.columns):
        text = describe_conflicts(_columns(rows.schema), _columns(there), path, type(sink).__name__)
        raise RefusalError("SinkSchema", text)


def describe_conflicts(batch: Columns, sink: Columns, path: str, kind: str) -> str:
    """Return all columns of a batch that the sink lacks or has with another type, why that may be, and what to do.

    Args:
        batch: The columns of the batch.
        sink: The columns of the sink.
        path: The sink's location.
        kind: Class of the sink.
    """
    theirs = {name.lower(): type_ for name, type_ in sink}
    lacking = [name for name, _ in batch if name.lower() not in theirs]
    differing = [name for name, type_ in batch if theirs.get(name.lower(), type_) != type_]
    named = [name[:_SHOWN_CHARS] for name in lacking[:_SHOWN_COLUMNS]]
    more = f" and {len(lacking) - len(named)} more" if len(lacking) > len(named) else ""
    found = f"the batch has columns {', '.join(named)}{more} that the sink {path} lacks" if lacking else ""
    if differing:
        other = "columns of other types than in the sink"
        found = f"{found}, and {other}" if found else f"the batch has {other} {path}"
    shown = [(name, type_, theirs.get(name.lower(), "-")) for name, type_ in batch if name in lacking + differing]
    ours = {name.lower() for name, _ in batch}
    shown += [(name, "-", type_) for name, type_ in sink if name.lower() not in ours]
    if len(batch) - len(lacking) < len(lacking):
        advice = (
            "Most of the columns are not there, so the sink may not be the table that you mean: correct its URI, then "
            "run `fds rebind STREAM --why …` if the stream is bound to it. If it is the right table, add the columns, "
            f"or use {kind}(…, merge_schema=True)"
        )
    elif differing:
        advice = (
            f"Add missing columns (ALTER TABLE … ADD COLUMNS, or {kind}(…, merge_schema=True)) and give the others the "
            "source's types, or load into another table: use another sink and run `fds rebind STREAM --why …`"
        )
    else:
        advice = (
            f"Add them (ALTER TABLE … ADD COLUMNS), or allow additive changes: {kind}(…, merge_schema=True). If this "
            "is not the table that you mean, use another sink and run `fds rebind STREAM --why …`"
        )
    return f"{found}:\n{_table(shown)}\n{advice}"


def _table(rows: List[Tuple[str, str, str]]) -> str:
    lines = [("column", "batch", "sink"), *rows[:_SHOWN_COLUMNS]]
    name_width, type_width = (max(len(line[number][:_SHOWN_CHARS]) for line in lines) for number in (0, 1))
    text = [
        f"  {name[:_SHOWN_CHARS]:{name_width}}  {ours[:_SHOWN_CHARS]:{type_width}}  {theirs[:_SHOWN_CHARS]}"
        for name, ours, theirs in lines
    ]
    if len(rows) > _SHOWN_COLUMNS:
        text.append(f"  and {len(rows) - _SHOWN_COLUMNS} more")
    return "\n".join(text)


def _columns(schema: Any) -> Columns:
    return [(field.name, field.dataType.simpleString()) for field in schema.fields]


def check_values_fit(spark: Any, path: str, rows: Any, widened: Callable[[], Types]) -> None:
    """Check that a MERGE stores values unchanged: it casts them to the sink's types, and some casts round.

    Args:
        spark: The session.
        path: The sink, which exists.
        rows: The rows to be merged.
        widened: Returns the types of batch and sink for which the MERGE widens the sink's type.

    Raises:
        RefusalError: The sink's type of a column cannot hold the batch's values.
    """
    theirs = {field.name.lower(): field.dataType for field in spark.read.format("delta").load(path).schema.fields}
    ours = {field.name.lower(): field.dataType for field in rows.schema.fields if field.name.lower() in theirs}
    rounded = {name for name, kind in ours.items() if _rounds(kind, theirs[name], ())}
    if rounded and (types := widened()):
        rounded = {name for name in rounded if _rounds(ours[name], theirs[name], types)}
    if rounded:
        raise types_differ(spark, path, rows, rounded)


def _rounds(one: Any, other: Any, widened: Types) -> bool:
    """Whether a cast of the first type to the second changes values without an error; an overflow is an error."""
    name, target = one.typeName(), other.typeName()
    if (name, target) in widened:
        return False
    if name == target == "decimal":
        return bool(one.scale > other.scale)
    if name == target == "struct":
        fields = {field.name.lower(): field.dataType for field in other.fields}
        return any(
            _rounds(field.dataType, fields[field.name.lower()], widened)
            for field in one.fields
            if field.name.lower() in fields
        )
    if name == target == "array":
        return _rounds(one.elementType, other.elementType, widened)
    if name == target == "map":
        return _rounds(one.keyType, other.keyType, widened) or _rounds(one.valueType, other.valueType, widened)
    is_whole = name == "decimal" and not one.scale and target not in ("float", "double")
    return not is_whole and name in _ROUNDED.get(target, ())


def types_differ(spark: Any, path: str, rows: Any, only: Optional[Set[str]] = None) -> RefusalError:
    """Return the refusal of rows whose column types differ from the sink's; if given, of ``only`` (lower case)."""
    sink = spark.read.format("delta").load(path)
    theirs = {field.name.lower(): field.dataType.simpleString() for field in sink.schema.fields}
    differ = [
        f"{field.name} ({field.dataType.simpleString()}, in the sink {theirs[field.name.lower()]})"
        for field in rows.schema.fields
        if theirs.get(field.name.lower(), field.dataType.simpleString()) != field.dataType.simpleString()
        and (only is None or field.name.lower() in only)
    ]
    return RefusalError(
        "SinkSchema",
        f"columns of the batch do not match the sink {path}: {', '.join(differ)}. Give the sink's columns the "
        "source's types, or load into another table: use another sink and run `fds rebind STREAM --why …`. If the "
        "types of many columns differ, check that the sink is the table that you mean",
    )


def with_provenance(frame: Any, sink: DeltaSink, path: str) -> Any:
    """Return the frame with version and time of the source under the sink's names for them.

    Raises:
        RefusalError: The names are taken, or the user's transform dropped the columns.
    """
    taken = [name for name in frame.columns if name.lower() in PROVENANCE.values()]
    if taken:
        raise RefusalError(
            "SinkSchema",
            f"the source already has a column {', '.join(taken)}, which provenance=True would add to the sink "
            f"{path}. Read the source without it, or turn provenance off",
        )
    gone = [name for name in PROVENANCE if name not in frame.columns]
    if gone:
        raise RefusalError(
            "SinkSchema",
            f"provenance=True needs the column {', '.join(gone)} of the batch, but transform {sink.transform} "
            "does not return it. Keep it there, or turn provenance off",
        )
    for name, new_name in PROVENANCE.items():
        frame = frame.withColumnRenamed(name, new_name)
    return frame


__all__: List[str] = [
    "PROVENANCE",
    "Types",
    "check_columns",
    "check_values_fit",
    "describe_conflicts",
    "types_differ",
    "with_provenance",
]
