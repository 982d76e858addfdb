"""Polling many tables in one process."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import time
import urllib.request
from pathlib import Path
from typing import Any

from tests.bench.loopback_store import connect, options


def poll(port: int, tables: int, commits: int, sweeps: int, at_once: int) -> dict[str, Any]:
    """Poll ``tables`` unchanged tables ``sweeps`` times, ``at_once`` at a time, as the trigger does."""
    return asyncio.run(_poll(port, tables, commits, sweeps, at_once))


async def _poll(port: int, tables: int, commits: int, sweeps: int, at_once: int) -> dict[str, Any]:
    from airflow_provider_fds.delta.storage.open import open_storage
    from airflow_provider_fds.source.offset import Offset
    from airflow_provider_fds.stream import DeltaStream, TablePoller

    watches = []
    for number in range(tables):
        stream = DeltaStream(f"t{number}", f"s3://bench/t{number}", starting_version=0)
        storage = open_storage(stream.table, options(port))
        watches.append(TablePoller(stream, storage, Offset("id", commits)))
    slots = asyncio.Semaphore(at_once)

    async def look(watch: TablePoller) -> None:
        async with slots:
            assert await watch.poll() is None

    await asyncio.gather(*map(look, watches))  # connections
    before = made_requests(port)
    longest = 0.0
    stop = False

    async def watch_the_loop() -> None:
        nonlocal longest
        while not stop:
            start = time.perf_counter()
            await asyncio.sleep(0.001)
            longest = max(longest, time.perf_counter() - start - 0.001)

    ticking = asyncio.create_task(watch_the_loop())
    start = time.perf_counter()
    for _ in range(sweeps):
        await asyncio.gather(*map(look, watches))
    seconds = time.perf_counter() - start
    stop = True
    await ticking
    after = made_requests(port)
    made = {key: after[key] - before.get(key, 0) for key in after if after[key] != before.get(key, 0)}
    polls = tables * sweeps
    return {
        "seconds": seconds,
        "tables_per_second": polls / seconds,
        "loop_blocked_ms": longest * 1000,
        "requests": made,
        "polls": polls,
    }


def watch(port: int, tables: int, poll_interval: float, intervals: float) -> dict[str, Any]:
    """Watch ``tables`` unchanged tables as a triggerer does, each by one watcher, ``poll_interval`` seconds apart.

    Returns:
        CPU seconds and seconds of the first polls; CPU seconds and requests of a poll of each table afterwards, from
        ``intervals`` intervals; resident memory of a table, in kB; and tasks of the event loop.
    """
    connect(port)
    return asyncio.run(_watch(port, tables, poll_interval, intervals))


async def _watch(port: int, tables: int, poll_interval: float, intervals: float) -> dict[str, Any]:
    from airflow_provider_fds.triggers.delta_table_change import DeltaTableChangeTrigger

    triggers = [
        DeltaTableChangeTrigger(table=f"s3://bench/t{number}", storage_conn_id="bench", poll_interval=poll_interval)
        for number in range(tables)
    ]
    # what the first poll imports belongs to the process
    await first_event(DeltaTableChangeTrigger(table="s3://bench/t0", storage_conn_id="bench"), 3.0)
    before_kb, cpu, began = resident_kb(), time.process_time(), time.perf_counter()
    listed = made_requests(port).get("LIST", 0)
    watching = [asyncio.create_task(first_event(trigger, None)) for trigger in triggers]
    while made_requests(port).get("LIST", 0) - listed < tables:  # noqa: ASYNC110  # the server does not tell
        await asyncio.sleep(0.25)
    await asyncio.sleep(1)
    first_cpu, first_seconds = time.process_time() - cpu, time.perf_counter() - began - 1
    made, cpu = made_requests(port), time.process_time()
    await asyncio.sleep(poll_interval * intervals)
    after, used = made_requests(port), time.process_time() - cpu
    tasks, after_kb = len(asyncio.all_tasks()), resident_kb()
    for task in watching:
        task.cancel()
    await asyncio.gather(*watching, return_exceptions=True)
    polls = after["HEAD"] - made.get("HEAD", 0)
    return {
        "first_cpu": first_cpu,
        "first_seconds": first_seconds,
        "polls": polls,
        "cpu_of_a_round": used / polls * tables,
        "others": sum(after.values()) - sum(made.values()) - polls,
        "kb_per_table": (after_kb - before_kb) / tables,
        "tasks_per_table": (tasks - 1) / tables,
    }


async def first_event(trigger: Any, seconds: float | None) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            async for _ in trigger.run():
                return


def resident_kb() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))


def made_requests(port: int) -> dict[str, int]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/_requests") as answer:
        found: dict[str, int] = ast.literal_eval(answer.read().decode())
        return found
