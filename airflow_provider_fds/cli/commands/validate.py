"""``fds validate``: what is wrong with a file of streams, all at once."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from airflow_provider_fds.errors import EXIT_CONFIGURATION, EXIT_OK, ConfigurationError
from airflow_provider_fds.sizes import format_count

if TYPE_CHECKING:
    import argparse

    from airflow_provider_fds.cli.command_list import CommandParsers
    from airflow_provider_fds.fleet.streams_file.group import FleetFile


def add_commands(commands: CommandParsers) -> None:
    """Add ``validate``."""
    parser = commands.add_parser(
        "validate",
        description="Check a file of streams (streams.yaml) without looking at tables or connections. Each problem is "
        "a line 'file:line:column: text' on stdout; the exit code is then 2.",
    )
    parser.add_argument("file", metavar="FILE", nargs="?", help="the file")
    parser.add_argument("--output", choices=("text", "json"), default="text", help="default: %(default)s")
    parser.add_argument("--schema", action="store_true", help="print the JSON Schema of the file, for editors")
    parser.set_defaults(command=validate)


def validate(given: argparse.Namespace) -> int:
    """Perform ``fds validate``."""
    if given.schema:
        from airflow_provider_fds.fleet.streams_file.schema import published_schema

        print(published_schema(), end="")
        return EXIT_OK
    if given.file is None:
        raise ConfigurationError("FILE is missing: name the file to check, such as streams.yaml, or pass --schema")
    from airflow_provider_fds.fleet.streams_file.file import open_fleet_file

    found, document = open_fleet_file(given.file)
    messages = document.messages()
    if given.output == "json":
        problems = [{"line": one.line, "column": one.column, "message": one.text} for one in sorted(document.problems)]
        print(json.dumps({"file": document.name, "valid": not problems, "problems": problems, **_counts(found)}))
    elif messages:
        print("\n".join(messages))
        print(f"fds: {format_count(len(messages), 'problem')} in {document.name}", file=sys.stderr)
    else:
        counts = _counts(found)
        parts = [format_count(counts[f"{noun}s"], noun) for noun in ("group", "stream", "pattern")]
        print(f"{document.name} is valid: {', '.join(parts)}")
    return EXIT_CONFIGURATION if messages else EXIT_OK


def _counts(found: FleetFile) -> dict[str, int]:
    return {
        "groups": len(found.groups),
        "streams": sum(len(group.streams) for group in found.groups),
        "patterns": sum(len(group.patterns) for group in found.groups),
    }
