"""The password of a PostgresSink: no file, command line or log of a run shows it, whether the run works or fails."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.airflow.conftest import HOME
from tests.postgresql import FAST, PostgresServer, missing

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.timeout(900)

PASSWORD = "never-to-be-seen-in-anything-written"
RULES = "host all fds all trust\nhost all loader all scram-sha-256\n"
DAG = """
from airflow.sdk import DAG
from airflow_provider_fds import DeltaIngestOperator, DeltaStream, PostgresSink

with DAG("password_of_a_database"):
    DeltaIngestOperator(
        task_id="ingest",
        stream=DeltaStream("orders", table="{lake}/orders", starting_version=0),
        sink=PostgresSink("public.orders", conn_id="warehouse", provenance=True),
        conn_id="spark_default",
        conf={{"spark.eventLog.enabled": "true", "spark.eventLog.dir": "{events}", "spark.eventLog.compress": "false"}},
    )
"""


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    if (problem := missing("psycopg")) is not None:
        pytest.skip(problem)
    folder = Path(tempfile.mkdtemp(prefix="fds-postgresql-"))
    server = PostgresServer(folder, "fds")
    (folder / "data" / "pg_hba.conf").write_text(RULES)
    try:
        server.start()
        yield server
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


def test_the_search_finds_it_in_files_and_command_lines(tmp_path):
    (tmp_path / "file").write_text(f"password={PASSWORD}")
    search = Search(tmp_path)
    program = "print(flush=True); import time; time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", program, PASSWORD], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            process.stdout.readline()
            search.look()
        finally:
            process.kill()
    assert str(tmp_path / "file") in search.found
    assert any(program in found for found in search.found)


@pytest.mark.parametrize("is_right", [True, False], ids=["right", "wrong"])
def test_no_command_file_or_log_of_a_run_has_the_password(
    installation, lake, server, tmp_path, monkeypatch, capfd, caplog, is_right
):
    import psycopg

    events, temporary = tmp_path / "events", tmp_path / "tmp"
    events.mkdir()
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setenv("AIRFLOW_CONN_WAREHOUSE", f"postgres://loader:{PASSWORD}@127.0.0.1:{server.port}/postgres")
    lake.append("orders", 1, 2)
    with psycopg.connect(host="127.0.0.1", port=server.port, user="fds", dbname="postgres", autocommit=True) as one:
        role: Any = PASSWORD if is_right else "another"
        one.execute(f"CREATE ROLE loader LOGIN SUPERUSER PASSWORD '{role}'")
        one.execute(
            "CREATE TABLE public.orders (id bigint, name text, _source_version bigint, _source_timestamp timestamptz)"
        )
        dag = installation.add(DAG.format(lake=lake.uri, events=events.as_uri()))
        search = Search(tmp_path, HOME)
        with search.meanwhile():
            run = installation.run(dag)
        rows = one.execute("SELECT id FROM public.orders ORDER BY id").fetchall()

    assert run.state("ingest") == ("success" if is_right else "failed")
    assert rows == ([(1,), (2,)] if is_right else [])
    written = capfd.readouterr()
    said = written.out + written.err + caplog.text
    assert PASSWORD not in said
    assert not search.found
    # the search has seen what there is to see
    assert any("spark.eventLog" in command or "fds-driver" in command for command in search.commands)
    assert any(path.stat().st_size for path in events.rglob("*") if path.is_file())
    assert is_right or "password authentication failed" in said
