"""Waiting for drivers that clusters run: what a triggerer spends on tasks that have deferred."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from tests.bench.loopback_store import connect
from tests.bench.polling import first_event, made_requests, resident_kb


def wait(port: int, drivers: int, poll_interval: float, look_seconds: float) -> dict[str, Any]:
    """Wait for ``drivers`` drivers of a standalone cluster that report nothing, as a triggerer does.

    Args:
        port: Of the store that has staging, which answers as the cluster's master, too.
        drivers: Their number, each of another stream.
        poll_interval: Seconds between two polls of staging for a driver.
        look_seconds: Seconds between two questions to the master about a driver.

    Returns:
        Share of a core during ``look_seconds``; polls of a driver per ``poll_interval``, questions about it per
        ``look_seconds``, and other requests meanwhile; memory of all, in MB; and tasks of the event loop per driver.
    """
    connect(port)
    return asyncio.run(_wait(port, drivers, poll_interval, look_seconds))


async def _wait(port: int, drivers: int, poll_interval: float, look_seconds: float) -> dict[str, Any]:
    from airflow_provider_fds.triggers.driver_reports import DriverReportsTrigger

    def trigger(number: int) -> DriverReportsTrigger:
        return DriverReportsTrigger(
            reports=f"s{number}/reports",
            epoch=1,
            batch_ids=[0, 1, 2],
            attempt_id=f"attempt-{number}",
            staging="s3://bench/staging",
            storage_conn_id="bench",
            cluster={"kind": "standalone", "master": "spark://127.0.0.1:7077", "rest_port": port},
            address=f"http://127.0.0.1:{port}",
            driver=f"driver-{number}",
            poll_interval=poll_interval,
            look_seconds=look_seconds,
            resume={"began": 1735718400.0, "own_attempt": f"attempt-{number}"},
        )

    # what the first poll and the first question import belongs to the process
    early = trigger(0)
    early.look_seconds = early.poll_interval = 0.5
    await first_event(early, 3.0)
    before_kb = resident_kb()
    waiting = [asyncio.create_task(first_event(trigger(number), None)) for number in range(drivers)]
    # all of them have polled and asked, and ask at other times than one another
    await asyncio.sleep(look_seconds * 1.5)
    made, cpu, began = made_requests(port), time.process_time(), time.perf_counter()
    await asyncio.sleep(look_seconds)
    after, used, seconds = made_requests(port), time.process_time() - cpu, time.perf_counter() - began
    tasks, memory_kb = len(asyncio.all_tasks()), resident_kb()
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    polls, looks = (after[method] - made.get(method, 0) for method in ("HEAD", "GET"))
    return {
        "core": used / seconds,
        "polls_per_interval": polls / drivers / seconds * poll_interval,
        "others": sum(after.values()) - sum(made.values()) - polls - looks,
        "memory_mb": (memory_kb - before_kb) * 1024 / 1e6,
        "tasks_per_driver": (tasks - 1) / drivers,
        "looks_per_driver": looks / drivers,
    }
