"""The commands of ``fds``, in the order of its help: the module of each in ``commands/``, and what the help says of it.

Listing them imports no command. The operator's actions are commands too, of the one list that Airflow's operator has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import argparse

#: Name -> module and help.
_READING_AND_LOADING: Final = {
    "plan": ("plan", "print the next batches of a table; with --staging, also write their plans and manifests"),
    "run": ("run", "load a table into a sink with Spark on this machine, until the sink is up to date"),
    "backfill": (
        "backfill",
        "load a range of a stream's table with Spark on this machine, without moving the stream's position",
    ),
    "status": ("status", "the position and state of a stream, or of all streams"),
    "explain": ("status", "why a stream does not move, the evidence, and what to run"),
    "monitor": ("monitor", "watch all streams of a staging folder until it is interrupted"),
    "top": ("top", "watch all streams live on the terminal"),
    "show": ("inspect", "the full state of a stream, including planned batches, as JSON"),
    "latest": ("inspect", "the newest version of a table"),
    "history": ("history", "the history of a stream, entry by entry"),
}
_MOVING_AND_PREPARING: Final = {
    "clone": ("clone", "create a stream that continues where another one is"),
    "export": ("export", "write a stream's ledger to a file, to continue the stream from another staging folder"),
    "import": ("export", "continue a stream from a file that `fds export` wrote"),
    "import-checkpoint": (
        "import_checkpoint",
        "create a stream that continues where a Structured Streaming query stopped",
    ),
    "export-checkpoint": (
        "export_checkpoint",
        "write a Structured Streaming checkpoint that continues where a stream is",
    ),
    "prepare": ("prepare", "fetch Delta's JARs and build the class archive now instead of at the first run"),
    "validate": ("validate", "check a file of streams"),
}
#: The module of all actions.
_ACTIONS: Final = "actions"


def commands_beside(command: str | None) -> dict[str, tuple[str, str]]:
    """Return the module and the help of the commands in the module of ``command``; of all, if it is none of those here.

    The actions are read from their list only if they are needed.
    """
    known = {**_READING_AND_LOADING, **_MOVING_AND_PREPARING}
    if command in known:
        return {name: entry for name, entry in known.items() if entry[0] == known[command][0]}
    from airflow_provider_fds.stream.actions.operator_actions import ACTIONS

    actions = {name: (_ACTIONS, action.help) for name, action in ACTIONS.items()}
    return {**_READING_AND_LOADING, **actions, **_MOVING_AND_PREPARING}


class CommandParsers:
    """Makes the parsers of commands, each with its help from this list.

    Args:
        parsers: Where argparse keeps them.
        commands: Module and help of each command.
    """

    def __init__(
        self, parsers: argparse._SubParsersAction[argparse.ArgumentParser], commands: dict[str, tuple[str, str]]
    ) -> None:
        self._parsers = parsers
        self._commands = commands

    def add_parser(self, name: str, *, description: str = "", **more: Any) -> argparse.ArgumentParser:
        """Return the new parser of a command; without a description, its help describes it."""
        _, text = self._commands[name]
        return self._parsers.add_parser(
            name, help=text, description=description or f"{text[0].upper()}{text[1:]}.", **more
        )


__all__ = ["CommandParsers", "commands_beside"]
