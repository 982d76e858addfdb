"""A standalone cluster of Spark on this machine: a master with its REST server, and workers, as real processes."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
import time
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_provider_fds.spark.installation.install import bundled_spark_home
from tests.compose import command
from tests.interop import quick_spark

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

_QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
#: What a master has logged once it is up, in any order.
_IS_UP = (
    r"(?=.*Starting Spark master at (?P<url>spark://\S+:(?P<port>\d+)))"
    r"(?=.*REST server for submitting applications on \S+ with port (?P<rest>\d+))"
    r"(?=.*I have been elected leader)"
)
#: Start a new master so many seconds after the death of the old one, and at most 20 s later. Only then does no worker
#: register while the new master recovers: the master could order it to kill a driver that it runs.
QUIET_AFTER_SECONDS = 14
_WAITING = "-Dspark.worker.initialRegistrationRetries=1"
#: Settings of an application that is small and starts fast.
SMALL = {
    **quick_spark.INTERPRETED,
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": _QUICK,
    "spark.driver.extraJavaOptions": _QUICK,
}


@dataclass(frozen=True)
class Running:
    """A cluster that runs.

    Attributes:
        folder: Where its processes run, and the master keeps what it recovers.
        master: Spark's URL of its master.
        rest_port: Port of its REST server.
        master_id: Process group of its first master.
    """

    folder: Path
    master: str
    rest_port: int
    master_id: int

    @property
    def work(self) -> Path:
        """Where its workers keep what drivers and executors print."""
        return self.folder / "work"


@contextmanager
def master(
    folder: Path, port: str = "0", rest_port: int = 0, *, recovery: str = "FILESYSTEM", **environment: str
) -> Iterator[Running]:
    """Start a master. With recovery FILESYSTEM, it knows what an earlier master in the same folder has known."""
    leader = command("spark-master", {"spark-master": "127.0.0.1", "7077": port, "8081": "0"})
    settings = {
        "spark.master.rest.enabled": "true",
        "spark.master.rest.host": "127.0.0.1",
        "spark.master.rest.port": rest_port,
        "spark.deploy.recoveryMode": recovery,
        "spark.deploy.recoveryDirectory": folder / "recovery",
    }
    options = " ".join(f"-D{name}={value}" for name, value in settings.items())
    with _daemon(folder, _IS_UP, leader, SPARK_MASTER_OPTS=options, **environment) as (seen, process):
        up = seen.result(300)
        yield Running(folder, up["url"], int(up["rest"]), process)


class Leader:
    """The master of a cluster: its first one, or the one that was started again on the same ports."""

    def __init__(self, cluster: Running, **arguments: str) -> None:
        """Take the first master, and the arguments of :func:`master` for those that follow it."""
        self._cluster = cluster
        self._arguments = arguments
        self._restarted = ExitStack()
        self._killed_at = 0.0
        #: Process group of the master.
        self.process_id = cluster.master_id

    def kill(self) -> None:
        """Kill the master."""
        os.killpg(self.process_id, signal.SIGKILL)
        self._killed_at = time.monotonic()

    def start(self, *, after_seconds: float = 0) -> None:
        """Start a new master, so many seconds after the death of the old one."""
        time.sleep(max(0, self._killed_at + after_seconds - time.monotonic()))
        self._restarted.close()
        port = self._cluster.master.rpartition(":")[2]
        again = master(self._cluster.folder, port, self._cluster.rest_port, **self._arguments)
        self.process_id = self._restarted.enter_context(again).master_id

    def end(self) -> None:
        """End the master that was started again, if one was."""
        self._restarted.close()


@contextmanager
def running(
    folder: Path, *, workers: int = 1, cores: int = 1, leading: Mapping[str, str] | None = None, **environment: str
) -> Iterator[Running]:
    """Start a master and workers.

    Args:
        folder: Where they run.
        workers: Number of workers.
        cores: Those of each worker; a driver in the cluster takes one.
        leading: Further arguments of :func:`master`.
        environment: Variables of the workers, and so of the drivers.
    """
    with ExitStack() as stack:
        leader = stack.enter_context(master(folder, **leading or {}))
        port = leader.master.rpartition(":")[2]
        worker = command("spark-worker", {"spark-master": "127.0.0.1", "7077": port})
        # a container has a name of its own to bind to
        worker = [
            *worker[:2],
            "--host",
            "127.0.0.1",
            *worker[2:-1],
            "--cores",
            str(cores),
            "-m",
            f"{cores}g",
            worker[-1],
        ]
        environment["SPARK_WORKER_OPTS"] = f"{_WAITING} {environment.get('SPARK_WORKER_OPTS', '')}"
        registered = [
            stack.enter_context(_daemon(folder, "Successfully registered with master", worker, **environment))[0]
            for _ in range(workers)
        ]
        for each in registered:
            each.result(300)
        yield leader


@contextmanager
def _daemon(
    folder: Path, sign: str, words: list[str], **environment: str
) -> Iterator[tuple[Future[re.Match[str]], int]]:
    """A process of Spark's own; yields a future of the match, once its log matches ``sign``, and its id."""
    home = bundled_spark_home()
    env = {
        **os.environ,
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_WORKER_DIR": str(folder / "work"),
        "SPARK_DAEMON_JAVA_OPTS": _QUICK,
        **environment,
    }
    process = subprocess.Popen(
        [str(home / "bin" / words[0]), *words[1:]],
        env=env,
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stderr is not None
    output = process.stderr
    seen: Future[re.Match[str]] = Future()

    def drain() -> None:
        log = ""
        with output:
            for line in output:
                log += line
                if not seen.done() and (found := re.search(sign, log, re.DOTALL)):
                    seen.set_result(found)

    reader = threading.Thread(target=drain)
    reader.start()
    try:
        yield seen, process.pid
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        reader.join()


__all__ = ["QUIET_AFTER_SECONDS", "SMALL", "Leader", "Running", "running"]
