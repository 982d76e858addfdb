"""Run ``make check`` and the test suites, each part in a process of its own: a process holds one Spark session.

    scripts/run_tests.py                     the short profile: what neither tests/extended.txt nor nightly.txt lists
    scripts/run_tests.py --all               all but tests/nightly.txt, the site, the package, usual Airflows
    scripts/run_tests.py --nightly           what tests/nightly.txt lists
    scripts/run_tests.py --quick             unit tests and checks
    scripts/run_tests.py --only tests/unit/ledger [-k EXPRESSION]
    scripts/run_tests.py unit interop        the parts of these suites

All parts run, even if one fails. Five run at a time, because each waits for Spark or Airflow to start. The output ends
with what took how long, and with every failure and the command that runs it alone. What a part prints is also in a file
in ``build/test-logs``, beside one with the time of each of its tests, of which ``make numbers`` shows the sums.

``--all`` runs only the rest if the short profile has passed on the same files (``AGAIN=1``: both).
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"
LOGS = BUILD / "test-logs"

#: Digest of the files on which the short profile has passed last.
PASSED = BUILD / "short-profile-passed"

#: For the JVM that spark-submit starts to find out how to start the other one.
LAUNCHER = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

#: Exit code of pytest if a part has no test of the profile.
_NO_TESTS = 5


@dataclass(frozen=True)
class Part:
    """What one process runs.

    Attributes:
        name: Its suite, then what it is of the suite.
        paths: Files and folders with tests.
        without: Those among them that other parts run.
        command: Words of another command instead.
        starts_spark: Whether it starts spark-submit.
        only_in_all: Whether the short profile leaves it out.
    """

    name: str
    paths: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    starts_spark: bool = True
    only_in_all: bool = False

    @property
    def suite(self) -> str:
        """Name of the suite."""
        return self.name.partition(":")[0]

    @property
    def log(self) -> Path:
        """The file with what it prints."""
        return LOGS / f"{self.name.replace('/', '-').replace(':', '-')}.log"

    def environment(self, profile: str) -> dict[str, str]:
        """Return the variables of its process.

        The profile is for the suites: other commands run whole, with the tests that they call. Modules are compiled
        once: there are thousands of processes, and some environments forbid them to keep what they have compiled.
        """
        profile = "" if self.command else profile
        times = shlex.quote(str(self.log.with_suffix(f".{profile or 'all'}.xml")))
        # tests record numbers, which the newer form of the file has no place for
        options = f"--junit-xml={times} -o junit_family=xunit1"
        variables = {**os.environ, "FDS_PROFILE": profile, "PYTEST_ADDOPTS": options, "SPARK_LAUNCHER_OPTS": LAUNCHER}
        variables.pop("PYTHONDONTWRITEBYTECODE", None)
        return variables

    def has_listed(self, name: str) -> bool:
        """Return whether some of its tests are in ``tests/<name>.txt``."""
        lines = (ROOT / "tests" / f"{name}.txt").read_text(encoding="utf-8").splitlines()
        listed = [line for line in lines if line and not line.startswith("#")]
        return any(line.startswith(self.paths) and not line.startswith(self.without) for line in listed)

    def words(self) -> list[str]:
        """Return the command."""
        if self.command:
            return list(self.command)
        ignored = [f"--ignore={path}" for path in self.without]
        return [sys.executable, "-m", "pytest", "--durations=12", "--durations-min=5", *self.paths, *ignored]


def _files(folder: str, names: str) -> tuple[str, ...]:
    return tuple(f"tests/{folder}/test_{name}.py" for name in names.split())


# few parts, since each starts its own Spark, and the first test on a cold Spark takes as long as ten others
_SPARK_SINKS = _files(
    "interop/spark",
    "epochs foreach_moves fence fence_others advice_followed interval_advice repair take_over "
    "sink_delta sink_files sink_foreach sink_merge sink_options sink_others sink_overlap sink_place sink_replace "
    "sink_transactions",
)
_SPARK_SERVERS = _files(
    "interop/spark",
    "connect_job connect_progress connect_sinks fleet_backends fleet_connect fleet_job spark_submit standalone_cluster",
)
_AIRFLOW_LOADS = _files(
    "airflow",
    "stream_action example_dags fleet fork alerts checkpoint_homes backfill data_interval ingest partitions links "
    "stats spark_connect",
)

#: By the seconds that each took in the last run of all, the longest first: no core is idle before the end. The part
#: named as its suite has all files that no other part names.
PARTS = (
    Part("interop", ("tests/interop",), ("tests/interop/spark", "tests/interop/catalog", "tests/interop/unity")),
    Part("interop/spark:sinks", _SPARK_SINKS),
    Part("airflow", ("tests/airflow",), _AIRFLOW_LOADS),
    Part("interop/spark", ("tests/interop/spark",), (*_SPARK_SINKS, *_SPARK_SERVERS)),
    Part("airflow:loads", _AIRFLOW_LOADS),
    Part("stack", ("tests/stack",)),
    Part("interop/spark:servers", _SPARK_SERVERS),
    Part("chaos", ("tests/chaos",)),
    Part("unit", ("tests/unit",), ("tests/unit/stream", "tests/unit/cli"), starts_spark=False),
    Part("unit:stream", ("tests/unit/stream", "tests/unit/cli"), starts_spark=False),
    Part("adversary", ("tests/adversary",)),
    Part("interop:catalog", ("tests/interop/catalog",)),
    Part("lineage", ("tests/lineage",)),
    Part("usual-airflow", command=("make", "usual-airflow"), starts_spark=False, only_in_all=True),
    Part("check", command=("make", "check"), starts_spark=False),
    Part("fuzz", ("tests/fuzz",), starts_spark=False),
    Part("docs", command=("make", "docs"), starts_spark=False, only_in_all=True),
    Part("package", command=("make", "package"), starts_spark=False, only_in_all=True),
    Part("ui", ("tests/ui",), starts_spark=False),
)
SUITES = tuple(dict.fromkeys(part.suite for part in PARTS))
QUICK = ("unit", "check")


@dataclass(frozen=True)
class Finished:
    """A part that has ended: how, and how long it took."""

    part: Part
    code: int
    seconds: float
    cpu_seconds: float

    def __str__(self) -> str:
        verdict = f"FAILED ({self.code})" if self.code else "passed"
        return f"{self.part.name:22} {verdict:12} {self.seconds:5.0f} s {self.cpu_seconds:6.0f} CPU s"

    def failures(self) -> list[str]:
        """Return what failed, each with the command that runs it alone."""
        text = self.part.log.read_text(encoding="utf-8", errors="replace")
        failed = re.findall(r"^(?:FAILED|ERROR) (tests/\S+?\.py(?:::.*?)?)(?: - .*)?$", text, re.MULTILINE)
        return [f"make test ONLY={shlex.quote(test)}" for test in dict.fromkeys(failed)]


class Runner:
    """Runs parts side by side, each in a process group that ends when this process is told to."""

    def __init__(self, profile: str) -> None:
        self._profile = profile
        self._running: set[int] = set()
        self._is_stopped = False
        self._lock = threading.Lock()

    def run(self, part: Part) -> Finished:
        """Run one part to its end; what it prints goes to its log."""
        began = time.monotonic()
        with self._lock:
            if self._is_stopped:
                return Finished(part, -signal.SIGINT, 0.0, 0.0)
            print(f"== {part.name} has begun", flush=True)
            with part.log.open("wb") as log:
                process = subprocess.Popen(
                    part.words(),
                    cwd=ROOT,
                    stdout=log,
                    stderr=log,
                    env=part.environment(self._profile),
                    start_new_session=True,
                )
            self._running.add(process.pid)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = code = os.waitstatus_to_exitcode(status)
        with self._lock:
            self._running.discard(process.pid)
        if code == _NO_TESTS and self._profile and not part.command:
            code = 0
        return Finished(part, code, time.monotonic() - began, usage.ru_utime + usage.ru_stime)

    def stop(self) -> None:
        """Let all that runs end as Ctrl-C lets it: servers and Sparks of a part end with it."""
        with self._lock:
            self._is_stopped = True
            for process in self._running:
                os.killpg(process, signal.SIGINT)


def prepare() -> None:
    """Build the class archive with which each spark-submit starts faster; the tests use one, and build none.

    They pass without it, so a failure is only shown.
    """
    subprocess.run([Path(sys.executable).with_name("fds"), "admin", "prepare"], cwd=ROOT, check=False)


def digest_of_files() -> str | None:
    """Return a digest of all files that belong to the project, with its environment; ``None`` without git."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    if listed.returncode:
        return None
    digest = hashlib.sha256(sys.version.encode())
    for name in sorted(set(listed.stdout.split(b"\0"))):
        path = ROOT / os.fsdecode(name)
        if path.is_file():
            digest.update(name + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def run_parts(parts: list[Part], profile: str, jobs: int) -> int:
    """Run the parts, and print how each ended, then the failures; return the exit code."""
    began = time.monotonic()
    LOGS.mkdir(parents=True, exist_ok=True)
    if any(part.starts_spark for part in parts):
        prepare()
    finished: list[Finished] = []
    with ThreadPoolExecutor(jobs) as pool:
        runner = Runner(profile)
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        try:
            for future in as_completed([pool.submit(runner.run, part) for part in parts]):
                finished.append(done := future.result())
                print(f"== {done.part.name}\n{done.part.log.read_text(errors='replace')}", flush=True)
        except KeyboardInterrupt:
            runner.stop()
            return 130
    in_all = f"{'in all':35} {time.monotonic() - began:5.0f} s"
    print(*finished, in_all, sep="\n")
    if profile:
        (BUILD / f"last-{profile}.txt").write_text(f"{len(finished)} parts {in_all}\n", encoding="utf-8")
    failed = [done for done in finished if done.code]
    for done in failed:
        print(f"\nFAILED: {done.part.name}, {done.part.log.relative_to(ROOT)}", *done.failures(), sep="\n    ")
    return int(bool(failed))


def only(words: list[str], expression: str | None) -> int:
    """Replace this process by pytest with these tests."""
    os.chdir(ROOT)
    command = [sys.executable, "-m", "pytest", *words, *(["-k", expression] if expression else [])]
    os.execv(command[0], command)


def main() -> int:
    """Run what the command line names."""
    parser = argparse.ArgumentParser(description="Run the test suites.")
    parser.add_argument("suites", nargs="*", metavar="SUITE", help=f"of {', '.join(SUITES)} (default: all)")
    parser.add_argument("--all", action="store_true", help="also what tests/extended.txt lists")
    parser.add_argument("--nightly", action="store_true", help="what tests/nightly.txt lists")
    parser.add_argument("--quick", action="store_true", help="unit tests and checks only")
    parser.add_argument("--only", nargs="+", metavar="TEST", help="these files, folders or tests, in this process")
    parser.add_argument("-k", metavar="EXPRESSION", help="only tests whose names match")
    parser.add_argument("--jobs", type=int, default=5, metavar="N", help="parts at a time (default: 5)")
    arguments = parser.parse_args()
    if arguments.only or arguments.k:
        return only(arguments.only or ["tests"], arguments.k)
    chosen = QUICK if arguments.quick else arguments.suites or SUITES
    if unknown := sorted(set(chosen) - set(SUITES)):
        parser.error(f"no suite {', '.join(unknown)}; there are {', '.join(SUITES)}")
    parts = [part for part in PARTS if part.suite in chosen]
    if arguments.quick or (arguments.suites and not arguments.all):
        return run_parts(parts, "", arguments.jobs)
    if arguments.nightly:
        return run_parts([part for part in parts if part.has_listed("nightly")], "nightly", arguments.jobs)
    now = digest_of_files()
    if not arguments.all:
        PASSED.unlink(missing_ok=True)
        code = run_parts([part for part in parts if not part.only_in_all], "short", arguments.jobs)
        if code == 0 and now is not None and now == digest_of_files():
            PASSED.write_text(now)
        return code
    if (
        not arguments.suites
        and now is not None
        and PASSED.exists()
        and PASSED.read_text() == now
        and not os.environ.get("AGAIN")
    ):
        print("The short profile has passed on these files: the rest runs (AGAIN=1 runs both).", flush=True)
        rest = [part for part in parts if part.only_in_all or part.has_listed("extended")]
        return run_parts(rest, "extended", arguments.jobs)
    return run_parts(parts, "all", arguments.jobs)


if __name__ == "__main__":
    sys.exit(main())
