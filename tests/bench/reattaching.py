"""A task that is killed beside its driver in a cluster: what a retry gains that finds the driver again."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from tests.standalone_cluster import SMALL, Running, running

if TYPE_CHECKING:
    from collections.abc import Callable

#: Takes some milliseconds for each row, and is true for all of them.
_SLOW = "sha2(repeat(text, 1000000), 512) IS NOT NULL"


def kill_at_half(rounds: int, rows: int) -> dict[str, Any]:
    """Kill `fds run` in the middle of a batch, and run it again, with the driver that works on, and without.

    Args:
        rounds: How often.
        rows: Rows of the batch, each of which takes the driver some milliseconds.

    Returns:
        Medians: seconds of a run without a kill, and from the kill to the end of the next run, ``attached`` and
        ``anew``; and the ratio of these two.
    """
    found: dict[str, list[float]] = {"whole": [], "attached": [], "anew": []}
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        table = pa.table({"id": range(rows), "text": ["x"] * rows})
        write_deltalake(root / "source", table)
        (root / "cluster").mkdir()
        with running(root / "cluster", workers=2, cores=2) as cluster:
            for number in range(rounds):
                whole = _run(cluster, root, f"whole{number}")
                began = time.perf_counter()
                _end(whole)
                seconds = time.perf_counter() - began
                found["whole"].append(seconds)
                for name, stop in (("attached", _leave), ("anew", _stop)):
                    stream = f"{name}{number}"
                    found[name].append(_after_kill(cluster, root, stream, seconds / 2, stop))
                    assert DeltaTable(root / stream).to_pyarrow_table().num_rows == rows
    medians = {name: statistics.median(values) for name, values in found.items()}
    ratios = [attached / anew for attached, anew in zip(found["attached"], found["anew"], strict=True)]
    return {**medians, "ratio": statistics.median(ratios)}


def _after_kill(
    cluster: Running, root: Path, stream: str, seconds: float, stop: Callable[[Running, str], None]
) -> float:
    """Return the seconds from the kill of a run, ``seconds`` after its start, to the end of the next run."""
    before = _drivers(cluster)
    killed = _run(cluster, root, stream)
    time.sleep(seconds)
    killed.kill()
    killed.communicate()
    began = time.perf_counter()
    (driver,) = _drivers(cluster) - before
    stop(cluster, driver)
    _end(_run(cluster, root, stream))
    taken = time.perf_counter() - began
    assert len(_drivers(cluster) - before) == (1 if stop is _leave else 2)
    return taken


def _run(cluster: Running, root: Path, stream: str) -> subprocess.Popen[str]:
    conf = {**SMALL, "spark.cores.max": "1", "spark.driver.memory": "600m", "spark.driver.host": "127.0.0.1"}
    conf |= {"spark.pyspark.python": sys.executable, "spark.master.rest.port": str(cluster.rest_port)}
    words = [word for name, value in conf.items() for word in ("--conf", f"{name}={value}")]
    return subprocess.Popen(
        [
            *(str(Path(sys.executable).with_name("fds")), "run", str(root / "source"), "--stream", stream),
            *("--sink", str(root / stream), "--sink-option", f"where={_SLOW}", "--staging", str(root / "staging")),
            *("--checkpoint", str(root / f"{stream}.json"), "--master", cluster.master, "--deploy-mode", "cluster"),
            *words,
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def _end(run: subprocess.Popen[str]) -> None:
    said, _ = run.communicate()
    assert run.returncode == 0, said[-3000:]


def _drivers(cluster: Running) -> set[str]:
    return {folder.name for folder in cluster.work.glob("driver-*")}


def _leave(_cluster: Running, _driver: str) -> None:
    """Let the driver work on."""


def _stop(cluster: Running, driver: str) -> None:
    """Stop the driver, as if it had died with the run."""
    url = f"http://127.0.0.1:{cluster.rest_port}/v1/submissions/kill/{driver}"
    with urllib.request.urlopen(urllib.request.Request(url, method="POST")) as answer:
        assert json.load(answer)["success"]
