"""The processes of a Spark that a command has started."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from pathlib import Path


def processes_of(folder: Path) -> list[int]:
    """Return the other processes whose command line names something in a folder, ascending.

    A JVM starts a program by a copy of itself, which has its command line until it becomes that program: no Spark.
    """
    found: dict[int, tuple[list[str], int]] = {}
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            words = process.cmdline()
            if process.pid != os.getpid() and any(os.fspath(folder) in word for word in words):
                found[process.pid] = words, process.ppid()
    copies = {pid for pid, (words, parent) in found.items() if parent in found and found[parent][0] == words}
    return sorted(found.keys() - copies)
