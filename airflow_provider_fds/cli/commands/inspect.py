"""``fds show`` and ``fds latest``: commands that write nothing."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from airflow_provider_fds.cli import arguments as common
from airflow_provider_fds.errors import EXIT_OK

if TYPE_CHECKING:
    import argparse

    from airflow_provider_fds.cli.command_list import CommandParsers


def add_commands(commands: CommandParsers) -> None:
    """Add ``show`` and ``latest``."""
    parser = commands.add_parser("show")
    parser.add_argument("stream", metavar="STREAM", help="name of the stream")
    common.add_storage(parser, staging_required=True)
    parser.set_defaults(command=show)
    parser = commands.add_parser("latest", description="Print the newest version.")
    parser.add_argument("table", metavar="TABLE", help="URI or path of a Delta table")
    parser.add_argument(
        "--storage-option", metavar="KEY=VALUE", action="append", default=[], help=common.STORAGE_OPTION_HELP
    )
    parser.set_defaults(command=latest)


def show(arguments: argparse.Namespace) -> int:
    """Perform ``fds show``."""
    import msgspec

    print(json.dumps(msgspec.to_builtins(common.ledger_of(arguments)[0].state), indent=2))
    return EXIT_OK


def latest(arguments: argparse.Namespace) -> int:
    """Perform ``fds latest``."""
    from airflow_provider_fds.delta.reader.log import DeltaLog
    from airflow_provider_fds.delta.storage.open import open_storage

    options = common.pairs(arguments.storage_option, "--storage-option")
    print(DeltaLog(open_storage(arguments.table, options)).latest())
    return EXIT_OK
