"""A real Airflow on this machine: API server, scheduler, dag-processor and triggerer, on SQLite and free ports.

The demo and the stack tests both use it. Each process leads a session and carries a mark in its environment, so that
what it starts in turn (task processes, Spark's JVM) is found again and ended, although it leaves the process group.
"""

from __future__ import annotations

import base64
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.error import HTTPError, URLError

import psutil
from airflow_client import AirflowClient

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from types import TracebackType
    from typing import Self

MARK: Final = "FDS_STACK_ID"
PROCESSES: Final = ("api-server", "scheduler", "dag-processor", "triggerer")

#: Settings of the user's own Airflow or Spark must not leak in.
_FOREIGN: Final = ("AIRFLOW", "SPARK_", "PYSPARK_", "HADOOP_", "PYTHONHOME")


class StackError(Exception):
    """The stack did not come up, a process of it ended, or a state was not reached in time."""


class AirflowStack:
    """The four processes of one Airflow installation, a context manager: up on entry, all gone on exit.

    Args:
        home: ``AIRFLOW_HOME``: database, configuration, logs. Must exist or be creatable.
        dags: Folder of the DAG files.
        env: More environment for all processes, such as ``AIRFLOW_CONN_…``.
        start_seconds: How long the four processes together may take to become healthy.
    """

    def __init__(
        self, home: Path, dags: Path, *, env: Mapping[str, str] | None = None, start_seconds: float = 300
    ) -> None:
        self.home = home
        self.mark = secrets.token_hex(8)
        self.output = home / "processes"
        self.sessions: list[int] = []
        self._start_seconds = start_seconds
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        port, task_log_port, trigger_log_port = _free_ports(3)
        self.url = f"http://127.0.0.1:{port}"
        self.env = {
            **{key: value for key, value in os.environ.items() if not key.startswith(_FOREIGN)},
            **_settings(home, dags, port, task_log_port, trigger_log_port),
            **(env or {}),
            MARK: self.mark,
        }
        self.client = AirflowClient(self.url)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Make the database, start the four processes and return when all are healthy.

        Raises:
            StackError: With the end of what the process said that failed.
        """
        self.output.mkdir(parents=True, exist_ok=True)
        with (self.output / "db-migrate.log").open("wb") as output:
            self._processes["db-migrate"] = self._spawn(["db", "migrate"], output)
        self.wait(lambda: self._processes["db-migrate"].poll() is not None, 180, "the database was not made")
        if self._processes.pop("db-migrate").returncode != 0:
            raise StackError(f"airflow db migrate failed:\n{_tail(self.output / 'db-migrate.log')}")
        for name in PROCESSES:
            self.start_process(name)
        self.wait(self.is_healthy, self._start_seconds, "Airflow did not become healthy")

    def start_process(self, name: str) -> None:
        """Start one of :data:`PROCESSES`; what it says is appended to ``<home>/processes/<name>.log``."""
        with (self.output / f"{name}.log").open("ab") as output:
            self._processes[name] = self._spawn([name], output)

    def kill_process(self, name: str) -> None:
        """End one of :data:`PROCESSES` with SIGKILL, and the children in its process group."""
        process = self._processes.pop(name)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def lose_worker(self) -> None:
        """End the scheduler, which is the worker of a ``LocalExecutor``, with all its tasks, as if its machine died."""
        # a task has a process group of its own
        children = psutil.Process(self._processes["scheduler"].pid).children(recursive=True)
        self.kill_process("scheduler")
        for child in children:
            with suppress(psutil.NoSuchProcess):
                child.kill()

    def is_healthy(self) -> bool:
        """Whether all four processes run and say that they are healthy.

        Raises:
            StackError: If one of them has ended.
        """
        for name, process in self._processes.items():
            if process.poll() is not None:
                raise StackError(
                    f"airflow {name} ended with {process.returncode}:\n{_tail(self.output / f'{name}.log')}"
                )
        try:
            health = self.client.health()
        except (HTTPError, URLError, OSError, ValueError):
            return False
        parts = ("metadatabase", "scheduler", "dag_processor", "triggerer")
        return all((health.get(part) or {}).get("status") == "healthy" for part in parts)

    def wait(self, is_reached: Callable[[], Any], seconds: float, what: str) -> Any:
        """Ask ``is_reached`` again and again until it gives something true, and return that.

        Raises:
            StackError: ``what`` and the folder of the logs, when it did not within ``seconds``.
        """
        deadline = time.monotonic() + seconds
        while not (value := is_reached()):
            if time.monotonic() > deadline:
                raise StackError(f"{what} within {seconds:.0f} s; the processes' output is in {self.output}")
            time.sleep(0.5)
        return value

    def task_log(self, dag_id: str, run_id: str, task_id: str, try_number: int) -> Path:
        """Return the file into which Airflow logs an attempt of a task."""
        folder = self.home / "logs" / f"dag_id={dag_id}" / f"run_id={run_id}" / f"task_id={task_id}"
        return folder / f"attempt={try_number}.log"

    def processes(self) -> list[psutil.Process]:
        """Return every process that was started by this stack and still lives, at any depth."""
        return stack_processes(self.mark, self.sessions)

    def stop(self) -> None:
        """End every process that the stack started, at any depth. May be called again."""
        end_processes(self.mark, self.sessions)
        for process in self._processes.values():
            process.wait()
        self._processes.clear()

    def _spawn(self, arguments: list[str], output: Any) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-m", "airflow", *arguments],
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self.sessions.append(process.pid)
        note = {"mark": self.mark, "session": process.pid, "since": psutil.Process(process.pid).create_time()}
        (self.output / f"{process.pid}.session").write_text(json.dumps(note))
        return process


def stack_processes(mark: str, sessions: Collection[int]) -> list[psutil.Process]:
    """Return the living processes that carry the mark or belong to one of the sessions, this process not among them.

    Both are needed: Airflow writes its process titles over the environment, and a task may open a session of its own.
    """
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            is_ours = os.getsid(process.pid) in sessions or process.environ().get(MARK) == mark
            if is_ours and process.pid != os.getpid() and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def end_processes(mark: str, sessions: Collection[int], grace_seconds: float = 5) -> None:
    """End every process of :func:`stack_processes`: TERM, a grace, then KILL until none is left."""
    for process in stack_processes(mark, sessions):
        with suppress(psutil.Error):
            process.terminate()
    deadline = time.monotonic() + grace_seconds
    while processes := stack_processes(mark, sessions):
        if time.monotonic() > deadline:
            for process in processes:
                with suppress(psutil.Error):
                    process.kill()
        time.sleep(0.1)


def end_leftovers(home: Path) -> None:
    """End what an earlier stack of this ``AIRFLOW_HOME`` left running because it was killed itself."""
    for file in (home / "processes").glob("*.session"):
        note = json.loads(file.read_text())
        sessions = []
        # the number may belong to another process by now
        with suppress(psutil.NoSuchProcess):
            if psutil.Process(note["session"]).create_time() == note["since"]:
                sessions.append(note["session"])
        end_processes(note["mark"], sessions)


def readable_log(path: Path, lines: int = 40) -> str:
    """Return the end of a task's log as people read it; Airflow writes it as JSON lines."""
    if not path.is_file():
        return f"(no log at {path})"
    said = []
    for line in path.read_text(errors="replace").splitlines()[-lines:]:
        try:
            entry = json.loads(line)
        except ValueError:
            said.append(line)
            continue
        said.append(f"{str(entry.get('timestamp', ''))[11:19]} {entry.get('level', '')}: {entry.get('event', '')}")
        errors = entry.get("error_detail") or []
        said += [f"    {error.get('exc_type')}: {error.get('exc_value')}" for error in errors]
    return "\n".join(said)


