"""A Spark Connect server in its own process, started as by ``fds connect-server``, with what keeps tests short."""

from __future__ import annotations

import socket
from contextlib import contextmanager
from typing import TYPE_CHECKING

from airflow_provider_fds.spark.submission import connect_service
from airflow_provider_fds.spark.submission.connect_service import RunningServer
from tests.interop import quick_spark

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from airflow_provider_fds.spark.installation.own_spark import OwnSpark


def free_port() -> int:
    """Return a free port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def running_server(folder: Path, *, own_spark: OwnSpark | None = None, **conf: str) -> Iterator[RunningServer]:
    """Start a server in ``folder``, wait until it listens, and end it.

    Args:
        folder: For its log and files.
        own_spark: Its Spark, default that of the installed pyspark.
        conf: More settings.
    """
    settings = {
        "spark.driver.memory": "2g",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder / "local"),
        "spark.driver.extraJavaOptions": f"{quick_spark.JVM} -Dderby.system.home={folder}",
        **conf,
    }
    # a port that is chosen here may be another process's when the server binds it
    arguments = connect_service.server_arguments(port=0, conf=settings, own_spark=own_spark)
    with (
        (folder / "server.log").open("w") as log,
        connect_service.running_server(arguments, lambda line: print(line, file=log, flush=True), cwd=folder) as server,
    ):
        yield server


__all__ = ["RunningServer", "free_port", "running_server"]
