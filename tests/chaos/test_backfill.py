"""A backfill of January that is killed again and again beside its live stream: each row once, and no other row."""

from __future__ import annotations

import os
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import deltalake
import pyarrow as pa

from airflow_provider_fds.errors import EXIT_OK
from airflow_provider_fds.fault_points import Fault
from airflow_provider_fds.ledger.staging.log import Ledger
from tests.chaos.actors import Actor, Stage, well_ended
from tests.chaos.lake import Lake, Verdict, Writer
from tests.chaos.profile import IS_LONG
from tests.chaos.rounds import DRIVER, Round

if TYPE_CHECKING:
    import random
    from pathlib import Path

    from tests.chaos.tally import Tally

#: As on the page: the live stream began in February.
LIVE = ("starting_timestamp=2026-02-01", "max_versions_per_batch=20")
JANUARY = ("--start", "2026-01-01", "--end", "2026-01-31T23:59:59.999")

#: Before the driver writes the first batch, in the order of a run, and after it has written all.
BEFORE = (
    "entry.before.created", "entry.after.opened", "entry.before.bound", "entry.before.ended", "entry.after.ended",
    "manifest.between", "entry.before.planned", "entry.after.planned",
)  # fmt: skip
AFTER = ("submit.before", "submit.after", "entry.before.committed", "entry.after.committed")
POINTS = (
    (*BEFORE, *DRIVER, *AFTER)
    if IS_LONG
    else ("entry.after.opened", "entry.after.ended", "entry.after.planned", "driver.commit.after", AFTER[-1])
)


#: This many undisturbed runs bring the live stream up to date.
_LAST_RUNS = 4


class Backfills:
    """A source with commits from December to February, its live stream, and backfills of January."""

    def __init__(self, stage: Stage, tally: Tally) -> None:
        self.stage = stage
        self._tally = tally
        self.january: set[int] = set()
        self.older = 0

    def write_history(self) -> None:
        """Commit some rows every ten days, from 1 December to 28 February."""
        lake, at, version, end = (
            self.stage.lake,
            datetime(2025, 12, 1, 6, tzinfo=UTC),
            0,
            datetime(2026, 3, 1, tzinfo=UTC),
        )
        while at < end:
            keys = range(self.older, self.older + 5)
            rows = pa.table({"id": list(keys), "value": [f"row {key}" for key in keys]})
            deltalake.write_deltalake(lake.source, rows, mode="append")
            stamp = at.timestamp()
            os.utime(lake.source / "_delta_log" / f"{version:020d}.json", (stamp, stamp))
            if (at.year, at.month) == (2026, 1):
                self.january |= set(keys)
            self.older, version, at = keys.stop, version + 1, at + timedelta(days=10)

    @property
    def first_live_key(self) -> int:
        return max(self.january) + 1

    def start(self, fault: Fault | None = None) -> Actor:
        """Start `fds backfill`, with one version a batch; what hits the driver gets its own spark-submit."""
        lake = self.stage.lake
        words = ["backfill", lake.stream, "--staging", lake.staging, *JANUARY]
        words += ["--option", "max_versions_per_batch=1", "--master", "local[1]", "--output", "json"]
        if fault is not None and fault.point in DRIVER:
            return self.stage.launch(["airflow_provider_fds.cli.main", *words], fault)
        return self.stage.launch(["tests.chaos.warm_spark", str(self.stage.port), *words], fault)

    def kill_at(self, point: str) -> None:
        kind = "group" if point in DRIVER else "killed"
        actor = self.start(Fault("kill-group" if kind == "group" else "kill", point))
        assert actor.await_hit(), f"no backfill came to {point}: {actor.said()[-5000:]}"
        self._tally.hit(kind, point)
        if kind == "group":
            actor.await_end()
        else:
            assert actor.process.wait() < 0

    def judge(self, keys: int) -> Verdict:
        """Compare the sink by key: January and everything from February on once, nothing of December."""
        found = Counter(deltalake.DeltaTable(self.stage.lake.sink).to_pyarrow_table().column("id").to_pylist())
        expected = self.january | set(range(self.first_live_key, keys))
        problems = [f"rows of another range: {sorted(found.keys() - expected)[:5]}"] if found.keys() - expected else []
        return Verdict(
            lost=len(expected - found.keys()),
            doubled=sum(count - 1 for count in found.values()),
            rows=len(expected),
            batches=self.count("committed"),
            problems=tuple(problems),
        )

    def ledger(self) -> Ledger:
        storage = self.stage.lake.ledger().storage
        (name,) = [name for name in storage.list_folders("") if name.startswith(f"{self.stage.lake.stream}.bf.")]
        return Ledger(storage, name)

    def count(self, kind: str) -> int:
        return sum(entry.action.kind == kind for entry in self.ledger().entries())


def test_a_backfill_that_is_killed_at_any_point_loads_its_range_once_beside_the_live_stream(
    warm_spark: int, tmp_path: Path, seed: random.Random, tally: Tally
):
    lake = Lake(tmp_path / "lake", str(tmp_path / "lake" / "staging"), options=LIVE, pause_seconds=2)
    lake.root.mkdir()
    stage = Stage(lake, warm_spark)
    backfills = Backfills(stage, tally)
    backfills.write_history()
    writer = Writer(lake, seed.getrandbits(32))
    writer.keys = backfills.older
    try:
        with writer:
            live = Round(stage, writer, tally)
            stage.run()
            for number, point in enumerate(POINTS):
                backfills.kill_at(point)
                if number % 3 == 0:
                    live.kill_at("entry.after.planned")
                    stage.run()
            well_ended(backfills.start())
            # January a second time: nothing is left to do
            committed = backfills.count("committed")
            again = backfills.start()
            assert again.await_end() == EXIT_OK
            assert '"finished"' in again.said()
            assert backfills.count("committed") == committed == len(backfills.january) / 5
        for _ in range(_LAST_RUNS):
            if '"batch_id"' not in stage.run().said():
                break
        tally.judged(backfills.judge(writer.keys))
    finally:
        stage.end()
