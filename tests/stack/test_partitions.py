"""Partitioned runs in the real processes: each reads its own day, and a consumer runs for exactly these days."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

import airflow.sdk
import pyarrow as pa
import pytest
from airflow_stack import AirflowStack
from deltalake import DeltaTable, write_deltalake

pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.skipif(not hasattr(airflow.sdk, "CronPartitionTimetable"), reason="this Airflow has no partitions"),
]


def test_partitioned_runs_read_their_days_and_start_the_consumer_for_these(tmp_path):
    lake = tmp_path / "lake"
    for version, day in enumerate((1, 1, 2, 3)):
        write_deltalake(lake / "orders", pa.table({"id": [version]}), mode="append")
        at = datetime(2026, 1, day, 12, tzinfo=UTC).timestamp() + version
        os.utime(lake / "orders" / "_delta_log" / f"{version:020d}.json", (at, at))
    env = {
        "AIRFLOW_CONN_SPARK_DEFAULT": '{"conn_type": "spark", "host": "local[1]"}',
        "AIRFLOW__FDS__STAGING": str(lake / "staging"),
        "FDS_TEST_LAKE": str(lake),
    }
    with AirflowStack(tmp_path / "airflow", Path(__file__).with_name("dags_partitioned"), env=env) as stack:
        known = ("by_partition", "consumer")
        stack.wait(lambda: all(map(stack.client.has_dag, known)), 120, "the DAGs were not found")
        for day in (2, 1):
            body = {"logical_date": None, "partition_key": f"2026-01-0{day}"}
            stack.client.call("POST", "/api/v2/dags/by_partition/dagRuns", body=body)

        def states(dag: str) -> list[str]:
            # the scheduler also starts the run of yesterday, which has no commits
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
