"""A Spark Connect server in its own process, started as in `docker/compose.yaml`."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_provider_fds.spark.installation.install import bundled_spark_home
from airflow_provider_fds.spark.installation.jars import delta_jars
from tests.compose import command
from tests.interop import quick_spark

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
    home = home or bundled_spark_home()
    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder / "local"),
        "spark.driver.extraJavaOptions": f"{quick_spark.JVM} -Dderby.system.home={folder}",
        **conf,
    }
    names = ",".join(str(jar) for jar in (delta_jars() if jars is None else jars))
    # a port that is chosen here may be another process's when the server binds it
    words = command("spark-connect", {"/jars/*.jar": names, "15002": "0"})
    more = [word for key, value in settings.items() for word in ("--conf", f"{key}={value}")]
    place = words.index("--class")
    words = [str(home / "bin" / words[0]), *words[1:place], *more, *words[place:]]
    env = {**os.environ, "SPARK_HOME": str(home), "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    log = (folder / "server.log").open("w")
    process = subprocess.Popen(
        words, env=env, cwd=folder, stdout=log, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    try:
        yield RunningServer(_port_of(process, folder / "server.log"), process.pid)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(60)
        log.close()


def _port_of(process: subprocess.Popen[str], log: Path) -> int:
    """Wait until the server listens; return its port."""
    pause = threading.Event()
    for _ in range(1200):
        if found := re.search(r"Spark Connect server started at: \S+:(\d+)", log.read_text()):
            return int(found[1])
        if process.poll() is not None:
            raise RuntimeError(f"the server ended with {process.returncode}:\n{log.read_text()[-3000:]}")
        pause.wait(0.1)
    raise RuntimeError(f"the server did not listen within 120 s:\n{log.read_text()[-3000:]}")
