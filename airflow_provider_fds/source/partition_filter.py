"""``partition_filter``: a predicate on partition columns, evaluated for each file by SQL's three-valued logic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_provider_fds.source.filter_column import COMPARISONS, AskedFilter, table_columns
from airflow_provider_fds.source.predicate import AnyOf, Comparison, IsNull, Not, columns_of, parse_predicate

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import TypeAlias

    from airflow_provider_fds.delta.actions import Metadata
    from airflow_provider_fds.source.filter_column import FilterColumn
    from airflow_provider_fds.source.predicate import Predicate

    #: ``partitionValues`` of a file -> whether its rows satisfy the predicate; ``None``: SQL's unknown.
    Truth: TypeAlias = Callable[[Mapping[str, str | None]], bool | None]
    #: Returns for ``partitionValues`` whether the file is read.
    KeepsValues: TypeAlias = Callable[[Mapping[str, str | None] | None], bool]


class PartitionFilter:
    """A parsed predicate that is not yet bound to a table.

    Args:
        text: The predicate.

    Raises:
        ValueError: It is not supported; says what was expected, and where.

    Example:
        >>> PartitionFilter("day >= DATE '2026-01-01' AND country IN ('DE', 'FR')").columns
        ('day', 'country')
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self._predicate = parse_predicate(text)
        self.columns = columns_of(self._predicate)

    def bind(self, metadata: Metadata, *, table: str) -> KeepsValues:
        """Return the function that decides by a file's ``partitionValues`` whether the file is read.

        Values are compared by the column's type in ``metadata``. A missing value is NULL. A file for which the
        predicate is unknown (NULL) is not read, as in a ``WHERE``.

        Raises:
            ConfigurationError: A column does not exist, is not a partition column or has a type that cannot be
                compared; or a literal has another type than its column.
            StoppedError: When called: a logged value cannot be parsed as the column's type.
        """
        truth = _bound(
            self._predicate, _Columns(table_columns(metadata), AskedFilter("partition_filter", self.text, table))
        )
        return lambda values: truth(values or {}) is True


@dataclass(frozen=True)
class _Columns:
    known: Mapping[str, FilterColumn]
    asked: AskedFilter

    def find(self, name: str) -> FilterColumn:
        found = self.known.get(name.lower())
        if found is not None and found.is_partition:
            return found
        partitions = ", ".join(column.name for column in self.known.values() if column.is_partition) or "none"
        what = "is not a column of the table" if found is None else "is not a partition column"
        raise self.asked.refusal(
            f"names {name!r}, which {what}. The partition columns are: {partitions}. Filter by other columns with the "
            "option where."
        )


def _bound(predicate: Predicate, columns: _Columns) -> Truth:
    if isinstance(predicate, Comparison):
        return _comparison(predicate, columns)
    if isinstance(predicate, IsNull):
        key, is_negated = columns.find(predicate.column).key, predicate.is_negated
        return lambda values: bool(values.get(key)) is is_negated
    if isinstance(predicate, Not):
        return _negated(_bound(predicate.part, columns))
    return _joined([_bound(part, columns) for part in predicate.parts], decisive=isinstance(predicate, AnyOf))


def _comparison(predicate: Comparison, columns: _Columns) -> Truth:
    column = columns.find(predicate.column)
    constant = column.constant(predicate.literal, columns.asked)
    key, read, compare = column.key, column.reader(columns.asked), COMPARISONS[predicate.operator]

    def truth(values: Mapping[str, str | None]) -> bool | None:
        raw = values.get(key)
        # an empty string is NULL for every type (protocol, "Partition Value Serialization")
        return compare(read(raw), constant) if raw else None

    return truth


def _negated(inner: Truth) -> Truth:
    def truth(values: Mapping[str, str | None]) -> bool | None:
        found = inner(values)
        return None if found is None else not found

    return truth


def _joined(inner: list[Truth], *, decisive: bool) -> Truth:
    """Combine with OR (true decides) or AND (false decides); otherwise one unknown makes the whole unknown."""

    def truth(values: Mapping[str, str | None]) -> bool | None:
        result: Any = not decisive
        for part in inner:
            found = part(values)
            if found is decisive:
                return decisive
            if found is None:
                result = None
        return result  # type: ignore[no-any-return]

    return truth
