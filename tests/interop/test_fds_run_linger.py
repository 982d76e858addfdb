"""``fds run --linger`` as a person runs it: one Spark loads each commit as it comes."""

from __future__ import annotations

import json
import signal
import threading
import time
from typing import TYPE_CHECKING

import deltalake
import pyarrow as pa
import pytest

from airflow_provider_fds.delta.storage.open import open_storage
from airflow_provider_fds.ledger.staging.log import Ledger
from tests.fds_command import fds
from tests.interop.spark_processes import ending_commands, kill_processes_of, processes_of

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Begun = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    append(tmp_path, 0)
    return tmp_path


def append(lake: Path, number: int) -> None:
    """Commit ten rows."""
    rows = pa.table({"id": list(range(number * 10, number * 10 + 10))})
    deltalake.write_deltalake(lake / "orders", rows, mode="append")


def words(lake: Path, *more: str) -> list[str]:
    return [
        "run", str(lake / "orders"), "--sink", str(lake / "bronze"), "--staging", str(lake / "staging"),
        "--checkpoint", str(lake / "cp.json"), "--stream", "orders", "--output", "json", *more,
    ]  # fmt: skip


@pytest.fixture
def begun(lake: Path) -> Iterator[Begun]:
    """Starts `fds run`, which ends with the test."""
    with ending_commands(lake / "staging" / "orders" / "jobs") as begin:
        yield lambda *more: begin(*words(lake, "--master", "local[1]", *more))


def batch_of(run: subprocess.Popen[str]) -> int:
    """Wait for the next line about a batch, and return its number."""
    assert run.stdout is not None
    return int(json.loads(run.stdout.readline())["batch_id"])


def ended(run: subprocess.Popen[str]) -> str:
    """Ask a command that waits for data to end, and return what it still says."""
    # its last line is older than the end of the batch
    time.sleep(2)
    run.send_signal(signal.SIGTERM)
    return run.communicate(timeout=120)[0]


def drivers_of(lake: Path) -> list[int]:
    """Return the processes of Spark that were given a job of this test."""
    return processes_of(lake / "staging" / "orders" / "jobs")


def ids(lake: Path) -> list[int]:
    return sorted(deltalake.DeltaTable(lake / "bronze").to_pyarrow_table().column("id").to_pylist())


def test_one_spark_loads_each_commit_until_the_command_is_asked_to_end(lake, begun):
    run = begun("--linger", "10m")
    assert batch_of(run) == 0
    drivers = drivers_of(lake)
    assert drivers
    for number in (1, 2, 3):
        append(lake, number)
        assert batch_of(run) == number
        assert json.loads((lake / "cp.json").read_text())["batch_id"] == number
    assert drivers_of(lake) == drivers
    rest = ended(run)
    assert (run.returncode, json.loads(rest)) == (0, {"status": "up_to_date", "error": None})
    assert not drivers_of(lake), "Spark outlived the command"
    assert ids(lake) == list(range(40))
    commits = [commit for commit in deltalake.DeltaTable(lake / "bronze").history() if commit.get("userMetadata")]
    assert len(commits) == 4


@pytest.mark.parametrize("is_at_work", [False, True], ids=["between batches", "in a batch"])
def test_a_run_that_is_killed_while_it_lingers_is_continued(lake, begun, is_at_work):
    run = begun("--linger", "10m")
    assert batch_of(run) == 0
    append(lake, 1)
    if is_at_work:
        started = lake / "staging" / "orders" / "attempts" / "1" / "1"
        while not list(started.glob("*.started.json")):
            time.sleep(0.005)
    else:
        assert batch_of(run) == 1
    run.kill()
    run.communicate(timeout=60)
    append(lake, 2)
    # the driver of the killed command may still write; it never gets another job
    again = begun()
    out, _ = again.communicate(timeout=240)
    assert again.returncode == 0, out
    kill_processes_of(lake / "staging" / "orders" / "jobs")
    assert ids(lake) == list(range(30))


def test_the_log_checkpoints_of_its_sink_are_there_when_it_ends(lake, begun):
    schema, often = pa.schema([("id", pa.int64())]), {"delta.checkpointInterval": "3"}
    deltalake.DeltaTable.create(lake / "bronze", schema=schema, configuration=often)
    run = begun("--linger", "10m")
    assert batch_of(run) == 0
    for number in range(1, 10):
        append(lake, number)
        assert batch_of(run) == number
    ended(run)
    assert run.returncode == 0
    written = {int(file.name[:20]) for file in (lake / "bronze" / "_delta_log").glob("*.checkpoint.parquet")}
    assert written == {3, 6, 9}
    assert ids(lake) == list(range(100))


def test_a_driver_that_dies_before_the_log_checkpoint_of_its_commit_has_lost_nothing(lake, begun):
    run = begun("--linger", "10m")
    assert batch_of(run) == 0
    # after each commit from now on; version 1 is this change
    deltalake.DeltaTable(lake / "bronze").alter.set_table_properties({"delta.checkpointInterval": "1"})
    append(lake, 1)
    commit = lake / "bronze" / "_delta_log" / f"{2:020}.json"
    while not commit.exists():
        time.sleep(0.002)
    kill_processes_of(lake / "staging" / "orders" / "jobs")
    run.kill()
    run.communicate(timeout=60)
    again = begun()
    out, _ = again.communicate(timeout=240)
    assert again.returncode == 0, out
    assert ids(lake) == list(range(20))


def test_a_job_that_another_one_writes_for_a_lingering_driver_is_not_run(lake, begun):
    run = begun("--linger", "10m")
    assert batch_of(run) == 0
    jobs = lake / "staging" / "orders" / "jobs" / "1" / "0"
    (job,) = jobs.glob("*.job.json")
    attempt = job.name.rsplit("-", 1)[0]
    (jobs / f"{attempt}.next.json").write_text(json.dumps({"spec_uri": job.as_uri(), "code": "0" * 64}))
    deadline = time.monotonic() + 60
    while drivers_of(lake) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not drivers_of(lake)
    # the next batch starts another driver
    append(lake, 1)
    assert batch_of(run) == 1
    ended(run)
    assert run.returncode == 0
    assert ids(lake) == list(range(20))


def test_a_server_loads_each_commit_until_none_comes(lake, connect_server):
    def write() -> None:
        ledger = Ledger(open_storage(str(lake / "staging")), "orders")
        for number in (1, 2, 3):
            while ledger.find().next_batch_id < number or ledger.state.planned:
                time.sleep(0.1)
            append(lake, number)

    writing = threading.Thread(target=write)
    writing.start()
    done = fds(*words(lake, "--linger", "5s", "--remote", connect_server.url))
    writing.join()
    assert done.returncode == 0, done.stderr[-3000:]
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["batch_id"] for line in lines[:-1]] == [0, 1, 2, 3]
    assert ids(lake) == list(range(40))
