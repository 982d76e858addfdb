"""``fds run --file`` as a person runs it: tables from one file, a broken one, and changes while it runs."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import deltalake
import pyarrow as pa
import pytest

from airflow_provider_fds.cli.main import main
from airflow_provider_fds.errors import EXIT_CONFIGURATION, EXIT_STORAGE
from tests.interop.test_fds_run import spark_of

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

FILE = """
defaults:
  staging: {root}/staging
  starting_version: 0
  max_versions_per_batch: 1
  sink:
    uri: {root}/bronze/{{table}}
    constant_columns: {{source_system: crm}}
groups:
  crm:
    parallelism: 2
streams:
  - table: {root}/orders
    group: crm
    checkpoint: file:{root}/orders.json
    sink: {{kind: delta_merge, keys: [id]}}
  - tables: {root}/raw/*
    group: crm
    name: raw.{{table}}
"""


def append(table: Path, versions: int, *, first: int = 0) -> None:
    """Append ten rows in each version."""
    for number in range(first, first + versions):
        rows = pa.table({"id": list(range(number * 10, number * 10 + 10))})
        deltalake.write_deltalake(table, rows, mode="append")


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    for name in ("orders", "raw/a", "raw/b", "raw/broken", "raw/dropped"):
        append(tmp_path / name, 3)
    (tmp_path / "streams.yaml").write_text(FILE.format(root=tmp_path))
    return tmp_path


def command(lake: Path, *spark: str) -> list[str]:
    words = "run", "--file", str(lake / "streams.yaml"), "--output", "json", *(spark or ("--master", "local[2]"))
    return [sys.executable, "-m", "airflow_provider_fds.cli.main", *words]


def begin(words: list[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def specs(lake: Path) -> set[Path]:
    """Return the specs of applications in staging."""
    return set((lake / "staging" / ".fleets").rglob("*.fleet.json"))


def ended(
    lake: Path, process: subprocess.Popen[str], left: Collection[Path] = ()
) -> tuple[int, dict[str, dict[str, Any]], dict[str, Any]]:
    """Wait; return exit code, what is printed of each stream, and the totals. ``left``: specs of a killed run."""
    out, err = process.communicate(timeout=300)
    assert out, err[-3000:]
    *streams, total = map(json.loads, out.splitlines())
    assert specs(lake) == set(left), "specs of fleets are left"
    return process.returncode, {one["stream"]: one for one in streams}, total


def ids(sink: Path) -> list[int]:
    rows = deltalake.DeltaTable(sink).to_pyarrow_table()
    assert set(rows.column("source_system").to_pylist()) == {"crm"}
    return sorted(rows.column("id").to_pylist())


def test_a_fleet_whose_tables_break_appear_and_go_while_it_runs_loses_and_doubles_no_row(lake, connect_server):
    torn = lake / "raw" / "broken" / "_delta_log" / f"{2:020d}.json"
    whole = torn.read_bytes()
    torn.write_bytes(whole[: len(whole) // 2])

    first = begin(command(lake))
    deadline = time.monotonic() + 120
    while not list(lake.rglob("*.fleet.json")) and time.monotonic() < deadline and first.poll() is None:
        time.sleep(0.02)
    # planned, and Spark is starting
    shutil.rmtree(lake / "raw" / "dropped")
    append(lake / "raw" / "new", 2)
    append(lake / "raw" / "a", 1, first=3)
    code, streams, total = ended(lake, first)

    assert {name: (one["outcome"], one.get("batches")) for name, one in streams.items()} == {
        "orders": ("loaded", 3),
        "raw.a": ("loaded", 3),
        "raw.b": ("loaded", 3),
        "raw.broken": ("failed", None),
        "raw.dropped": ("failed", None),
    }
    assert (code, total) == (EXIT_STORAGE, {"streams": 5, "stopped": 2, "applications": 1, "problems": []})

    torn.write_bytes(whole)
    code, streams, total = ended(lake, begin(command(lake, "--remote", connect_server.url)))
    assert {name: (one["outcome"], one.get("batches"), one.get("rows")) for name, one in streams.items()} == {
        "orders": ("unchanged", None, None),
        "raw.a": ("loaded", 1, 10),
        "raw.b": ("unchanged", None, None),
        "raw.broken": ("loaded", 3, 30),
        "raw.new": ("loaded", 2, 20),
    }
    assert (code, total["stopped"], total["applications"]) == (EXIT_CONFIGURATION, 0, 1)
    assert ["table" in one and "of stream 'raw.dropped' is gone" in one for one in total["problems"]] == [True]
    loaded = {"orders": 30, "a": 40, "b": 30, "broken": 30, "new": 20}
    assert {name: ids(lake / "bronze" / name) for name in loaded} == {
        name: list(range(rows)) for name, rows in loaded.items()
    }
    assert json.loads((lake / "orders.json").read_text())["batch_id"] == 2


FOUR = """
defaults:
  staging: {root}/staging
  starting_version: 0
  max_versions_per_batch: 1
  sink: {{uri: "{root}/bronze/{{table}}"}}
groups:
  default: {{parallelism: 2}}
streams:
  - tables: {root}/raw/*
    checkpoint: file:{root}/offsets/{{name}}.json
"""


@pytest.fixture
def four(tmp_path: Path) -> Path:
    for name in "abcd":
        append(tmp_path / "raw" / name, 4)
    (tmp_path / "streams.yaml").write_text(FOUR.format(root=tmp_path))
    return tmp_path


def landed(lake: Path) -> dict[str, int]:
    """Return the number of batches in each sink."""
    found = {}
    for name in "abcd":
        commits = (lake / "bronze" / name / "_delta_log").glob("*.json")
        found[name] = sum('"txn"' in commit.read_text() for commit in commits)
    return found


def all_ids(lake: Path) -> dict[str, list[int]]:
    tables = {name: deltalake.DeltaTable(lake / "bronze" / name).to_pyarrow_table() for name in "abcd"}
    return {name: sorted(rows.column("id").to_pylist()) for name, rows in tables.items()}


def test_a_fleet_that_is_killed_with_its_spark_is_continued_by_its_next_run(four, connect_server, capsys):
    single = [
        "run", str(four / "raw" / "a"), "--stream", "a", "--sink", str(four / "bronze" / "a"), "--master", "local[2]",
        "--staging", str(four / "staging"), "--checkpoint", str(four / "offsets" / "a.json"), "--output", "json",
        "--option", "starting_version=0", "--option", "max_versions_per_batch=1",
    ]  # fmt: skip
    first = subprocess.Popen(command(four), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not specs(four) and time.monotonic() < deadline and first.poll() is None:
        time.sleep(0.02)
    # a command about one of its streams finds it at work
    assert main(single) != 0
    assert "[STREAM_BUSY]" in capsys.readouterr().err
    while sum(landed(four).values()) < 3 and time.monotonic() < deadline and first.poll() is None:
        time.sleep(0.02)
    first.kill()
    first.wait(timeout=60)
    for process_id in spark_of(four):
        with suppress(ProcessLookupError):
            os.kill(process_id, signal.SIGKILL)
    done = landed(four)
    assert 3 <= sum(done.values()) < 16, done
    left = specs(four)
    append(four / "raw" / "a", 1, first=4)
    second = begin(command(four, "--remote", connect_server.url))
    code, streams, total = ended(four, second, left)
    # what the killed run had planned, and then the new version
    assert (code, total["stopped"], total["applications"]) == (0, 0, 2)
    assert streams["a"]["last_batch_id"] == 4
    assert all_ids(four) == {"a": list(range(50)), **{name: list(range(40)) for name in "bcd"}}
    assert landed(four) == {"a": 5, "b": 4, "c": 4, "d": 4}
    assert json.loads((four / "offsets" / "d.json").read_text())["batch_id"] == 3
