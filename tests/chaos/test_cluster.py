"""Drivers that a standalone cluster runs: whatever dies, each row arrives once, and a retry uses the driver that runs.

The faults are those of the process that has started the driver, of the driver, of the master, and of the staging folder
that all of them share.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from airflow_provider_fds.errors import EXIT_OK
from airflow_provider_fds.fault_points import Fault
from tests.chaos.actors import ORDERLY, wait_until, well_ended
from tests.chaos.cluster import Alive, Cluster, Shared, a_cluster, continue_driver, lake_of, start_hit
from tests.chaos.profile import IS_LONG
from tests.chaos.rounds import DRIVER, SUBMITTED, Round, a_round
from tests.chaos.tally import (
    DRIVER_KILLED,
    MASTER_KILLED,
    MASTER_SILENT,
    ORPHAN,
    STAGING_AWAY,
)

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator
    from pathlib import Path

    from tests.chaos.actors import Actor
    from tests.chaos.tally import Tally

pytestmark = pytest.mark.skipif(
    not IS_LONG, reason="each driver in a cluster takes a quarter of a minute: only the long profile has them"
)

#: The run dies here. Of the points before its driver is known, only the first is before the driver starts.
RUN = ("submit.before", *SUBMITTED, "entry.before.committed", "entry.after.committed", "submit.after")
BEFORE_WRITE = "driver.commit.before"
#: Longer than a question to the master waits for an answer.
_SILENT_SECONDS = 12
_FOUND = "was started before, for the same batches"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with a_cluster(tmp_path_factory.mktemp("cluster")) as found:
        yield found


class Walk:
    """The faults of a round, one after another: each time a run with a fault, then its retry."""

    def __init__(self, round_: Round, cluster: Cluster, shared: Shared) -> None:
        self.stage = round_.stage
        self.shared = shared
        self._round = round_
        self._cluster = cluster

    @contextmanager
    def step(self, *places: str, drivers: int | tuple[int, ...] = 1, unnamed: int = 0) -> Iterator[Alive]:
        """Count what the body does to one batch.

        Args:
            places: What hits it.
            drivers: How many drivers its claim gets, one after another.
            unnamed: How many more are started that no entry names, and so may be at work beside another one.
        """
        self._round.writer.append()
        before = self._claims()
        with Alive(self._cluster) as alive:
            yield alive
            self._cluster.await_ends()
        claims = {batch: found for batch, found in self._claims().items() if found != before.get(batch)}
        named = [driver for found in claims.values() for driver in found]
        assert max(map(len, claims.values())) in ((drivers,) if isinstance(drivers, int) else drivers), (places, claims)
        assert len(named) == len(set(named)) == len(alive.started & set(named)), (places, claims)
        assert len(alive.started) - len(named) == unnamed, (places, claims, alive.started)
        assert alive.most <= 1 + unnamed, places
        for place in places:
            self._round.tally.hit("cluster", place)

    def start(self, fault: Fault | None = None) -> Actor:
        """Start a run of one batch."""
        return self.stage.start(fault, more=("--max-batches", "1"))

    def start_hit(self, effect: str, point: str) -> Actor:
        """Start a run whose driver gets a fault, and wait until that has hit."""
        return start_hit(self.stage, self._cluster, Fault(effect, point))

    def retry(self) -> Actor:
        """Run the batch again; it must succeed."""
        return well_ended(self.start())

    def join(self, actor: Actor) -> None:
        """Run the batch again while its driver stands still, which then goes on and is not replaced."""
        retry = self.start()
        wait_until(lambda: _FOUND in retry.said() or retry.process.poll() is not None, "the retry to find the driver")
        continue_driver(actor)
        assert _FOUND in well_ended(retry).said()

    def _claims(self) -> dict[tuple[int, int], list[str]]:
        """Return the drivers of each batch, as the ledger has them."""
        found: dict[tuple[int, int], list[str]] = {}
        for entry in self.stage.lake.ledger().entries():
            action = entry.action
            if action.kind == "submitted" and not action.has_ended:
                found.setdefault((action.epoch, action.batch_id), []).append(action.driver)
        return found


@contextmanager
def a_walk(cluster: Cluster, folder: Path, seed: random.Random, tally: Tally) -> Iterator[Walk]:
    shared = Shared(folder / "shared")
    lake = lake_of(folder / "lake", cluster, str(shared.uri))
    with a_round(lake, None, seed.getrandbits(32), tally) as round_:
        yield Walk(round_, cluster, shared)
    cluster.await_ends()


def test_a_run_that_dies_at_any_point_beside_its_driver_is_finished_by_a_retry_that_uses_that_driver(
    cluster: Cluster, tmp_path: Path, seed: random.Random, tally: Tally
):
    with a_walk(cluster, tmp_path, seed, tally) as walk:
        for point in RUN:
            # a driver that no entry names works beside the one of the retry
            with walk.step(point, unnamed=int(point == SUBMITTED[0])):
                actor = walk.start(Fault("kill", point))
                assert actor.await_hit(), actor.said()[-5000:]
                assert actor.process.wait() < 0
                retry = walk.retry()
            assert (_FOUND in retry.said()) == (point in (*SUBMITTED[1:], "entry.before.committed"))


def test_a_driver_that_dies_or_outlives_its_run_has_one_successor_or_none(
    cluster: Cluster, tmp_path: Path, seed: random.Random, tally: Tally
):
    with a_walk(cluster, tmp_path, seed, tally) as walk:
        with walk.step("driver.commit.after", drivers=2):
            actor = walk.start_hit("kill", "driver.commit.after")
            assert actor.await_end() in ORDERLY
            walk.retry()
        for point in DRIVER[::2]:
            with walk.step(point):
                actor = walk.start_hit("stop", point)
                actor.kill()
                walk.join(actor)
        with walk.step(ORPHAN):
            actor = walk.start_hit("stop", BEFORE_WRITE)
            actor.kill()
            # the retry is the first one to see it end
            continue_driver(actor)
            walk.retry()


def test_a_master_and_a_staging_folder_that_are_away_for_a_time_cost_no_driver(
    cluster: Cluster, tmp_path: Path, seed: random.Random, tally: Tally
):
    with a_walk(cluster, tmp_path, seed, tally) as walk, walk.step(MASTER_SILENT, STAGING_AWAY) as alive:
        actor = walk.start_hit("stop", "driver.commit.after")
        (driver,) = alive.started
        cluster.stall_master()
        time.sleep(_SILENT_SECONDS)
        cluster.continue_master()
        walk.shared.go()
        actor.go_on()
        wait_until(lambda: "cannot write to staging" in cluster.said(driver), "the driver to try again")
        time.sleep(seed.uniform(0, 5))
        walk.shared.back()
        well_ended(actor)


def test_a_driver_that_the_cluster_kills_or_gives_up_has_a_successor(
    cluster: Cluster, tmp_path: Path, seed: random.Random, tally: Tally
):
    with a_walk(cluster, tmp_path, seed, tally) as walk:
        with walk.step(MASTER_KILLED, drivers=(1, 2)):
            actor = walk.start_hit("stop", BEFORE_WRITE)
            cluster.kill_master()
            time.sleep(seed.uniform(0, 5))
            cluster.start_master()
            continue_driver(actor)
            # a master that starts slowly gives its workers up, and calls a driver that is at work ended
            if actor.await_end() != EXIT_OK:
                walk.retry()
        with walk.step(DRIVER_KILLED, drivers=2) as alive:
            actor = walk.start_hit("stop", BEFORE_WRITE)
            (driver,) = alive.started
            cluster.kill_driver(driver)
            assert actor.await_end() in ORDERLY
            # it stands still until its successor has ended
            walk.retry()
            continue_driver(actor)
