"""``where`` and ``partition_filter``: the rows that satisfy a predicate, and only the files that may have such a row.

Spark filters the rows, by the predicate in its own SQL; for ``partition_filter`` only where the planner cannot tell
that all rows of each file satisfy it. The planner leaves out a file only if its partition values and statistics prove
that no row in it satisfies the predicate; without this proof the file is read. So which files are left out never
changes which rows arrive.

Of each part of the predicate, the planner derives which of SQL's three truth values it may have for some row of a file.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, Literal

from airflow_provider_fds.delta.damage import MAX_INT64
from airflow_provider_fds.delta.statistics import LAST_CHARACTER, bounds_reader, decimal_digits, statistics_of
from airflow_provider_fds.source.filters.filter_column import (
    COMPARISONS,
    UNSURE,
    AskedFilter,
    moment_of,
    table_columns,
)
from airflow_provider_fds.source.filters.predicate import AnyOf, Comparison, IsNull, Not, columns_of, parse_predicate

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import TypeAlias

    from airflow_provider_fds.delta.actions import Add, Cdc, Metadata, Remove
    from airflow_provider_fds.delta.statistics import Bounds, Statistics
    from airflow_provider_fds.source.filters.filter_column import FilterColumn
    from airflow_provider_fds.source.filters.filter_column import Literal as FilterLiteral
    from airflow_provider_fds.source.filters.predicate import Predicate

    #: Returns whether a file is read.
    Keeps: TypeAlias = Callable[[Add | Remove | Cdc], bool]
    #: The truth values, as a sum of the flags below, that a part of the predicate may have for some row of a file.
    Possible: TypeAlias = Callable[["_File"], int]

_TRUE, _FALSE, _UNKNOWN = 1, 2, 4
_ANY: Final = _TRUE | _FALSE | _UNKNOWN
_OF_TRUTH: Final = {True: _TRUE, False: _FALSE, None: _UNKNOWN}

#: Digits of a number that Spark can parse, and that its decimals can have.
_MAX_DIGITS: Final = 38
#: Digits before the point of the largest integer type as a decimal.
_INTEGER_DIGITS: Final = 20
_PLAIN_TEXT: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 _-.:/@")


class RowFilter:
    """A parsed predicate that is not yet bound to a table.

    Args:
        option: Name of the option: ``where``, or ``partition_filter``, which can only name partition columns.
        text: The predicate.

    Raises:
        ValueError: It is not supported; says what was expected, and where.

    Examples:
        >>> RowFilter("partition_filter", "day >= DATE '2026-01-01' AND country IN ('DE', 'FR')").columns
        ('day', 'country')
    """

    def __init__(self, option: Literal["where", "partition_filter"], text: str) -> None:
        self.option = option
        self.text = text
        self._predicate = parse_predicate(text)
        self.columns = columns_of(self._predicate)

    def bind(self, metadata: Metadata, *, table: str) -> BoundRowFilter:
        """Return the predicate for a table with this metadata.

        Raises:
            ConfigurationError: A column does not exist or has a type that cannot be compared, or a literal has another
                type than its column.
        """
        columns = _Columns(table_columns(metadata), AskedFilter(self.option, self.text, table))
        return BoundRowFilter(_sql(self._predicate, columns), _possible(self._predicate, columns))


@dataclass(frozen=True)
class BoundRowFilter:
    """A predicate for a table.

    Attributes:
        sql: The predicate in Spark's SQL, with the same meaning in every session: literals have the types of their
            columns, and times have a zone.
    """

    sql: str
    _possible: Possible

    def may_match(self, file: Add | Remove | Cdc) -> bool:
        """Whether a row of ``file`` may satisfy the predicate.

        Raises:
            StoppedError: No Spark can cast a logged partition value to its column's type.
        """
        return bool(self._possible(_File(file)) & _TRUE)

    def matches_whole(self, file: Add | Remove | Cdc) -> bool:
        """Whether every row of ``file`` satisfies the predicate."""
        return self._possible(_File(file)) == _TRUE


class _File:
    """A file while the predicate is evaluated; its statistics are decoded once, if they are needed."""

    __slots__ = ("_file", "_statistics", "values")

    def __init__(self, file: Add | Remove | Cdc) -> None:
        self._file = file
        self._statistics: Statistics | None = None
        self.values: Mapping[str, str | None] = file.partitionValues or {}

    @property
    def statistics(self) -> Statistics:
        if self._statistics is None:
            # change files have none
            self._statistics = statistics_of(getattr(self._file, "stats", None))
        return self._statistics


@dataclass(frozen=True)
class _Columns:
    known: Mapping[str, FilterColumn]
    asked: AskedFilter

    def find(self, name: str) -> FilterColumn:
        found = self.known.get(name.lower())
        if self.asked.option == "partition_filter" and (found is None or not found.is_partition):
            partitions = ", ".join(column.name for column in self.known.values() if column.is_partition) or "none"
            what = "is not a column of the table" if found is None else "is not a partition column"
            raise self.asked.refusal(
                f"names {name!r}, which {what}. The partition columns are: {partitions}. Filter by other columns with "
                "the option where."
            )
        if found is None:
            columns = ", ".join(column.name for column in self.known.values()) or "none"
            raise self.asked.refusal(
                f"names {name!r}, which is not a column of the table. Its columns are: {columns}. The where of a sink "
                "can use any expression, and also the columns that a batch adds."
            )
        return found

    def constant(self, predicate: Comparison) -> Any:
        column = self.find(predicate.column)
        value = predicate.literal.value
        if isinstance(value, Decimal) and len(f"{abs(value):f}".replace(".", "")) > _MAX_DIGITS:
            raise self.asked.refusal(
                f"compares {column.name!r} with {value}: a number can have at most {_MAX_DIGITS} digits."
            )
        return column.constant(predicate.literal, self.asked)


def _possible(predicate: Predicate, columns: _Columns) -> Possible:
    if isinstance(predicate, Comparison):
        return _comparison(predicate, columns)
    if isinstance(predicate, IsNull):
        return _null_test(columns.find(predicate.column), columns.asked, is_negated=predicate.is_negated)
    if isinstance(predicate, Not):
        return _negation(_possible(predicate.part, columns))
    parts = [_possible(part, columns) for part in predicate.parts]
    return _joined(parts, decisive=_TRUE if isinstance(predicate, AnyOf) else _FALSE)


def _comparison(predicate: Comparison, columns: _Columns) -> Possible:
    column, constant = columns.find(predicate.column), columns.constant(predicate)
    if column.kind == "integer" and not -MAX_INT64 <= constant <= MAX_INT64:
        # Spark decides some of these without looking at the column, even for NULL
        return lambda _: _ANY
    if column.is_partition:
        return _partition_comparison(predicate, column, constant, columns.asked)
    bounds_of, outcomes = bounds_reader(column.key, column.type), _OUTCOMES[predicate.operator]
    is_comparable = _is_exact(column, predicate.literal.value) and not (
        isinstance(constant, str) and LAST_CHARACTER in constant
    )

    def of_bounds(file: _File) -> int:
        bounds = bounds_of(file.statistics)
        found = _UNKNOWN if bounds.may_have_nulls else 0
        if bounds.may_have_values:
            found |= outcomes(bounds, constant) if is_comparable else _TRUE | _FALSE
        return found

    return of_bounds


def _partition_comparison(predicate: Comparison, column: FilterColumn, constant: Any, asked: AskedFilter) -> Possible:
    read, compare, key = column.reader(asked), COMPARISONS[predicate.operator], column.key
    is_exact = _is_exact(column, predicate.literal.value)

    def possible(file: _File) -> int:
        value = read(file.values.get(key))
        if value is None:
            return _UNKNOWN
        if value is UNSURE:
            return _ANY
        return _OF_TRUTH[compare(value, constant)] if is_exact else _TRUE | _FALSE

    return possible


def _is_exact(column: FilterColumn, value: object) -> bool:
    """Whether Spark compares the column with the number without rounding one of them to fit a decimal's digits."""
    if not isinstance(value, Decimal):
        return True
    exponent = value.as_tuple().exponent
    scale = max(0, -exponent) if isinstance(exponent, int) else 0
    whole = max(0, value.adjusted() + 1)
    if column.type.startswith("decimal"):
        precision, own_scale = decimal_digits(column.type)
        own_whole = precision - own_scale
    else:
        own_whole, own_scale = _INTEGER_DIGITS, 0
    return max(whole, own_whole) + max(scale, own_scale) <= _MAX_DIGITS


