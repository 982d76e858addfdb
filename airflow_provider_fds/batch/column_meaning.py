"""Which column of the source feeds which column of a sink, where a name can come to mean another column.

With column mapping, a column of the source is its physical name: a name can be dropped and added, or move to another
column. A sink's columns have the source's names, so a stream remembers which physical name each of them had (``fed``),
and a batch in which it is another one is refused until the sink's names have moved too. See docs/design/column_fit.md.

A column, or a field of a struct, is named by its path in lower case, as in Delta's own operations: ``a.element.b``.
Standard library only, Python 3.9 syntax.
"""
# The driver may run Python 3.9, so the annotations stay in its syntax.
# ruff: noqa: UP006, UP035

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Dict, Iterable, Iterator, List, Mapping, Tuple

from airflow_provider_fds.batch.column_fit import type_text

_PHYSICAL_NAME = "delta.columnMapping.physicalName"
_INNER = {"array": (("element", "elementType"),), "map": (("key", "keyType"), ("value", "valueType"))}


def column_ids(schema: Mapping[str, Any]) -> Dict[str, str]:
    """Return the identity of each column and field by its path: the physical names of it and what it is in.

    Args:
        schema: Delta's schema JSON. Without column mapping, the physical name is the name.
    """
    return {path: identity for path, identity, _ in _walk(schema, "", "")}


def column_types(schema: Mapping[str, Any]) -> Dict[str, str]:
    """Return the types of all columns and fields in SQL, by their paths."""
    return {path: type_text(kind) for path, _, kind in _walk(schema, "", "")}


def _walk(kind: Any, path: str, identity: str) -> Iterator[Tuple[str, str, Any]]:
    if not isinstance(kind, Mapping):
        return
    if kind.get("type") == "struct":
        for field in kind["fields"]:
            name = field["name"]
            physical = str((field.get("metadata") or {}).get(_PHYSICAL_NAME, name))
            inner = (f"{path}{_part(name)}".lower(), f"{identity}{physical}")
            yield (*inner, field["type"])
            yield from _walk(field["type"], f"{inner[0]}.", f"{inner[1]}/")
    for part, field in _INNER.get(str(kind.get("type")), ()):
        yield from _walk(kind[field], f"{path}{part}.", f"{identity}{part}/")


def _part(name: str) -> str:
    """Return a part of a path as Delta writes it in the parameters of an operation."""
    return f"`{name}`" if "." in name else name


def fed_after(fed: Mapping[str, str], batch: Mapping[str, str], *, by_key: bool) -> Dict[str, str]:
    """Return what feeds a sink once a batch is in it.

    Args:
        fed: What fed each column before.
        batch: What the batch feeds into each column; ``""``: nothing any longer.
        by_key: Whether rows are updated by key, so that no two columns of the sink may have the same source.
    """
    new = set(batch.values()) - {""} if by_key else set()
    return {**{path: identity for path, identity in fed.items() if identity not in new}, **batch}


@dataclass(frozen=True)
class SinkChange:
    """A commit of the sink after the stream's last record.

    Attributes:
        operation: ``commitInfo.operation``.
        parameters: ``commitInfo.operationParameters``.
        sets_schema: Whether the commit has a ``metaData`` action.
    """

    operation: str
    parameters: Mapping[str, Any]
    sets_schema: bool


def renamed_in_sink(fed: Mapping[str, str], changes: Iterable[SinkChange]) -> Dict[str, str]:
    """Return ``fed`` under the names that the sink's columns have after commits of other writers, oldest first.

    A column that was dropped, or added by a statement, is not fed by the stream any longer, or not yet. A commit that
    overwrites the schema has written all rows anew.
    """
    found = dict(fed)
    for change in changes:
        if change.operation == "RENAME COLUMN":
            old, new = (str(change.parameters.get(f"{which}ColumnPath", "")).lower() for which in ("old", "new"))
            moved = _taken(found, old)
            _taken(found, new)
            found.update({new + path[len(old) :]: identity for path, identity in moved.items()})
        elif change.operation in ("DROP COLUMNS", "ADD COLUMNS"):
            for path in _named(change.parameters.get("columns")):
                _taken(found, path.lower())
        elif change.sets_schema and _overwrites(change):
            found.clear()
    return found


def _overwrites(change: SinkChange) -> bool:
    is_replaced = "REPLACE" in change.operation.upper() and "COLUMNS" not in change.operation.upper()
    # replaceWhere and dynamic overwrites keep other rows
    kept = any(change.parameters.get(name) for name in ("predicate", "isDynamicPartitionOverwrite"))
    return is_replaced or (str(change.parameters.get("mode")).lower() == "overwrite" and not kept)


def _taken(fed: Dict[str, str], path: str) -> Dict[str, str]:
    """Remove a column with its fields from ``fed`` and return them."""
    return {known: fed.pop(known) for known in list(fed) if known == path or known.startswith(f"{path}.")}


def _named(text: Any) -> List[str]:
    """Return the paths in the parameter ``columns`` of an operation."""
    try:
        columns = json.loads(text) if isinstance(text, str) else text
        return [one if isinstance(one, str) else one["column"]["name"] for one in columns]
    except (TypeError, ValueError, KeyError):
        return []


def may_be_moved(fed: Mapping[str, str], batch: Mapping[str, str], *, by_key: bool) -> bool:
    """Whether a batch feeds a column from another one than before, unless the sink's names have moved too."""
    return bool(moved_columns(fed, batch, fed, by_key=by_key))


