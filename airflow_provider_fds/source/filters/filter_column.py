"""A column in a predicate: how its values are logged, and how values and literals are compared.

Spark reads a logged partition value by a cast of the text to the column's type. A text whose cast is certain, the same
in every session, has a value here; of other texts that Spark may be able to cast, only Spark knows the value.
"""

from __future__ import annotations

import enum
import json
import operator
import re
import struct
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from airflow_provider_fds.delta.moments import microseconds_of, parse_moment
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
#: How NULL is logged as a partition value of a type other than text and binary, besides as ``null``.
NULLS: Final = ("", "__HIVE_DEFAULT_PARTITION__")

_DAY: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)
_WHOLE: Final = re.compile(r"-?[0-9]+", re.ASCII)
_FIXED: Final = re.compile(r"-?([0-9]+)(?:\.([0-9]+))?", re.ASCII)
_FLOATING: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|NaN|-?Infinity", re.ASCII)
_ZONE: Final = re.compile(r"(?:Z|[+-][0-9]{2}:[0-9]{2})$", re.ASCII)
#: Texts that Spark can cast, although not all of them, and not in every session; anything else is damage.
_CASTABLE: Final = {
    "integer": re.compile(r"[+-]?[0-9]*\.?[0-9]*", re.ASCII),
    "decimal": re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", re.ASCII),
    "double": re.compile(r"[+-]?(inf(inity)?|nan|[0-9.]+(e[+-]?[0-9]+)?[df]?)", re.ASCII | re.IGNORECASE),
    "boolean": re.compile(r"t|true|y|yes|1|f|false|n|no|0", re.ASCII | re.IGNORECASE),
    "date": re.compile(r"[+-]?[0-9]{4,7}(-[0-9]{1,2}(-[0-9]{1,2}([ T].*)?)?)?", re.ASCII),
    "timestamp": re.compile(r"[+-]?[0-9]{4,7}(-[0-9]{1,2}(-[0-9]{1,2}([ T].*)?)?)?|T?[0-9]{1,2}:.*", re.ASCII),
}


_CASTABLE["float"] = _CASTABLE["double"]

#: Types of texts that do not compare by their bytes.
_OTHER_TEXTS: Final = ("char", "string with a collation")


class Unsure(enum.Enum):
    """A partition value of which only Spark knows how it reads it."""

    UNSURE = enum.auto()


