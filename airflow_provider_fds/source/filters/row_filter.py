"""``where``: the rows that satisfy a predicate, and only the files that may have such a row.

Spark filters the rows, by the predicate in its own SQL. Conditions on partition columns alone are decided by the
planner: Spark gets one only where the log does not tell that all rows of each file satisfy it, so that otherwise the
files are read whole and their rows are counted. The planner leaves out a file only if its partition values and
statistics prove that no row in it satisfies the predicate; without this proof the file is read. So which files are left
out never changes which rows arrive.

Of each part of the predicate, the planner derives which of SQL's three truth values it may have for some row of a file.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from airflow_provider_fds.delta.damage import MAX_INT64
from airflow_provider_fds.delta.statistics import LAST_CHARACTER, bounds_reader, decimal_digits, statistics_of
from airflow_provider_fds.source.filters.filter_column import (
    COMPARISONS,
    UNSURE,
    AskedFilter,
    table_columns,
)
from airflow_provider_fds.source.filters.predicate import (
    MAX_DIGITS,
    AnyOf,
    Comparison,
    FilterColumns,
    IsNull,
    Not,
    columns_of,
    conjuncts_of,
    parse_predicate,
)
from airflow_provider_fds.source.filters.spark_sql import sql_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from typing import TypeAlias, TypeVar

    from airflow_provider_fds.delta.actions import Add, Cdc, Metadata, Remove
    from airflow_provider_fds.delta.statistics import Bounds, Statistics
    from airflow_provider_fds.source.filters.filter_column import FilterColumn
    from airflow_provider_fds.source.filters.predicate import Predicate

    _AnyFile = TypeVar("_AnyFile", bound=Add)
    #: The truth values, as a sum of the flags below, that a part of the predicate may have for some row of a file.
    Possible: TypeAlias = Callable[["_File"], int]

_TRUE, _FALSE, _UNKNOWN = 1, 2, 4
_ANY: Final = _TRUE | _FALSE | _UNKNOWN
_OF_TRUTH: Final = {True: _TRUE, False: _FALSE, None: _UNKNOWN}

#: Digits before the point of the largest integer type as a decimal.
_INTEGER_DIGITS: Final = 20


class RowFilter:
    """A parsed predicate that is not yet bound to a table.

    Args:
        text: The predicate.

    Raises:
        ValueError: It is not supported; says what was expected, and where.

    Examples:
        >>> RowFilter("day >= DATE '2026-01-01' AND country IN ('DE', 'FR')").columns
        ('day', 'country')
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self._predicate = parse_predicate(text)
        self.columns = columns_of(self._predicate)

    def bind(self, metadata: Metadata, *, table: str) -> BoundRowFilter:
        """Return the predicate for a table with this metadata.

        Raises:
            ConfigurationError: A column does not exist or has a type that cannot be compared, or a literal has another
                type than its column.
        """
        columns = FilterColumns(table_columns(metadata), AskedFilter(self.text, table))
        conditions = [_Condition.of(part, columns) for part in conjuncts_of(self._predicate)]
        # statistics are decoded only for files that pass the others
        return BoundRowFilter(tuple(sorted(conditions, key=lambda one: not one.is_on_partitions)))


@dataclass(frozen=True, eq=False)
class _Condition:
    """A part of a predicate that must be true.

    Attributes:
        columns: The columns that it names.
        sql: The part in Spark's SQL.
        is_on_partitions: Whether it names partition columns only, so that it is equally true for all rows of a file.
        possible: The truth values that it may have for some row of a file.
    """

    columns: tuple[str, ...]
    sql: str
    is_on_partitions: bool
    possible: Possible

    @classmethod
    def of(cls, part: Predicate, columns: FilterColumns) -> _Condition:
        named = columns_of(part)
        is_on_partitions = all(columns.find(name).is_partition for name in named)
        return cls(named, sql_of(part, columns), is_on_partitions, _possible(part, columns))


@dataclass(frozen=True)
class BoundRowFilter:
    """A predicate for a table."""

    _conditions: tuple[_Condition, ...]

    @property
    def sql(self) -> str:
        """The predicate in Spark's SQL, with the same meaning in every session; empty without any condition.

        Literals have the types of their columns, and times have a zone.
        """
        if len(self._conditions) == 1:
            return self._conditions[0].sql
        return " AND ".join(f"({one.sql})" for one in self._conditions)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it names."""
        return tuple(name for one in self._conditions for name in one.columns)

    @property
    def needs_statistics(self) -> bool:
        """Whether it names a column whose values are not in the partition values of a file."""
        return not all(one.is_on_partitions for one in self._conditions)

    def may_match(self, file: Add | Remove | Cdc) -> bool:
        """Whether a row of ``file`` may satisfy the predicate.

        Raises:
            StoppedError: No Spark can cast a logged partition value to its column's type.
        """
        found = _File(file)
        return all(one.possible(found) & _TRUE for one in self._conditions)

    def passing(self, files: Iterable[tuple[int, _AnyFile]]) -> Iterator[tuple[int, _AnyFile]]:
        """Yield the files that pass, with the indexes they have without a filter."""
        return ((index, file) for index, file in files if self.may_match(file))

    def for_rows(self, files: Iterable[Add]) -> BoundRowFilter:
        """Return what Spark must filter the rows of these files by; it may have no condition.

        A condition on partition columns is omitted if the log tells of each file that all of its rows satisfy it.
        """
        certain = [one for one in self._conditions if one.is_on_partitions]
        for file in files if certain else ():
            found = _File(file)
            certain = [one for one in certain if one.possible(found) == _TRUE]
        return BoundRowFilter(tuple(one for one in self._conditions if one not in certain))


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


def _possible(predicate: Predicate, columns: FilterColumns) -> Possible:
    if isinstance(predicate, Comparison):
        return _comparison(predicate, columns)
    if isinstance(predicate, IsNull):
        return _null_test(columns.find(predicate.column), columns.asked, is_negated=predicate.is_negated)
    if isinstance(predicate, Not):
        return _negation(_possible(predicate.part, columns))
    parts = [_possible(part, columns) for part in predicate.parts]
    return _joined(parts, decisive=_TRUE if isinstance(predicate, AnyOf) else _FALSE)


def _comparison(predicate: Comparison, columns: FilterColumns) -> Possible:
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
    return max(whole, own_whole) + max(scale, own_scale) <= MAX_DIGITS


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
