"""Whole runs of data intervals into PostgreSQL, killed and stopped: whatever happens, each row is in the table once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import deltalake
import pyarrow as pa
import pytest

from airflow_provider_fds.fault_points import ASKED_BY, MARKS_IN

if TYPE_CHECKING:
    from pathlib import Path

    from tests.interop.postgres.conftest import Database

pytestmark = pytest.mark.timeout(900)

#: Where the driver is killed, and the points of the run around it that matter for "done".
POINTS = (
    "driver.started",
    "driver.commit.before",
    "driver.commit.before#2",
    "driver.commit.after",
    "driver.report.after",
    "entry.before.committed",
)
FIRST = datetime(2026, 1, 1, tzinfo=UTC)


class Days:
    """A source with two commits on each of two days, and runs of these days."""

    def __init__(self, folder: Path, remote: str, mode: str) -> None:
        self.folder = folder
        self._remote = remote
        self._mode = mode
        for n in range(4):
            deltalake.write_deltalake(folder / "orders", pa.table({"id": [n * 10, n * 10 + 1]}), mode="append")
            when = (FIRST + timedelta(hours=12 * n + 1)).timestamp()
            os.utime(folder / "orders" / "_delta_log" / f"{n:020d}.json", (when, when))

    def start(self, day: int, fault: str | None = None) -> subprocess.Popen[str]:
        span = [(FIRST + timedelta(days=n)).isoformat() for n in (day, day + 1)]
        words = [str(self.folder / "orders"), str(self.folder / "staging"), self._remote, self._mode, *span]
        faults = {} if fault is None else {ASKED_BY: fault, MARKS_IN: str(self.folder)}
        return subprocess.Popen(
            [sys.executable, "-m", "tests.interop.postgres.interval_run", *words],
            env={**os.environ, **faults}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip

    def load(self, day: int) -> str:
        process = self.start(day)
        said, _ = process.communicate(timeout=300)
        assert process.returncode == 0, said[-3000:]
        return said

    def die(self, day: int, point: str) -> None:
        process = self.start(day, f"kill@{point}")
        said, _ = process.communicate(timeout=300)
        assert process.returncode == -signal.SIGKILL, said[-3000:]


@pytest.fixture
def environment(database: Database, monkeypatch: pytest.MonkeyPatch) -> Database:
    """The database, as the environment of libpq has it, with a row of somebody else."""
    for name, value in database.parameters().items():
        monkeypatch.setenv({"dbname": "PGDATABASE"}.get(name, f"PG{name.upper()}"), str(value))
    database.run("ALTER TABLE public.orders ADD _source_version bigint, ADD _source_timestamp timestamptz")
    database.run("INSERT INTO public.orders (id) VALUES (99)")
    return database


@pytest.fixture
def days(request: pytest.FixtureRequest, tmp_path: Path, environment: Database, connect_server: Any) -> Days:
    del environment
    return Days(tmp_path, connect_server.url, request.param)


@pytest.mark.parametrize(
    ("days", "point"), [*(("replace", point) for point in POINTS), ("append", "driver.commit.after")], indirect=["days"]
)
def test_a_run_that_is_killed_is_finished_by_the_next_one(days, environment, point):
    days.load(1)
    days.die(0, point)
    days.load(0)
    assert environment.rows() == [0, 1, 10, 11, 20, 21, 30, 31, 99]


@pytest.mark.parametrize("point", ["driver.commit.before#2", "driver.commit.after", "entry.before.committed"])
@pytest.mark.parametrize("days", ["replace"], indirect=True)
def test_a_repeated_run_that_is_killed_leaves_the_interval_whole(days, environment, point):
    days.load(0)
    days.load(1)
    environment.run("UPDATE public.orders SET name = 'stale'")
    days.die(0, point)
    assert environment.rows() == [0, 1, 10, 11, 20, 21, 30, 31, 99]
    days.load(0)
    assert environment.rows() == [0, 1, 10, 11, 20, 21, 30, 31, 99]
    assert environment.run("SELECT id FROM public.orders WHERE name = 'stale' ORDER BY id") == [
        (20,),
        (21,),
        (30,),
        (31,),
        (99,),
    ]


@pytest.mark.parametrize("days", ["replace"], indirect=True)
def test_a_run_that_was_stopped_with_the_lock_is_ended_by_a_later_generation(days, environment):
    days.load(0)
    with days.start(0, "stop@driver.commit.before#2") as process:
        try:
            mark = days.folder / "stop@driver.commit.before#2"
            while not (mark.exists() and mark.read_text()):
                assert process.poll() is None, process.communicate()[0][-3000:]
                time.sleep(0.05)
            refused = days.start(0)
            said, _ = refused.communicate(timeout=300)
            assert refused.returncode != 0
            assert "another transaction holds the stream" in said
            days.load(0)
            process.send_signal(signal.SIGCONT)
            process.communicate(timeout=300)
        finally:
            process.kill()
    assert environment.rows() == [0, 1, 10, 11, 99]
