"""PostgreSQL servers on this machine: for an Airflow that SQLite is not enough for, and as a sink."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.programs import find_program

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Signals by which a server ends: it waits for clients, ends them, or leaves everything as a crash does.
SMART, FAST, IMMEDIATE = signal.SIGTERM, signal.SIGINT, signal.SIGQUIT

_PROGRAMS = ("initdb", "postgres", "pg_isready")

#: A server keeps its data in memory if so much is free.
_ROOM_BYTES = 8 << 30


def missing(*modules: str) -> str | None:
    """Return what is missing to run a server and to reach it with these modules, ``None`` if nothing is."""
    lacking = [program for program in _PROGRAMS if find_program(program) is None]
    lacking += [module for module in modules if importlib.util.find_spec(module) is None]
    return f"needs PostgreSQL: {', '.join(lacking)} not found" if lacking else None


class PostgresServer:
    """A server with its data in a folder of its own.

    Args:
        folder: Its folder.
        user: The superuser, who needs no password.
        settings: Settings of the server.
    """

    def __init__(self, folder: Path, user: str, *settings: str) -> None:
        self.user = user
        self._folder = folder
        self._settings = settings
        self._process: subprocess.Popen[bytes] | None = None
        as_user: dict[str, Any] = {}
        if os.geteuid() == 0:
            # PostgreSQL does not run as root
            as_user = {"user": "nobody", "group": "nogroup", "extra_groups": []}
            shutil.chown(folder, "nobody", "nogroup")
        with socket.socket() as holder:
            holder.bind(("127.0.0.1", 0))
            self.port = holder.getsockname()[1]
        self._run: dict[str, Any] = {"cwd": folder, "stdout": subprocess.DEVNULL, **as_user}
        command = [_program("initdb"), "-D", self._data, "-U", user, "-A", "trust", "-E", "UTF8", "-N"]
        subprocess.run(command, check=True, **self._run)

    @property
    def _data(self) -> str:
        return str(self._folder / "data")

    @property
    def pid(self) -> int | None:
        """The process of the server, ``None`` if it does not run."""
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        """Start the server, and wait until it answers."""
        settings = [
            f"port={self.port}", "listen_addresses=127.0.0.1", f"unix_socket_directories={self._folder}",
            *self._settings,
        ]  # fmt: skip
        command = [_program("postgres"), "-D", self._data, *(part for setting in settings for part in ("-c", setting))]
        self._process = subprocess.Popen(command, stderr=subprocess.DEVNULL, **self._run)
        _wait_for(self.port, self._process)

    def stop(self, how: signal.Signals = SMART) -> None:
        """Stop the server, if it runs, and wait for its end."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(60)
            self._process = None


@contextmanager
def running_server(user: str, *settings: str, on_disk: bool = False) -> Iterator[PostgresServer]:
    """Run a server on a free port of this machine.

    Its data is in memory if there is room and ``on_disk`` is not set. On a disk, each commit waits, and a server with
    many databases takes minutes to end.
    """
    # not in the folders of the tests, which only their own user may enter
    folder = Path(tempfile.mkdtemp(prefix="fds-postgresql-", dir=None if on_disk else _memory()))
    try:
        server = PostgresServer(folder, user, *settings)
        try:
            server.start()
            yield server
        finally:
            server.stop(IMMEDIATE)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _memory() -> str | None:
    """Return the folder that is kept in memory, ``None`` if it is missing or has not much room."""
    found = "/dev/shm"
    return found if Path(found).is_dir() and shutil.disk_usage(found).free > _ROOM_BYTES else None


@contextmanager
def running_pooler(server: PostgresServer) -> Iterator[int]:
    """Run pgbouncer before a server, and yield its port: each transaction gets any of a few sessions."""
    folder = Path(tempfile.mkdtemp(prefix="fds-pgbouncer-"))
    as_user: list[str] = []
    if os.geteuid() == 0:
        # neither does pgbouncer
        as_user = ["-u", "nobody"]
        shutil.chown(folder, "nobody", "nogroup")
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        port = holder.getsockname()[1]
    (folder / "users.txt").write_text(f'"{server.user}" ""\n')
    (folder / "pgbouncer.ini").write_text(
        f"[databases]\n* = host=127.0.0.1 port={server.port}\n[pgbouncer]\nlisten_addr=127.0.0.1\n"
        f"listen_port={port}\nunix_socket_dir=\nauth_type=trust\nauth_file={folder}/users.txt\n"
        "pool_mode=transaction\ndefault_pool_size=3\n"
    )
    command = [_program("pgbouncer"), "-q", *as_user, str(folder / "pgbouncer.ini")]
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _wait_for(port, process)
        yield port
    finally:
        process.kill()
        process.wait(60)
        shutil.rmtree(folder, ignore_errors=True)


def missing_pooler() -> str | None:
    """Return that there is no pgbouncer, ``None`` if there is one."""
    return None if find_program("pgbouncer") else "needs pgbouncer: apt-get install pgbouncer"


def _program(name: str) -> str:
    return find_program(name) or name


@contextmanager
def postgresql() -> Iterator[str]:
    """Run a server for one Airflow, and yield its SQLAlchemy URL: on SQLite, `airflow backfill create` is refused."""
    with running_server("airflow", "fsync=off") as server:
        yield f"postgresql+psycopg2://airflow@127.0.0.1:{server.port}/postgres"


def _wait_for(port: int, server: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 120
    command = [_program("pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(port)]
    while subprocess.run(command, check=False).returncode != 0:
        assert server.poll() is None, f"PostgreSQL ended with {server.returncode}"
        assert time.monotonic() < deadline, "PostgreSQL did not answer in time"
        time.sleep(0.2)
