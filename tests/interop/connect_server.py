"""A Spark Connect server in its own process, started as in `docker/compose.yaml`."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_provider_fds.spark.install import bundled_spark_home
from airflow_provider_fds.spark.jars import delta_jars
from tests.compose import command

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path


@dataclass(frozen=True)
class RunningServer:
    """A server that answers."""

    port: int
    pid: int

    @property
    def url(self) -> str:
        return f"sc://127.0.0.1:{self.port}"

    def kill(self) -> None:
        os.killpg(self.pid, signal.SIGKILL)


def free_port() -> int:
    """Return a free port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def running_server(
    folder: Path, *, home: Path | None = None, jars: Iterable[Path] | None = None, **conf: str
) -> Iterator[RunningServer]:
    """Start a server in ``folder``, wait until it listens, and end it.

    Args:
        folder: For its log and files.
        home: Its Spark, default that of the installed pyspark.
        jars: Its Delta, default the one for the installed pyspark.
        conf: More settings.
    """
    home, port = home or bundled_spark_home(), free_port()
    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder / "local"),
        # as `QUICK_JVM` of conftest.py
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m -XX:+UseSerialGC "
        f"-Dderby.system.home={folder}",
        **conf,
    }
    names = ",".join(str(jar) for jar in (delta_jars() if jars is None else jars))
    words = command("spark-connect", {"/jars/*.jar": names, "15002": str(port)})
    more = [word for key, value in settings.items() for word in ("--conf", f"{key}={value}")]
    place = words.index("--class")
    words = [str(home / "bin" / words[0]), *words[1:place], *more, *words[place:]]
    env = {**os.environ, "SPARK_HOME": str(home), "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    log = (folder / "server.log").open("w")
    process = subprocess.Popen(
        words, env=env, cwd=folder, stdout=log, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    try:
        _wait_until_it_listens(process, port, folder / "server.log")
        yield RunningServer(port, process.pid)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(60)
        log.close()


def _wait_until_it_listens(process: subprocess.Popen[str], port: int, log: Path) -> None:
    pause = threading.Event()
    for _ in range(1200):
        if process.poll() is not None:
            raise RuntimeError(f"the server ended with {process.returncode}:\n{log.read_text()[-3000:]}")
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            pause.wait(0.1)
        else:
            return
    raise RuntimeError(f"the server did not listen within 120 s:\n{log.read_text()[-3000:]}")
