"""Which columns of a batch may be written into which columns of a sink: the rule for all sinks.

See docs/design/column_fit.md. Types and schemas are those of Delta's schema JSON, which Spark has too
(``DataFrame.schema.jsonValue()``), so the planner and the driver ask the same question. Standard library only, Python
3.9 syntax.
"""
# The driver may run Python 3.9, so the annotations stay in its syntax.
# ruff: noqa: UP006, UP035

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Dict, List, Literal, Mapping, Tuple

from airflow_provider_fds.type_widening import is_wider

#: What happens to the values of a column. ``"same"``: nothing. ``"exact"``: they are cast to the sink's wider type.
#: ``"widens"``: the sink's type becomes the batch's. ``"unfit"``: the sink cannot hold all values of the type.
#: ``"missing"``: the sink has no such column.
Fit = Literal["same", "exact", "widens", "unfit", "missing"]

#: How far a write widens the sink's types: not at all, to the integers that Parquet stores alike (with schema
#: evolution), or to every wider type (also with type widening enabled on the table).
Widening = Literal["no", "int32", "all"]

#: Limits of the table of conflicts, because the message of a report is limited too.
_SHOWN_COLUMNS = 8
_SHOWN_CHARS = 24

_NULL_TYPES = ("void", "null")
_SAME_IN_PARQUET = ("short", "integer")
_SQL_NAMES = {"byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint"}
_PARTS = {"array": ("elementType",), "map": ("keyType", "valueType")}
_PART_NAMES = {"elementType": "element", "keyType": "key", "valueType": "value"}


def fit(source: Any, sink: Any, widening: Widening = "no") -> Fit:
    """Return whether values of the type ``source`` may be written into a column of the type ``sink``.

    Args:
        source: A type of the batch. Of two structs, arrays or maps, :func:`column_fit` compares the parts instead.
        sink: The sink's type.
        widening: How far the write widens the sink's types.
    """
    if source == sink:
        return "same"
    if source in _NULL_TYPES or is_wider(source, sink):
        return "exact"
    return "widens" if _evolves(sink, source, widening) else "unfit"


def _evolves(old: Any, new: Any, widening: Widening) -> bool:
    if widening == "no" or not is_wider(old, new):
        return False
    # a date becomes a time only by ALTER TABLE
    return new in _SAME_IN_PARQUET if widening == "int32" else new != "timestamp_ntz"


def widening_of(properties: Mapping[str, str], *, merge_schema: bool) -> Widening:
    """Return how far a write widens the types of a table with these properties."""
    if not merge_schema:
        return "no"
    return "all" if properties.get("delta.enableTypeWidening", "").lower() == "true" else "int32"


@dataclass(frozen=True)
class Misfit:
    """A column, or a part of one, that does not fit, with its types in SQL; ``sink`` is ``""`` if it is missing."""

    column: str
    batch: str
    sink: str
    fit: Fit


@dataclass
class ColumnFit:
    """How the columns of a batch fit those of a sink.

    Attributes:
        casts: Top-level columns that the batch casts to wider types of the sink, with their new types.
        widened: Columns whose types the write makes wider in the sink.
        missing: Columns, or fields of structs, that the sink lacks.
        unfit: Columns, or their parts, whose values the sink cannot hold.
    """

    casts: Dict[str, Any] = field(default_factory=dict)
    widened: List[Misfit] = field(default_factory=list)
    missing: List[Misfit] = field(default_factory=list)
    unfit: List[Misfit] = field(default_factory=list)

    def problems(self, *, adds: bool) -> List[Misfit]:
        """Return what does not fit; ``adds``: whether the write adds columns that the sink lacks."""
        return [*([] if adds else self.missing), *self.unfit]


def column_fit(batch: Dict[str, Any], sink: Dict[str, Any], widening: Widening = "no") -> ColumnFit:
    """Compare two schemas. Names are compared case-insensitively, as Delta does.

    Args:
        batch: Schema of the rows to be written.
        sink: Schema of the sink.
        widening: See :func:`fit`.
    """
    found = ColumnFit()
    theirs = {column["name"].lower(): column["type"] for column in sink["fields"]}
    for column in batch["fields"]:
        name, kind = column["name"], column["type"]
        if name.lower() not in theirs:
            found.missing.append(Misfit(name, type_text(kind), "", "missing"))
            continue
        target = _compare(found, kind, theirs[name.lower()], name, widening)
        if target != kind:
            found.casts[name] = target
    return found


