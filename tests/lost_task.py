"""Tasks that are killed, or whose cluster is restarted, while the cluster runs their driver."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow_provider_fds.fault_points import ASKED_BY, MARKS_IN

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pytest

    from airflow_provider_fds.spark.clusters.cluster import Cluster, Handle, Look

#: A task that has its driver in a cluster, and a fleet.
DAG_TEXT = """
from datetime import datetime
from airflow.sdk import DAG
from airflow_provider_fds import DeltaIngestOperator, DeltaStream, DeltaAppendSink

with DAG("{name}", schedule=None, start_date=datetime(2026, 1, 1)):
    DeltaIngestOperator(
        task_id="ingest",
        conn_id="{conn_id}",
        driver_memory="600m",
        env_vars={env!r},
        conf={conf!r},
        stream=DeltaStream("{name}", table="{lake}/orders", starting_version="earliest"{options}),
        sink=DeltaAppendSink("{lake}/{name}"),
        {more}
    )
"""
FLEET_TEXT = """
from datetime import datetime
from airflow.sdk import DAG
from airflow_provider_fds import DeltaFleetOperator, DeltaStream, DeltaAppendSink

with DAG("{name}", schedule=None, start_date=datetime(2026, 1, 1)):
    DeltaFleetOperator(
        task_id="ingest",
        conn_id="{conn_id}",
        driver_memory="600m",
        env_vars={env!r},
        conf={conf!r},
        streams=[
            dict(
                stream=DeltaStream(f"{name}_{{part}}", table="{lake}/orders", starting_version="earliest"{options}),
                sink=DeltaAppendSink(f"{lake}/{name}_{{part}}"),
            )
            for part in ("a", "b")
        ],
        parallelism=1,
        {more}
    )
"""
#: Their arguments for tasks that leave the driver.
DEFERRED = "deferrable=True, poll_interval=0.5"
WHEN = datetime(2026, 1, 1, tzinfo=UTC)
#: A task in a process of its own, which can be killed. ``{}`` is what happens before.
TASK = """
import os, signal, sys
from datetime import datetime
try:
    from airflow.dag_processing.dagbag import DagBag
except ImportError:
    from airflow.models.dagbag import DagBag
from airflow_provider_fds.backends.cluster_driver import ClusterDriver
{}
(dag,) = DagBag(sys.argv[1]).dags.values()
dag.test(logical_date=datetime.fromisoformat(sys.argv[2]))
"""
KILLED_BEFORE_THE_ENTRY = "ClusterDriver.record = lambda *_: os.kill(os.getpid(), signal.SIGKILL)"
STOPPED = "stop@driver.commit.before"


def stopping_driver(tmp_path: Path) -> dict[str, str]:
    """Return the environment of a driver that stops before it writes, see :class:`Lost`."""
    (tmp_path / "marks").mkdir()
    return {ASKED_BY: STOPPED, MARKS_IN: str(tmp_path / "marks")}


class Lost:
    """A task whose process was killed while its driver, which has stopped before it writes, was left."""

    def __init__(self, dag: Any, tmp_path: Path, before: str = "", stopped: str = STOPPED) -> None:
        self.dag = dag
        self.mark = tmp_path / "marks" / stopped
        with (tmp_path / "task.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-c", TASK.format(before), dag.fileloc, WHEN.isoformat()], stdout=log, stderr=log
            )
        try:
            until = time.monotonic() + 300
            while not before and not (self.mark.exists() and self.mark.read_text()):
                assert process.poll() is None, (tmp_path / "task.log").read_text()
                assert time.monotonic() < until
                time.sleep(0.1)
            if not before:
                process.kill()
        finally:
            assert process.wait(300) == -signal.SIGKILL

    def go_on(self) -> None:
        """Let the driver go on."""
        os.kill(int(self.mark.read_text()), signal.SIGCONT)

    def run_again(self, installation: Any) -> str:
        """Run the same task again, as Airflow does after it has missed its heartbeats; return its state."""
        from airflow.models.taskinstance import TaskInstance
        from airflow.utils.session import create_session
        from sqlalchemy import update

        with create_session() as session:
            failed = update(TaskInstance).where(TaskInstance.dag_id == self.dag.dag_id).values(state="failed")
            session.execute(failed)
        self.done = installation.run(self.dag, logical_date=WHEN)
        return str(self.done.state("ingest"))


def kill_once_it_runs(
    patch: pytest.MonkeyPatch, kind: type[Cluster], words: str, seen: Callable[[str], Any] = str
) -> list[Any]:
    """Let Airflow kill the task as soon as its driver runs.

    Args:
        patch: Undoes it.
        kind: Class of the cluster.
        words: Its words for a driver that runs.
        seen: Called with the driver's id before the kill.

    Returns:
        What ``seen`` has returned, once it was called.
    """
    from airflow_provider_fds.operators.task.spark_task import SparkTask

    tasks: list[SparkTask] = []
    found: list[Any] = []
    begin, look = SparkTask.run_spark, kind.look

    def remember(self: SparkTask, application: Any) -> Any:
        tasks.append(self)
        return begin(self, application)

    def then_kill(self: Cluster, handle: Handle) -> Look:
        at = look(self, handle)
        if at.words == words and not tasks[0].was_killed:
            found.append(seen(handle.id))
            killing = threading.Thread(target=tasks[0].on_kill)
            killing.start()
            killing.join()
        return at

    patch.setattr(SparkTask, "run_spark", remember)
    patch.setattr(kind, "look", then_kill)
    return found


def restart_once_it_runs(
    patch: pytest.MonkeyPatch, kind: type[Cluster], words: str, kill: Callable[[], Any], start: Callable[[], Any]
) -> list[Look]:
    """Kill the cluster's server as soon as the driver runs, and start it again; return all looks at the driver."""
    look, looks = kind.look, []

    def then_restart(self: Cluster, handle: Handle) -> Look:
        found = look(self, handle)
        if found.words == words and not any(each.state == "unknown" for each in looks):
            kill()
            found = look(self, handle)
            start()
        looks.append(found)
        return found

    patch.setattr(kind, "look", then_restart)
    return looks
