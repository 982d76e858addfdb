"""``fds run`` when VACUUM has taken files that are planned and not loaded yet: an error, and no row is lost."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import deltalake
import pyarrow as pa
import pytest

from airflow_provider_fds.batch.sink.commit_metadata import read_commit_metadata
from airflow_provider_fds.errors import EXIT_BATCH_FAILED, EXIT_LOST_POSITION
from tests import fds_command

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fds_command import Ran


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """A table of three appends of ten rows."""
    for version in range(3):
        rows = pa.table({"id": list(range(version * 10, version * 10 + 10))})
        deltalake.write_deltalake(tmp_path / "orders", rows, mode="append")
    return tmp_path


def fds(command: str, lake: Path, *more: str) -> Ran:
    return fds_command.fds(
        *(command, str(lake / "orders"), "--stream", "orders", "--staging", str(lake / "staging"), "--output", "json"),
        *("--option", "starting_version=0", "--option", "max_versions_per_batch=1"),
        *("--option", "skip_change_commits=true", *more),
    )


def run(lake: Path, *spark: str) -> Ran:
    return fds("run", lake, "--sink", str(lake / "bronze"), "--checkpoint", str(lake / "cp.json"), *spark)


def committed(lake: Path) -> list[int]:
    """Return the batches that the ledger says are committed."""
    entries = sorted((lake / "staging" / "orders" / "ledger").glob("*.json"))
    actions = [json.loads(entry.read_text())["action"] for entry in entries]
    return [action["batch_id"] for action in actions if action["kind"] == "committed"]


def last_line(done: Ran) -> Any:
    return json.loads(done.stdout.splitlines()[-1])


def test_files_that_vacuum_took_under_a_plan_are_an_error_and_no_row_is_lost_once_they_are_back(lake, connect_server):
    assert fds("plan", lake).returncode == 0
    table = deltalake.DeltaTable(lake / "orders")
    shutil.copytree(lake / "orders", lake / "backup")
    table.delete("id >= 10 AND id < 20")
    removed = table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    assert len(removed) == 1

    server = ("--remote", connect_server.url)
    for spark in (("--master", "local[1]"), server):
        failed = run(lake, *spark)
        assert failed.returncode == EXIT_BATCH_FAILED, failed.stderr[-3000:]
        error = last_line(failed)["error"]
        assert error["type"] == "SourceFilesGoneError"
        for words in ("batch 1 of ", "(version 1)", str(lake / "orders"), removed[0], "VACUUM", "restore the files"):
            assert words in error["message"]
        assert "`fds replan orders --why …`, then `fds skip orders --version 1 --why …`" in error["message"]
        assert committed(lake) == [0]
        assert ids(lake) == list(range(10))

    shutil.copy2(lake / "backup" / removed[0], lake / "orders" / removed[0])
    done = run(lake, *server)
    assert done.returncode == 0, done.stderr[-3000:]
    assert committed(lake) == [0, 1, 2]
    assert ids(lake) == list(range(30))
    found = [read_commit_metadata(c.get("userMetadata")) for c in deltalake.DeltaTable(lake / "bronze").history()]
    assert sorted(m["batch_id"] for m in found if m is not None) == [0, 1, 2]


def test_a_table_recreated_under_a_plan_is_named_without_advice_to_skip_versions(lake):
    assert fds("plan", lake).returncode == 0
    shutil.rmtree(lake / "orders")
    for version in range(4):
        deltalake.write_deltalake(lake / "orders", pa.table({"id": [100 + version]}), mode="append")

    for failed in (run(lake), fds("plan", lake)):
        assert failed.returncode == EXIT_LOST_POSITION, failed.stderr[-3000:]
        error = last_line(failed)["error"]
        assert error["type"] == "TableReplacedError"
        assert "fds skip" not in error["message"]
        assert "VACUUM" not in error["message"]
    assert committed(lake) == []
    assert not (lake / "bronze").exists()


def ids(lake: Path) -> list[int]:
    column = deltalake.DeltaTable(lake / "bronze").to_pyarrow_table().column("id")
    return sorted(column.to_pylist())
