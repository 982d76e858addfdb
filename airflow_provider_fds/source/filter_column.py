"""A column in a predicate: how its values are logged, and how values and literals are compared."""

from __future__ import annotations

import json
import operator
import re
import struct
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from airflow_provider_fds.errors import ConfigurationError, StoppedError
from airflow_provider_fds.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from airflow_provider_fds.delta.actions import Metadata

#: Comparison operators of a predicate.
COMPARISONS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}

#: Number of different values of a column whose parsed form is cached.
_KEPT_VALUES: Final = 4096
_DAY: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)
_INTEGERS: Final = ("byte", "short", "integer", "long")


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant of a predicate: ``kind`` is ``text``, ``number``, ``boolean``, ``date`` or ``timestamp``."""

    kind: str
    value: Any

    @classmethod
    def in_time(cls, kind: str, text: str) -> Literal:
        """Parse the string after ``DATE`` or ``TIMESTAMP``. Raises ``ValueError``."""
        if kind == "date":
            return cls(kind, _day(text))
        return cls(kind, _moment(text))

    def __str__(self) -> str:
        return repr(self.value) if self.kind == "text" else str(self.value)


@dataclass(frozen=True, slots=True)
class AskedFilter:
    """A predicate as the user gave it, for messages.

    Attributes:
        option: The option.
        text: Its value.
        table: URI of the table.
    """

    option: str
    text: str
    table: str

    def refusal(self, problem: str) -> ConfigurationError:
        """Return the error that the predicate does not fit the table."""
        return ConfigurationError(
            f"{self.table}: {self.option} {self.text!r} {problem}",
            table=self.table,
            reason=Reason.WHERE_INVALID if self.option == "where" else Reason.PARTITION_FILTER_INVALID,
        )


@dataclass(frozen=True, slots=True)
class FilterColumn:
    """A column of the table.

    Attributes:
        name: Its name, as users know it.
        key: Its name in ``partitionValues``: the physical name under column mapping.
        type: Its type in the schema.
        is_partition: Whether the table is partitioned by it.
    """

    name: str
    key: str
    type: str
    is_partition: bool

    @property
    def kind(self) -> str | None:
        """How its values are compared, such as ``integer`` or ``text``; ``None`` if they cannot be."""
        return _kind(self.type)

    def constant(self, literal: Literal, asked: AskedFilter) -> Any:
        """Convert a literal to this column's type, for comparison with values of :meth:`reader`.

        Raises:
            ConfigurationError: The literal has another type, or columns of this type cannot be compared.
        """
        kind = self.kind
        if kind is None:
            raise asked.refusal(
                f"compares {self.name!r}, but cannot compare values of type {self.type}. Filter by this column in the "
                "job that reads the batch."
            )
        try:
            return _FROM_LITERAL[kind](literal)
        except ValueError as error:
            raise asked.refusal(
                f"compares {self.name!r}, of type {self.type}, with {literal}: expected {_EXPECTED[kind]}"
                f"{f' ({error})' if str(error) else ''}."
            ) from error

    def reader(self, asked: AskedFilter) -> Callable[[str], Any]:
        """Return the function that parses a logged partition value. It raises ``StoppedError`` for an invalid one."""
        kind = _kind(self.type)
        name, type_, read = self.name, self.type, _FROM_LOG[kind or "text"]

        @lru_cache(maxsize=_KEPT_VALUES)
        def value_of(raw: str) -> Any:
            try:
                return read(raw)
            except (ValueError, ArithmeticError, ConfigurationError) as error:
                raise StoppedError(
                    f"{asked.table}: a file has the value {raw!r} in partition column {name!r}, which is not of type "
                    f"{type_}: the log is damaged, or its writer does not follow the protocol. Omit the column "
                    f"from {asked.option} to read such files.",
                    table=asked.table,
                ) from error

        return str if kind == "text" else value_of


def table_columns(metadata: Metadata) -> Mapping[str, FilterColumn]:
    """Return the columns of a table by lower-case name (Spark's column names are case-insensitive)."""
    is_mapped = (metadata.property("delta.columnMapping.mode") or "none") != "none"
    partitions = {name.lower() for name in metadata.partitionColumns}
    found = {}
    for field in json.loads(metadata.schemaString).get("fields", ()):
        extra = field.get("metadata") or {}
        type_ = field["type"] if isinstance(field["type"], str) else str(field["type"].get("type"))
        if type_ == "string" and ("__COLLATIONS" in extra or _is_padded(extra)):
            # such strings do not compare by their bytes
            type_ = "string with a collation" if "__COLLATIONS" in extra else "char"
        name = field["name"]
        key = extra.get("delta.columnMapping.physicalName", name) if is_mapped else name
        found[name.lower()] = FilterColumn(name, key, type_, name.lower() in partitions)
    return found


def _is_padded(extra: Mapping[str, Any]) -> bool:
    return str(extra.get("__CHAR_VARCHAR_TYPE_STRING", "")).startswith("char(")


def _kind(type_: str) -> str | None:
    """Return how values of a type are compared, or ``None`` if they cannot be."""
    if type_ in _INTEGERS:
        return "integer"
    if type_.startswith("decimal"):
        return "decimal"
    if type_ in ("float", "double", "boolean", "date"):
        return type_
    if type_ in ("timestamp", "timestamp_ntz"):
        return "timestamp"
    return "text" if type_ == "string" or type_.startswith("varchar") else None


def _number(literal: Literal) -> Decimal:
    if literal.kind != "number":
        raise ValueError
    number: Decimal = literal.value
    return number


def _double(value: float) -> tuple[bool, float]:
    """Return a sort key under which NaN equals itself and is greater than all other values, as in Spark."""
    return (True, 0.0) if value != value else (False, value)  # noqa: PLR0124


def _single(raw: str) -> tuple[bool, float]:
    """Parse a value of type ``float``, which has fewer digits than Python's."""
    return _double(struct.unpack("f", struct.pack("f", float(raw)))[0])


def _text(literal: Literal) -> str:
    if literal.kind != "text":
        raise ValueError
    return str(literal.value)


def _truth(literal: Literal) -> bool:
    if literal.kind != "boolean":
        raise ValueError
    return bool(literal.value)


def _truth_of(raw: str) -> bool:
    if raw.lower() not in ("true", "false"):
        raise ValueError(raw)
    return raw.lower() == "true"


def _date(literal: Literal) -> date:
    if literal.kind not in ("date", "text"):
        raise ValueError
    return _day(literal.value) if literal.kind == "text" else literal.value


def _time(literal: Literal) -> datetime:
    if literal.kind == "date":
        day: date = literal.value
        return datetime(day.year, day.month, day.day, tzinfo=UTC)
    if literal.kind not in ("timestamp", "text"):
        raise ValueError
    return _moment(literal.value) if literal.kind == "text" else literal.value


def _day(text: str) -> date:
    if not _DAY.fullmatch(text.strip()):
        raise ValueError(f"{text!r} is not a date such as '2026-01-31'")
    try:
        return date.fromisoformat(text.strip())
    except ValueError as error:
        raise ValueError(f"{text!r} is not a date: {error}") from error


def _moment(text: str) -> datetime:
    from airflow_provider_fds.delta.moments import parse_moment

    try:
        return parse_moment(text)
    except ConfigurationError as error:
        raise ValueError(str(error)) from error


_FROM_LITERAL: Final[dict[str, Callable[[Literal], Any]]] = {
    "integer": _number,
    "decimal": _number,
    "float": lambda literal: _double(float(_number(literal))),
    "double": lambda literal: _double(float(_number(literal))),
    "boolean": _truth,
    "date": _date,
    "timestamp": _time,
    "text": _text,
}

_FROM_LOG: Final[dict[str, Callable[[str], Any]]] = {
    "integer": int,
    "decimal": Decimal,
    "float": _single,
    "double": lambda raw: _double(float(raw)),
    "boolean": _truth_of,
    "date": _day,
    "timestamp": _moment,
    "text": str,
}

_EXPECTED: Final = {
    "integer": "a number",
    "decimal": "a number",
    "float": "a number",
    "double": "a number",
    "boolean": "true or false",
    "date": "DATE '…' or a string such as '2026-01-31'",
    "timestamp": "TIMESTAMP '…', DATE '…' or such a string",
    "text": "a string in single quotes",
}
