"""Batches on a warm Spark Connect server: how long one takes, and what the server keeps of many."""

from __future__ import annotations

import re
import statistics
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any


def trivial_batches(rounds: int, checkpoints: list[int]) -> dict[str, Any]:
    """Load one new commit of 1,000 rows at a time into one sink, each from plan to committed offset.

    Returns the median of ``rounds`` batches after three unmeasured ones, and the server's heap after a collection, its
    resident memory and this process's at each number of batches in ``checkpoints``.
    """
    import pyarrow as pa
    from deltalake import DeltaTable, write_deltalake

    from tests.interop.connect_server import running_server

    rows = pa.table({"id": list(range(1000)), "v": [str(i) for i in range(1000)]})
    seconds: list[float] = []
    memory: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        # as a server is that lives long: all tiers of the compiler, the default collector
        with running_server(folder, **{"spark.driver.extraJavaOptions": f"-Dderby.system.home={folder}"}) as server:
            for number in range(1, max(rounds + 3, *checkpoints) + 1):
                write_deltalake(f"{folder}/source", rows, mode="append")
                start = time.perf_counter()
                _load(folder, server.url, f"run-{number}")
                seconds.append(time.perf_counter() - start)
                if number in checkpoints:
                    memory[str(number)] = _memory(server.pid)
        assert pa.table(DeltaTable(f"{folder}/sink").to_pyarrow_table()).num_rows == number * rows.num_rows
    return {"batch": statistics.median(seconds[3 : rounds + 3]), "first": seconds[0], "memory": memory}


def _load(folder: Path, url: str, run_id: str) -> None:
    """Do what a task does: open the stream, plan, load on the server, commit."""
    from airflow_provider_fds.checkpoint.file import FileCheckpointStore
    from airflow_provider_fds.ledger.entries import Actor, Owner
    from airflow_provider_fds.operators.spark_connect import work_off
    from airflow_provider_fds.sinks import DeltaTableSink
    from airflow_provider_fds.spark.connect import ConnectJob, ConnectServer
    from airflow_provider_fds.stream import DeltaStream, StreamSession, Surroundings
    from airflow_provider_fds.stream.driver_files import driver_files

    sink = DeltaTableSink(f"{folder}/sink")
    session = StreamSession(
        DeltaStream("bench", table=f"{folder}/source", starting_version=0),
        Surroundings(
            staging_uri=f"{folder}/staging",
            deployment="bench",
            actor=Actor(deployment="bench", user="bench", host="bench"),
            owner=Owner(kind="cli", deployment="bench", run_id=run_id),
            checkpoints=FileCheckpointStore(folder / "checkpoint.json"),
        ),
    )
    work = session.begin(sink)
    assert work.status == "work"
    job = ConnectJob(
        ConnectServer(url, "the server of the benchmark"),
        session.job(work, sink),
        files=driver_files(session.connected, sink),
        conf={},
        tell=lambda _: None,
    )
    work_off(job, session, work)
    assert session.collect(work).failure is None


def _memory(pid: int) -> dict[str, float]:
    """Return MB of the server's heap in use after a full collection, and of its and this process's memory."""
    subprocess.run(["jcmd", str(pid), "GC.run"], check=True, capture_output=True)
    said = subprocess.run(["jcmd", str(pid), "GC.heap_info"], check=True, capture_output=True, text=True).stdout
    used = sum(int(kib) for kib in re.findall(r"(?:heap|generation|Heap)\s+total \d+K, used (\d+)K", said))
    return {"heap": used / 1000, "server": _resident(pid), "client": _resident("self")}


def _resident(pid: int | str) -> float:
    (kib,) = re.findall(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    return int(kib) / 1000
