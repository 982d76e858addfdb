"""``fds``: arguments, dispatch, exit codes."""

from __future__ import annotations

import argparse
import io
import json
import logging
import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Final

from airflow_provider_fds import __version__
from airflow_provider_fds.cli.command_list import CommandParsers, commands_beside
from airflow_provider_fds.cli.messages import end_of, shown
from airflow_provider_fds.credentials import redacted, redacted_uri, secret_part
from airflow_provider_fds.errors import ConfigurationError, FdsError
from airflow_provider_fds.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from airflow_provider_fds.ledger.owner import Owner

_PROGRAM: Final = "fds"

_EXIT_CODES = """\
exit codes:
  0  up to date, finished, or the given limit was reached
  1  status: a stream needs attention, or lags longer than --lagging; otherwise an unexpected
     error
  2  the arguments or the configuration are invalid
  3  stopped before a version that the stream's options do not let it pass
  4  the position of the stream no longer exists in the table, or the URI now points to a different
     table
  5  storage failed
  6  Spark did not finish a batch, or what it wrote is not what was planned
"""


def parser(program: str = _PROGRAM, command: str | None = None) -> argparse.ArgumentParser:
    """Return the parser of the command line; each command sets ``command`` to the function that performs it.

    Args:
        program: How the program is called.
        command: The one that has its arguments; others are at most listed. ``None``: all have theirs.
    """
    root = argparse.ArgumentParser(
        prog=program,
        description="Incremental Delta Lake ingestion: plan, run and inspect streams.",
        epilog=_EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    root.add_argument("--version", action="version", version=f"fds {__version__}")
    parsers = root.add_subparsers(metavar="COMMAND", required=True)
    commands = commands_beside(command)
    adding = CommandParsers(parsers, commands)
    wanted = {module for name, (module, _) in commands.items() if command in (None, name)}
    for name, (module, text) in commands.items():
        if name in parsers.choices:
            continue
        if module in wanted:
            import_module(f"airflow_provider_fds.cli.commands.{module}").add_commands(adding)
        else:
            parsers.add_parser(name, help=text)
    return root


def main(
    argv: Sequence[str] | None = None,
    program: str = _PROGRAM,
    airflow_owner_is_running: Callable[[Owner], bool] | None = None,
) -> int:
    """Run ``fds`` and return its exit code.

    An error is one message on stderr; with ``--output json`` it is also the last object on stdout.

    Args:
        argv: The arguments; ``None``: those of this process.
        program: What a person has typed before them.
        airflow_owner_is_running: Asks Airflow whether a task of this installation is running; ``None`` without Airflow.
    """
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(message)s", stream=sys.stderr)
    _tolerate_characters()
    # what is fetched, and for how long
    logging.getLogger("airflow_provider_fds.spark.installation.jars").setLevel(logging.INFO)
    try:
        words = sys.argv[1:] if argv is None else argv
        chosen = next((word for word in words if not word.startswith("-")), "")
        arguments = parser(program, chosen).parse_args(words)
        arguments.airflow_owner_is_running = airflow_owner_is_running
    except SystemExit as exit_:
        return exit_.code if isinstance(exit_.code, int) else 2
    try:
        _check_uris(arguments)
        return int(arguments.command(arguments))
    except BrokenPipeError:
        return 0
    except KeyboardInterrupt:
        return 130
    except (FdsError, ValueError) as error:
        known = error if isinstance(error, FdsError) else ConfigurationError(str(error))
        print(f"fds: {shown(known, arguments)}", file=sys.stderr)
        if getattr(arguments, "output", "text") == "json":
            print(json.dumps(end_of(known)))
        return known.exit_code
    except BaseException as error:
        # the object store client panics, with its own exception, on input that it cannot send
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        if os.environ.get("FDS_TRACEBACK"):
            raise
        text = redacted(f"{type(error).__name__}: {error}").split("\n", 1)[0]
        bug = FdsError(f"{text}. This is a bug in fds; set FDS_TRACEBACK=1 to see where")
        print(f"fds: {shown(bug, arguments)}", file=sys.stderr)
        if getattr(arguments, "output", "text") == "json":
            print(json.dumps(end_of(bug)))
        return bug.exit_code


def _tolerate_characters() -> None:
    """Let a terminal that does not know a character show another one."""
    if sys.stdout.isatty() and isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")


#: Arguments that are URIs or paths.
_URIS: Final = ("table", "staging", "sink")


def _check_uris(arguments: argparse.Namespace) -> None:
    """Refuse a URI that holds a credential before anything prints it."""
    for name in _URIS:
        uri = getattr(arguments, name, None)
        part = secret_part(uri) if isinstance(uri, str) and "://" in uri else None
        if isinstance(uri, str) and part is not None:
            shown_uri = redacted_uri(uri)
            setattr(arguments, name, shown_uri)
            raise ConfigurationError(
                f"{'TABLE' if name == 'table' else f'--{name}'} {shown_uri} has {part}, which everyone on this "
                "machine can see. Pass credentials through the environment or --storage-option",
                table=shown_uri,
                reason=Reason.URI_HAS_CREDENTIALS,
            )


if __name__ == "__main__":
    sys.exit(main())
