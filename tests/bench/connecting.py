"""Batches on a warm Spark Connect server: the duration of one, and the memory that the server keeps after many."""

from __future__ import annotations

import re
import statistics
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.bench.measure import heap_mb

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.interop.connect_server import RunningServer


#: How many tables Delta keeps on the server: the default, and a bound that few batches reach.
TABLES_KEPT = "spark.databricks.delta.delta.log.cacheSize"
BY_ITSELF, BOUNDED = "10000", "20"


def trivial_batches(rounds: int, warm_up: int) -> dict[str, Any]:
    """Load one new commit of 1,000 rows at a time, each from plan to committed offset, after ``warm_up`` unmeasured
    ones.

    Alternates with Structured Streaming's ``AvailableNow`` on the same server, from the same source into its own sink.
    Returns the medians, and the seconds of the server's first batch. ``asked`` is the time of the questions that a
    server is asked once; it is a part of that first batch.
    """
    seconds: dict[str, list[float]] = {"ours": [], "theirs": [], "asked": []}
    with _server() as (folder, server):
        for number in range(warm_up + rounds):
            _commit(folder)
            for kind, load in (("ours", _load), ("theirs", _stream)):
                start = time.perf_counter()
                load(folder, server.url, f"run-{number}")
                seconds[kind].append(time.perf_counter() - start)
            seconds["asked"].append(_ask(folder / f"asked-{number}", server.url))
        _check(folder / "sink", warm_up + rounds)
        _check(folder / "sink_of_streaming", warm_up + rounds)
    ours, theirs = seconds["ours"][warm_up:], seconds["theirs"][warm_up:]
    return {
        "ours": statistics.median(ours),
        "theirs": statistics.median(theirs),
        "ratio": statistics.median(a / b for a, b in zip(ours, theirs, strict=True)),
        "first": seconds["ours"][0],
        "asked": statistics.median(seconds["asked"][warm_up:]),
    }


def memory(points: list[int], *, bounded: bool) -> dict[str, dict[str, float]]:
    """Return MB of the server's heap after a collection, and of its memory, after each number of batches.

    Args:
        points: Numbers of batches.
        bounded: Whether the server has the settings that bound its caches.
    """
    found = {}
    with _server(**{TABLES_KEPT: BOUNDED if bounded else BY_ITSELF}) as (folder, server):
        for number in range(1, max(points) + 1):
            _commit(folder)
            _load(folder, server.url, f"run-{number}")
            if number in points:
                found[str(number)] = _memory(server.pid)
        _check(folder / "sink", max(points))
    return found


@contextmanager
def _server(**conf: str) -> Iterator[tuple[Path, RunningServer]]:
    from tests.interop.connect_server import running_server

    with tempfile.TemporaryDirectory() as name:
        # like a long-running server: all tiers of the compiler, the default collector
        options = {"spark.driver.extraJavaOptions": f"-Dderby.system.home={name}"}
        with running_server(Path(name), **options, **conf) as server:
            yield Path(name), server


def _commit(folder: Path) -> None:
    import pyarrow as pa
    from deltalake import write_deltalake

    rows = pa.table({"id": list(range(1000)), "v": [str(i) for i in range(1000)]})
    write_deltalake(f"{folder}/source", rows, mode="append")


def _check(sink: Path, commits: int) -> None:
    from deltalake import DeltaTable

    assert DeltaTable(sink).to_pyarrow_table().num_rows == commits * 1000


def _stream(folder: Path, url: str, _: str) -> None:
    """Do what a handwritten task does: open a session, run the query to its end."""
    from pyspark.sql.connect.session import SparkSession

    spark = SparkSession.builder.remote(url).create()
    try:
        query = (
            spark.readStream.format("delta")
            .option("startingVersion", 0)
            .load(f"{folder}/source")
            .writeStream.format("delta")
            .option("checkpointLocation", f"{folder}/checkpoint")
            .trigger(availableNow=True)
            .start(f"{folder}/sink_of_streaming")
        )
        query.awaitTermination()
    finally:
        spark.stop()


def _load(folder: Path, url: str, run_id: str) -> None:
    """Do what a task does: open the stream, plan, load on the server, commit."""
    from airflow_provider_fds.backends.base import Application, UserArguments
    from airflow_provider_fds.backends.spark_connect import ConnectBackend
    from airflow_provider_fds.checkpoint.file import FileCheckpointStore
    from airflow_provider_fds.ledger.owner import Actor, Owner
    from airflow_provider_fds.sinks import DeltaAppendSink
    from airflow_provider_fds.stream import DeltaStream, StreamContext, StreamSession

    sink = DeltaAppendSink(f"{folder}/sink")
    session = StreamSession(
        DeltaStream("bench", table=f"{folder}/source", starting_version=0),
        StreamContext(
            staging_uri=f"{folder}/staging",
            deployment="bench",
            actor=Actor(deployment="bench", user="bench", host="bench"),
            owner=Owner(kind="cli", deployment="bench", run_id=run_id),
            owner_is_running=lambda _owner: False,
            checkpoints=FileCheckpointStore(folder / "checkpoint.json"),
        ),
    )
    work = session.begin(sink)
    assert work.status == "work"
    backend = ConnectBackend.from_url(url, UserArguments(), lambda _: None)
    backend.run(Application(session, sink, work, session.job(work, sink)))
    assert session.collect(work).failure is None


def _ask(staging: Path, url: str) -> float:
    """Ask a server what it is asked before the first batch with this staging folder; return the seconds."""
    from airflow_provider_fds.spark.sessions import semantics
    from airflow_provider_fds.spark.sessions.connect_server import ConnectServer

    server = ConnectServer(url, "bench")
    with server.session("bench", {}) as spark:
        semantics._FIT.clear()
        start = time.perf_counter()
        semantics.check_semantics(server, spark, {}, f"{staging.as_uri()}/bench/jobs/1", lambda _: None)
        seconds = time.perf_counter() - start
    assert list((staging / semantics.FOLDER).glob("*.json"))
    return seconds


def _memory(pid: int) -> dict[str, float]:
    """Return MB of the server's heap in use after a full collection, and of its memory."""
    heap = heap_mb(pid)
    (resident,) = re.findall(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    return {"heap": heap, "server": int(resident) / 1000}