UNSURE: Final = Unsure.UNSURE


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
        text: The predicate.
        table: URI of the table.
    """

    text: str
    table: str

    def refusal(self, problem: str) -> ConfigurationError:
        """Return the error that the predicate does not fit the table."""
        return ConfigurationError(
            f"{self.table}: where {self.text!r} {problem}",
            table=self.table,
            reason=Reason.WHERE_INVALID,
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
        from airflow_provider_fds.delta.statistics import kind_of

        return kind_of(self.type)

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

    def value_of(self, logged: str | None) -> Any:
        """Return the value that Spark reads from a logged partition value.

        Returns:
            ``None`` for NULL; :data:`UNSURE` if only Spark knows the value, or has none; else a value to compare with
            :meth:`constant`.
        """
        if self.has_empty_values:
            return logged
        if logged is None or logged in NULLS:
            return None
        read = _FROM_LOG.get(self.kind or "")
        try:
            return UNSURE if read is None else read(logged, self.type)
        except (ValueError, ArithmeticError, ConfigurationError):
            return UNSURE

    def reader(self, asked: AskedFilter) -> Callable[[str | None], Any]:
        """Return :meth:`value_of` for a filter: it raises ``StoppedError`` for a text that no session can cast."""
        if self.has_empty_values:
            return lambda raw: raw
        castable = _CASTABLE.get(self.kind or "")

        @lru_cache(maxsize=_KEPT_VALUES)
        def value_of(raw: str | None) -> Any:
            value = self.value_of(raw)
            if value is not UNSURE or raw is None or castable is None:
                return value
            text = raw.strip()
            # a whole day that is not in the calendar is damage, too; Python has no year 0, which Spark has
            is_no_day = self.kind == "date" and _DAY.fullmatch(text) and not text.startswith("0000")
            if castable.fullmatch(text) and not is_no_day:
                return UNSURE
            raise StoppedError(
                f"{asked.table}: a file has the value {raw!r} in partition column {self.name!r}, which is not of type "
                f"{self.type}: the log is damaged, or its writer does not follow the protocol. Omit the column "
                "from where to read such files.",
                table=asked.table,
            )

        return value_of

    @property
    def has_empty_values(self) -> bool:
        """Whether an empty text in the log is a value, as Spark reads it, and not NULL as the protocol has it."""
        return self.kind == "text" or self.type in ("binary", *_OTHER_TEXTS)


def table_columns(metadata: Metadata) -> Mapping[str, FilterColumn]:
    """Return the columns of a table by lower-case name (Spark's column names are case-insensitive)."""
    from airflow_provider_fds.delta.schema import physical_name
    from airflow_provider_fds.delta.statistics import comparable_type

    partitions = {name.lower() for name in metadata.partitionColumns}
    found = {}
    for field in json.loads(metadata.schemaString).get("fields", ()):
        name = field["name"]
        key, is_partition = physical_name(field, metadata), name.lower() in partitions
        found[name.lower()] = FilterColumn(name, key, comparable_type(field), is_partition)
    return found


def _number(literal: Literal) -> Decimal:
    if literal.kind != "number":
        raise ValueError
    number: Decimal = literal.value
    return number


def _double(value: float) -> tuple[bool, float]:
    """Return a sort key under which NaN equals itself and is greater than all other values, as in Spark."""
    return (True, 0.0) if value != value else (False, value)  # noqa: PLR0124


def _text(literal: Literal) -> str:
    if literal.kind != "text":
        raise ValueError
    return str(literal.value)


def _truth(literal: Literal) -> bool:
    if literal.kind != "boolean":
        raise ValueError
    return bool(literal.value)


def _date(literal: Literal) -> date:
    if literal.kind not in ("date", "text"):
        raise ValueError
    return _day(literal.value) if literal.kind == "text" else literal.value


def moment_of(literal: Literal) -> datetime:
    """Return a literal that is compared with times.

    Raises:
        ValueError: It is no time.
    """
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
    try:
        return parse_moment(text)
    except ConfigurationError as error:
        raise ValueError(str(error)) from error


def _logged_integer(raw: str, type_: str) -> int:
    from airflow_provider_fds.delta.statistics import INTEGERS

    value = int(_matched(_WHOLE, raw)[0])
    limit = 1 << (INTEGERS[type_] - 1)
    if not -limit <= value < limit:
        raise ValueError(raw)
    return value


def _logged_decimal(raw: str, type_: str) -> Decimal:
    from airflow_provider_fds.delta.statistics import decimal_digits

    whole, fraction = _matched(_FIXED, raw).groups()
    precision, scale = decimal_digits(type_)
    if len(whole.lstrip("0")) > precision - scale or len(fraction or "") > scale:
        raise ValueError(raw)
    return Decimal(raw)


def _logged_double(raw: str, type_: str) -> tuple[bool, float]:
    value = float(_matched(_FLOATING, raw)[0])
    # a float has fewer digits than Python's
    return _double(struct.unpack("f", struct.pack("f", value))[0] if type_ == "float" else value)


def _logged_truth(raw: str, type_: str) -> bool:  # noqa: ARG001 - one signature for all kinds
    if raw.lower() not in ("true", "false"):
        raise ValueError(raw)
    return raw.lower() == "true"


def _logged_date(raw: str, type_: str) -> date:  # noqa: ARG001
    return date.fromisoformat(_matched(_DAY, raw)[0])


def _logged_time(raw: str, type_: str) -> int | Unsure:
    moment = parse_moment(raw)
    if type_ == "timestamp_ntz":
        # Spark passes over the zone
        return microseconds_of(moment.replace(tzinfo=None))
    # without a zone, Spark reads it in the zone of its session
    return microseconds_of(moment) if _ZONE.search(raw) else UNSURE


def _matched(pattern: re.Pattern[str], raw: str) -> re.Match[str]:
    match = pattern.fullmatch(raw)
    if match is None:
        raise ValueError(raw)
    return match


_FROM_LITERAL: Final[dict[str, Callable[[Literal], Any]]] = {
    "integer": _number,
    "decimal": _number,
    "float": lambda literal: _double(float(_number(literal))),
    "double": lambda literal: _double(float(_number(literal))),
    "boolean": _truth,
    "date": _date,
    "timestamp": lambda literal: microseconds_of(moment_of(literal)),
    "text": _text,
}

_FROM_LOG: Final[dict[str, Callable[[str, str], Any]]] = {
    "integer": _logged_integer,
    "decimal": _logged_decimal,
    "float": _logged_double,
    "double": _logged_double,
    "boolean": _logged_truth,
    "date": _logged_date,
    "timestamp": _logged_time,
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
