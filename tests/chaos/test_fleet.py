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


class Fleet:
    """Four tables that grow between the runs."""

    def __init__(self, root: Path) -> None:
        self.stage = Stage(Lake(root, str(root / "staging")), 0)
        self.root = root
        self.count = 0

    def append(self, commits: int = 3) -> None:
        for name in NAMES:
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
    for number, (effect, point, nth) in enumerate((*TASK, *DRIVER) if IS_LONG else SHORT):
        fleet.append()
        actor = fleet.start(f"run-{number}", Fault(effect, point, nth))
        assert actor.await_hit(), f"no stream came to {point}: {actor.said()[-5000:]}"
        actor.process.wait()
        tally.hit("group" if effect == "kill-group" else "killed", point)
    last = fleet.start("last")
    assert last.await_end() == 0, last.said()[-5000:]
    fleet.judge(tally)


def test_a_fleets_driver_that_outlives_its_task_doubles_nothing(fleet, tally):
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
