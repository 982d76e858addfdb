"""The process from which those of tests/chaos are forked with the package loaded: ``python -m`` without its imports."""

from __future__ import annotations

import importlib
import os
import runpy
import sys
import warnings
from typing import Any

from airflow_provider_fds import fault_points
from tests.adversary.command_host import ROOMS
from tests.adversary.forks import load, serve


def play(request: dict[str, Any]) -> None:
    """Run a module as ``python -m`` does, with the fault that the environment asks for."""
    os.environ.update(request["env"])
    # it reads the environment when it is imported
    importlib.reload(fault_points)
    module, *arguments = request["words"]
    sys.argv = [module, *arguments]
    warnings.filterwarnings("ignore", "'.*' found in sys.modules", RuntimeWarning)
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    load("airflow_provider_fds", *ROOMS)
    importlib.import_module("airflow_provider_fds.backends.registry")
    serve(play)
