"""Columns that a sink adds with the same value in each row. Standard library only, Python 3.9 syntax."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import date, datetime, timezone
from typing import Any, Union

from airflow_provider_fds.sinks.options import is_template

#: A value and, by its Python type, the type of its column: string, boolean, long, double, date or timestamp.
Constant = Union[str, bool, int, float, date, datetime]  # noqa: UP007  # evaluated on Python 3.9

#: Provenance columns of a batch, and their names in the sink.
PROVENANCE = {"_commit_version": "_source_version", "_commit_timestamp": "_source_timestamp"}

#: Columns of a batch that the source does not have, and their names in a sink.
_TAKEN = frozenset({"_change_type", *PROVENANCE, *PROVENANCE.values()})

_LONG = 1 << 63


def constant_columns(value: Any, what: str, *, chosen: Sequence[str] = ()) -> dict[str, Constant]:
    """Return the columns with their values, times in UTC; also from the result of :func:`jsonable`.

    Args:
        value: Column names with values.
        what: Name of the argument, for messages.
        chosen: Columns of the batch that are written.

    Raises:
        ValueError: The value is not a mapping of names to values of one of the types, or a name is taken.
    """
    if not isinstance(value, Mapping):
        raise ValueError(  # noqa: TRY004  # one kind of error for what cannot work
            f"{what} must be a mapping of column names to values, such as {{'source_system': 'crm'}}; got {value!r}"
        )
    found: dict[str, Constant] = {}
    for name, given in value.items():
        if not isinstance(name, str) or not name:
            raise ValueError(f"{what}: column names must be strings, got {name!r}")
        if name.lower() in _TAKEN:
            raise ValueError(f"{what}: the name {name} is reserved for a column of FDS; use another name")
        if name.lower() in {other.lower() for other in found}:
            raise ValueError(f"{what} names the column {name} twice; names are compared case-insensitively")
        if name.lower() in {other.lower() for other in chosen}:
            raise ValueError(f"{what}: {name} is also in columns, which takes its values from the batch; remove one")
        found[name] = _constant(given, f"{what}: the value of {name}")
    return found


def jsonable(columns: Mapping[str, Constant]) -> dict[str, Any]:
    """Return the columns as JSON-compatible values: a date is ``{"date": …}``, a time ``{"timestamp": …}``."""
    return {name: _jsonable(value) for name, value in columns.items()}


def sql_literal(value: Constant) -> str:
    """Return a Spark SQL expression of the value, of its column's type, under any settings of the session."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        # in quotes, settings determine what a backslash means, and Spark substitutes ${…}
        return f"decode(unhex('{value.encode().hex()}'), 'UTF-8')"
    if isinstance(value, datetime):
        return f"TIMESTAMP_LTZ '{value.isoformat()}'"
    if isinstance(value, date):
        return f"DATE '{value.isoformat()}'"
    return f"CAST('{value!r}' AS {'DOUBLE' if isinstance(value, float) else 'BIGINT'})"


def _constant(value: Any, what: str) -> Constant:
    if isinstance(value, Mapping) and len(value) == 1:
        ((kind, text),) = value.items()
        if kind in ("date", "timestamp") and isinstance(text, str):
            try:
                value = date.fromisoformat(text) if kind == "date" else datetime.fromisoformat(text)
            except ValueError:
                raise ValueError(f"{what} must be a {kind} in ISO format, got {text!r}") from None
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise ValueError(f"{what} is a time without a time zone, {value}: give it one, such as tzinfo=timezone.utc")
        return value.astimezone(timezone.utc)  # noqa: UP017  # Python 3.9
    if not isinstance(value, (str, bool, int, float, date)):
        raise ValueError(  # noqa: TRY004  # one kind of error for what cannot work
            f"{what} must be a str, int, float, bool, date or datetime, which determines the column's type; "
            f"got {value!r}"
        )
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{what} must be a finite number, got {value!r}")
    if isinstance(value, int) and not -_LONG <= value < _LONG:
        raise ValueError(f"{what} does not fit into 64 bits: {value}")
    if isinstance(value, str) and is_template(value):
        raise ValueError(
            f"{what} is a template, {value!r}: a retry could render another value for rows of the same batch, so "
            "templates are not rendered here. Give the value itself, or add the column in transform"
        )
    return value


def _jsonable(value: Constant) -> Any:
    if isinstance(value, datetime):
        return {"timestamp": value.isoformat()}
    return {"date": value.isoformat()} if isinstance(value, date) else value