def _outcomes(may_be_true: bool, may_be_false: bool) -> int:
    return (_TRUE if may_be_true else 0) | (_FALSE if may_be_false else 0)


def _equal(bounds: Bounds, constant: Any) -> int:
    is_within = (bounds.low is None or bounds.low <= constant) and (bounds.high is None or constant <= bounds.high)
    return _outcomes(is_within, not bounds.low == bounds.high == constant)


def _less(bounds: Bounds, constant: Any) -> int:
    return _outcomes(bounds.low is None or bounds.low < constant, bounds.high is None or bounds.high >= constant)


def _less_or_equal(bounds: Bounds, constant: Any) -> int:
    return _outcomes(bounds.low is None or bounds.low <= constant, bounds.high is None or bounds.high > constant)


def _opposite(outcomes: int) -> int:
    """Exchange true and false; unknown stays."""
    return outcomes & _UNKNOWN | (_FALSE if outcomes & _TRUE else 0) | (_TRUE if outcomes & _FALSE else 0)


_OUTCOMES: Final[dict[str, Callable[[Bounds, Any], int]]] = {
    "=": _equal,
    "!=": lambda bounds, constant: _opposite(_equal(bounds, constant)),
    "<>": lambda bounds, constant: _opposite(_equal(bounds, constant)),
    "<": _less,
    "<=": _less_or_equal,
    ">": lambda bounds, constant: _opposite(_less_or_equal(bounds, constant)),
    ">=": lambda bounds, constant: _opposite(_less(bounds, constant)),
}


