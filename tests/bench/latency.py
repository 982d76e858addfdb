"""From a commit in the source to its rows in the sink, through a real Airflow and a warm Spark Connect server."""

from __future__ import annotations

import json
import random
import statistics
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path
from typing import Any

# its pieces are scripts, not a package
sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))

import pyarrow as pa
from airflow_stack import AirflowStack
from deltalake import write_deltalake

from tests.interop.connect_server import running_server

#: The DAGs of dags/latency.py, and the waiting task of each.
WAITS_IN = {"sensor": "wait", "waiting": "ingest", "nothing": "wait"}

#: Lines of a task's log -> what ends there, in their order.
PHASES = {"::group::Pre Execute": "started", "The trigger saw": "resumed", "Loading": "planned"}


def through_airflow(rounds: int, warm_up: int, *, preload: bool = False) -> dict[str, Any]:
    """Commit 1,000 rows repeatedly, alternately to the source of each DAG once it waits, after a warm-up.

    Args:
        rounds: How often.
        warm_up: How often before that, which does not count.
        preload: Whether the scheduler imports at its start what tasks need.

    Returns, for each DAG, the median of the seconds until the sink has the commit; for the DAG "nothing", until its
    task has been resumed. ``phases`` has the parts of that of the DAG "waiting", in the order in which they follow:
    until the trigger has ``noticed`` the commit, the process has ``started``, Airflow has ``resumed`` the operator, the
    batch is ``planned``, and Spark has ``loaded`` it.
    """
    rows = pa.table({"id": list(range(1000)), "v": [str(i) for i in range(1000)]})
    found: dict[str, list[dict[str, float]]] = {name: [] for name in WAITS_IN}
    with tempfile.TemporaryDirectory() as name:
        lake = Path(name)
        (lake / "nothing").mkdir()
        (lake / "nothing_sink").mkdir()
        for dag in ("sensor", "waiting"):
            write_deltalake(lake / dag, rows)
        options = {"spark.driver.extraJavaOptions": f"-Dderby.system.home={lake}"}
        with running_server(lake, **options) as server:
            env = {
                "AIRFLOW_CONN_SPARK_CONNECT": f'{{"conn_type": "spark_connect", "host": "sc://127.0.0.1:{server.port}"}}',
                "AIRFLOW__FDS__STAGING": str(lake / "staging"),
                "AIRFLOW__FDS__PRELOAD": str(preload),
                "FDS_BENCH_LAKE": str(lake),
                "PYTHONPATH": str(Path(__file__).parents[2]),
            }
            with AirflowStack(lake / "airflow", Path(__file__).with_name("dags"), env=env) as stack:
                for number in range(1, warm_up + rounds + 1):
                    for dag in WAITS_IN:
                        took = _one_commit(stack, lake, dag, number, rows)
                        if number > warm_up:
                            found[dag].append(took)
    medians = {
        dag: {phase: statistics.median(took[phase] for took in each) for phase in each[0]}
        for dag, each in found.items()
    }
    return {**{dag: each.pop("all") for dag, each in medians.items()}, "phases": medians["waiting"]}


def _one_commit(stack: AirflowStack, lake: Path, dag: str, number: int, rows: pa.Table) -> dict[str, float]:
    sink = lake / f"{dag}_sink"
    arrived, before = (
        sink / str(count) if dag == "nothing" else sink / "_delta_log" / f"{count:020}.json"
        for count in (number, number - 1)
    )
    run = stack.wait(
        lambda: (number == 1 or before.exists()) and _waiting_run(stack, dag), 300, f"DAG {dag} does not wait"
    )
    # at a random time between two polls, and not before the scheduler has read how the first part of the task ended:
    # Airflow 3.3 takes a task for failed whose trigger fires earlier
    time.sleep(1.5 + random.random())
    if dag == "nothing":
        (lake / dag / str(number)).touch()
    else:
        write_deltalake(lake / dag, rows, mode="append")
    start = time.time()
    while not arrived.exists():
        if time.time() - start > 300:
            raise RuntimeError(f"commit {number} of DAG {dag} did not arrive within 300 s")
        time.sleep(0.02)
    end = time.time()
    log = stack.task_log(dag, run, WAITS_IN[dag], 1)
    return {"all": end - start, **(_phases(log, start, end) if dag == "waiting" else {})}


def _phases(log: Path, start: float, end: float) -> dict[str, float]:
    """Return how long each phase took, by the times in the logs of the trigger and of the task that it resumed."""
    (of_trigger,) = log.parent.glob(f"{log.name}.trigger.*")
    ends = {"noticed": _times(of_trigger, "Trigger fired event")[-1]}
    ends |= {phase: _times(log, line)[-1] for line, phase in PHASES.items()}
    ends["loaded"] = end
    found = {}
    for phase, at in ends.items():
        found[phase] = at - start
        start = at
    return found


def _times(log: Path, event: str) -> list[float]:
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    return [datetime.fromisoformat(line["timestamp"]).timestamp() for line in lines if line["event"].startswith(event)]


def _waiting_run(stack: AirflowStack, dag: str) -> str | None:
    """Return the id of the run whose task waits in the triggerer."""
    for run in stack.client.runs(dag):
        task = stack.client.tasks(dag, run["dag_run_id"])[WAITS_IN[dag]] if run["state"] == "running" else None
        if task is not None and task["state"] == "deferred":
            return str(run["dag_run_id"])
    return None
