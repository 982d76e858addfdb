"""Fleets of several sizes, and that merge: CPU seconds, measured in turn in the same minutes."""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path
from typing import Any

from tests.bench.fleet import FleetBench
from tests.bench.reading import _session

#: Unmeasured rounds: the first one creates the sinks.
_WARM_UP = 2


def line(sizes: list[int], threads: int, rounds: int) -> dict[str, Any]:
    """Load one new file of each table in fleets of several sizes, in turn in one session.

    Returns:
        ``cpu``: the median of the CPU seconds for each size; ``fixed`` and ``part``: the line through them, seconds
        without tables and for each table; ``parts``: seconds for each table between two neighbouring sizes.
    """
    with tempfile.TemporaryDirectory() as name:
        spark = _session(Path(name))
        try:
            benches = [FleetBench(spark, _folder(name, str(size)), size, threads) for size in sizes]
            costs: list[list[float]] = [[] for _ in sizes]
            for number in range(_WARM_UP + rounds):
                turn = list(zip(benches, costs, strict=True))
                for bench, cost in turn if number % 2 else turn[::-1]:
                    bench.commit(number)
                    cost.append(bench.by_fds(number)["all"])
        finally:
            spark.stop()
    cpu = [statistics.median(cost[_WARM_UP:]) for cost in costs]
    part, fixed = statistics.linear_regression(sizes, cpu)
    steps = zip(sizes, sizes[1:], cpu, cpu[1:], strict=False)
    return {
        "cpu": cpu,
        "fixed": fixed,
        "part": part,
        "parts": [(more - less) / (large - small) for small, large, less, more in steps],
    }


def merging(tables: int, threads: int, rounds: int) -> dict[str, float]:
    """Merge one new file of 1,000 rows of each table, whose keys the sink has, alternately by FDS and by hand.

    Returns:
        The medians of the CPU seconds per table, and of their ratio.
    """
    with tempfile.TemporaryDirectory() as name:
        spark = _session(Path(name))
        try:
            bench = FleetBench(spark, _folder(name, "merging"), tables, threads, merges=True)
            ours, theirs = [], []
            for number in range(_WARM_UP + rounds):
                bench.commit(number)
                for way, costs in ((bench.by_fds, ours), (bench.by_streaming, theirs))[:: 1 if number % 2 else -1]:
                    costs.append(way(number)["all"] / tables)
            bench.check(_WARM_UP + rounds)
        finally:
            spark.stop()
    return _compared(ours=ours[_WARM_UP:], theirs=theirs[_WARM_UP:])


def _compared(*, ours: list[float], theirs: list[float]) -> dict[str, float]:
    return {
        "ours": statistics.median(ours),
        "theirs": statistics.median(theirs),
        "ratio": statistics.median(a / b for a, b in zip(ours, theirs, strict=True)),
    }


def _folder(home: str, name: str) -> Path:
    folder = Path(home) / name
    folder.mkdir()
    return folder
