"""The ``fds`` command in the process of the test, for tests whose subject is not a process of its own."""

from __future__ import annotations

import io
import os
from contextlib import redirect_stderr, redirect_stdout
from itertools import count
from typing import NamedTuple

import pytest

from airflow_provider_fds.cli import arguments
from airflow_provider_fds.cli.main import main

_COMMANDS = count(1)


class Ran(NamedTuple):
    """How a command ended, named as in ``subprocess``."""

    returncode: int
    stdout: str
    stderr: str


def fds(*words: str) -> Ran:
    """Run ``fds`` with these words, as an owner of its own: to later commands, a process that has ended."""
    started, of_others = next(_COMMANDS), arguments._started
    with (
        pytest.MonkeyPatch.context() as patch,
        redirect_stdout(io.StringIO()) as out,
        redirect_stderr(io.StringIO()) as err,
    ):
        patch.setattr(arguments, "_started", lambda pid: started if pid == os.getpid() else of_others(pid))
        code = main(list(words))
    return Ran(code, out.getvalue(), err.getvalue())
