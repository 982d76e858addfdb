"""A fleet whose task or driver dies with several streams in flight: each row of each table arrives, once."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import deltalake
import pyarrow as pa
import pytest

from airflow_provider_fds.fault_points import Fault
from tests.chaos.actors import Actor, Stage
from tests.chaos.lake import Lake
from tests.chaos.profile import IS_LONG
from tests.chaos.rounds import COMMITTED, FRESH, LOADING, TAKEN
from tests.chaos.rounds import DRIVER as DRIVER_POINTS

if TYPE_CHECKING:
    from pathlib import Path

    from tests.chaos.tally import Tally

NAMES = ("a", "b", "c", "d")

#: Who dies, at which point, reached for which time by any of the streams.
TASK = (("kill", "entry.before.committed", 2), ("kill", "submit.before", 1), ("kill", "entry.after.planned", 3))
DRIVER = (
    ("kill-group", "driver.commit.after", 2),
    ("kill-group", "driver.commit.before", 3),
    ("kill-group", "driver.report.before", 2),
    ("kill-group", "driver.started", 4),
)
SHORT = (TASK[0], DRIVER[0], DRIVER[2])

#: A run with new data reaches these, whatever ran before it.
EACH_RUN = (*FRESH, *LOADING, *COMMITTED, *DRIVER_POINTS)
#: Only the first run of a stream reaches these.
FIRST = tuple(
    f"{place}.{kind}"
    for kind in ("created", "opened", "bound")
    for place in ("entry.before", "entry.after", "checkpoint.after")
)
#: Reached once for all streams, or by the first of them.
ONCE = ("submit.before", "submit.after", *TAKEN)


class Fleet:
    """Four tables that grow between the runs."""

    def __init__(self, root: Path) -> None:
        self.stage = Stage(Lake(root, str(root / "staging")), 0)
        self.root = root
        self.count = 0

    def append(self, commits: int = 3, names: tuple[str, ...] = NAMES) -> None:
        for name in names:
            for _ in range(commits):
                self.count += 1
                rows = pa.table({"id": pa.array([self.count], pa.int64())})
                deltalake.write_deltalake(self.root / "tables" / name, rows, mode="append")

    def start(self, run: str, fault: Fault | None = None) -> Actor:
        return self.stage.launch(["tests.chaos.fleet_run", str(self.root), run, *NAMES], fault)

    def ids(self, folder: str, name: str) -> Counter[int]:
        table = deltalake.DeltaTable(self.root / folder / name).to_pyarrow_table()
        return Counter(table.column("id").to_pylist())

    def judge(self, tally: Tally) -> None:
        """Compare every sink with its source."""
        for name in NAMES:
            source, sink = self.ids("tables", name), self.ids("sinks", name)
            tally.lost += sum((source - sink).values())
            tally.doubled += sum((sink - source).values())
            tally.rows += sum(sink.values())
            assert sink == source, name


@pytest.fixture
def fleet(tmp_path):
    fleet = Fleet(tmp_path / "lake")
    fleet.root.mkdir()
    yield fleet
    fleet.stage.end()


def test_a_fleet_that_dies_with_several_streams_in_flight_is_finished_by_its_retries(fleet, tally):
    """In the end a driver outlives its task, and goes on beside the retry."""
    for number, (effect, point, nth) in enumerate((*TASK, *DRIVER) if IS_LONG else SHORT):
        fleet.append()
        actor = fleet.start(f"run-{number}", Fault(effect, point, nth))
        assert actor.await_hit(), f"no stream came to {point}: {actor.said()[-5000:]}"
        actor.process.wait()
        tally.hit("group" if effect == "kill-group" else "killed", point)

    fleet.append()
    orphan = fleet.start("run", Fault("stop", "driver.commit.before", 2))
    assert orphan.await_hit(), orphan.said()[-5000:]
    orphan.kill()
    tally.hit("orphaned", "driver.commit.before")
    retry = fleet.start("run")
    assert retry.await_end() == 0, retry.said()[-5000:]
    orphan.go_on()
    fleet.append()
    last = fleet.start("last")
    assert last.await_end() == 0, last.said()[-5000:]
    fleet.judge(tally)


@pytest.mark.skipif(not IS_LONG, reason="the short profile has three points")
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("effect", ["kill", "stop"])
@pytest.mark.parametrize(
    "points",
    [EACH_RUN, ("entry.after.planned", *TAKEN), *((point,) for point in FIRST)],
    ids=lambda points: points[-1],
)
def test_a_fleet_that_dies_or_hangs_at_any_point_is_finished_by_its_next_run(fleet, tally, points, effect):
    if effect == "stop" and points[-1] in TAKEN:
        pytest.skip("the run beside it leaves nothing to take over")
    for number, point in enumerate(points):
        fleet.append(2)
        is_driver = effect == "kill" and point.startswith("driver.")
        # the second stream to come to it, with others in flight
        nth = 1 if point in ONCE else 2
        actor = fleet.start(f"run-{number}", Fault("kill-group" if is_driver else effect, point, nth))
        assert actor.await_hit(), f"no second stream came to {point}: {actor.said()[-5000:]}"
        if effect == "kill":
            actor.process.wait()
            tally.hit("group" if is_driver else "killed", point)
            continue
        fleet.append(1)
        other = fleet.start(f"other-{number}")
        assert other.await_end() == 0, other.said()[-5000:]
        actor.go_on()
        actor.process.wait()
        tally.hit("stalled", point)
    last = fleet.start("last")
    assert last.await_end() == 0, last.said()[-5000:]
    fleet.judge(tally)
