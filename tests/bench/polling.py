"""Polling many tables in one process."""

from __future__ import annotations

import ast
import asyncio
import time
import urllib.request
from typing import Any


def poll(port: int, tables: int, commits: int, sweeps: int, at_once: int) -> dict[str, Any]:
    """Poll ``tables`` unchanged tables ``sweeps`` times, ``at_once`` at a time, as the trigger does."""
    return asyncio.run(_poll(port, tables, commits, sweeps, at_once))


async def _poll(port: int, tables: int, commits: int, sweeps: int, at_once: int) -> dict[str, Any]:
    from airflow_provider_fds.delta.storage.open import open_storage
    from airflow_provider_fds.source.offset import Offset
    from airflow_provider_fds.stream import DeltaStream, TablePoller

    options = {
        "endpoint": f"http://127.0.0.1:{port}",
        "access_key_id": "a",
        "secret_access_key": "b",
        "region": "us-east-1",
        "allow_http": True,
    }
    watches = []
    for number in range(tables):
        stream = DeltaStream(f"t{number}", f"s3://bench/t{number}", starting_version=0)
        storage = open_storage(stream.table, options)
        watches.append(TablePoller(stream, storage, Offset("id", commits)))
    slots = asyncio.Semaphore(at_once)

    async def look(watch: TablePoller) -> None:
        async with slots:
            assert await watch.poll() is None

    await asyncio.gather(*map(look, watches))  # connections
    before = _requests(port)
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
    after = _requests(port)
    made = {key: after[key] - before.get(key, 0) for key in after if after[key] != before.get(key, 0)}
    polls = tables * sweeps
    return {
        "seconds": seconds,
        "tables_per_second": polls / seconds,
        "loop_blocked_ms": longest * 1000,
        "requests": made,
        "polls": polls,
    }


def _requests(port: int) -> dict[str, int]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/_requests") as answer:
        found: dict[str, int] = ast.literal_eval(answer.read().decode())
        return found
