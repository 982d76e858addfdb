"""From a commit of the source to its rows in the sink: a run that lingers, and a Structured Streaming query."""

from __future__ import annotations

import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from deltalake import write_deltalake

from tests.bench.measure import heap_mb

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: A run that lingers, and queries with a trigger of so many seconds.
SUBJECTS = ("linger", "query_0", "query_1")
#: Streams that have nothing to load when they begin.
_FLEET = """
defaults:
  staging: {lake}/staging
  starting_version: latest
streams:
  - tables: {lake}/tables/*
    sink: {lake}/sinks/{{table}}
"""
_TICK = os.sysconf("SC_CLK_TCK")


def side_by_side(commits: int, warm_up: int, idle_seconds: float, *, connect: bool) -> dict[str, Any]:
    """Commit again and again to the source of each subject, one subject after the other, and wait for the rows.

    Returns:
        By subject: ``median`` and ``p95`` of the seconds until the sink has the commit, ``cpu`` seconds of all its
        processes for each commit, and ``idle``: the share of a core that they use while nothing comes.
    """
    found = {}
    for subject in SUBJECTS:
        with tempfile.TemporaryDirectory() as name:
            found[subject] = _measured(Path(name), subject, commits, warm_up, idle_seconds, connect=connect)
    return found


def memory(commits: int, points: int) -> list[dict[str, float]]:
    """Return the resident MB of task and driver of a run that lingers, at so many points of as many commits.

    ``heap`` is what the driver's JVM has after a full collection.
    """
    found = []
    with tempfile.TemporaryDirectory() as name:
        lake = Path(name)
        write_deltalake(lake / "source", _rows(1))
        with _subject(lake, "linger", None) as root:
            _arrived(lake, 0)
            for number in range(1, commits + 1):
                write_deltalake(lake / "source", _rows(1), mode="append")
                _arrived(lake, number)
                if number % (commits // points) == 0:
                    found.append({"commits": number, "heap": heap_mb(_java(root)), **_resident(root)})
    return found


def idle_fleet(tables: int, idle_seconds: float) -> dict[str, float]:
    """Let a fleet linger, and let nothing come; one table has had data, so that its Spark is there.

    Returns:
        The shares of a core that all its processes use, and its ``driver`` alone, and the seconds from a commit to its
        rows.
    """
    with tempfile.TemporaryDirectory() as name:
        lake = Path(name)
        for number in range(tables):
            write_deltalake(lake / "tables" / f"t{number:04d}", _rows(1))
        (lake / "streams.yaml").write_text(_FLEET.format(lake=lake))
        words = ["run", "--file", str(lake / "streams.yaml"), "--linger", "1h", "--master", "local[2]"]
        with _process(lake, ["-m", "airflow_provider_fds.cli.main", *words], "a fleet") as root:
            ledgers = lake / "staging"
            _await(lambda: len(list(ledgers.glob("t*/ledger"))) == tables, "the streams of the fleet")
            write_deltalake(lake / "tables" / "t0000", _rows(1), mode="append")
            _arrived(lake, 0, sink="sinks/t0000")
            # what a round leaves to do
            time.sleep(10)
            write_deltalake(lake / "tables" / "t0000", _rows(1), mode="append")
            seconds = _arrived(lake, 1, sink="sinks/t0000")
            time.sleep(10)
            before, own = _cpu([root]), _own_cpu(root)
            time.sleep(idle_seconds)
            all_, own = _cpu([root]) - before, _own_cpu(root) - own
    return {"all": all_ / idle_seconds, "driver": (all_ - own) / idle_seconds, "seconds_to_rows": seconds}


def _measured(
    lake: Path, subject: str, commits: int, warm_up: int, idle_seconds: float, *, connect: bool
) -> dict[str, float]:
    from tests.interop.connect_server import running_server

    write_deltalake(lake / "source", _rows(1))
    if not connect:
        with _subject(lake, subject, None) as root:
            return _timed(lake, [root], commits, warm_up, idle_seconds)
    options = {"spark.driver.extraJavaOptions": f"-Dderby.system.home={lake}"}
    with running_server(lake, **options) as server, _subject(lake, subject, server.url) as root:
        return _timed(lake, [root, server.pid], commits, warm_up, idle_seconds)


def _timed(lake: Path, roots: list[int], commits: int, warm_up: int, idle_seconds: float) -> dict[str, float]:
    _arrived(lake, 0)
    seconds, cpu = [], 0.0
    for number in range(1, warm_up + commits + 1):
        rows = _rows(random.choice((1, 10, 100, 1000)))
        # at a random time between two polls
        time.sleep(0.3 + random.random())
        before = _cpu(roots)
        write_deltalake(lake / "source", rows, mode="append")
        took = _arrived(lake, number)
        if number > warm_up:
            seconds.append(took)
            # what a batch leaves to do, such as the position
            time.sleep(0.3)
            cpu += _cpu(roots) - before
    before = _cpu(roots)
    time.sleep(idle_seconds)
    return {
        "median": statistics.median(seconds),
        "p95": statistics.quantiles(seconds, n=20)[-1],
        "cpu": cpu / commits,
        "idle": (_cpu(roots) - before) / idle_seconds,
    }


def _rows(count: int) -> pa.Table:
    return pa.table({"id": list(range(count)), "v": [str(i) for i in range(count)]})


def _arrived(lake: Path, version: int, *, sink: str = "sink") -> float:
    commit = lake / sink / "_delta_log" / f"{version:020}.json"
    return _await(commit.exists, f"commit {version}")


def _await(is_so: Callable[[], bool], what: str) -> float:
    start = time.perf_counter()
    while not is_so():
        if time.perf_counter() - start > 600:
            raise RuntimeError(f"{what} did not arrive within 600 s")
        time.sleep(0.005)
    return time.perf_counter() - start


@contextmanager
def _subject(lake: Path, subject: str, url: str | None) -> Iterator[int]:
    """Yield the id of the process of a subject, which reads ``source`` and writes ``sink``."""
    if subject == "linger":
        where = ["--master", "local[2]"] if url is None else ["--remote", url]
        words = [
            "-m", "airflow_provider_fds.cli.main", "run", str(lake / "source"), "--sink", str(lake / "sink"),
            "--staging", str(lake / "staging"), "--stream", "bench", "--linger", "1h", *where,
        ]  # fmt: skip
    else:
        interval = f"{subject.rpartition('_')[2]} seconds"
        words = ["-m", "tests.bench.lingering", str(lake), interval, url or ""]
    with _process(lake, words, subject) as root:
        yield root


@contextmanager
def _process(lake: Path, words: list[str], subject: str) -> Iterator[int]:
    """Yield the id of a process of Python, and end it."""
    with (lake / "subject.log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, *words], stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        yield process.pid
    except RuntimeError as error:
        raise RuntimeError(f"{subject}: {error}\n{(lake / 'subject.log').read_text()[-3000:]}") from None
    finally:
        process.terminate()
        try:
            process.wait(60)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def query(lake: Path, interval: str, url: str) -> None:
    """Run a query from ``source`` to ``sink`` until it is stopped."""
    from pyspark.sql import SparkSession

    from tests.bench.reading import _session

    spark: Any = SparkSession.builder.remote(url).getOrCreate() if url else _session(lake)
    frame = spark.readStream.format("delta").load(str(lake / "source"))
    writer = frame.writeStream.format("delta").option("checkpointLocation", str(lake / "checkpoint"))
    writer.trigger(processingTime=interval).start(str(lake / "sink")).awaitTermination()


def _tree(roots: list[int]) -> list[int]:
    """Return the processes below these, and themselves."""
    parents: dict[int, list[int]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            parents.setdefault(parent, []).append(int(folder.name))
    found, left = [], list(roots)
    while left:
        found.append(left.pop())
        left += parents.get(found[-1], [])
    return found


def _cpu(roots: list[int]) -> float:
    """Return the CPU seconds of processes and of those below them, also of ended ones."""
    ticks = 0
    for pid in _tree(roots):
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        # user and system time, of itself and of children that it has waited for
        ticks += sum(int(field) for field in fields[11:15])
    return ticks / _TICK


def _own_cpu(pid: int) -> float:
    """Return the CPU seconds of a process without those below it."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICK


def _java(root: int) -> int:
    """Return the process of the JVM below this one."""
    (found,) = (pid for pid in _tree([root]) if Path(f"/proc/{pid}/comm").read_text().strip() == "java")
    return found


def _resident(root: int) -> dict[str, float]:
    found = {"task": 0.0, "driver": 0.0}
    for pid in _tree([root]):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                found["task" if pid == root else "driver"] += int(line.split()[1]) / 1000
    return found


if __name__ == "__main__":
    query(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
