"""Partitioned runs in the real processes: each reads its own day, and a consumer runs for exactly these days."""

from __future__ import annotations

import os
from datetime import UTC, datetime

import airflow.sdk
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.skipif(not hasattr(airflow.sdk, "CronPartitionTimetable"), reason="this Airflow has no partitions"),
]


def test_partitioned_runs_read_their_days_and_start_the_consumer_for_these(stack, lake):
    for version, day in enumerate((1, 1, 2, 3)):
        write_deltalake(lake / "orders", pa.table({"id": [version]}), mode="append")
        at = datetime(2026, 1, day, 12, tzinfo=UTC).timestamp() + version
        os.utime(lake / "orders" / "_delta_log" / f"{version:020d}.json", (at, at))
    known = ("by_partition", "consumer")
    stack.wait(lambda: all(map(stack.client.has_dag, known)), 120, "the DAGs were not found")
    for dag in known:
        stack.client.unpause(dag)
    # the scheduler starts the run of yesterday; a request at that moment waits long for SQLite
    stack.wait(lambda: stack.client.runs("by_partition"), 120, "the scheduler did not start the run of yesterday")
    for day in (2, 1):
        body = {"logical_date": None, "partition_key": f"2026-01-0{day}"}
        stack.client.call("POST", "/api/v2/dags/by_partition/dagRuns", body=body)

    def states(dag: str) -> list[str]:
        # yesterday has no commits
        runs = [run["dag_run_id"] for run in stack.client.runs(dag) if run["run_type"] != "scheduled"]
        return [stack.client.run_state(dag, run) for run in runs]

    def are_over(dag: str) -> bool:
        found = states(dag)
        return len(found) == 2 and all(state in ("success", "failed") for state in found)

    stack.wait(lambda: are_over("by_partition"), 300, "the partitioned runs did not end")
    assert states("by_partition") == ["success", "success"]
    stack.wait(lambda: are_over("consumer"), 120, "the consumer did not run for two days")
    assert states("consumer") == ["success", "success"]
    runs = [run["dag_run_id"] for run in stack.client.runs("consumer")]
    assert sorted(stack.client.xcom("consumer", run, "day") for run in runs) == ["2026-01-01", "2026-01-02"]
    assert sorted(DeltaTable(lake / "days").to_pyarrow_table()["id"].to_pylist()) == [0, 1, 2]
