"""``python -m tests.bench.compare COMMIT [name …]``: measure another commit and this tree alternately.

Both are measured by their own ``tests.bench``, ``FDS_BENCH_TIMES`` times each (3), in the environment of this tree.
Rows that both have are compared by their medians. Ends with 1 if one is worse by more than 5 %.
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from tests.bench.report import Row, number

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).parents[2]
#: By how much a number may get worse.
ALLOWED: Final = 0.05
#: Below this, numbers are compared by their difference: a ratio of two small times is noise.
SMALL: Final = {"s": 0.05, "ms": 5.0, "MB": 2.0, "HEAD": 0.01, "": 0.01, "x": 0.01}


class Compared(NamedTuple):
    """One number of both trees.

    Attributes:
        what: The benchmark's name and the row's text.
        before: Median of the other commit.
        now: Median of this tree.
        unit: Its unit.
        at_least: Whether more is better.
    """

    what: str
    before: float
    now: float
    unit: str
    at_least: bool

    @property
    def ratio(self) -> float:
        """How many times worse this tree is; below 1 it is better."""
        worse, better = (self.before, self.now) if self.at_least else (self.now, self.before)
        return worse / better if better else float(worse > 0) + 1.0

    @property
    def is_worse(self) -> bool:
        """Whether this tree is worse by more than the allowed amount."""
        return self.ratio > 1 + ALLOWED and abs(self.now - self.before) > SMALL.get(self.unit, 0.0)

    def describe(self) -> str:
        """Return a row of a table."""
        verdict = "**worse**" if self.is_worse else ""
        before, now = number(self.before), number(self.now)
        return f"| {self.what} | {before} {self.unit} | {now} {self.unit} | {self.ratio:.2f} | {verdict} |"


def compare(before: dict[str, list[list[Row]]], now: dict[str, list[list[Row]]]) -> list[Compared]:
    """Return the rows that both trees have, in the order of this one.

    Args:
        before: For each benchmark, the rows of each run of the other commit.
        now: The same for this tree.
    """
    found = []
    for name, runs in now.items():
        earlier = _values(before.get(name, []))
        for index, (what, values) in _values(runs).items():
            same = earlier.get(index)
            if same is None or same[0] != what:
                continue
            row = runs[0][index]
            medians = statistics.median(same[1]), statistics.median(values)
            found.append(Compared(f"{name}: {what}", *medians, row.unit, row.at_least))
    return found


def _values(runs: list[list[Row]]) -> dict[int, tuple[str, list[float]]]:
    # by position: several rows of a benchmark are called "… memory"
    return {index: (row.what, [run[index].value for run in runs]) for index, row in enumerate(runs[0] if runs else [])}


@contextlib.contextmanager
def _tree_of(commit: str) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="fds-bench-") as folder:
        tree = Path(folder) / "tree"
        subprocess.run(
            ["git", "-C", ROOT, "worktree", "add", "--detach", tree, commit], check=True, capture_output=True
        )
        try:
            yield tree
        finally:
            subprocess.run(["git", "-C", ROOT, "worktree", "remove", "--force", tree], check=True, capture_output=True)


def _measure(tree: Path, name: str) -> list[Row]:
    """Run one benchmark of ``tree`` and return its rows; the pages of this tree do not change."""
    with tempfile.TemporaryDirectory(prefix="fds-bench-") as results:
        kept_in = Path(results) / "fds-bench.json"
        code = (
            "import pathlib, sys, tests.bench.__main__ as bench; bench.write = lambda *_, **__: None; "
            f"bench.RESULTS = pathlib.Path({str(kept_in)!r}); sys.argv = ['bench', {name!r}]; bench.main()"
        )
        environment = {**os.environ, "PYTHONPATH": str(tree), "TMPDIR": results}
        # an installation has compiled modules
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        command = [sys.executable, "-c", code]
        done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{name} of {tree} failed:\n{done.stderr[-3000:]}")
        kept = json.loads(kept_in.read_text())
    return [Row(**row) for row in kept[name]["rows"]]


def main() -> None:
    if len(sys.argv) < 2:
        sys.exit("which commit? python -m tests.bench.compare COMMIT [name …]")
    from tests.bench.__main__ import BENCHES

    commit, names = sys.argv[1], sys.argv[2:] or list(BENCHES)
    before: dict[str, list[list[Row]]] = {}
    now: dict[str, list[list[Row]]] = {}
    print(f"| what | {commit} | now | worse | |\n|---|---|---|---|---|", flush=True)
    found: list[Compared] = []
    with _tree_of(commit) as tree:
        for name in names:
            for _ in range(int(os.environ.get("FDS_BENCH_TIMES", "3"))):
                before.setdefault(name, []).append(_measure(tree, name))
                now.setdefault(name, []).append(_measure(ROOT, name))
            rows = compare({name: before[name]}, {name: now[name]})
            print("\n".join(row.describe() for row in rows), flush=True)
            found += rows
    sys.exit(any(row.is_worse for row in found))


if __name__ == "__main__":
    main()