def _compare(found: ColumnFit, ours: Any, theirs: Any, path: str, widening: Widening) -> Any:
    """Record how one type fits another; return the type that the batch's values are cast to."""
    kind = ours.get("type") if isinstance(ours, dict) else None
    if kind is not None and isinstance(theirs, dict) and theirs.get("type") == kind:
        if kind == "struct":
            fields = {one["name"].lower(): one["type"] for one in theirs["fields"]}
            cast = []
            for one in ours["fields"]:
                inner, target = f"{path}.{one['name']}", one["type"]
                if one["name"].lower() in fields:
                    target = _compare(found, target, fields[one["name"].lower()], inner, widening)
                else:
                    found.missing.append(Misfit(inner, type_text(target), "", "missing"))
                cast.append({**one, "type": target})
            return {**ours, "fields": cast}
        if kind in _PARTS:
            parts = {
                part: _compare(found, ours[part], theirs[part], f"{path}.{_PART_NAMES[part]}", widening)
                for part in _PARTS[kind]
            }
            return {**ours, **parts}
    how = fit(ours, theirs, widening)
    if how == "exact":
        return theirs
    if how != "same":
        (found.widened if how == "widens" else found.unfit).append(
            Misfit(path, type_text(ours), type_text(theirs), how)
        )
    return ours


def type_text(kind: Any) -> str:
    """Return a type as in SQL."""
    if not isinstance(kind, dict):
        return _SQL_NAMES.get(str(kind), str(kind))
    name = kind.get("type", "unknown")
    if name == "struct":
        inner = [f"{one['name']}:{type_text(one['type'])}" for one in kind.get("fields", ())]
        return f"struct<{','.join(inner)}>"
    if name in _PARTS:
        return f"{name}<{','.join(type_text(kind.get(part)) for part in _PARTS[name])}>"
    return str(name)


def describe_misfit(batch: Dict[str, Any], sink: Dict[str, Any], misfits: List[Misfit], path: str, kind: str) -> str:
    """Return the columns of a batch that do not fit a sink, why that may be, and what to do.

    Args:
        batch: Schema of the rows to be written.
        sink: Schema of the sink.
        misfits: What does not fit; at least one.
        path: The sink's location.
        kind: Class of the sink.
    """
    lacking = [one for one in misfits if one.fit == "missing"]
    differing = [one for one in misfits if one.fit != "missing"]
    named = [one.column[:_SHOWN_CHARS] for one in lacking[:_SHOWN_COLUMNS]]
    more = f" and {len(lacking) - len(named)} more" if len(lacking) > len(named) else ""
    found = f"the batch has columns {', '.join(named)}{more} that the sink {path} lacks" if lacking else ""
    if differing:
        other = "columns of types that the sink's cannot hold without loss"
        found = f"{found}, and {other}" if found else f"the batch has {other}, in {path}"
    ours = {column["name"].lower() for column in batch["fields"]}
    shown = [(one.column, one.batch, one.sink or "-") for one in misfits]
    if lacking:
        # one of these may be the name that the sink has for a column that it seems to lack
        shown += [
            (column["name"], "-", type_text(column["type"]))
            for column in sink["fields"]
            if column["name"].lower() not in ours
        ]
    if len(batch["fields"]) < 2 * sum("." not in one.column for one in lacking):
        advice = (
            "Most of the columns are not there, so the sink may not be the table that you mean: correct its URI, then "
            "run `fds replan STREAM --new-sink --why …` if the stream is bound to it. If it is the right table, add "
            f"the columns, or use {kind}(…, merge_schema=True)"
        )
    elif differing:
        add = f"Add missing columns (ALTER TABLE … ADD COLUMNS, or {kind}(…, merge_schema=True)). " if lacking else ""
        advice = (
            f"{add}Give the other columns types that hold the batch's values (ALTER TABLE … ALTER COLUMN … TYPE, if it "
            "is wider and the table has delta.enableTypeWidening), cast the batch's columns in transform, or load into "
            "another table: use another sink and run `fds replan STREAM --new-sink --why …`. If the types of many "
            "columns differ, check that the sink is the table that you mean"
        )
    else:
        advice = (
            f"Add them (ALTER TABLE … ADD COLUMNS, or {kind}(…, merge_schema=True)), or leave them out (columns=[…] of "
            "the sink). If this is not the table that you mean, use another sink and run `fds replan STREAM --new-sink "
            "--why …`"
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
