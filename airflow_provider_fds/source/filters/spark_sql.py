"""A predicate in Spark's SQL: literals have the types of their columns, and times have a zone."""

from __future__ import annotations

from datetime import UTC
from typing import TYPE_CHECKING, Any, Final

from airflow_provider_fds.source.filters.filter_column import moment_of
from airflow_provider_fds.source.filters.predicate import AnyOf, Comparison, IsNull, Not

if TYPE_CHECKING:
    from airflow_provider_fds.source.filters.filter_column import AskedFilter, FilterColumn, Literal
    from airflow_provider_fds.source.filters.predicate import FilterColumns, Predicate

_PLAIN_TEXT: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 _-.:/@")


def sql_of(predicate: Predicate, columns: FilterColumns) -> str:
    """Return a predicate in Spark's SQL, with the same meaning in every session.

    Raises:
        ConfigurationError: It does not fit the columns.
    """
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
        return f"NOT ({sql_of(predicate.part, columns)})"
    joint = " OR " if isinstance(predicate, AnyOf) else " AND "
    return joint.join(f"({sql_of(part, columns)})" for part in predicate.parts)


def _quoted(column: FilterColumn) -> str:
    return f"`{column.name.replace('`', '``')}`"


def _time(column: FilterColumn, literal: Literal, asked: AskedFilter) -> str:
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
