"""The ``fds`` command in the process of the test, for tests whose subject is not a process of its own."""

from __future__ import annotations

import argparse
import io
import os
from contextlib import redirect_stderr, redirect_stdout
from itertools import count
from typing import TYPE_CHECKING, NamedTuple

import pytest

from airflow_provider_fds.cli import arguments
from airflow_provider_fds.cli.airflow_commands import run_fds
from airflow_provider_fds.cli.main import main

if TYPE_CHECKING:
    from collections.abc import Callable

_COMMANDS = count(1)


class Ran(NamedTuple):
    """How a command ended, named as in ``subprocess``."""

    returncode: int
    stdout: str
    stderr: str


def fds(*words: str, command: Callable[[list[str]], int] = main) -> Ran:
    """Run ``fds`` with these words, as an owner of its own: to later commands, a process that has ended."""
    started, of_others = next(_COMMANDS), arguments._started
    with (
        pytest.MonkeyPatch.context() as patch,
        redirect_stdout(io.StringIO()) as out,
        redirect_stderr(io.StringIO()) as err,
    ):
        patch.setattr(arguments, "_started", lambda pid: started if pid == os.getpid() else of_others(pid))
        code = command(list(words))
    return Ran(code, out.getvalue(), err.getvalue())


def airflow_fds(*words: str) -> Ran:
    """Run ``airflow fds`` with these words, as :func:`fds`."""

    def command(words: list[str]) -> int:
        with pytest.raises(SystemExit) as ended:
            run_fds(argparse.Namespace(arguments=words))
        code = ended.value.code
        assert isinstance(code, int)
        return code

    return fds(*words, command=command)
