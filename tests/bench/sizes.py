"""How much the benchmarks measure: less for a trial, by variables of the environment."""

from __future__ import annotations

import os


def size(name: str, default: int) -> int:
    """Return a size of a benchmark: ``FDS_BENCH_<name>`` of the environment, for a smaller trial."""
    return int(os.environ.get(f"FDS_BENCH_{name}", default))


#: How often most things are measured.
ROUNDS = size("ROUNDS", 5)
