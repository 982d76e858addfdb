"""``python -m tests.fuzz``: mutate input in child processes, count the outcomes, and write the table of the page."""

from __future__ import annotations

import argparse
import json
import queue
import subprocess
import sys
import tempfile
import threading
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).resolve().parents[2]

#: The CPU time that a mutation may take, and the wall-clock time after which it is stopped; the latter is longer
#: because the machine may be busy.
CPU_SECONDS = 5.0
WALL_SECONDS = 60.0
PEAK_MB = 500

_BEGIN, _END = "<!-- mutations: begin -->", "<!-- mutations: end -->"


@dataclass
class Results:
    """The outcomes of all mutations.

    Attributes:
        counts: By target: how many were ``read``, ``refused``, or failed.
        failures: Each failure, with the number that repeats it.
        slowest: The longest CPU time of one mutation, in seconds.
        peak_mb: The most resident memory during one.
    """

    counts: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    failures: list[str] = field(default_factory=list)
    slowest: float = 0.0
    peak_mb: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, found: dict[str, Any]) -> None:
        """Count one mutation."""
        outcome = found["outcome"]
        what = found.get("what", outcome)
        if found.get("cpu_seconds", 0.0) > CPU_SECONDS:
            outcome = what = "too slow"
        if found.get("peak_mb", 0) > PEAK_MB:
            outcome, what = "too large", f"{found['peak_mb']} MB"
        with self._lock:
            self.slowest = max(self.slowest, found.get("cpu_seconds", 0.0))
            self.peak_mb = max(self.peak_mb, found.get("peak_mb", 0))
            self.counts[found["target"]][outcome if outcome in ("read", "refused") else "failed"] += 1
            if outcome not in ("read", "refused"):
                self.failures.append(f"mutation {found['number']} of {found['target']}: {what}")

    @property
    def total(self) -> int:
        """How many mutations were run."""
        return sum(sum(count.values()) for count in self.counts.values())


def run(mutations: int, seed: int, *, jobs: int = 2, first: int = 0) -> Results:
    """Run ``mutations`` mutations of ``seed`` in ``jobs`` processes; a process that ends or hangs is replaced."""
    results = Results()
    with ThreadPoolExecutor(jobs) as pool:
        for job in [pool.submit(_work, results, seed, first + i, first + mutations, jobs) for i in range(jobs)]:
            job.result()
    return results


def _work(results: Results, seed: int, first: int, last: int, step: int) -> None:
    while first < last:
        command = [sys.executable, "-m", "tests.fuzz.worker", *map(str, (seed, first, last, step))]
        with (
            tempfile.TemporaryFile("w+") as errors,
            subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=errors, text=True) as child,
        ):
            under_way = _follow(child, results)
            code = child.wait()
            errors.seek(0)
            said = errors.read()[-2000:]
        if under_way is None and code == 0:
            return
        if under_way is None:
            raise RuntimeError(f"the fuzzer's process ended with {code} between mutations: {said}")
        hung = under_way.pop("hung", False)
        what = f"no end after {WALL_SECONDS:.0f} s" if hung else f"the process ended with {code}"
        results.add({**under_way, "number": under_way["began"], "outcome": "ended", "what": what})
        first = under_way["began"] + step


def _follow(child: subprocess.Popen[str], results: Results) -> dict[str, Any] | None:
    """Count what the child reports; return the mutation during which it ended, or was ended because it hung."""
    lines: queue.Queue[str | None] = queue.Queue()
    threading.Thread(target=_read, args=(child.stdout, lines), daemon=True).start()
    under_way: dict[str, Any] | None = None
    while True:
        try:
            line = lines.get(timeout=WALL_SECONDS)
        except queue.Empty:
            child.kill()
            return None if under_way is None else {**under_way, "hung": True}
        if line is None:
            return under_way
        found = json.loads(line)
        if "began" in found:
            under_way = found
        elif "outcome" in found:
            results.add(found)
            under_way = None


def _read(stream: IO[str] | None, lines: queue.Queue[str | None]) -> None:
    for line in stream or ():
        lines.put(line)
    lines.put(None)


def table(results: Results, seed: int, day: str) -> str:
    """Return the table of the page."""
    rows = [
        f"| {name} | {sum(count.values()):,} | {count['read']:,} | {count['refused']:,} | {count['failed']:,} |"
        for name, count in sorted(results.counts.items(), key=lambda item: -sum(item[1].values()))
    ]
    most = f"at most {results.slowest:.1f} s of the processor and {results.peak_mb} MB for one of them"
    return "\n".join(
        [
            f"On {day}, {results.total:,} mutations of seed {seed}; {most}.",
            "",
            "| input | mutations | read | refused with an error of FDS | failed |",
            "|---|---|---|---|---|",
            *rows,
        ]
    )


def write_page(page: Path, text: str) -> None:
    """Put the table between the markers of the page."""
    head, begin, rest = page.read_text().partition(_BEGIN)
    _, end, tail = rest.partition(_END)
    if not begin or not end:
        raise ValueError(f"{page} has no place for the table: expected {_BEGIN} and {_END}")
    page.write_text(f"{head}{_BEGIN}\n{text}\n{_END}{tail}")


def main() -> int:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description="Mutate everything that FDS reads.")
    parser.add_argument("--mutations", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--first", type=int, default=0, help="number of the first mutation, to repeat one")
    parser.add_argument("--page", type=Path, help="a page to write the table into, if nothing failed")
    arguments = parser.parse_args()
    results = run(arguments.mutations, arguments.seed, jobs=arguments.jobs, first=arguments.first)
    text = table(results, arguments.seed, f"{datetime.now(UTC):%Y-%m-%d}")
    print(text)
    print(*results.failures, sep="\n")
    if arguments.page is not None and not results.failures:
        write_page(arguments.page, text)
    return int(bool(results.failures))


if __name__ == "__main__":
    sys.exit(main())
