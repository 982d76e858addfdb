"""What can be wrong with a table of a catalog, in words: each names the catalog and the table, and what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_fds.errors import AccessDeniedError, ConfigurationError, StorageError, TableNotFoundError
from airflow_provider_fds.reasons import Reason

if TYPE_CHECKING:
    from airflow_provider_fds.catalog.names import TableName


def not_found(catalog: str, name: TableName, found: str = "") -> TableNotFoundError:
    """Return the error about a name that the catalog does not have.

    Args:
        catalog: The catalog and its connection, in words: ``"Hive metastore thrift://metastore:9083"``.
        name: The name.
        found: A sentence on what the catalog has instead; empty: nothing is known.
    """
    return TableNotFoundError(
        f"{catalog} has no table {name}. {found or 'Correct the name; if the table was renamed, use its new name'}",
        reason=Reason.CATALOG_TABLE_NOT_FOUND,
    )


def unreadable(catalog: str, name: TableName, what: str, way_on: str) -> ConfigurationError:
    """Return the error about a table that FDS cannot read.

    Args:
        catalog: As for :func:`not_found`.
        name: The name.
        what: What it is, after "is": ``"a view"``.
        way_on: What to do, a sentence without full stop.
    """
    return ConfigurationError(
        f"{name} in {catalog} is {what}. {way_on}",
        reason=Reason.CATALOG_TABLE_UNREADABLE,
    )


def unwritable(catalog: str, name: TableName, what: str, way_on: str) -> ConfigurationError:
    """Return the error about a table that cannot be a sink.

    Args:
        catalog: As for :func:`not_found`.
        name: The name.
        what: Why, after "because".
        way_on: What to do, a sentence without full stop.
    """
    return ConfigurationError(
        f"{name} in {catalog} cannot be a sink, because {what}. {way_on}",
        reason=Reason.CATALOG_TABLE_UNWRITABLE,
    )


def denied(catalog: str, name: TableName, answer: str, way_on: str, *, does: str = "read") -> AccessDeniedError:
    """Return the error about credentials that the catalog refuses, or a right that is missing.

    Args:
        catalog: As for :func:`not_found`.
        name: The name.
        answer: What the catalog says, without anything secret.
        way_on: What to do, a sentence without full stop.
        does: What is refused.
    """
    return AccessDeniedError(
        f"{catalog} does not let FDS {does} {name}: {answer}. {way_on}",
        reason=Reason.CATALOG_DENIED,
    )


def unavailable(catalog: str, name: TableName, answer: str) -> StorageError:
    """Return the error about a catalog that does not answer as it should. A later attempt may succeed.

    Args:
        catalog: As for :func:`not_found`.
        name: The name that was asked for.
        answer: What came instead of an answer, without anything secret.
    """
    return StorageError(
        f"{catalog} gave no usable answer on {name}: {answer}",
        reason=Reason.CATALOG_UNAVAILABLE,
    )
