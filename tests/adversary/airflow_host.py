"""Runs DAGs as ``dag.test()`` does, each in its own process, forked from one that has loaded Airflow.

``python -m tests.adversary.airflow_host`` is that process; it creates Airflow's database in ``AIRFLOW_HOME``.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.adversary.command_host import ROOMS
from tests.adversary.forks import ForkHost, load, serve
from tests.adversary.scene import TIMEOUT_SECONDS, VerdictError, when

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.adversary.forks import Forked
    from tests.adversary.scene import Scene

#: The name of the Airflow installation, as in ``[fds] deployment``.
DEPLOYMENT: Final = "http://adversary.test"

_CFG = """
[core]
dags_folder = {home}/dags
load_examples = False
executor = LocalExecutor
default_task_retry_delay = 1
dags_are_paused_at_creation = False
fernet_key = c2l4dHktZm91ciBieXRlcyBvZiBub3RoaW5nIHMhISE=
simple_auth_manager_all_admins = True
[api]
base_url = {deployment}
[api_auth]
jwt_secret = {secret}
[database]
sql_alchemy_conn = sqlite:///{home}/airflow.db
[logging]
base_log_folder = {home}/logs
"""

DAG_TEXT = """
from datetime import datetime, timedelta, timezone
from airflow.sdk import CronDataIntervalTimetable, DAG
from airflow_provider_fds import (
    DeltaIngestOperator, DeltaMergeSink, DeltaReplaceSink, DeltaStream, DeltaStreamActionOperator, DeltaAppendSink,
    ForeachBatchSink,
)

stream = DeltaStream({name!r}, table={table!r}, staging={staging!r}, {options})
with DAG({dag_id!r}, schedule={schedule}, start_date=datetime(2026, 1, 1, tzinfo=timezone.utc), catchup=False):
    {task}
"""
_FIRST_DAG: Final = """
from datetime import datetime, timezone
from airflow.sdk import DAG, Variable, task

with DAG("first", schedule=None, start_date=datetime(2026, 1, 1, tzinfo=timezone.utc), catchup=False):
    @task
    def first():
        Variable.set("first", "1")
        Variable.get("first")
    first()
"""
DAILY: Final = 'CronDataIntervalTimetable("0 0 * * *", timezone="UTC")'


class DagRun:
    """A run of a DAG in its own process."""

    def __init__(self, scene: Scene, process: Forked, folder: Path) -> None:
        self.scene, self.process, self._folder = scene, process, folder
        self._is_killed = False

    @property
    def is_running(self) -> bool:
        return self.process.poll() is None

    def signal(self, number: int) -> None:
        """Send a signal to the process group of the run."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)
        self._is_killed = self._is_killed or number == signal.SIGKILL
        self.scene.note(f"{signal.Signals(number).name} to the DAG's run")

    def when(self, condition: Callable[[], bool], timeout: float = 60) -> bool:
        """Wait until the condition holds; ``False`` if the run ended first."""
        return when(condition, lambda: self.is_running, timeout)

    def wait(self, timeout: float = TIMEOUT_SECONDS) -> dict[str, Any]:
        """Return ``states`` by task, ``xcom`` of the ingest task, and what was ``said``."""
        try:
            self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.signal(signal.SIGKILL)
            raise VerdictError("stuck", f"a DAG's run did not end within {timeout} s: {self.said()[-2000:]}") from None
        found = self._folder / "result.json"
        result = json.loads(found.read_text()) if found.exists() else {"states": {}, "xcom": None}
        result["said"] = self.said()
        if not result["states"] and not self._is_killed:
            raise RuntimeError(f"a DAG's run came to nothing: {result['said'][-2000:]}")
        self.scene.note(f"DAG ended: {result['states']} {_essence(result['said'])}")
        self.scene.refusals += "failed" in result["states"].values()
        return dict(result)

    def said(self) -> str:
        return (self._folder / "log").read_text("utf-8", "replace")


def _essence(said: str) -> str:
    lines = [line for line in said.splitlines() if "Error" in line or "WARNING" in line or "fds" in line.lower()]
    return " | ".join(line[-200:] for line in lines[-2:])


