"""``fds``: arguments, dispatch, exit codes."""

from __future__ import annotations

import argparse
import json
import logging
import sys
from typing import TYPE_CHECKING

from airflow_provider_fds import __version__
from airflow_provider_fds.errors import ConfigurationError, FdsError, with_staging

if TYPE_CHECKING:
    from collections.abc import Sequence

_EXIT_CODES = """\
exit codes:
  0  up to date, finished, or the given limit was reached
  2  something in the arguments or the configuration cannot work
  3  stopped before a version that the options do not let pass
  4  the position of the stream no longer exists in the table, or another table is at the URI
  5  storage failed
  6  Spark did not finish a batch, or what it wrote is not what was planned
"""


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line; each command sets ``command`` to the function that performs it."""
    from airflow_provider_fds.cli import import_checkpoint, inspect, moves, plan, prepare, recover, run, words

    root = argparse.ArgumentParser(
        prog="fds",
        description="Incremental Delta Lake ingestion: plan, run and look at streams.",
        epilog=_EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    root.add_argument("--version", action="version", version=f"fds {__version__}")
    commands = root.add_subparsers(metavar="COMMAND", required=True)
    for module in (plan, run, inspect, words, moves, recover, import_checkpoint, prepare):
        module.add_commands(commands)
    return root


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``fds`` and return its exit code.

    An error is one message on stderr; with ``--output json`` it is also the last object on stdout.
    """
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(message)s", stream=sys.stderr)
    try:
        arguments = parser().parse_args(argv)
    except SystemExit as exit_:
        return exit_.code if isinstance(exit_.code, int) else 2
    try:
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


def shown(error: FdsError, arguments: argparse.Namespace) -> str:
    """Return the message of an error, with all that the commands in it need."""
    staging = getattr(arguments, "staging", None)
    return with_staging(str(error), staging) if staging else str(error)


def end_of(error: FdsError | None, *, is_more: bool = False, is_finished: bool = False) -> dict[str, object]:
    """Return the last object of ``--output json``: how far the command came, and what stopped it."""
    if error is None:
        return {"status": "finished" if is_finished else "more" if is_more else "up_to_date", "error": None}
    return {
        "status": "stopped",
        "error": {
            "type": type(error).__name__,
            "message": str(error),
            "version": error.version,
            "table": error.table,
        },
    }


if __name__ == "__main__":
    sys.exit(main())
