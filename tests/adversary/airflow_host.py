"""Runs DAGs as ``dag.test()`` does, each in a process of its own that is forked from one that has Airflow loaded.

``python -m tests.adversary.airflow_host`` is that one: it makes Airflow's database in ``AIRFLOW_HOME`` and reads one
JSON line per run from standard input.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from tests.adversary.scene import Scene

#: Airflow's installation, in the words of ``[fds] deployment``.
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
    DeltaIngestOperator, DeltaMergeSink, DeltaReplaceSink, DeltaStream, DeltaStreamMoveOperator, DeltaTableSink,
    ForeachBatchSink,
)

stream = DeltaStream({name!r}, table={table!r}, staging={staging!r}, {options})
with DAG({dag_id!r}, schedule={schedule}, start_date=datetime(2026, 1, 1, tzinfo=timezone.utc), catchup=False):
    {task}
"""
DAILY: Final = 'CronDataIntervalTimetable("0 0 * * *", timezone="UTC")'


class DagRun:
    """A run of a DAG in a process of its own."""

    def __init__(self, scene: Scene, pid: int, folder: Path) -> None:
        self.scene, self.pid, self._folder = scene, pid, folder
        self._is_killed = False

    @property
    def is_running(self) -> bool:
        return not (self._folder / "done").exists()

    def signal(self, number: int) -> None:
        """Send a signal to the process group of the run."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, number)
        if number == signal.SIGKILL:
            self._is_killed = True
            (self._folder / "done").touch()
        self.scene.note(f"{signal.Signals(number).name} to the DAG's run")

    def wait(self, timeout: float = 600) -> dict[str, Any]:
        """Return ``states`` by task, ``xcom`` of the ingest task, and what was ``said``."""
        deadline = time.monotonic() + timeout
        pause = threading.Event()
        while self.is_running:
            if time.monotonic() > deadline:
                self.signal(signal.SIGKILL)
                raise RuntimeError(f"a DAG's run did not end within {timeout} s: {self.said()[-2000:]}")
            pause.wait(0.02)
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


class AirflowHost:
    """The process with Airflow loaded; one at a time uses it to start a run, runs go on side by side."""

    def __init__(self, home: Path, database: Path | None = None) -> None:
        self.home = home
        (home / "dags").mkdir(parents=True)
        (home / "airflow.cfg").write_text(_CFG.format(home=home, deployment=DEPLOYMENT, secret="t" * 64))
        if database is not None:
            shutil.copy(database, home / "airflow.db")
        self._count = 0
        self._lock = threading.Lock()
        env = {**os.environ, "AIRFLOW_HOME": str(home), "PYTHONWARNINGS": "ignore"}
        self._log = (home / "host.log").open("wb")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.adversary.airflow_host"],
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            start_new_session=True,
        )
        said = self._answer()
        if said != "ready":
            raise RuntimeError(f"Airflow did not start: {said} {(home / 'host.log').read_text()[-3000:]}")

    def start(self, scene: Scene, dag_text: str, *, conn: dict[str, Any], logical_date: str | None = None) -> DagRun:
        """Start a run of the one DAG of the text."""
        with self._lock:
            self._count += 1
            folder = scene.root / f"dag-run-{self._count:03}"
            folder.mkdir()
            # `dag.test()` looks for its DAG in the installation's own folder
            file = self.home / "dags" / f"{scene.root.name}.py"
            file.write_text(dag_text)
            request = {
                "folder": str(folder),
                "file": str(file),
                "conn": conn,
                "logical_date": logical_date,
                "path": str(scene.root),
            }
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            pid = int(self._answer())
        found = DagRun(scene, pid, folder)
        scene.note(f"starts a DAG's run {folder.name} {logical_date or ''}")
        scene.cleanups += [lambda: _kill(pid), lambda: file.unlink(missing_ok=True)]
        return found

    def mark_failed(self, scene: Scene, dag_id: str) -> None:
        """Mark the tasks of a DAG that are running failed, as a person does, or the scheduler without a heartbeat."""
        with self._lock:
            self._count += 1
            folder = scene.root / f"marked-{self._count:03}"
            folder.mkdir()
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps({"folder": str(folder), "mark_failed": dag_id}) + "\n")
            self._process.stdin.flush()
            pid = int(self._answer())
        DagRun(scene, pid, folder).wait()

    def stop(self) -> None:
        """End it."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(30)
        self._log.close()
        for pipe in (self._process.stdin, self._process.stdout):
            with suppress(OSError):
                pipe.close()  # type: ignore[union-attr]

    def _answer(self) -> str:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("ANSWER "):
                return line[7:].strip()
        return "nothing"


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def serve() -> None:
    """Load Airflow, then fork one process for each run that is asked for."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    from airflow.settings import engine
    from airflow.utils.db import initdb

    if not (Path(os.environ["AIRFLOW_HOME"]) / "airflow.db").exists():
        initdb()
    import airflow.dag_processing.dagbag
    import airflow.sdk.definitions.dag
    import airflow.sdk.execution_time.supervisor  # noqa: F401 - loaded before the fork

    import airflow_provider_fds

    for name in ("DeltaIngestOperator", "DeltaMergeSink", "DeltaStream", "DeltaStreamMoveOperator"):
        getattr(airflow_provider_fds, name)
    engine.dispose()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    print("ANSWER ready", file=answers, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        pid = os.fork()
        if pid == 0:
            _play(request)
        print(f"ANSWER {pid}", file=answers, flush=True)


def _play(request: dict[str, Any]) -> None:
    code = 1
    folder = Path(request["folder"])
    try:
        os.setsid()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        log = os.open(folder / "log", os.O_WRONLY | os.O_CREAT)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.chdir(folder)
        if "mark_failed" in request:
            _mark_failed(request["mark_failed"])
            (folder / "result.json").write_text(json.dumps({"states": {"marked": "as failed"}, "xcom": None}))
            return
        sys.path.insert(0, request["path"])
        os.environ["PYTHONPATH"] = f"{request['path']}:{os.environ.get('PYTHONPATH', '')}"
        os.environ["AIRFLOW_CONN_WARM"] = json.dumps(request["conn"])
        result = _run(Path(request["file"]), request["logical_date"])
        (folder / "result.json").write_text(json.dumps(result))
        code = 0
    except BaseException:  # noqa: BLE001 - the log has it
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        (folder / "done").touch()
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
    serve()
