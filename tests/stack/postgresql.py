"""A PostgreSQL server for one Airflow: `airflow backfill create` is refused on SQLite while a scheduler runs."""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
import subprocess
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


def missing() -> str | None:
    """Return what is missing to run a server and to reach it from Airflow, ``None`` if nothing is."""
    lacking = [program for program in ("initdb", "postgres", "pg_isready") if shutil.which(program) is None]
    lacking += [module for module in ("psycopg2", "asyncpg") if importlib.util.find_spec(module) is None]
    return f"needs PostgreSQL: {', '.join(lacking)} not found" if lacking else None


@contextmanager
def postgresql() -> Iterator[str]:
    """Run a server on a free port of this machine, and yield its SQLAlchemy URL."""
    # not in the folders of the tests, which only their own user may enter
    folder = Path(tempfile.mkdtemp(prefix="fds-postgresql-"))
    as_user: dict[str, Any] = {}
    if os.geteuid() == 0:
        # PostgreSQL does not run as root
        as_user = {"user": "nobody", "group": "nogroup", "extra_groups": []}
        shutil.chown(folder, "nobody", "nogroup")
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        port = holder.getsockname()[1]
    run: dict[str, Any] = {"cwd": folder, "stdout": subprocess.DEVNULL, **as_user}
    try:
        data = str(folder / "data")
        subprocess.run(["initdb", "-D", data, "-U", "airflow", "-A", "trust", "-E", "UTF8", "-N"], check=True, **run)
        settings = [f"port={port}", "listen_addresses=127.0.0.1", f"unix_socket_directories={folder}", "fsync=off"]
        command = ["postgres", "-D", data, *(part for setting in settings for part in ("-c", setting))]
        server = subprocess.Popen(command, stderr=subprocess.DEVNULL, **run)
        try:
            _wait_for(port, server)
            yield f"postgresql+psycopg2://airflow@127.0.0.1:{port}/postgres"
        finally:
            server.terminate()
            server.wait(60)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _wait_for(port: int, server: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 120
    command = ["pg_isready", "-q", "-h", "127.0.0.1", "-p", str(port)]
    while subprocess.run(command, check=False).returncode != 0:
        assert server.poll() is None, f"PostgreSQL ended with {server.returncode}"
        assert time.monotonic() < deadline, "PostgreSQL did not answer in time"
        time.sleep(0.2)
