"""Fleets that linger and whose task or driver dies or stands still in a later round: each row arrives, once."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import pytest

from airflow_provider_fds.delta.storage.open import open_storage
from airflow_provider_fds.errors import EXIT_OK
from airflow_provider_fds.fault_points import Fault
from airflow_provider_fds.ledger.staging.log import Ledger
from tests.chaos.actors import ORDERLY, state_of, wait_until, well_ended
from tests.chaos.profile import IS_LONG
from tests.chaos.rounds import DRIVER
from tests.chaos.test_fleet import NAMES, ONCE, Fleet
from tests.chaos.test_lingering import AGAIN
from tests.interop.spark_processes import kill_processes_of, processes_of

if TYPE_CHECKING:
    from pathlib import Path

    from tests.chaos.actors import Actor
    from tests.chaos.tally import Tally

FILE: Final = """
defaults:
  staging: {root}/staging
  starting_version: 0
  checkpoint: file:{root}/positions/{{name}}.json
streams:
  - tables: {root}/tables/*
    sink: {root}/sinks/{{table}}
"""
#: What a stream passes again in each round, and what the short profile takes of it.
TASK: Final = tuple(point for point in AGAIN if point not in ONCE)
FEW: Final = ("entry.after.planned", "entry.before.committed")
#: Every stream has passed a point once in the first round: this is the second stream of a later one.
LATER: Final = len(NAMES) + 2


class LingeringFleet(Fleet):
    """A fleet that `fds run --file` loads while its tables grow."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        root.mkdir()
        (root / "streams.yaml").write_text(FILE.format(root=root))

    def run(self, *more: str, fault: Fault | None = None) -> Actor:
        words = ["run", "--file", str(self.root / "streams.yaml"), "--master", "local[2]", "--output", "json"]
        return self.stage.launch(["airflow_provider_fds.cli.main", *words, "--unlock", *more], fault)

    def linger(self, fault: Fault | None = None) -> Actor:
        """Start a run that lingers on tables with one new commit each, and wait until it has loaded them."""
        self.append(1)
        actor = self.run("--linger", "10m", fault=fault)
        self.await_loaded(actor)
        return actor

    def await_loaded(self, actor: Actor, names: tuple[str, ...] = NAMES) -> None:
        """Wait until all commits of some tables are loaded and committed."""
        wait_until(lambda: self._is_loaded(names) or actor.process.poll() is not None, f"all rows of {names}")
        assert actor.process.poll() is None, actor.said()[-5000:]

    def end(self, actor: Actor) -> int:
        """Ask a run to end, and return its exit code."""
        with suppress(ProcessLookupError):
            os.kill(actor.process.pid, signal.SIGTERM)
        code = actor.await_end()
        assert code in (*ORDERLY, -signal.SIGTERM, 128 + signal.SIGTERM), actor.said()[-5000:]
        return code

    def drivers(self) -> list[int]:
        return processes_of(self.root / "staging" / ".fleets")

    def end_drivers(self) -> None:
        kill_processes_of(self.root / "staging" / ".fleets")

    def _is_loaded(self, names: tuple[str, ...]) -> bool:
        if not all((self.root / "sinks" / name / "_delta_log" / f"{0:020}.json").exists() for name in names):
            return False
        staging = open_storage(str(self.root / "staging"))
        return all(
            self.ids("sinks", name) == self.ids("tables", name) and not Ledger(staging, name).find().planned
            for name in names
        )


@pytest.fixture
def fleet(tmp_path):
    fleet = LingeringFleet(tmp_path / "lake")
    yield fleet
    fleet.stage.end()


@pytest.mark.timeout(7200 if IS_LONG else 1800)
def test_a_fleet_that_lingers_and_dies_in_a_later_round_is_finished_by_its_next_run(
    fleet: LingeringFleet, tally: Tally
):
    for point in TASK if IS_LONG else FEW:
        actor = fleet.linger(Fault("kill", point, LATER))
        fleet.append(1)
        assert actor.await_hit(), f"no second stream came to {point}: {actor.said()[-5000:]}"
        actor.process.wait()
        tally.hit("killed", point)
        fleet.append(1)
        # the driver of the killed run goes on beside this one, and never gets another job
        well_ended(fleet.run())
    fleet.judge(tally)


@pytest.mark.timeout(7200 if IS_LONG else 1800)
def test_a_fleet_that_lingers_starts_another_driver_for_the_streams_that_a_dead_one_had_not(
    fleet: LingeringFleet, tally: Tally
):
    at_work, others = NAMES[:2], NAMES[2:]
    for point in DRIVER if IS_LONG else ("driver.commit.after",):
        actor = fleet.linger(Fault("kill-group", point, LATER))
        before = fleet.drivers()
        fleet.append(1, at_work)
        assert actor.await_hit(), f"no second stream came to {point}: {actor.said()[-5000:]}"
        tally.hit("group", point)
        fleet.append(1, others)
        fleet.await_loaded(actor, others)
        assert not set(fleet.drivers()) & set(before)
        fleet.end(actor)
        # what the dead one had is for the next run
        well_ended(fleet.run())
    fleet.judge(tally)


@pytest.mark.timeout(7200 if IS_LONG else 1800)
def test_a_fleet_that_lingers_and_is_overtaken_in_a_later_round_does_no_harm_when_it_continues(
    fleet: LingeringFleet, tally: Tally
):
    for point in TASK if IS_LONG else FEW[1:]:
        actor = fleet.linger(Fault("stop", point, LATER))
        fleet.append(1)
        assert actor.await_hit(), f"no second stream came to {point}: {actor.said()[-5000:]}"
        tally.hit("stalled", point)
        fleet.append(1)
        well_ended(fleet.run())
        actor.go_on()
        for _ in range(3):
            fleet.append(1)
            time.sleep(1)
        fleet.end(actor)
        assert not fleet.drivers(), "Spark outlived the command"
        well_ended(fleet.run())
    fleet.judge(tally)


@pytest.mark.timeout(7200 if IS_LONG else 1800)
def test_a_driver_that_stands_still_in_a_later_round_writes_nothing_twice_when_it_continues(
    fleet: LingeringFleet, tally: Tally
):
    for point in DRIVER if IS_LONG else ("driver.commit.before",):
        actor = fleet.linger(Fault("stop", point, LATER))
        fleet.append(1)
        assert actor.await_hit(), f"no second stream came to {point}: {actor.said()[-5000:]}"
        actor.kill()
        tally.hit("orphaned", point)
        well_ended(fleet.run())
        actor.go_on()
        fleet.append(1)
        # its batches have landed, or are refused, while this one works
        well_ended(fleet.run())
        fleet.end_drivers()
    fleet.judge(tally)


def test_a_fleet_that_lingers_is_hit_between_two_rounds(fleet: LingeringFleet, tally: Tally):
    """Nothing is at work: its driver dies, it is overtaken while it stands still, and it dies itself."""
    actor = fleet.linger()
    fleet.end_drivers()
    fleet.append(1)
    fleet.await_loaded(actor)

    os.kill(actor.process.pid, signal.SIGSTOP)
    wait_until(lambda: state_of(actor.process.pid) == "T", "the run to stand still")
    fleet.append(1)
    well_ended(fleet.run())
    os.kill(actor.process.pid, signal.SIGCONT)
    fleet.append(1)
    fleet.await_loaded(actor)
    # the rows are there before the run has noticed it
    time.sleep(3)
    assert fleet.end(actor) == EXIT_OK, actor.said()[-5000:]
    assert not fleet.drivers(), "Spark outlived the command"

    actor = fleet.linger()
    actor.kill()
    fleet.append(1)
    well_ended(fleet.run())
    fleet.judge(tally)
