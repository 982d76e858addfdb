"""Runs of data intervals that die or stand still at every point: each interval has its rows, once."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import deltalake
import pytest

from airflow_provider_fds.fault_points import Fault
from tests.chaos.actors import Actor, Stage, well_ended
from tests.chaos.lake import Lake, Verdict, Writer
from tests.chaos.profile import IS_LONG
from tests.chaos.rounds import INTERVALS, Round

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tests.chaos.tally import Tally


class IntervalRound:
    """Two neighbouring intervals of a source that grows, and runs of them."""

    def __init__(self, stage: Stage, writer: Writer, tally: Tally, kind: str) -> None:
        self._round = Round(stage, writer, tally)
        self._stage = stage
        self._writer = writer
        self._tally = tally
        self._kind = kind
        self._ends = [datetime(2020, 1, 1, tzinfo=UTC)]
        self.keys = 0

    def close(self) -> int:
        """End an interval now, and return its number."""
        with self._writer.quiet():
            self._writer.append()
            self.keys = self._writer.keys
            end = datetime.now(UTC) + timedelta(milliseconds=2)
            while datetime.now(UTC) < end:
                time.sleep(0.001)
            self._ends.append(end)
            self._writer.append()
        return len(self._ends) - 2

    def start(self, interval: int, fault: Fault | None = None) -> Actor:
        lake = self._stage.lake
        start, end = (moment.isoformat() for moment in self._ends[interval : interval + 2])
        words = [str(self._stage.port), str(lake.source), str(lake.sink), lake.staging, lake.stream, self._kind]
        return self._stage.launch(["tests.chaos.interval_run", *words, start, end], fault)

    def hit(self, interval: int, fault: Fault) -> Actor:
        actor = self.start(interval, fault)
        assert actor.await_hit(), f"no run came to {fault}: {actor.said()[-5000:]}"
        self._tally.hit("killed" if fault.effect == "kill" else "stalled", fault.point)
        return actor

    def hit_each(self, effect: str, points: Sequence[str]) -> tuple[list[int], list[Actor]]:
        """Let a run come to each point. Returns the numbers of the intervals, and the runs."""
        intervals, actors = [self.close()], []
        for point in points:
            actors.append(self.hit(intervals[-1], Fault(effect, point)))
            if point in ("entry.after.planned", "entry.after.committed"):
                # a run that comes now takes over its plan, or has nothing to do in it
                intervals.append(self.close())
        return intervals, actors

    def go_on(self, actors: list[Actor]) -> None:
        self._round.go_on(actors)

    def judge(self) -> Verdict:
        """Compare the sink with what was written before the last interval ended."""
        found = Counter(deltalake.DeltaTable(self._stage.lake.sink).to_pyarrow_table().column("id").to_pylist())
        entries = list(self._stage.lake.ledger().entries())
        boundaries = [e.action.instant for e in entries if e.action.kind == "boundary"]
        committed = [
            (e.action.interval, e.action.epoch, e.action.batch_id) for e in entries if e.action.kind == "committed"
        ]
        twice = {"boundaries": boundaries, "committed": committed}
        problems = [f"{name}: {said}" for name, said in twice.items() if len(set(said)) != len(said)]
        if found.keys() - set(range(self.keys)):
            problems.append(f"rows of after the intervals: {sorted(found.keys() - set(range(self.keys)))[:5]}")
        return Verdict(
            lost=len(set(range(self.keys)) - found.keys()),
            doubled=sum(count - 1 for count in found.values()),
            rows=self.keys,
            batches=len(committed),
            problems=tuple(problems),
        )


@contextmanager
def an_interval_round(folder: Path, port: int, seed: int, tally: Tally, kind: str) -> Iterator[IntervalRound]:
    lake = Lake(folder / "lake", str(folder / "lake" / "staging"), stream="days", pause_seconds=1)
    lake.root.mkdir()
    stage = Stage(lake, port)
    try:
        with Writer(lake, seed) as writer:
            round_ = IntervalRound(stage, writer, tally, kind)
            yield round_
        tally.judged(round_.judge())
    finally:
        stage.end()


@pytest.mark.parametrize("kind", ["append", "replace"] if IS_LONG else ["append"])
def test_a_run_of_an_interval_that_is_killed_at_any_point_is_finished_by_its_retries(
    kind: str, warm_spark: int, tmp_path: Path, seed: random.Random, tally: Tally
):
    points = INTERVALS if IS_LONG else [point for point in INTERVALS if not point.startswith("checkpoint")]
    with an_interval_round(tmp_path, warm_spark, seed.getrandbits(32), tally, kind) as round_:
        hit, killed = round_.hit_each("kill", points)
        assert all(actor.process.wait() < 0 for actor in killed)
        for interval in (round_.close(), *hit):
            well_ended(round_.start(interval))


@pytest.mark.skipif(not IS_LONG, reason="the short profile kills runs of intervals only")
@pytest.mark.parametrize("kind", ["append", "replace"])
def test_a_run_of_an_interval_that_is_overtaken_at_any_point_does_no_harm_when_it_continues(
    kind: str, warm_spark: int, tmp_path: Path, seed: random.Random, tally: Tally
):
    with an_interval_round(tmp_path, warm_spark, seed.getrandbits(32), tally, kind) as round_:
        hit, stalled = round_.hit_each("stop", INTERVALS)
        for interval in hit:
            well_ended(round_.start(interval))
        seed.shuffle(stalled)
        round_.go_on(stalled)
        well_ended(round_.start(round_.close()))
