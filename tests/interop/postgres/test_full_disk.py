"""A full disk of the database server: no row is lost or doubled, and a retry continues once there is space."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.fds_command import fds
from tests.interop.postgres.conftest import Database
from tests.interop.postgres.test_runs import Lake
from tests.postgresql import IMMEDIATE, PostgresServer, missing

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.timeout(900)

#: How `fds run` ends if a retry may help.
RETRYABLE = 6


@contextmanager
def small_disk(place: Path, size: str) -> Iterator[None]:
    """Have a folder on a disk of its own, with what is in it."""
    kept = place.with_name(f"{place.name}.kept")
    shutil.copytree(place, kept)
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        shutil.rmtree(kept)
        pytest.skip(f"mounting a tmpfs is not permitted: {done.stderr.strip()}")
    try:
        shutil.copytree(kept, place, dirs_exist_ok=True)
        for path in (place, *place.rglob("*")):
            shutil.chown(path, "nobody", "nogroup")
        place.chmod(0o700)
        yield
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)
        shutil.rmtree(kept)


@pytest.fixture
def small_tablespace(database: Database) -> Iterator[Path]:
    """The table of the tests is alone on a disk."""
    place = Path(tempfile.mkdtemp(prefix="fds-tablespace-"))
    with small_disk(place, "4m"):
        database.run(f"CREATE TABLESPACE small LOCATION '{place}'")
        database.run("ALTER TABLE public.orders SET TABLESPACE small")
        yield place
        database.run("DROP TABLE public.orders")
        database.run("DROP TABLESPACE small")
    shutil.rmtree(place)


def fill(disk: Path) -> Path:
    """Leave nothing free on a disk."""
    path = disk / "filler"
    with path.open("wb", buffering=0) as filler:
        try:
            while True:
                filler.write(b"x" * 4096)
        except OSError:
            pass
    return path


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, connect_server: Any) -> Lake:
    return Lake(tmp_path, connect_server.url)


def reached_by(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in database.parameters().items():
        monkeypatch.setenv({"dbname": "PGDATABASE"}.get(name, f"PG{name.upper()}"), str(value))


def test_a_disk_without_space_for_a_batch_is_named_and_a_retry_continues(lake, database, small_tablespace, monkeypatch):
    reached_by(database, monkeypatch)
    lake.append(1, 2)
    lake.load()
    filler = fill(small_tablespace)
    lake.append(*range(3, 5_000))
    for _ in range(2):
        failed = fds(*lake.words())
        assert failed.returncode == RETRYABLE, failed.stderr
        assert "SINK_FULL" in failed.stderr
        assert 'a disk of the database is full (53100: could not extend file "pg_tblspc/' in failed.stderr
        assert "No space left on device" in failed.stderr
        assert "Free space there; a retry asks the account what it has, and continues" in failed.stderr
        assert database.rows() == [1, 2]
    filler.unlink()
    lake.append(5_000)
    lake.load()
    assert database.rows() == lake.ids
    assert database.run("SELECT sum(rows) FROM fds.batches") == [(5_000,)]


@pytest.fixture
def small_log() -> Iterator[tuple[Database, Path]]:
    """A server whose write-ahead log is on a disk with room for one file of it."""
    if (problem := missing("psycopg")) is not None:
        pytest.skip(problem)
    folder = Path(tempfile.mkdtemp(prefix="fds-postgresql-"))
    try:
        server = PostgresServer(folder, "fds", "max_wal_size=32MB", "min_wal_size=32MB")
        log = folder / "data" / "pg_wal"
        with small_disk(log, "24m"):
            try:
                server.start()
                yield Database(server, "postgres"), log
            finally:
                server.stop(IMMEDIATE)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def test_a_server_that_ends_because_its_log_is_full_still_has_each_row_once(lake, small_log, monkeypatch):
    database, log = small_log
    reached_by(database, monkeypatch)
    database.run("CREATE TABLE public.orders (id bigint, name text, p bigint)")
    lake.append(1, 2)
    lake.load()
    lake.append(*range(3, 300_000))
    failed = fds(*lake.words())
    # the server ends, and its last words may not arrive
    assert failed.returncode == RETRYABLE, failed.stderr
    assert "SINK_FULL" in failed.stderr or "SINK_CONNECTION_LOST" in failed.stderr
    # not in order: the checkpoint of that needs space in the log
    database.server.stop(IMMEDIATE)
    subprocess.run(["mount", "-o", "remount,size=200m", str(log)], check=True)
    database.server.start()
    assert database.rows() == [1, 2]
    lake.append(300_000)
    lake.load()
    assert database.rows() == lake.ids
    assert database.run("SELECT sum(rows) FROM fds.batches") == [(300_000,)]
