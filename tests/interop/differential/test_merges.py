"""A merge sink beside its source, on random histories with random limits: row by row, version by version.

``FDS_FUZZ_HISTORIES`` and ``FDS_FUZZ_SEED`` say how many histories and from which seed on; `make merges` sets them. A
failure prints the seed, the options and the shortest beginning of the history that shows it.
"""

from __future__ import annotations

import os
import random
import shutil
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import deltalake
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tests.interop.differential.conftest import QUICK
from tests.interop.differential.histories import RandomHistory
from tests.interop.differential.writers import COLUMNS
from tests.interop.merging import Runs, rows_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

HISTORIES = int(os.environ.get("FDS_FUZZ_HISTORIES", "4"))
FIRST_SEED = int(os.environ.get("FDS_FUZZ_SEED", "301"))
STATEMENTS = 4


#: How many histories at a time: a statement waits for its tasks, and tasks for their statement.
_AT_A_TIME = 2


@dataclass
class Played:
    """What a history came to."""

    text: str
    batches: int
    rows: int
    difference: str | None


@pytest.fixture(scope="module")
def play(
    quick_spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Callable[[int], Played]]:
    """Plays the histories of all seeds that are asked for; each test waits for its own."""
    of_module = (item for item in request.session.items if item.path == request.path and hasattr(item, "callspec"))
    seeds = [item.callspec.params["seed"] for item in of_module]
    folder = tmp_path_factory.mktemp("histories")
    with ThreadPoolExecutor(_AT_A_TIME) as pool:
        played = {seed: pool.submit(_play, quick_spark, folder / str(seed), seed) for seed in seeds}
        try:
            yield lambda seed: played[seed].result()
        finally:
            for future in played.values():
                future.cancel()
    done = [future.result() for future in played.values() if not future.cancelled() and future.exception() is None]
    batches, rows = sum(one.batches for one in done), sum(one.rows for one in done)
    different = sum(one.difference is not None for one in done)
    print(f"\n{len(done)} histories, {batches} batches, {rows} rows compared, {different} histories with differences")


@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + HISTORIES))
def test_a_merge_sink_is_its_source_at_every_version(play, seed):
    played = play(seed)
    print(played.text)
    if played.difference is not None:
        pytest.fail(played.difference)


def _play(shared: SparkSession, folder: Path, seed: int) -> Played:
    from pyspark.sql import SparkSession

    # a merge keeps its transaction in settings of its session
    spark = shared.newSession()
    # the session of this thread of the JVM: Delta's own frames belong to that
    SparkSession._get_j_spark_session_class(spark._jvm).setActiveSession(spark._jsparkSession)
    for key, value in QUICK.items():
        spark.conf.set(key, value)
    case = _Case(spark, folder / "whole", seed)
    found = case.run(STATEMENTS)
    played = Played(f"seed {seed}: {case}", case.batches, case.rows, None)
    if found is not None:
        for statements in range(STATEMENTS):
            shorter = _Case(spark, folder / str(statements), seed)
            if (difference := shorter.run(statements)) is not None:
                case, found = shorter, difference
                break
        played.difference = "\n".join([f"seed {seed}: {case}", *case.history.statements, *case.loads, found])
    shutil.rmtree(folder)
    return played


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
        if self._random.random() < 0.15 and self.history.is_partitioned:
            self.options["where"] = "p = 1"
        # half of the seeds each, whatever is drawn
        sink: dict[str, Any] = {"scd": 1 + seed % 2}
        if self.history.is_ordered and sink["scd"] == 1:
            sink["sequence_by"] = "n"
        self.sink = sink
        self.runs = Runs(spark, self.history.path, folder, **sink)
        self.loads: list[str] = []
        self.batches = 0
        #: Rows that were compared, of all versions.
        self.rows = 0
        self._started_at: int | None = None

    def __str__(self) -> str:
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(self.history.kinds.items()))
        writer = "Spark" if self.history.needs_spark else "delta-rs"
        return f"by {writer}, {self.options}, {self.sink}, {self.batches} batches, commits: {kinds}"

    def run(self, statements: int) -> str | None:
        """Write the history, load it meanwhile and at its end; return how the sink differs."""
        for _ in range(statements):
            if self._random.random() < 0.25:
                self._load(max_batches=self._random.randint(1, 2), applications=1)
            self.history.step()
        self._load()
        # what the versions are compared with is read without Spark
        if self.history.needs_spark:
            assert rows_of(self._spark, self.history.path, *COLUMNS) == self.history.newest
        else:
            assert _rows_by_delta_rs(self.history.path, *COLUMNS) == self.history.newest
        if self.sink["scd"] == 2:
            return self._history_differs()
        return self._differs(self._sink_rows(*COLUMNS), self.history.newest)

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

    def _sink_rows(self, *columns: str) -> Counter[tuple[Any, ...]]:
        # without a row there was no batch, and no sink was created
        return _rows_by_delta_rs(self.runs.sink_path, *columns) if self.batches else Counter()

    def _expected(self, rows: Counter[Any]) -> Counter[Any]:
        if "where" not in self.options:
            return rows
        return Counter({row: count for row, count in rows.items() if row[COLUMNS.index("p")] == 1})

    def _differs(self, found: Counter[Any], source: Counter[Any], what: str = "the newest version") -> str | None:
        expected = self._expected(source)
        self.rows += expected.total()
        if found == expected:
            return None
        extra, missing = (sorted(rows.elements()) for rows in (found - expected, expected - found))
        return f"{what}: extra rows {extra}, missing rows {missing}"

    def _history_differs(self) -> str | None:
        times = self.history.times()
        rows = list(self._sink_rows(*COLUMNS, "_valid_from", "_valid_to", "_is_current").elements())
        known = {*times.values(), None}
        if odd := [row for row in rows if not {row[-3], row[-2]} <= known]:
            return f"times that no commit has: {odd}"
        if odd := [row for row in rows if row[-1] is not (row[-2] is None)]:
            return f"current and closed, or neither: {odd}"
        for version, time in times.items():
            if version < (self._started_at or 0):
                continue
            held = (row for row in rows if row[-3] <= time < (row[-2] or time + 1))
            there = Counter(row[: len(COLUMNS)] for row in held)
            if found := self._differs(there, self.history.versions[version], f"version {version}"):
                return found
        return None


def _rows_by_delta_rs(path: str, *columns: str) -> Counter[tuple[Any, ...]]:
    """Return the rows of a table, times in milliseconds since the epoch."""
    table = deltalake.DeltaTable(path).to_pyarrow_table(columns=list(columns))
    values = []
    for name in columns:
        column = table.column(name)
        if pa.types.is_timestamp(column.type):
            column = pc.cast(pc.cast(column, pa.timestamp("ms", "UTC")), pa.int64())
        values.append(column.to_pylist())
    return Counter(zip(*values, strict=True))
