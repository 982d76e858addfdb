"""The commands of ``fds``, in the order of its help: the module of each in ``commands/``, and what the help says of it.

Listing them imports no command. The operator's actions are commands too, of the one list that Airflow's operator has.
"""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any, Final

from airflow_provider_fds.errors import ConfigurationError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Sequence

#: The command whose commands are rare.
ADMIN: Final = "admin"
_ADMIN_HELP: Final = "rare commands: move ledgers and checkpoints, prepare a machine"

#: Name -> module and help, of the commands that are no actions.
_COMMANDS: Final = {
    "status": ("status", "the position and state of all streams, or of one"),
    "explain": ("status", "why a stream does not move, the evidence, and what to run"),
    "history": ("history", "the history of a stream, entry by entry"),
    "monitor": ("monitor", "watch all streams of a staging folder until it is interrupted"),
    "latest": ("plan", "the newest version of a table"),
    "catalog": ("catalog", "what a name in a catalog stands for, and whether FDS can read it"),
    "plan": ("plan", "print the next batches of a table; with --stream, also write their plans and manifests"),
    "run": ("run", "load a table into a sink with Spark on this machine, until the sink is up to date"),
    "backfill": (
        "backfill",
        "load a range of a stream's table with Spark on this machine, without moving the stream's position",
    ),
    "fork": ("fork", "create a stream that continues where another one is"),
    "validate": ("validate", "check a file of streams"),
    "connect-server": ("connect_server", "start a Spark Connect server that can load batches"),
    "export": ("export", "write a stream's ledger to a file, to continue the stream from another staging folder"),
    "import": ("export", "continue a stream from a file that `fds admin export` wrote"),
    "import-checkpoint": (
        "import_checkpoint",
        "create a stream that continues where a Structured Streaming query stopped",
    ),
    "export-checkpoint": (
        "export_checkpoint",
        "write a Structured Streaming checkpoint that continues where a stream is",
    ),
    "prepare": ("prepare", "fetch Delta's JARs and build the class archive now instead of at the first run"),
}
#: The module of all actions.
_ACTIONS: Final = "actions"

#: Title of the help -> commands, in order.
_GROUPS: Final[dict[str, tuple[str, ...]]] = {
    "look": ("status", "explain", "history", "monitor", "latest", "catalog"),
    "load": ("plan", "run", "backfill"),
    "decide": ("accept", "skip", "hold", "resume", "unlock"),
    "move": ("rewind", "replan"),
    "streams": ("fork", "transfer", "recover", "retire"),
    "set up": ("validate", "connect-server", ADMIN),
}
#: The commands of :data:`ADMIN`.
_RARE: Final = ("export", "import", "export-checkpoint", "import-checkpoint", "prepare")

#: Another spelling -> the command.
_OTHER_NAMES: Final = {
    "acknowledge": "accept` (go on with a version) or `fds skip",
    "adopt": "unlock",
    "clone": "fork",
    "rebind": "replan STREAM --new-sink",
    "reset": "rewind STREAM --to start",
    "show": "status STREAM --full",
    "top": "status --watch",
    **{name: f"{ADMIN} {name}" for name in _RARE},
}

#: Another spelling of an option -> what to type.
_OTHER_OPTIONS: Final = {
    "--merge-schema": " It is now `--sink-option merge_schema=yes`",
    "--on-sink-overwritten": " It is now `--sink-option on_sink_overwritten=fail`",
    "--other-stream": " It is now `--sink-option other_streams=UUID,UUID`",
    "--partition-by": " It is now `--sink-option partition_by=COLUMN,COLUMN`",
    "--provenance": " It is now `--sink-option provenance=yes`",
    "--spark-remote": " It is now `--remote sc://HOST:PORT`",
    "--interval": " It is now `--poll-interval`",
    "--all": " It is now `--file FILE`; `fds status` without a STREAM shows all",
    "--delete": " It is now `--sink-rows delete`",
    "--take-over": " It is now `--unlock`",
    "--to-batch": " It is now `--to batch:N`",
    "--to-timestamp": " It is now `--to TIME`",
    "--to-version": " It is now `--to N`",
}

