"""How a command that changes a stream is confirmed: it shows the change, asks for agreement and a reason, and acts."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from airflow_provider_fds.errors import EXIT_OK, ConfigurationError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable

_NOTHING = "nothing was done"


def add_confirmation(parser: argparse.ArgumentParser) -> None:
    """Add ``--dry-run`` and ``--yes``."""
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--dry-run", action="store_true", help="show what would change, and change nothing")
    group.add_argument("--yes", action="store_true", help="do not ask for confirmation")


def confirmed(arguments: argparse.Namespace, preview: str, act: Callable[[], Iterable[str]]) -> int:
    """Show a change, make it if a person agrees, and return the exit code.

    Args:
        arguments: With ``dry_run`` and ``yes``; a ``why`` that is ``None`` is asked for.
        preview: The change in words.
        act: Makes the change and yields the outcome in words; reads the reason from the arguments.

    Raises:
        ConfigurationError: Nobody can be asked: there is no terminal, or ``--yes`` comes without a reason.
    """
    print(preview, flush=True)
    if arguments.dry_run:
        return EXIT_OK
    lacks_why = "why" in arguments and not (arguments.why or "").strip()
    if arguments.yes and lacks_why:
        raise ConfigurationError(f"{_NOTHING}: --yes needs a reason. Add --why TEXT; it is recorded in the history")
    if not arguments.yes:
        if not sys.stdin.isatty():
            raise ConfigurationError(
                f"{_NOTHING}: there is no terminal to ask for confirmation. Add --yes{' and --why' * lacks_why}"
            )
        if _asked("Continue? [y/N] ").lower() not in ("y", "yes"):
            print(_NOTHING)
            return EXIT_OK
        if lacks_why and not (why := _asked("Why? ")):
            print(f"{_NOTHING}: a reason is needed")
            return EXIT_OK
        if lacks_why:
            arguments.why = why
    for line in act():
        print(line)
    return EXIT_OK


def _asked(question: str) -> str:
    try:
        return input(question).strip()
    except EOFError:
        print()
        return ""
