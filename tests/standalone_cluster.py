"""A standalone cluster of Spark on this machine: a master with its REST server, and workers, as real processes."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_provider_fds.spark.installation.install import bundled_spark_home
from tests.compose import command

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
#: What a master has logged once it is up, in any order.
_IS_UP = (
    r"(?=.*Starting Spark master at (?P<url>spark://\S+:(?P<port>\d+)))"
    r"(?=.*REST server for submitting applications on \S+ with port (?P<rest>\d+))"
    r"(?=.*I have been elected leader)"
)
#: Settings of an application that is small and starts fast.
SMALL = {
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": _QUICK,
    "spark.driver.extraJavaOptions": _QUICK,
}


@dataclass(frozen=True)
class Running:
    """A cluster that runs.

    Attributes:
        master: Spark's URL of its master.
        rest_port: Port of its REST server.
        work: Where its workers keep what drivers and executors print.
    """

    master: str
    rest_port: int
    work: Path


@contextmanager
def running(folder: Path, *, workers: int = 1) -> Iterator[Running]:
    """Start a master, and workers of one core each (a driver in the cluster takes one)."""
    leader = command("spark-master", {"spark-master": "127.0.0.1", "7077": "0", "8081": "0"})
    rest = "-Dspark.master.rest.enabled=true -Dspark.master.rest.host=127.0.0.1 -Dspark.master.rest.port=0"
    with ExitStack() as stack:
        up = stack.enter_context(_daemon(folder, _IS_UP, leader, SPARK_MASTER_OPTS=rest)).result(300)
        worker = command("spark-worker", {"spark-master": "127.0.0.1", "7077": up["port"]})
        # a container has a name of its own to bind to
        worker = [*worker[:2], "--host", "127.0.0.1", *worker[2:]]
        registered = [
            stack.enter_context(_daemon(folder, "Successfully registered with master", worker)) for _ in range(workers)
        ]
        for each in registered:
            each.result(300)
        yield Running(up["url"], int(up["rest"]), folder / "work")


@contextmanager
def _daemon(folder: Path, sign: str, words: list[str], **environment: str) -> Iterator[Future[re.Match[str]]]:
    """A process of Spark's own; yields a future of the match, once its log matches ``sign``."""
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
        yield seen
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        reader.join()


__all__ = ["SMALL", "Running", "running"]
