"""Run ``make check`` and the suites of ``tests/``, each in a process of its own: a process holds one Spark session.

All run, even if one fails; the exit code says whether all passed. Of several suites three run at a time, because each
waits half of its time for Spark or Airflow to start; each says what it has to say when it has ended.

    scripts/run_tests.py                  all
    scripts/run_tests.py unit interop     these (a suite of its own inside a suite, as interop/spark, is not part of it)
    scripts/run_tests.py --jobs 1         one after the other
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent

#: The longest first.
SUITES = (
    "interop/spark",
    "airflow",
    "interop",
    "stack",
    "chaos",
    "adversary",
    "lineage",
    "unit",
    "ui",
    "fuzz",
    "check",
)

#: Start spark-submit, most of them dozens of times.
STARTING_SPARK = frozenset({"interop", "interop/spark", "chaos", "adversary", "airflow", "stack", "lineage"})


class Finished(NamedTuple):
    """A suite that has ended."""

    suite: str
    code: int
    seconds: float

    def __str__(self) -> str:
        verdict = "passed" if self.code == 0 else f"FAILED ({self.code})"
        return f"{self.suite:13} {verdict:11} {self.seconds:4.0f} s"


class Runner:
    """Runs suites side by side, each in a process group that ends when this process is told to."""

    def __init__(self, logs: Path) -> None:
        self._logs = logs
        self._running: set[subprocess.Popen[bytes]] = set()
        self._is_stopped = False

    def run(self, suite: str) -> Finished:
        """Run one suite to its end; what it says goes to its log."""
        began = time.monotonic()
        if self._is_stopped:
            return Finished(suite, -signal.SIGINT, 0.0)
        print(f"== {suite} has begun", flush=True)
        with self.log(suite).open("wb") as log:
            process = subprocess.Popen(
                command(suite), cwd=ROOT, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )
            self._running.add(process)
            code = process.wait()
            self._running.discard(process)
        return Finished(suite, code, time.monotonic() - began)

    def log(self, suite: str) -> Path:
        """The file that holds what the suite says."""
        return self._logs / suite.replace("/", "-")

    def stop(self) -> None:
        """Let all that runs end as Ctrl-C lets it: servers and Sparks of a suite end with it."""
        self._is_stopped = True
        for process in list(self._running):
            os.killpg(process.pid, signal.SIGINT)


def command(suite: str) -> list[str]:
    """Return the command of a suite."""
    if suite == "check":
        return ["make", "--no-print-directory", "check"]
    inner = [f"--ignore=tests/{other}" for other in SUITES if other.startswith(f"{suite}/")]
    return [sys.executable, "-m", "pytest", "--durations=12", "--durations-min=5", f"tests/{suite}", *inner]


def prepare() -> None:
    """Build the class archive with which each spark-submit starts faster; the tests use one, and build none.

    They pass without it, so a failure is only shown.
    """
    subprocess.run([Path(sys.executable).with_name("fds"), "prepare"], cwd=ROOT, check=False)


def main() -> int:
    """Run what the command line names."""
    parser = argparse.ArgumentParser(description="Run the test suites.")
    parser.add_argument("suites", nargs="*", metavar="SUITE", help=f"of {', '.join(SUITES)} (default: all)")
    parser.add_argument("--jobs", type=int, default=3, metavar="N", help="suites at a time (default: 3)")
    arguments = parser.parse_args()
    suites = arguments.suites or SUITES
    if len(suites) == 1:
        os.chdir(ROOT)
        one = command(suites[0])
        os.execvp(one[0], one)
    if STARTING_SPARK.intersection(suites):
        prepare()
    finished: list[Finished] = []
    with tempfile.TemporaryDirectory(prefix="fds-tests-") as folder, ThreadPoolExecutor(arguments.jobs) as pool:
        runner = Runner(Path(folder))
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        try:
            for future in as_completed([pool.submit(runner.run, suite) for suite in suites]):
                finished.append(future.result())
                print(f"== {finished[-1].suite}\n{runner.log(finished[-1].suite).read_text(errors='replace')}")
        except KeyboardInterrupt:
            runner.stop()
            return 130
    print(*finished, sep="\n")
    return int(any(suite.code for suite in finished))


if __name__ == "__main__":
    sys.exit(main())
