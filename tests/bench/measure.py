"""One measurement: a function in its own process, so that its peak memory is its own."""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Sample:
    """The cost of one run of a function.

    Attributes:
        seconds: Wall-clock time of the function, without the start of the process.
        cpu_seconds: User and system time of the process meanwhile.
        peak_mb: Peak resident memory of the process, in MB (10^6 bytes).
        value: The return value of the function.
    """

    seconds: float
    cpu_seconds: float
    peak_mb: float
    value: Any


def run(target: str, /, **arguments: Any) -> Sample:
    """Run ``module:function`` of this package in a fresh process and return its cost."""
    command = [sys.executable, "-m", "tests.bench.measure", target, json.dumps(arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{target} failed:\n{done.stderr[-3000:]}")
    return Sample(**json.loads(done.stdout.splitlines()[-1]))


def median(samples: list[Sample]) -> Sample:
    """Return the medians of several runs, with the value of the first."""
    return Sample(
        statistics.median(s.seconds for s in samples),
        statistics.median(s.cpu_seconds for s in samples),
        statistics.median(s.peak_mb for s in samples),
        samples[0].value,
    )


def in_turn(rounds: int, **targets: tuple[str, dict[str, Any]]) -> dict[str, list[Sample]]:
    """Run several targets alternately, round by round, so that a slow minute of the machine affects all of them."""
    found: dict[str, list[Sample]] = {name: [] for name in targets}
    for _ in range(rounds):
        for name, (target, arguments) in targets.items():
            found[name].append(run(target, **arguments))
    return found


def main() -> None:
    target, arguments = sys.argv[1], json.loads(sys.argv[2])
    module, _, name = target.partition(":")
    function = getattr(import_module(f"tests.bench.{module}"), name)
    before = os.times()
    start = time.perf_counter()
    value = function(**arguments)
    seconds = time.perf_counter() - start
    after = os.times()
    peak = _peak_bytes() / 1e6
    cpu = (after.user - before.user) + (after.system - before.system)
    # a function that times a part of itself returns the seconds
    if isinstance(value, dict) and "seconds" in value:
        seconds = value.pop("seconds")
    print(json.dumps({"seconds": seconds, "cpu_seconds": cpu, "peak_mb": peak, "value": value}))


def heap_mb(pid: int) -> float:
    """Return the MB of a JVM's heap that are in use after a full collection."""
    subprocess.run(["jcmd", str(pid), "GC.run"], check=True, capture_output=True)
    said = subprocess.run(["jcmd", str(pid), "GC.heap_info"], check=True, capture_output=True, text=True).stdout
    return sum(int(kib) for kib in re.findall(r"(?:heap|generation|Heap)\s+total \d+K, used (\d+)K", said)) / 1000


def _peak_bytes() -> int:
    """Return the peak resident memory of this process; ``ru_maxrss`` would count that of its parent before ``exec``."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("this system does not tell the peak memory of a process (/proc/self/status, VmHWM)")


if __name__ == "__main__":
    main()
