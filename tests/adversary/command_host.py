"""Runs ``fds``: its process is forked from one in which the command and Spark's client are loaded.

It calls the installed command by its entry point, and uses no other code of the package.
"""

from __future__ import annotations

import os
import sys
import warnings
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Final

from tests.adversary.forks import ForkHost, load, serve

if TYPE_CHECKING:
    from pathlib import Path

#: The parts of the package that a command may load; none of them imports Airflow.
ROOMS: Final = (
    "batch", "catalog", "checkpoint", "cli", "delta", "fleet", "ledger", "sinks", "source", "spark", "stream",
)  # fmt: skip


class CommandHost(ForkHost):
    """The process with ``fds`` loaded."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        super().__init__("tests.adversary.command_host", folder / "commands.log", {})


def main() -> None:
    """Load the command, then act as a host of its processes."""
    (entry,) = entry_points(group="console_scripts", name="fds")
    command = entry.load()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import pyspark.sql.connect.session  # noqa: F401 - loaded before the fork
    load(entry.module.partition(".")[0], *ROOMS)

    def play(request: dict[str, Any]) -> None:
        sys.argv = ["fds", *request["words"]]
        os.environ.update(request["env"])
        sys.exit(command())

    serve(play)


if __name__ == "__main__":
    main()
