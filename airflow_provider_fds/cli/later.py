"""Commands that messages name and this version does not have: each says so, and what can be done instead."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from airflow_provider_fds.errors import ConfigurationError

if TYPE_CHECKING:
    import argparse

#: Command -> what can be done instead.
_INSTEAD: Final = {
    "recover": "If the ledger is whole, delete the checkpoint (the Variable fds.STREAM, or the file): the next run "
    "takes the position from the ledger and writes it again. If the ledger is lost, restore the staging folder from "
    "a copy; without one, start a stream under another name behind the last version that the sink has (key `end` in "
    "the userMetadata of its newest commit by FDS)",
}


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the commands, without a line in the help."""
    for name in _INSTEAD:
        parser = commands.add_parser(name, add_help=False, prefix_chars="\0")
        parser.add_argument("rest", nargs="*")
        parser.set_defaults(command=refuse, name=name)


def refuse(arguments: argparse.Namespace) -> int:
    """Say that the command is not there, and what is."""
    raise ConfigurationError(
        f"fds {arguments.name} is not available in this version, and nothing was done. {_INSTEAD[arguments.name]}"
    )
