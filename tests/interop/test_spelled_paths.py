"""One file that a log names by different paths: as many files as Delta's own readers take it for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import deltalake
import pytest

from tests.interop.spark.test_epochs import Desk

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: How a path of ``/folder/file`` may be written, beside the relative one.
SPELLINGS = {"triple": "file://{}", "single": "file:{}", "bare": "{}"}


class Spelled(Desk):
    """A source whose version 1 adds ten rows in one file."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        super().__init__(spark, folder)
        self.append(0)
        self.append(10)

    @property
    def log(self) -> Path:
        return Path(self.source, "_delta_log")

    def add_again(self, spelling: str, version: int) -> None:
        """Name the file of version 1 by another path, in that commit or in a later one."""
        path = self.log / f"{1:020d}.json"
        lines = path.read_text().splitlines()
        at = next(number for number, line in enumerate(lines) if line.startswith('{"add"'))
        add = json.loads(lines[at])
        add["add"]["path"] = SPELLINGS[spelling].format(f"{self.source}/{add['add']['path']}")
        if version == 1:
            lines.insert(at, json.dumps(add))
        else:
            path = self.log / f"{version:020d}.json"
            lines = [json.dumps({"commitInfo": {"operation": "WRITE"}}), json.dumps(add)]
        path.write_text("\n".join(lines) + "\n")

    def by_delta(self) -> list[int]:
        """The ids by Delta's reader of the table."""
        frame = self.spark.read.format("delta").load(self.source)
        return sorted(row.id for row in frame.select("id").collect())

    def by_stream(self) -> list[int]:
        """The ids by Delta's streaming source from version 0 on."""
        target, state = f"{self.folder}/streamed", f"{self.folder}/state"
        reader = self.spark.readStream.format("delta").option("startingVersion", "0").load(self.source)
        writer = reader.writeStream.format("delta").option("checkpointLocation", state)
        writer.trigger(availableNow=True).start(target).awaitTermination()
        return sorted(deltalake.DeltaTable(target).to_pyarrow_table(columns=["id"]).column("id").to_pylist())


@pytest.fixture
def desk(spark: SparkSession, tmp_path: Path) -> Spelled:
    return Spelled(spark, tmp_path)


@pytest.mark.parametrize(
    ("where", "spelling"),
    [
        ("one commit", "triple"),
        ("a later commit", "single"),
        ("a commit after a checkpoint", "bare"),
        ("two later commits", "bare, single"),
    ],
)
def test_a_file_under_two_paths_gives_the_rows_that_delta_gives(desk, where, spelling):
    if where == "a commit after a checkpoint":
        deltalake.DeltaTable(desk.source).create_checkpoint()
    for version, name in enumerate(spelling.split(", "), start=1 if where == "one commit" else 2):
        desk.add_again(name, version)
    desk.load()
    assert desk.ids() == desk.by_stream()

    snapshot = Desk(desk.spark, desk.folder)
    snapshot.staging, snapshot.path = f"{desk.folder}/staging 2", f"{desk.folder}/sink 2"
    snapshot.sink = type(desk.sink)(snapshot.path, provenance=True)
    snapshot.options = {}
    snapshot.load()
    assert snapshot.ids() == desk.by_delta()
