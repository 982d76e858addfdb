"""The processes of a Spark that a command has started, and commands that end with their test."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
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


def kill_processes_of(folder: Path) -> None:
    """Kill the processes that :func:`processes_of` returns."""
    for process_id in processes_of(folder):
        with suppress(ProcessLookupError):
            os.kill(process_id, signal.SIGKILL)


@contextmanager
def ending_commands(folder: Path, *, stderr: int | None = None) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Yield a function that starts ``fds`` with these words; a failed test leaves neither it nor its Spark running.

    Args:
        folder: The folder of its jobs, as for :func:`processes_of`.
        stderr: As for ``subprocess``; of a command with a pipe, somebody must read both.
    """
    begun: list[subprocess.Popen[str]] = []

    def begin(*words: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "airflow_provider_fds.cli.main", *words]
        begun.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True))
        return begun[-1]

    try:
        yield begin
    finally:
        for command in begun:
            if command.poll() is None:
                command.kill()
                command.communicate()
        kill_processes_of(folder)
