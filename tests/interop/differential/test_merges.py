"""A merge sink beside its source, on random histories with random limits: row by row, version by version.

``FDS_FUZZ_HISTORIES`` and ``FDS_FUZZ_SEED`` say how many histories and from which seed on; `make merges` sets them. A
failure prints the seed, the options and the shortest beginning of the history that shows it.
"""

from __future__ import annotations

import os
import random
import shutil
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from tests.interop.differential.histories import COLUMNS, RandomHistory
from tests.interop.merging import Runs, rows_of

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

HISTORIES = int(os.environ.get("FDS_FUZZ_HISTORIES", "4"))
FIRST_SEED = int(os.environ.get("FDS_FUZZ_SEED", "301"))
STATEMENTS = 4


@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + HISTORIES))
def test_a_merge_sink_is_its_source_at_every_version(quick_spark, tmp_path, seed):
    case = _Case(quick_spark, tmp_path / "whole", seed)
    found = case.run(STATEMENTS)
    print(f"seed {seed}: {case}")
    if found is not None:
        for statements in range(STATEMENTS):
            shorter = _Case(quick_spark, tmp_path / str(statements), seed)
            if (difference := shorter.run(statements)) is not None:
                case, found = shorter, difference
                break
        pytest.fail("\n".join([f"seed {seed}: {case}", *case.history.statements, *case.loads, found]))
    shutil.rmtree(tmp_path)


class _Case:
    """One history, and one stream that follows it into a merge sink, at random moments and with random limits."""

    def __init__(self, spark: SparkSession, folder: Path, seed: int) -> None:
        # draws of their own, so that a shorter history is the beginning of the longer one
        self._random = random.Random(f"runs {seed}")
        self._spark = spark
        self.history = RandomHistory(spark, folder, seed)
        self.options: dict[str, Any] = {}
        if self._random.random() < 0.6:
            self.options["starting_version"] = 0
        if self._random.random() < 0.15 and "PARTITIONED" in self.history.statements[0]:
            self.options["partition_filter"] = "p = 1"
        # half of the seeds each, whatever is drawn
        sink: dict[str, Any] = {"scd": 1 + seed % 2}
        if self.history.is_ordered and sink["scd"] == 1:
            sink["sequence_by"] = "n"
        self.sink = sink
        self.runs = Runs(spark, self.history.path, folder, **sink)
        self.loads: list[str] = []
        self.batches = 0
        self._started_at: int | None = None

    def __str__(self) -> str:
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(self.history.kinds.items()))
        return f"{self.options}, {self.sink}, {self.batches} batches, commits: {kinds}"

    def run(self, statements: int) -> str | None:
        """Write the history, load it meanwhile and at its end; return how the sink differs."""
        for _ in range(statements):
            if self._random.random() < 0.25:
                self._load(max_batches=self._random.randint(1, 2), applications=1)
            self.history.step()
        self._load()
        # what the versions are compared with is read without Spark
        assert rows_of(self._spark, self.history.path, *COLUMNS) == self.history.newest
        if self.sink["scd"] == 2:
            return self._history_differs()
        return self._differs(self._sink_rows(), self.history.newest)

    def _load(self, **given: Any) -> None:
        limits: dict[str, Any] = {}
        if self._random.random() < 0.8:
            limits["max_files_per_batch"] = self._random.randint(1, 4)
        if self._random.random() < 0.15:
            limits["max_bytes_per_batch"] = self._random.randint(1, 4000)
        if self._random.random() < 0.15:
            limits["max_versions_per_batch"] = self._random.randint(1, 3)
        if self._random.random() < 0.1:
            limits["whole_commits"] = True
        if self._started_at is None:
            self._started_at = self.options.get("starting_version", self.history.log.latest())
        after = f"-- after {len(self.history.statements)} statements: {limits}, {given}"
        loaded = self.runs.load(**given, **limits, **self.options)
        self.batches += len(loaded)
        self.loads.append(f"{after}: {[(batch.first_version, batch.last_version) for batch in loaded]}")

    def _sink_rows(self, *columns: str) -> Counter[Any]:
        # without a row there was no batch, and no sink was created
        return self.runs.rows(*(columns or COLUMNS)) if self.batches else Counter()

    def _expected(self, rows: Counter[Any]) -> Counter[Any]:
        if "partition_filter" not in self.options:
            return rows
        return Counter({row: count for row, count in rows.items() if row[COLUMNS.index("p")] == 1})

    def _differs(self, found: Counter[Any], source: Counter[Any], what: str = "the newest version") -> str | None:
        expected = self._expected(source)
        if found == expected:
            return None
        extra, missing = (sorted(rows.elements()) for rows in (found - expected, expected - found))
        return f"{what}: extra rows {extra}, missing rows {missing}"

    def _history_differs(self) -> str | None:
        times = self.history.times()
        millis = [f"unix_millis({name}) AS {name}" for name in ("_valid_from", "_valid_to")]
        rows = list(self._sink_rows(*COLUMNS, *millis, "_is_current").elements())
        known = {*times.values(), None}
        if odd := [row for row in rows if row["_valid_from"] not in known or row["_valid_to"] not in known]:
            return f"times that no commit has: {odd}"
        if odd := [row for row in rows if row["_is_current"] is not (row["_valid_to"] is None)]:
            return f"current and closed, or neither: {odd}"
        for version, time in times.items():
            if version < (self._started_at or 0):
                continue
            held = (row for row in rows if row["_valid_from"] <= time < (row["_valid_to"] or time + 1))
            # rows are tuples: those of the sink and of the source compare by their values
            there = Counter(row[: len(COLUMNS)] for row in held)
            if found := self._differs(there, self.history.versions[version], f"version {version}"):
                return found
        return None