def moved_columns(fed: Mapping[str, str], batch: Mapping[str, str], names: Iterable[str], *, by_key: bool) -> List[str]:
    """Return the paths in a batch whose column of the sink has values of another column, without their fields.

    Args:
        fed: What has fed each column, under the names that the sink has now.
        batch: What the batch feeds into each column.
        names: Paths of the sink's columns.
        by_key: Whether rows are updated by key. A column whose values are under another name in the sink then leaves
            outdated values there.
    """
    there, known = set(names), set(fed.values())
    found: List[str] = []
    for path, identity in batch.items():
        if not identity:
            continue
        before = fed.get(path)
        is_other = before is not None and before != identity and path in there
        is_elsewhere = by_key and before != identity and identity in known
        if (is_other or is_elsewhere) and not any(path.startswith(f"{outer}.") for outer in found):
            found.append(path)
    return found


def moved_problem(
    fed: Mapping[str, str],
    changes: Iterable[SinkChange],
    batch: Mapping[str, str],
    sink: Mapping[str, Any],
    types: Mapping[str, str],
    *,
    path: str,
    by_key: bool,
    keeps_history: bool,
    keys: Iterable[str],
) -> str | None:
    """Return why a batch must not be written into a sink whose columns mean something else, ``None`` if it may.

    Args:
        fed: What fed each column of the sink, as it was recorded.
        changes: Commits of the sink since then, oldest first.
        batch: What the batch feeds into each column.
        sink: The sink's schema now.
        types: Types of the batch's columns, by their paths.
        path: The sink's location.
        by_key: Whether the sink is written by a MERGE.
        keeps_history: Whether that MERGE adds rows instead of updating them.
        keys: Columns that identify a row.
    """
    now, names = renamed_in_sink(fed, changes), column_types(sink)
    moved = moved_columns(now, batch, names, by_key=by_key and not keeps_history)
    return describe_moved(moved, now, batch, names, types, path=path, by_key=by_key, keys=keys) if moved else None


def describe_moved(
    moved: List[str],
    fed: Mapping[str, str],
    batch: Mapping[str, str],
    names: Mapping[str, str],
    types: Mapping[str, str],
    *,
    path: str,
    by_key: bool = False,
    keys: Iterable[str] = (),
) -> str:
    """Return which columns are others than those of the sink, and the statements that put the sink right.

    Args:
        moved: What :func:`moved_columns` found; at least one.
        fed: As there.
        batch: As there.
        names: As there, with types.
        types: Types of the batch's columns.
        path: The sink's location.
        by_key: Whether the sink is written by a MERGE, which needs structs with the same fields.
        keys: Columns that identify a row.
    """
    current = {identity: name for name, identity in fed.items()}
    is_one = len(moved) == 1
    shown = ", ".join(moved[:8]) + (f" and {len(moved) - 8} more" if len(moved) > 8 else "")  # noqa: PLR2004
    text = (
        f"the {'column' if is_one else 'columns'} {shown} of the batch {'is' if is_one else 'are'} not what the sink "
        f"{path} has under {'that name' if is_one else 'those names'}: the source renamed columns, or dropped and "
        "added them, and the sink still has the names of before"
    )
    lost = [key for key in keys if key.lower() in moved and batch[key.lower()] not in current]
    if lost:
        return (
            f"{text}. The sink's rows have no values of the new key {', '.join(lost)}, so they cannot be updated. Load "
            "into another table: use another sink, run `fds replan STREAM --new-sink --why …`, then "
            "`fds rewind STREAM --to start --sink-rows keep --why …`"
        )
    table = f"delta.`{path}`"
    statements = [f"ALTER TABLE {table} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"]
    moves = {current[batch[one]]: one for one in moved if batch[one] in current}
    dropped = [one for one in moved if by_key and "." in one and one in names and one not in moves]
    statements += [f"ALTER TABLE {table} DROP COLUMN {_quoted(one)}" for one in dropped]
    renames = _renames(moves, moved, set(names) - set(dropped))
    statements += [f"ALTER TABLE {table} RENAME COLUMN {_quoted(old)} TO {_quoted(_last(new))}" for old, new in renames]
    statements += [
        f"ALTER TABLE {table} ADD COLUMNS ({_quoted(one)} {types.get(one, '…')})"
        for one in moved
        if batch[one] not in current
    ]
    listed = "\n".join(f"  {statement};" for statement in statements)
    return (
        f"{text}. Give the sink's columns the names that they have in the source, then run the stream again:\n{listed}"
    )


def _renames(moves: Dict[str, str], wanted: List[str], names: set[str]) -> List[Tuple[str, str]]:
    """Return renames in an order in which no new name is taken; a column in the way gets a name of its own."""
    found: List[Tuple[str, str]] = []
    pending = dict(moves)
    for name in wanted:
        if name in names and name not in pending:
            pending[name] = _free(f"{name}_old", names)
    while pending:
        old = next((one for one in pending if pending[one] not in names), None)
        if old is None:
            # a cycle
            old = next(iter(pending))
            new = _free(f"{old}_moved", names)
            pending[new] = pending.pop(old)
        else:
            new = pending.pop(old)
        found.append((old, new))
        names = {*names - {old}, new}
    return found


def _free(name: str, names: set[str]) -> str:
    while name in names:
        name += "_"
    return name


def _last(path: str) -> str:
    return path if "`" in path else path.rpartition(".")[2]


def _quoted(path: str) -> str:
    if "`" in path:
        return path
    return ".".join(f"`{part}`" for part in path.split("."))
