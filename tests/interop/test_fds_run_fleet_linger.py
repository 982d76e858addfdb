"""``fds run --file … --linger`` as a person runs it: one Spark loads what comes in any table of the fleet."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import deltalake
import pyarrow as pa
import pytest

from airflow_provider_fds.delta.storage.open import open_storage
from airflow_provider_fds.errors import EXIT_OK
from airflow_provider_fds.ledger.staging.log import Ledger
from tests.fds_command import fds
from tests.interop.spark_processes import ending_commands, kill_processes_of, processes_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Begun = Callable[..., subprocess.Popen[str]]

FILE = """
defaults:
  staging: {root}/staging
  starting_version: 0
  sink: {{uri: "{root}/bronze/{{table}}", provenance: true}}
streams:
  - tables: {root}/raw/*
"""
NAMES = ("a", "b", "c")


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    (tmp_path / "streams.yaml").write_text(FILE.format(root=tmp_path))
    append(tmp_path, 0, *NAMES)
    return tmp_path


def append(lake: Path, number: int, *names: str) -> None:
    """Commit ten rows to each table."""
    rows = pa.table({"id": list(range(number * 10, number * 10 + 10))})
    for name in names:
        deltalake.write_deltalake(lake / "raw" / name, rows, mode="append")


@pytest.fixture
def begun(lake: Path) -> Iterator[Begun]:
    """Starts `fds run`, which ends with the test."""
    with ending_commands(lake / "staging" / ".fleets", stderr=subprocess.PIPE) as begin:

        def run(*more: str) -> subprocess.Popen[str]:
            words = more or ("--master", "local[2]")
            return begin("run", "--file", str(lake / "streams.yaml"), "--output", "json", *words)

        yield run


def ended(run: subprocess.Popen[str]) -> tuple[int, dict[str, dict[str, Any]], dict[str, Any]]:
    """Return the exit code of a command, what it prints of each stream, and the totals."""
    out, err = run.communicate(timeout=240)
    assert out, err[-3000:]
    *streams, total = map(json.loads, out.splitlines())
    return run.returncode, {one["stream"]: one for one in streams}, total


def ids(lake: Path, name: str) -> list[int]:
    with suppress(deltalake.exceptions.TableNotFoundError):
        return sorted(deltalake.DeltaTable(lake / "bronze" / name).to_pyarrow_table().column("id").to_pylist())
    return []


def wait_for(lake: Path, run: subprocess.Popen[str], count: int, *names: str) -> None:
    """Wait until the sinks of these tables have so many times ten rows."""
    deadline = time.monotonic() + 120
    while any(len(ids(lake, name)) < count * 10 for name in names):
        assert run.poll() is None, run.communicate()[1][-3000:]
        assert time.monotonic() < deadline, {name: len(ids(lake, name)) for name in names}
        time.sleep(0.1)


def drivers_of(lake: Path) -> list[int]:
    """Return the processes of Spark that were given a job of this test."""
    return processes_of(lake / "staging" / ".fleets")


def test_one_spark_loads_what_comes_in_any_table_until_the_command_is_asked_to_end(lake, begun):
    run = begun("--master", "local[2]", "--linger", "10m")
    wait_for(lake, run, 1, *NAMES)
    drivers = drivers_of(lake)
    assert drivers
    append(lake, 1, "a")
    wait_for(lake, run, 2, "a")
    append(lake, 1, "b", "c")
    wait_for(lake, run, 2, *NAMES)
    # a version that its stream cannot pass
    deltalake.DeltaTable(lake / "raw" / "c").delete("id = 3")
    append(lake, 2, "a", "b")
    wait_for(lake, run, 3, "a", "b")
    append(lake, 3, "a")
    wait_for(lake, run, 4, "a")
    assert drivers_of(lake) == drivers
    # the rows are there before their batch is committed
    time.sleep(3)
    run.send_signal(signal.SIGTERM)
    code, streams, total = ended(run)
    assert code != EXIT_OK
    assert {name: (one["outcome"], one.get("batches")) for name, one in streams.items()} == {
        "a": ("loaded", 4), "b": ("loaded", 3), "c": ("loaded", 2),
    }  # fmt: skip
    assert streams["c"]["stopped"]["reason_code"] == "SOURCE_ROWS_CHANGED"
    assert total["applications"] >= 4
    assert not drivers_of(lake), "Spark outlived the command"
    assert {name: ids(lake, name) for name in NAMES} == {
        "a": list(range(40)), "b": list(range(30)), "c": list(range(20)),
    }  # fmt: skip
    assert not list((lake / "staging" / ".fleets").rglob("*.fleet.json"))
    # the last one told the driver to end
    assert len(list((lake / "staging" / ".fleets").rglob("*.next.json"))) == 1


@pytest.mark.parametrize("is_at_work", [False, True], ids=["between rounds", "in a round"])
def test_a_fleet_that_is_killed_in_a_later_round_is_continued(lake, begun, is_at_work):
    run = begun("--master", "local[2]", "--linger", "10m")
    wait_for(lake, run, 1, *NAMES)
    append(lake, 1, *NAMES)
    if is_at_work:
        deadline = time.monotonic() + 120
        while not list((lake / "staging").glob("*/attempts/1/1/*.started.json")) and time.monotonic() < deadline:
            time.sleep(0.005)
    else:
        wait_for(lake, run, 2, *NAMES)
    run.kill()
    run.communicate(timeout=60)
    append(lake, 2, *NAMES)
    # the driver of the killed command may still write; it never gets another job
    code, streams, _ = ended(begun())
    kill_processes_of(lake / "staging" / ".fleets")
    assert (code, {name: one["outcome"] for name, one in streams.items()}) == (0, dict.fromkeys(NAMES, "loaded"))
    assert {name: ids(lake, name) for name in NAMES} == {name: list(range(30)) for name in NAMES}


def test_a_server_loads_what_comes_until_nothing_comes(lake, begun, connect_server):
    run = begun("--remote", connect_server.url, "--linger", "5s")

    def write() -> None:
        for number, names in ((1, ("b",)), (2, ("a", "c"))):
            wait_for(lake, run, 1, *NAMES)
            append(lake, number, *names)
            wait_for(lake, run, 2, *names)

    writing = threading.Thread(target=write)
    writing.start()
    code, streams, _ = ended(run)
    writing.join()
    assert (code, {name: one["batches"] for name, one in streams.items()}) == (0, dict.fromkeys(NAMES, 2))
    assert (ids(lake, "b"), ids(lake, "a")) == (list(range(20)), [*range(10), *range(20, 30)])


def test_a_stream_that_is_rewound_meanwhile_is_fenced_and_loaded_again(lake, begun, connect_server):
    run = begun("--remote", connect_server.url, "--linger", "10m")
    wait_for(lake, run, 1, *NAMES)
    append(lake, 1, "b")
    wait_for(lake, run, 2, "b")
    time.sleep(3)
    moved = fds(
        *("rewind", "b", "--to", "1", "--sink-rows", "delete", "--why", "a test", "--yes"),
        *("--staging", str(lake / "staging")),
    )
    assert moved.returncode == 0, moved.stderr
    ledger, deadline = Ledger(open_storage(str(lake / "staging")), "b"), time.monotonic() + 120
    while (ledger.find().epoch, ledger.state.phase, ledger.state.next_batch_id) != (2, "open", 1):
        assert time.monotonic() < deadline, ledger.state
        time.sleep(0.2)
    append(lake, 1, "a")
    wait_for(lake, run, 2, "a", "b")
    time.sleep(3)
    run.send_signal(signal.SIGTERM)
    code, streams, _ = ended(run)
    assert (code, {name: one["outcome"] for name, one in streams.items()}) == (0, dict.fromkeys(NAMES, "loaded"))
    assert (ids(lake, "a"), ids(lake, "b"), ids(lake, "c")) == (list(range(20)), list(range(20)), list(range(10)))
