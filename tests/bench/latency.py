"""From a commit in the source to its rows in the sink, through a real Airflow and a warm Spark Connect server."""

from __future__ import annotations

import random
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

# its pieces are scripts, not a package
sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))

import pyarrow as pa
from airflow_stack import AirflowStack
from deltalake import write_deltalake

from tests.interop.connect_server import running_server

#: The DAGs of dags/latency.py, and the waiting task of each.
WAITS_IN = {"sensor": "wait", "waiting": "ingest"}


def through_airflow(rounds: int, warm_up: int) -> dict[str, float]:
    """Commit 1,000 rows repeatedly, alternately to the source of each DAG once it waits, after a warm-up.

    Returns the median of the seconds until the sink has the commit, for each DAG.
    """
    rows = pa.table({"id": list(range(1000)), "v": [str(i) for i in range(1000)]})
    seconds: dict[str, list[float]] = {name: [] for name in WAITS_IN}
    with tempfile.TemporaryDirectory() as name:
        lake = Path(name)
        for dag in WAITS_IN:
            write_deltalake(lake / dag, rows)
        options = {"spark.driver.extraJavaOptions": f"-Dderby.system.home={lake}"}
        with running_server(lake, **options) as server:
            env = {
                "AIRFLOW_CONN_SPARK_CONNECT": f'{{"conn_type": "spark_connect", "host": "sc://127.0.0.1:{server.port}"}}',
                "AIRFLOW__FDS__STAGING": str(lake / "staging"),
                "FDS_BENCH_LAKE": str(lake),
            }
            with AirflowStack(lake / "airflow", Path(__file__).with_name("dags"), env=env) as stack:
                for number in range(1, warm_up + rounds + 1):
                    for dag in WAITS_IN:
                        took = _one_commit(stack, lake, dag, number, rows)
                        if number > warm_up:
                            seconds[dag].append(took)
    return {dag: statistics.median(found) for dag, found in seconds.items()}


def _one_commit(stack: AirflowStack, lake: Path, dag: str, number: int, rows: pa.Table) -> float:
    sink = lake / f"{dag}_sink" / "_delta_log"
    stack.wait(
        lambda: (sink / f"{number - 1:020}.json").exists() and _is_waiting(stack, dag), 300, f"{dag} is not idle"
    )
    # at a random time between two polls
    time.sleep(random.random())
    write_deltalake(lake / dag, rows, mode="append")
    start = time.perf_counter()
    while not (sink / f"{number:020}.json").exists():
        if time.perf_counter() - start > 300:
            raise RuntimeError(f"commit {number} of DAG {dag} did not arrive within 300 s")
        time.sleep(0.02)
    return time.perf_counter() - start


def _is_waiting(stack: AirflowStack, dag: str) -> bool:
    runs: list[dict[str, Any]] = [run for run in stack.client.runs(dag) if run["state"] == "running"]
    return any(stack.client.tasks(dag, run["dag_run_id"])[WAITS_IN[dag]]["state"] == "deferred" for run in runs)