def _null_test(column: FilterColumn, asked: AskedFilter, *, is_negated: bool) -> Possible:
    of_null, of_value = (_FALSE, _TRUE) if is_negated else (_TRUE, _FALSE)
    if column.is_partition:
        return _partition_null_test(column, asked, of_null, of_value)
    bounds_of = bounds_reader(column.key, column.type)

    def of_bounds(file: _File) -> int:
        bounds = bounds_of(file.statistics)
        return (of_null if bounds.may_have_nulls else 0) | (of_value if bounds.may_have_values else 0)

    return of_bounds


def _partition_null_test(column: FilterColumn, asked: AskedFilter, of_null: int, of_value: int) -> Possible:
    key, read = column.key, column.reader(asked)

    def possible(file: _File) -> int:
        value = read(file.values.get(key))
        if value is None:
            return of_null
        # Spark reads a text that it cannot cast as NULL
        return _TRUE | _FALSE if value is UNSURE else of_value

    return possible


def _negation(part: Possible) -> Possible:
    return lambda file: _opposite(part(file))


def _joined(parts: list[Possible], *, decisive: int) -> Possible:
    """Combine with OR (true decides) or AND (false decides).

    The decisive value is possible if it is for one part, the other one only if it is for all parts. The rows that make
    the parts true need not be the same, so more may be reported than is possible, never less.
    """
    other = _opposite(decisive)

    def possible(file: _File) -> int:
        some, every = 0, _ANY
        for part in parts:
            found = part(file)
            some |= found
            every &= found
        return some & (decisive | _UNKNOWN) | every & other

    return possible


def _sql(predicate: Predicate, columns: _Columns) -> str:
    if isinstance(predicate, Comparison):
        column, constant = columns.find(predicate.column), columns.constant(predicate)
        literal = (
            _time(column, predicate.literal, columns.asked)
            if column.kind == "timestamp"
            else _literal(column, predicate, constant)
        )
        return f"{_quoted(column)} {predicate.operator} {literal}"
    if isinstance(predicate, IsNull):
        return f"{_quoted(columns.find(predicate.column))} IS {'NOT ' if predicate.is_negated else ''}NULL"
    if isinstance(predicate, Not):
        return f"NOT ({_sql(predicate.part, columns)})"
    joint = " OR " if isinstance(predicate, AnyOf) else " AND "
    return joint.join(f"({_sql(part, columns)})" for part in predicate.parts)


def _quoted(column: FilterColumn) -> str:
    return f"`{column.name.replace('`', '``')}`"


def _time(column: FilterColumn, literal: FilterLiteral, asked: AskedFilter) -> str:
    moment = moment_of(literal)
    try:
        moment = moment.astimezone(UTC)
    except OverflowError:
        if column.type == "timestamp_ntz":
            raise asked.refusal(
                f"compares {column.name!r}, of type {column.type}, with {literal}, which is outside of the years 1 to "
                "9999 in UTC."
            ) from None
        # in UTC it is in the year 0 or 10000, which Python does not have
        return f"TIMESTAMP '{moment.isoformat(' ', 'microseconds')}'"
    text = moment.replace(tzinfo=None).isoformat(" ", "microseconds")
    return f"TIMESTAMP_NTZ '{text}'" if column.type == "timestamp_ntz" else f"TIMESTAMP '{text}Z'"


def _literal(column: FilterColumn, predicate: Comparison, constant: Any) -> str:
    kind, value = column.kind, predicate.literal.value
    if kind in ("integer", "decimal"):
        return f"{value:f}"
    if kind in ("float", "double"):
        # compared as the partition values of such columns are
        return f"{value:f}D"
    if kind == "boolean":
        return "TRUE" if constant else "FALSE"
    if kind == "date":
        return f"DATE '{constant.isoformat()}'"
    if set(constant) <= _PLAIN_TEXT:
        return f"'{constant}'"
    # how quotes and escapes are parsed depends on settings of the session and on the version of Spark
    return f"CAST(X'{constant.encode().hex()}' AS STRING)"


__all__ = ["BoundRowFilter", "RowFilter"]