#: Width of a name in the help.
_WIDTH: Final = 19


def chosen_command(words: Sequence[str]) -> str | None:
    """Return the name of the command in the words of a command line; ``None`` if they name none, as with ``--help``.

    Raises:
        ConfigurationError: There is no such command; the message names the one that may be meant.
    """
    names = [word for word in words if not word.startswith("-")]
    if not names or names == [ADMIN]:
        return None
    if names[0] == ADMIN:
        word, known, start = names[1], list(_RARE), f"{ADMIN} "
    else:
        word, known, start = names[0], [name for group in _GROUPS.values() for name in group], ""
    if word in known:
        return word
    from difflib import get_close_matches

    meant = [word] if word in _OTHER_NAMES and not start else get_close_matches(word, [*known, *_OTHER_NAMES], 1)
    if meant:
        hint = f"Did you mean `fds {_OTHER_NAMES.get(meant[0], start + meant[0])}`?"
    else:
        hint = f"`fds {start}--help` lists the commands"
    raise ConfigurationError(f"there is no command {start + word!r}. {hint}", subject="command line")


def help_of(command: str) -> str:
    """Return what the help says of a command."""
    if command in _COMMANDS:
        return _COMMANDS[command][1]
    from airflow_provider_fds.stream.actions.operator_actions import ACTIONS

    return ACTIONS[command].help


def module_of(command: str) -> str:
    """Return the module of a command in ``commands/``."""
    return _COMMANDS[command][0] if command in _COMMANDS else _ACTIONS


def all_commands() -> list[str]:
    """Return the names of all commands, those of :data:`ADMIN` last."""
    return [name for group in _GROUPS.values() for name in group if name != ADMIN] + list(_RARE)


def describe_groups() -> str:
    """Return the groups of commands for the help."""
    return "\n\n".join(f"{title}:\n{_lines(names)}" for title, names in _GROUPS.items())


def describe_rare() -> str:
    """Return the commands of :data:`ADMIN` for its help."""
    return _lines(_RARE)


def closest(word: str, known: Iterable[str]) -> str:
    """Return ``" Did you mean 'orders'?"`` for the known word that is close to a given one, ``""`` if none is."""
    from difflib import get_close_matches

    close = get_close_matches(word, list(known), 1)
    return f" Did you mean {close[0]!r}?" if close else ""


def option_hint(option: str, known: Iterable[str]) -> str:
    """Return what to type for an option that a command does not have: its other spelling, or the closest known one."""
    return _OTHER_OPTIONS.get(option) or closest(option, known)


def _lines(names: Iterable[str]) -> str:
    lines = []
    for name in names:
        text = _ADMIN_HELP if name == ADMIN else help_of(name)
        lines.append(
            textwrap.fill(text, 100, initial_indent=f"  {name:{_WIDTH}}", subsequent_indent=" " * (_WIDTH + 2))
        )
    return "\n".join(lines)


class CommandParsers:
    """Makes the parsers of commands, each with its help from this list.

    Args:
        parsers: Where argparse keeps them.
        rare: Where it keeps those of :data:`ADMIN`.
    """

    def __init__(
        self,
        parsers: argparse._SubParsersAction[Any],
        rare: argparse._SubParsersAction[Any],
    ) -> None:
        self._parsers = parsers
        self._rare = rare

    def add_parser(self, name: str, *, description: str = "", **more: Any) -> argparse.ArgumentParser:
        """Return the new parser of a command; without a description, its help describes it."""
        text = help_of(name)
        place = self._rare if name in _RARE else self._parsers
        # with `help`, argparse would list it without its group
        added: argparse.ArgumentParser = place.add_parser(
            name, description=description or f"{text[0].upper()}{text[1:]}.", **more
        )
        return added
