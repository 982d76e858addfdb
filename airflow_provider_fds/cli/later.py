"""Commands that messages name and this version does not have: each says so, and what can be done instead."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from airflow_provider_fds.errors import ConfigurationError

if TYPE_CHECKING:
    import argparse

_NEW_STREAM: Final = (
    "A position is not moved in this version. Start a stream under another name, with starting_version or "
    "starting_timestamp where it shall begin and, if rows would arrive twice, into another sink"
)

#: Command -> what can be done instead.
_INSTEAD: Final = {
    "recover": "If the ledger is whole, delete the checkpoint (the Variable fds.STREAM, or the file): the next run "
    "takes the position from the ledger and writes it again. If the ledger is lost, restore the staging folder from "
    "a copy; without one, start a stream under another name behind the last version that the sink has (key `end` in "
    "the userMetadata of its newest commit by FDS)",
    "rewind": _NEW_STREAM,
    "reset": _NEW_STREAM,
    "replan": f"Planned batches stay as they are. {_NEW_STREAM}",
    "rebind": "A stream keeps its sink. For another sink start a stream under another name",
    "adopt": "Mark the run that owns the batches as failed in Airflow: the next run takes them over",
    "retire": "A stream that is not run any more costs nothing; remove its folder from staging if you are sure",
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
