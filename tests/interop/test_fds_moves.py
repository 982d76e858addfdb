"""A stream is moved by a person, as docs/failures.md says, with a real Spark: no row lost, none twice."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

import deltalake
import pyarrow as pa
import pytest

from tests.fds_command import fds

if TYPE_CHECKING:
    from pathlib import Path

    from tests.interop.connect_server import RunningServer


class Lake:
    """A source of three commits with ten rows each, and the commands that work it: ``spark`` says where."""

    def __init__(self, folder: Path, *spark: str) -> None:
        self.folder = folder
        self.spark = spark
        self.append(30)

    def append(self, until: int) -> None:
        first = len(self.read("orders")) if (self.folder / "orders").exists() else 0
        for start in range(first, until, 10):
            deltalake.write_deltalake(
                self.folder / "orders", pa.table({"id": list(range(start, start + 10))}), mode="append"
            )

    def run(self, *more: str, sink: str = "bronze") -> str:
        return self.fds(
            *("run", str(self.folder / "orders"), "--sink", str(self.folder / sink), "--stream", "orders"),
            *("--checkpoint", str(self.folder / "cp.json"), "--option", "starting_version=0"),
            *("--option", "max_versions_per_batch=1", "--sink-option", "provenance=yes", *self.spark, *more),
        )

    def move(self, *arguments: str) -> str:
        name, *rest = arguments
        return self.fds(name, "orders", "--why", "a test", "--yes", *rest)

    def fds(self, *arguments: str) -> str:
        done = fds(*arguments, "--staging", str(self.folder / "staging"))
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout

    def read(self, table: str) -> list[int]:
        return sorted(deltalake.DeltaTable(self.folder / table).to_pyarrow_table().column("id").to_pylist())


@pytest.fixture
def lake(tmp_path: Path, connect_server: RunningServer) -> Lake:
    return Lake(tmp_path, "--remote", connect_server.url)


def test_a_rewound_stream_whose_advice_is_followed_has_every_row_once(lake):
    lake.run()
    said = lake.move("rewind", "--to", "1", "--sink-rows", "keep")
    assert "The last version of the sink without them is 0." in said
    deltalake.DeltaTable(lake.folder / "bronze").restore(0)
    lake.append(40)

    said = lake.run()

    assert "30 rows in 3 batches" in said
    assert lake.read("bronze") == list(range(40))
    assert "epoch            2" in lake.fds("status", "orders")


def test_a_rewound_stream_whose_next_run_deletes_the_rows_has_every_row_once(tmp_path):
    lake = Lake(tmp_path, "--master", "local[1]")
    lake.run()
    said = lake.move("rewind", "--to", "1", "--sink-rows", "delete")
    assert "The next run deletes the rows with _source_version >= 1" in said
    lake.append(40)
    lake.run()

    assert lake.read("bronze") == list(range(40))
    assert "removes rows of version 1 and later from the sink: 20 rows" in lake.fds("history", "orders")


def test_a_rewound_stream_without_it_has_the_rows_twice_as_was_said(lake):
    lake.run()
    said = lake.move("rewind", "--to", "batch:2", "--sink-rows", "keep")
    assert "1 committed batch (10 rows) is read again" in said
    lake.run()

    assert Counter(lake.read("bronze")) == {number: 2 if number >= 20 else 1 for number in range(30)}


def test_a_rebound_stream_continues_in_the_new_sink_and_can_be_moved_on_after_a_poisoned_batch(lake):
    lake.run("--max-batches", "1")
    lake.move("replan", "--new-sink")
    lake.run("--max-batches", "1", sink="silver")
    assert (lake.read("bronze"), lake.read("silver")) == (list(range(10)), list(range(10, 20)))

    lake.fds(
        *("plan", str(lake.folder / "orders"), "--stream", "orders", "--option", "starting_version=0"),
        *("--option", "max_versions_per_batch=1"),
    )
    lake.move("replan")
    lake.run(sink="silver")
    assert lake.read("silver") == list(range(10, 30))


def test_a_stream_whose_staging_and_checkpoint_are_lost_does_not_load_its_rows_again(lake):
    lake.run()
    for folder in ("staging", "cp.json"):
        (lake.folder / folder).rename(lake.folder / f"lost {folder}")
    bronze = deltalake.DeltaTable(lake.folder / "bronze")
    for _ in range(110):
        bronze.alter.set_table_properties({"delta.logRetentionDuration": "interval 1 day"})
    with pytest.raises(AssertionError, match=r"version 0 of the sink .* was written by a stream of this name"):
        lake.run()

    bronze = deltalake.DeltaTable(lake.folder / "bronze")
    bronze.create_checkpoint()
    for version in range(bronze.version()):
        (lake.folder / "bronze" / "_delta_log" / f"{version:020}.json").unlink()
    with pytest.raises(AssertionError, match=r"transactions of unknown streams") as caught:
        lake.run()
    assert lake.read("bronze") == list(range(30))

    # somebody who knows better says so
    (uuid,) = set(re.findall(r"other_streams=\['([0-9a-f-]+)'\]", str(caught.value)))
    lake.run("--sink-option", f"other_streams={uuid}", "--max-batches", "1")
    assert len(lake.read("bronze")) == 40


def test_a_backfill_loads_what_is_before_the_stream_once_and_leaves_its_position_alone(lake):
    lake.run("--option", "starting_version=2")
    before = lake.fds("status", "orders")
    load = ("backfill", "orders", "--sink-option", "provenance=yes", *lake.spark)

    assert "20 rows in 1 batch" in lake.fds(*load)
    assert lake.read("bronze") == list(range(30))
    assert "is finished" in lake.fds(*load)
    assert lake.fds("status", "orders") == before

    # the position decides, not the option
    lake.append(40)
    lake.run("--option", "starting_version=0")
    assert lake.read("bronze") == list(range(40))
    assert "starting_version=0 has no effect: stream 'orders' began at version 2" in lake.fds("status", "orders")