class AirflowHost(ForkHost):
    """The process that has loaded Airflow."""

    def __init__(self, home: Path, database: Path | None = None) -> None:
        self.home = home
        (home / "dags").mkdir(parents=True)
        (home / "airflow.cfg").write_text(_CFG.format(home=home, deployment=DEPLOYMENT, secret="t" * 64))
        if database is not None:
            shutil.copy(database, home / "airflow.db")
        self._count = itertools.count(1)
        env = {"AIRFLOW_HOME": str(home), "PYTHONWARNINGS": "ignore"}
        super().__init__("tests.adversary.airflow_host", home / "host.log", env)

    def start(self, scene: Scene, dag_text: str, *, conn: dict[str, Any], logical_date: str | None = None) -> DagRun:
        """Start a run of the only DAG in the text."""
        # `dag.test()` looks for its DAG in the installation's own folder
        file = self.home / "dags" / f"{scene.root.name}.py"
        file.write_text(dag_text)
        request = {"file": str(file), "conn": conn, "logical_date": logical_date, "path": str(scene.root)}
        found = self._begin(scene, f"dag-run-{next(self._count):03}", request)
        scene.note(f"starts a DAG's run {logical_date or ''}")
        scene.cleanups += [lambda: found.signal(signal.SIGKILL), lambda: file.unlink(missing_ok=True)]
        return found

    def mark_failed(self, scene: Scene, dag_id: str) -> None:
        """Mark the running tasks of a DAG as failed, as a person does, or the scheduler after missing heartbeats."""
        self._begin(scene, f"marked-{next(self._count):03}", {"mark_failed": dag_id}).wait()

    def _begin(self, scene: Scene, name: str, request: dict[str, Any]) -> DagRun:
        folder = scene.root / name
        folder.mkdir()
        return DagRun(scene, self.fork(folder / "log", folder / "log", folder, **request), folder)


def main() -> None:
    """Load Airflow, then act as a host of processes that run DAGs."""
    from airflow.settings import engine
    from airflow.utils.db import initdb

    if not (Path(os.environ["AIRFLOW_HOME"]) / "airflow.db").exists():
        initdb()
    import pyspark.sql.connect.session  # noqa: F401 - loaded before the fork
    from airflow.sdk.execution_time.supervisor import in_process_api_server

    import airflow_provider_fds

    for name in airflow_provider_fds.__all__:
        getattr(airflow_provider_fds, name)
    load("airflow_provider_fds", *ROOMS, "backends", "hooks")
    # the first run in a process takes 5 s, for what it loads and creates; processes forked afterwards already have it
    first = Path(os.environ["AIRFLOW_HOME"]) / "dags" / "first.py"
    first.write_text(_FIRST_DAG)
    _run(first, None)
    first.unlink()
    # its thread is not forked; the next run starts another
    del in_process_api_server().transport
    engine.dispose()
    serve(_play)


def _play(request: dict[str, Any]) -> None:
    code = 1
    try:
        if "mark_failed" in request:
            _mark_failed(request["mark_failed"])
            result: dict[str, Any] = {"states": {"marked": "as failed"}, "xcom": None}
        else:
            sys.path.insert(0, request["path"])
            os.environ["PYTHONPATH"] = f"{request['path']}:{os.environ.get('PYTHONPATH', '')}"
            os.environ["AIRFLOW_CONN_WARM"] = json.dumps(request["conn"])
            result = _run(Path(request["file"]), request["logical_date"])
        Path("result.json").write_text(json.dumps(result))
        code = 0
    except BaseException:  # noqa: BLE001 - the log has it
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        # skip what Airflow and Spark do at interpreter exit, which takes a second
        os._exit(code)


def _mark_failed(dag_id: str) -> None:
    from airflow.models.dagrun import DagRun as RunModel
    from airflow.models.taskinstance import TaskInstance
    from airflow.utils.session import create_session
    from sqlalchemy import update

    with create_session() as session:
        for model in (TaskInstance, RunModel):
            unfinished = model.state.not_in(("success", "failed", "skipped"))
            session.execute(update(model).where(model.dag_id == dag_id, unfinished).values(state="failed"))


def _run(path: Path, logical_date: str | None) -> dict[str, Any]:
    from datetime import datetime

    from airflow.dag_processing.dagbag import DagBag
    from airflow.models.taskinstance import TaskInstance
    from airflow.models.xcom import XComModel
    from airflow.utils.session import create_session
    from sqlalchemy import select

    bag = DagBag(str(path))
    if bag.import_errors:
        return {"states": {"import": "failed"}, "xcom": None, "errors": list(map(str, bag.import_errors.values()))}
    (dag,) = bag.dags.values()
    run = dag.test(**({"logical_date": datetime.fromisoformat(logical_date)} if logical_date else {}))
    with create_session() as session:
        of_run = (TaskInstance.dag_id == run.dag_id, TaskInstance.run_id == run.run_id)
        states = {ti.task_id: str(ti.state) for ti in session.scalars(select(TaskInstance).where(*of_run))}
        of_run = (XComModel.dag_id == run.dag_id, XComModel.run_id == run.run_id, XComModel.key == "return_value")
        xcoms = [xcom.value for xcom in session.scalars(select(XComModel).where(*of_run))]
    return {"states": states, "xcom": xcoms[0] if xcoms else None}


if __name__ == "__main__":
    main()
