"""``fds catalog``: what a name in a catalog stands for."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from airflow_provider_fds.cli import arguments as common
from airflow_provider_fds.cli.catalogs import add_catalog, catalog_called
from airflow_provider_fds.errors import EXIT_OK, ConfigurationError

if TYPE_CHECKING:
    import argparse

    from airflow_provider_fds.catalog.names import TableName
    from airflow_provider_fds.catalog.table import Catalog
    from airflow_provider_fds.cli.command_list import CommandParsers


def add_commands(commands: CommandParsers) -> None:
    """Add ``fds catalog``."""
    parser = commands.add_parser(
        "catalog",
        description="Print where the table of a name is, what tells it from another one of that name, and its newest "
        "version. A table that FDS cannot read is an error that says why: it is a view, not Delta, or a right is "
        "missing. With a schema and '*' (sales.*), print the names of its tables.",
    )
    parser.add_argument("table", metavar="TABLE", help="name of the table")
    add_catalog(parser)
    parser.add_argument(
        "--storage-option", metavar="KEY=VALUE", action="append", default=[], help=common.STORAGE_OPTION_HELP
    )
    parser.add_argument("--output", choices=("text", "json"), default="text", help="default: %(default)s")
    parser.set_defaults(command=catalog)


def catalog(arguments: argparse.Namespace) -> int:
    """Perform ``fds catalog``."""
    if arguments.catalog is None:
        raise ConfigurationError("which catalog? Add --catalog thrift://HOST:9083, https://HOST or glue://REGION")
    found = _tables(arguments) if arguments.table.endswith(".*") else _table(arguments)
    if arguments.output == "json":
        print(json.dumps(found, indent=2))
    elif "tables" in found:
        print(*found["tables"], sep="\n")
    else:
        width = max(map(len, found))
        for name, value in found.items():
            print(f"{name:<{width}}  {value}")
    return EXIT_OK


def _table(arguments: argparse.Namespace) -> dict[str, Any]:
    from airflow_provider_fds.catalog.names import TableName
    from airflow_provider_fds.delta.reader.log import DeltaLog
    from airflow_provider_fds.delta.storage.open import open_place

    place = common.places_of(arguments).resolve(arguments.table)
    storage = open_place(place)
    log = DeltaLog(storage)
    version = log.latest()
    # also refuses features that FDS does not support
    table_id = log.state_at(version).metadata.id
    return {
        "name": place.name,
        "location": storage.uri,
        "id": place.table_id,
        "id in the log": table_id,
        "newest commits": "in the log" if place.view is None else "in the catalog",
        "credentials": "of the catalog" if "credential_provider" in place.options else "of the storage options",
        "newest version": version,
        "as a sink": _as_sink(_catalog(arguments), TableName.parse(arguments.table)),
    }


def _as_sink(catalog: Catalog, name: TableName) -> str:
    try:
        catalog.load_sink(name)
    except ConfigurationError as error:
        return str(error)
    return "by its location"


def _tables(arguments: argparse.Namespace) -> dict[str, Any]:
    from airflow_provider_fds.catalog.names import TableName

    schema = TableName.parse(arguments.table.removesuffix(".*"))
    return {"tables": [str(name) for name in _catalog(arguments).tables(schema)]}


def _catalog(arguments: argparse.Namespace) -> Catalog:
    return catalog_called(arguments, arguments.catalog, f"the table {arguments.table}")
