"""A ledger with unreadable entries, on real Spark and Delta: after `fds recover` each row is in the sink once."""

from __future__ import annotations

import os
import shutil
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import deltalake
import pytest

from airflow_provider_fds.checkpoint.file import FileCheckpointStore
from airflow_provider_fds.cli.main import main
from airflow_provider_fds.errors import LedgerError, UnreadableEntryError
from airflow_provider_fds.sinks import DeltaAppendSink
from airflow_provider_fds.spark.application.job_run import run
from tests.interop.spark.test_epochs import EACH_ONCE, Desk

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.interop.spark.conftest import Prepared


@pytest.fixture
def desk(spark: SparkSession, prepared: Prepared) -> Desk:
    """Ten rows are in the sink, and twenty more in the source. Entries 0 to 4: created, opened, bound, planned, …"""
    return prepared.begin("ten rows", partial(Desk.with_ten_rows, spark))


def entries(desk: Desk) -> list[Path]:
    return sorted(Path(desk.staging, "orders", "ledger").glob("*.json"))


def damage(desk: Desk, *numbers: int) -> None:
    """Make entries unreadable, and remove one of several."""
    shutil.rmtree(Path(desk.staging, "orders", "ledger", "_checkpoint"), ignore_errors=True)
    for place, path in enumerate([entries(desk)[n] for n in numbers]):
        if place == 1:
            path.unlink()
        else:
            path.write_bytes(b'{"format":1')
    with pytest.raises(UnreadableEntryError, match="fds recover orders"):
        desk.load()


def recover(desk: Desk, capsys: Any, *more: str) -> tuple[int, str]:
    words = ("recover", "orders", "--staging", desk.staging, "--sink", desk.path, "--table", desk.source)
    code = main([*words, "--deployment", "test", "--yes", *more])
    told = capsys.readouterr()
    return code, told.out + told.err


@pytest.mark.parametrize("numbers", [(3,), (-1,), (0, 3, 5)], ids=["in the middle", "at the end", "several"])
def test_a_batch_in_progress_lands_once_although_its_ledger_cannot_be_read(desk, spark, capsys, numbers):
    early, late = desk.zombie(), desk.zombie()
    damage(desk, *numbers)
    code, told = recover(desk, capsys)
    assert (code, "batch 0 of epoch 1 in version" in told) == (0, True)
    # of two drivers that were left behind, one writes both batches before the epochs are closed
    run(spark, early)
    assert desk.ids() == EACH_ONCE
    with pytest.raises(LedgerError, match=r"batches 1 to 2 of epoch 1 .*`fds recover orders"):
        desk.load()

    assert recover(desk, capsys)[0] == 0
    desk.append(30)
    desk.load()
    run(spark, late)

    assert desk.ids() == list(range(40))
    desk.append(40)
    desk.load()
    assert desk.ids() == list(range(50))


def test_a_driver_of_before_the_repair_writes_nothing_once_the_epoch_has_begun(desk, spark, capsys):
    late = desk.zombie()
    damage(desk, 0, 4)
    assert recover(desk, capsys)[0] == 0
    desk.load()
    assert desk.ids() == EACH_ONCE
    run(spark, late)

    desk.append(30)
    desk.load()
    assert desk.ids() == list(range(40))


def test_a_fence_requested_by_a_lost_entry_removes_no_row_permanently(desk, spark, capsys):
    desk.load()
    desk.move("rewind", to=1, sink_rows="delete")
    session = desk.session()
    fence = desk.submit(session, session.begin(desk.sink))
    damage(desk, -1)
    assert recover(desk, capsys)[0] == 0
    # its DELETE comes after the sink was asked
    run(spark, fence)
    assert desk.ids() == list(range(10))

    with pytest.raises(LedgerError, match=r"fence of epoch 2 removed rows .*--to 1 "):
        desk.load()
    desk.move("rewind", to=1, replaces=True)
    desk.load()
    assert desk.ids() == EACH_ONCE


def test_a_stream_whose_staging_was_lost_after_the_sinks_log_expired_continues_after_its_checkpoint(
    spark, tmp_path, capsys
):
    desk = Desk(spark, tmp_path)
    desk.checkpoints = FileCheckpointStore(tmp_path / "checkpoint.json")
    desk.append(0)
    desk.load()
    for number, commit in enumerate(sorted(Path(desk.path, "_delta_log").iterdir())):
        os.utime(commit, (number, number))
    sink = deltalake.DeltaTable(desk.path)
    sink.alter.set_table_properties({"delta.appendOnly": "false"})
    sink.create_checkpoint()
    sink.cleanup_metadata()
    shutil.rmtree(desk.staging)
    desk.append(10)
    with pytest.raises(LedgerError, match="fds recover orders"):
        desk.load()

    code, told = recover(desk, capsys, "--checkpoint", str(tmp_path / "checkpoint.json"))
    assert (code, "(log cleanup removed its commit)" in told) == (0, True)
    desk.load()
    assert desk.ids() == list(range(20))


def test_a_stream_within_its_initial_snapshot_continues_within_it(spark, tmp_path, capsys):
    desk = Desk(spark, tmp_path)
    for first in (0, 10, 20):
        desk.append(first)
    desk.options = {"max_files_per_batch": 1}
    desk.sink = DeltaAppendSink(desk.path)
    desk.load(max_batches=1)
    damage(desk, 2)
    code, told = recover(desk, capsys)
    assert (code, "continues at the snapshot of version 2, 1 files in" in told) == (0, True)
    desk.append(30)
    desk.load()

    assert desk.ids() == list(range(40))
