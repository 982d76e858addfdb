"""What a DAG file costs to parse: CPU time of the imports above those of Airflow's own Spark operator."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from typing import Any

_TIMED = """
import resource, sys

def cpu_seconds():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
before, known = cpu_seconds(), set(sys.modules)
{imports}
print(cpu_seconds() - before, len(set(sys.modules) - known))
"""


def imports(rounds: int, **lines: str) -> dict[str, dict[str, Any]]:
    """Run import lines in fresh interpreters, in turn, and return the median CPU seconds and the modules of each.

    Airflow parses each file in a fork of a process that has imported Airflow, but no operators of FDS. The modules are
    compiled, as installed ones are.
    """
    found: dict[str, list[tuple[float, int]]] = {name: [] for name in lines}
    with tempfile.TemporaryDirectory() as cache:
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        environment["PYTHONPYCACHEPREFIX"] = cache
        # the first round compiles
        for turn in range(rounds + 1):
            for name, line in lines.items():
                command = [sys.executable, "-W", "ignore", "-c", _TIMED.format(imports=line)]
                ran = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
                seconds, modules = ran.stdout.split()[-2:]
                if turn:
                    found[name].append((float(seconds), int(modules)))
    return {
        name: {"cpu_seconds": statistics.median(seconds for seconds, _ in each), "modules": each[0][1]}
        for name, each in found.items()
    }
