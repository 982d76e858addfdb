"""The catalog that a command asks for the name of a table: one rule for sources and for sinks."""

from __future__ import annotations

import os
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.reasons import Reason

if TYPE_CHECKING:
    import argparse

    from airflow_provider_fds.catalog.table import Catalog

#: The environment variable with the token for a catalog.
_TOKEN: Final = "FDS_CATALOG_TOKEN"  # noqa: S105  # a name


def add_catalog(parser: argparse.ArgumentParser, *, of_ledger: bool = False) -> None:
    """Add the catalog that knows where a table of a name is; ``of_ledger``: the name is in a ledger."""
    what = (
        "of tables that streams find by name; default: the one that loaded them"
        if of_ledger
        else "that has the name TABLE"
    )
    parser.add_argument(
        "--catalog",
        metavar="URI",
        help=f"catalog {what}: thrift://HOST:9083 (Hive metastore), https://HOST (Unity Catalog, with "
        f"the token in the environment variable {_TOKEN}), or glue://REGION (with the environment's credentials); "
        "with `airflow fds`, also a connection of Airflow",
    )


def is_known(arguments: argparse.Namespace, catalog: str) -> bool:
    """Return whether a catalog can be asked from here: it is a URI, or Airflow is here, which knows its connection."""
    return "://" in catalog or getattr(arguments, "airflow_catalog", None) is not None


def catalog_called(arguments: argparse.Namespace, catalog: str, of: str, flag: str = "--catalog") -> Catalog:
    """Return a catalog, the same one for all streams of a command. Sends no request to it.

    Args:
        arguments: The arguments.
        catalog: Its URI, or a connection of Airflow, which only ``airflow fds`` knows.
        of: The table in words, for messages.
        flag: The argument that names a catalog for that table.

    Raises:
        ConfigurationError: It is a connection that is not known here or is none of a catalog, or the URI of none.
    """
    if not is_known(arguments, catalog):
        raise ConfigurationError(
            f"the catalog of {of} is the Airflow connection {catalog!r}, which the command line does not read. Add "
            f"{flag} thrift://HOST:9083, https://HOST or glue://REGION, or use `airflow fds`",
            reason=Reason.CONNECTION_UNUSABLE,
        )
    if "://" in catalog:
        return _catalog_at(catalog, os.environ.get(_TOKEN))
    found: Catalog = arguments.airflow_catalog(catalog)
    return found


@lru_cache(maxsize=8)
def _catalog_at(uri: str, secret: str | None) -> Catalog:
    from airflow_provider_fds.catalog.registry import catalog_at

    return catalog_at(uri, secret)
