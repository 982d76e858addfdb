"""``airflow backfill create``, with a scheduler, on PostgreSQL: each day lands once, and the offset stays alone."""

from __future__ import annotations

import os
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from airflow_stack import AirflowStack
from deltalake import DeltaTable, write_deltalake

from airflow_provider_fds import DeltaStream
from tests.postgresql import missing, postgresql

_MISSING = missing("psycopg2", "asyncpg")

pytestmark = [pytest.mark.timeout(900), pytest.mark.skipif(_MISSING is not None, reason=str(_MISSING))]


@pytest.fixture
def days(tmp_path):
    """A table with one commit in the morning and one at noon of each of three days."""
    table = tmp_path / "lake" / "orders"
    for version in range(6):
        write_deltalake(table, pa.table({"id": [version]}), mode="append")
        at = datetime(2026, 1, 1 + version // 2, 12 * (version % 2), tzinfo=UTC).timestamp()
        os.utime(table / "_delta_log" / f"{version:020d}.json", (at, at))
    return tmp_path / "lake"


def ids(table: Path) -> list[int]:
    return sorted(DeltaTable(table).to_pyarrow_table()["id"].to_pylist())


def test_a_backfill_of_airflow_loads_each_day_once_and_leaves_the_offset_alone(tmp_path, days):
    env = {
        "AIRFLOW_CONN_SPARK_DEFAULT": '{"conn_type": "spark", "host": "local[1]"}',
        "AIRFLOW__FDS__STAGING": str(days / "staging"),
        "FDS_TEST_LAKE": str(days),
    }
    dags = Path(__file__).with_name("dags_on_postgresql")
    with postgresql() as url:
        env["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"] = url
        with AirflowStack(tmp_path / "airflow", dags, env=env) as stack:
            stack.wait(lambda: stack.client.has_dag("days"), 120, "DAG days was not found")
            command = ["airflow", "backfill", "create", "--dag-id", "days", "--max-active-runs", "1"]
            # the intervals that begin on these days, both inclusive
            span = ["--from-date", "2026-01-01", "--to-date", "2026-01-02"]
            done = subprocess.run([*command, *span], env=stack.env, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stdout + done.stderr
            stack.client.unpause("days")

            def runs() -> list[str]:
                found = stack.client.runs("days")
                return [run["dag_run_id"] for run in found if run["run_type"] == "backfill"]

            def are_over() -> bool:
                return bool(runs()) and all(
                    stack.client.run_state("days", run) in ("failed", "success") for run in runs()
                )

            stack.wait(are_over, 400, "the backfill did not end")
            states = [{name: task["state"] for name, task in stack.client.tasks("days", run).items()} for run in runs()]
    assert states == [{"replaced": "success", "appended": "success", "refused": "failed"}] * 2
    # the first two days, each whole, and nothing of the third
    assert ids(days / "replaced") == [0, 1, 2, 3]
    assert ids(days / "appended") == [0, 1, 2, 3]
    assert not (days / "refused").exists()
    # each day has a position of its own; the scheduled run of yesterday may have begun one too
    stream = DeltaStream("orders", table=str(days / "orders"))
    for day in ("2026-01-01", "2026-01-02"):
        assert (days / "staging" / stream.backfill(start=day, end=f"{day}T23:59:59.999").name).is_dir()
    assert not (days / "staging" / "orders").exists()