def _settings(home: Path, dags: Path, port: int, task_log_port: int, trigger_log_port: int) -> dict[str, str]:
    local = "localhost,127.0.0.1"
    binaries = str(Path(sys.executable).parent)
    return {
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__DAGS_FOLDER": str(dags),
        "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
        "AIRFLOW__CORE__EXECUTOR": "LocalExecutor",
        "AIRFLOW__CORE__PARALLELISM": "4",
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        # only this machine reaches it: see API__HOST
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "True",
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"http://127.0.0.1:{port}/execution/",
        "AIRFLOW__CORE__FERNET_KEY": base64.urlsafe_b64encode(secrets.token_bytes(32)).decode(),
        "AIRFLOW__API_AUTH__JWT_SECRET": secrets.token_hex(32),
        "AIRFLOW__API__SECRET_KEY": secrets.token_hex(16),
        "AIRFLOW__API__HOST": "127.0.0.1",
        "AIRFLOW__API__PORT": str(port),
        "AIRFLOW__API__BASE_URL": f"http://127.0.0.1:{port}",
        "AIRFLOW__API__WORKERS": "1",
        "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "300",
        "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "300",
        "AIRFLOW__DAG_PROCESSOR__PARSING_PROCESSES": "1",
        "AIRFLOW__LOGGING__WORKER_LOG_SERVER_PORT": str(task_log_port),
        "AIRFLOW__LOGGING__TRIGGER_LOG_SERVER_PORT": str(trigger_log_port),
        "AIRFLOW__SCHEDULER__SCHEDULER_HEARTBEAT_SEC": "1",
        # a triggerer that died is replaced within seconds
        "AIRFLOW__TRIGGERER__JOB_HEARTBEAT_SEC": "2",
        "AIRFLOW__TRIGGERER__TRIGGERER_HEALTH_CHECK_THRESHOLD": "15",
        # the first requests of a busy machine's API server take longer than the default of 5 s
        "AIRFLOW__WORKERS__EXECUTION_API_TIMEOUT": "60",
        "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
        "PATH": f"{binaries}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        "PYTHONUNBUFFERED": "1",
        "NO_PROXY": local,
        "no_proxy": local,
    }


def _free_ports(count: int) -> list[int]:
    """Return ports that nothing listens on, all different."""
    holders = [socket.socket() for _ in range(count)]
    try:
        for holder in holders:
            holder.bind(("127.0.0.1", 0))
        return [holder.getsockname()[1] for holder in holders]
    finally:
        for holder in holders:
            holder.close()


def _tail(path: Path, lines: int = 30) -> str:
    return "\n".join(path.read_text(errors="replace").splitlines()[-lines:]) if path.is_file() else f"(no {path})"
