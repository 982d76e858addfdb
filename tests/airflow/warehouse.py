"""A PostgreSQL server whose role needs a password, as the connection ``warehouse`` of Airflow, and a search for it."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.postgresql import FAST, PostgresServer

if TYPE_CHECKING:
    from collections.abc import Iterator

PASSWORD = "never-to-be-seen-in-anything-written"
_RULES = "host all fds all trust\nhost all loader all scram-sha-256\n"


class Warehouse:
    """A database, asked as its superuser, who needs no password.

    Attributes:
        uri: Airflow's connection for the role ``loader``, which needs :data:`PASSWORD`.
    """

    def __init__(self, server: PostgresServer) -> None:
        self._port = server.port
        self.uri = f"postgres://loader:{PASSWORD}@127.0.0.1:{server.port}/postgres"

    def run(self, statement: str) -> list[tuple[Any, ...]]:
        """Run a statement, and return its rows."""
        import psycopg

        where: dict[str, Any] = {"host": "127.0.0.1", "port": self._port, "user": "fds", "dbname": "postgres"}
        with psycopg.connect(**where, autocommit=True) as connection:
            done = connection.execute(statement.encode())
            return list(done.fetchall()) if done.description else []


@contextmanager
def running_warehouse() -> Iterator[Warehouse]:
    """Run a server with the role ``loader`` and a table ``public.orders`` with the columns of the source's versions."""
    folder = Path(tempfile.mkdtemp(prefix="fds-postgresql-"))
    server = PostgresServer(folder, "fds")
    (folder / "data" / "pg_hba.conf").write_text(_RULES)
    try:
        server.start()
        warehouse = Warehouse(server)
        warehouse.run(f"CREATE ROLE loader LOGIN SUPERUSER PASSWORD '{PASSWORD}'")
        warehouse.run(
            "CREATE TABLE public.orders (id bigint, name text, _source_version bigint, _source_timestamp timestamptz)"
        )
        yield warehouse
    finally:
        server.stop(FAST)
        shutil.rmtree(folder, ignore_errors=True)


class Search:
    """Looks for the password in command lines and files.

    Attributes:
        found: Where it was.
        commands: Command lines that were looked at.
    """

    def __init__(self, *folders: Path) -> None:
        self._folders = folders
        self.found: set[str] = set()
        self.commands: set[str] = set()

    @contextmanager
    def meanwhile(self) -> Iterator[None]:
        """Look again and again while the body runs, and once after it."""
        is_over = threading.Event()
        thread = threading.Thread(target=self._until, args=(is_over,))
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join()
        self.look()

    def _until(self, is_over: threading.Event) -> None:
        while not is_over.wait(0.1):
            self.look()

    def look(self) -> None:
        """Look once."""
        for process in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                command = process.read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                # it has ended
                continue
            self.commands.add(command)
            if PASSWORD in command:
                self.found.add(command)
        # not in this process: to close a file ends its locks on it, and without them another process takes the log of
        # Airflow's database, which SQLite has open here, for one that nobody uses
        words = [
            "grep",
            "--recursive",
            "--files-with-matches",
            "--text",
            "--fixed-strings",
            "--file=-",
            "--no-messages",
        ]
        seen = subprocess.run(
            [*words, *map(str, self._folders)], input=PASSWORD, capture_output=True, text=True, check=False
        )
        self.found.update(seen.stdout.splitlines())
