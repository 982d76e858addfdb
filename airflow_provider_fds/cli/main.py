"""``fds``: arguments, dispatch, exit codes."""

from __future__ import annotations

import argparse
import io
import json
import logging
import os
import sys
from importlib import import_module
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Final, NoReturn

from airflow_provider_fds import __version__
from airflow_provider_fds.cli.command_list import (
    ADMIN,
    CommandParsers,
    all_commands,
    chosen_command,
    describe_groups,
    describe_rare,
    module_of,
    option_hint,
)
from airflow_provider_fds.cli.messages import STAGING_NEEDED, end_of, shown
from airflow_provider_fds.credentials import redacted, redacted_uri, secret_part
from airflow_provider_fds.errors import ConfigurationError, FdsError
from airflow_provider_fds.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from airflow_provider_fds.catalog.table import Catalog
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


class _Parser(argparse.ArgumentParser):
    """A parser that takes no abbreviation, and names the option that a misspelled one is close to."""

    def __init__(self, **more: Any) -> None:
        super().__init__(**more, allow_abbrev=False)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """Refuse an unknown option of a command before argparse asks for what is missing."""
        if self._subparsers is None:
            for word in takewhile("--".__ne__, args):
                option = word.partition("=")[0]
                if option.startswith("--") and option not in self._option_string_actions:
                    hint = option_hint(option, self._option_string_actions)
                    self.error(f"unrecognized arguments: {option}{'.' * bool(hint)}{hint}")
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        """Say where a missing staging folder may come from."""
        if message.startswith("the following arguments are required"):
            message = message.replace("--staging", STAGING_NEEDED)
        super().error(message)


def parser(program: str = _PROGRAM, command: str | None = "") -> argparse.ArgumentParser:
    """Return the parser of the command line; each command sets ``command`` to the function that performs it.

    Args:
        program: How the program is called.
        command: The only command that it takes, with the others of its module. ``""``: all. ``None``: none, for the
            help.
    """
    about = "Incremental Delta Lake ingestion: plan, run and inspect streams."
    raw = argparse.RawDescriptionHelpFormatter
    root = _Parser(
        prog=program,
        usage=f"{program} [-h] [--version] COMMAND …",
        description=about if command else f"{about}\n\n{describe_groups()}",
        epilog=_EXIT_CODES,
        formatter_class=raw,
    )
    root.add_argument("--version", action="version", version=f"fds {__version__}")
    parsers = root.add_subparsers(prog=program, metavar="COMMAND", required=True, help=argparse.SUPPRESS)
    admin = f"{program} {ADMIN}"
    below = parsers.add_parser(
        ADMIN,
        usage=f"{admin} [-h] COMMAND …",
        description=None if command else describe_rare(),
        formatter_class=raw,
    )
    rare = below.add_subparsers(prog=admin, metavar="COMMAND", required=True, help=argparse.SUPPRESS)
    adding = CommandParsers(parsers, rare)
    wanted = [] if command is None else [command] if command else all_commands()
    for module in dict.fromkeys(map(module_of, wanted)):
        import_module(f"airflow_provider_fds.cli.commands.{module}").add_commands(adding)
    return root


def main(
    argv: Sequence[str] | None = None,
    program: str = _PROGRAM,
    airflow_owner_is_running: Callable[[Owner], bool] | None = None,
    airflow_has_dag: Callable[[str], bool] | None = None,
    airflow_catalog: Callable[[str], Catalog] | None = None,
    airflow_database: Callable[[str | None], object] | None = None,
) -> int:
    """Run ``fds`` and return its exit code.

    An error is one message on stderr; with ``--output json`` it is also the last object on stdout.

    Args:
        argv: The arguments; ``None``: those of this process.
        program: What a person has typed before them.
        airflow_owner_is_running: Asks Airflow whether a task of this installation is running; ``None`` without Airflow.
        airflow_has_dag: Asks Airflow whether it has a DAG; ``None`` without Airflow.
        airflow_catalog: Returns the catalog of an Airflow connection; ``None`` without Airflow.
        airflow_database: Lets this process open the database of an Airflow connection; ``None`` without Airflow.
    """
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(message)s", stream=sys.stderr)
    _tolerate_characters()
    # what is fetched, and for how long
    logging.getLogger("airflow_provider_fds.spark.installation.jars").setLevel(logging.INFO)
    arguments = _parsed(sys.argv[1:] if argv is None else argv, program)
    if isinstance(arguments, int):
        return arguments
    arguments.airflow_owner_is_running = airflow_owner_is_running
    arguments.airflow_has_dag = airflow_has_dag
    arguments.airflow_catalog = airflow_catalog
    arguments.airflow_database = airflow_database
    try:
        _check_uris(arguments)
        return int(arguments.command(arguments))
    except BrokenPipeError:
        return 0
    except KeyboardInterrupt:
        print(f"fds: interrupted.{getattr(arguments, 'when_interrupted', '')}", file=sys.stderr)
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


def _parsed(words: Sequence[str], program: str) -> argparse.Namespace | int:
    """Return the arguments, or the exit code if there is nothing more to do."""
    try:
        return parser(program, chosen_command(words)).parse_args(words)
    except SystemExit as exit_:
        return exit_.code if isinstance(exit_.code, int) else 2
    except ConfigurationError as error:
        print(f"fds: [{error.reason_code}] {error}", file=sys.stderr)
        return error.exit_code


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
