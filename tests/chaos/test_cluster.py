"""Drivers that a standalone cluster runs: whatever dies, each row arrives once, and a retry uses the driver that runs.

The faults are those of the process that has started the driver, of the driver, of the master, and of the staging folder
that all of them share.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from airflow_provider_fds.errors import EXIT_OK
from airflow_provider_fds.fault_points import Fault
from airflow_provider_fds.spark.clusters.cluster import DriverRequest
from airflow_provider_fds.spark.clusters.standalone import StandaloneCluster
from tests.adversary.servers import clock, faketime_library
from tests.chaos.actors import ORDERLY, parent_of, state_of, wait_until, well_ended
from tests.chaos.cluster import Alive, Bucket, Cluster, Shared, a_cluster, continue_driver, lake_of, start_hit
from tests.chaos.profile import IS_LONG
from tests.chaos.rounds import DRIVER, SUBMITTED, Round, a_round
from tests.chaos.tally import (
    DRIVER_KILLED,
    ID_AGAIN,
    MASTER_KILLED,
    MASTER_SILENT,
    ORPHAN,
    STAGING_AWAY,
    STORE_AWAY,
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
#: Longer than a request to a store waits for an answer.
_STORE_SILENT_SECONDS = 25
_FOUND = "was started before, for the same batches"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with a_cluster(tmp_path_factory.mktemp("cluster")) as found:
        yield found


@pytest.fixture(scope="module")
def bucket_nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Bucket, Cluster]]:
    bucket = Bucket()
    try:
        with a_cluster(tmp_path_factory.mktemp("cluster-s3"), **bucket.nodes()) as cluster:
            yield bucket, cluster
    finally:
        bucket.end()


class Walk:
    """The faults of a round, one after another: each time a run with a fault, then its retry."""

    def __init__(self, round_: Round, cluster: Cluster) -> None:
        self.stage = round_.stage
        self._round = round_
        self._cluster = cluster

    @contextmanager
    def step(self, *places: str, drivers: int | tuple[int, ...] = 1, most_unnamed: int = 0) -> Iterator[Alive]:
        """Count what the body does to one batch.

        Args:
            places: What hits it.
            drivers: How many drivers its claim gets, one after another.
            most_unnamed: How many more may be started that no entry names, and so may be at work beside another one.
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
        unnamed = len(alive.started) - len(named)
        assert 0 <= unnamed <= most_unnamed, (places, claims, alive.started)
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
def a_walk(
    cluster: Cluster, folder: Path, seed: random.Random, tally: Tally, shared: Shared | Bucket | None = None
) -> Iterator[Walk]:
    lake = lake_of(folder / "lake", cluster, shared or Shared(folder / "shared"))
    with a_round(lake, None, seed.getrandbits(32), tally) as round_:
        yield Walk(round_, cluster)
    cluster.await_ends()


def test_a_run_that_dies_at_any_point_beside_its_driver_is_finished_by_a_retry_that_uses_that_driver(
    cluster: Cluster, tmp_path: Path, seed: random.Random, tally: Tally
):
    with a_walk(cluster, tmp_path, seed, tally) as walk:
        for point in RUN:
            # a driver that no entry names is found if it has begun its batch; else it works beside that of the retry
            with walk.step(point, most_unnamed=int(point == SUBMITTED[0])):
                actor = walk.start(Fault("kill", point))
                assert actor.await_hit(), actor.said()[-5000:]
                assert actor.process.wait() < 0
                retry = walk.retry()
            # the reports of a driver that has just ended may be committed already or not
            if point not in (SUBMITTED[0], "submit.after"):
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
    shared = Shared(tmp_path / "shared")
    with a_walk(cluster, tmp_path, seed, tally, shared) as walk, walk.step(MASTER_SILENT, STAGING_AWAY) as alive:
        actor = walk.start_hit("stop", "driver.commit.after")
        (driver,) = alive.started
        cluster.stall_master()
        time.sleep(_SILENT_SECONDS)
        cluster.continue_master()
        shared.go()
        actor.go_on()
        wait_until(lambda: "cannot write to staging" in cluster.said(driver), "the driver to try again")
        time.sleep(seed.uniform(0, 5))
        shared.back()
        well_ended(actor)


def test_a_driver_that_the_cluster_kills_or_gives_up_has_a_successor(
    cluster: Cluster, tmp_path: Path, seed: random.Random, tally: Tally
):
    with a_walk(cluster, tmp_path, seed, tally) as walk:
        with walk.step(MASTER_KILLED, drivers=(1, 2)):
            actor = walk.start_hit("stop", BEFORE_WRITE)
            cluster.leader.kill()
            time.sleep(seed.uniform(0, 5))
            cluster.leader.start()
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


def test_a_store_that_is_away_for_a_time_costs_no_row(
    bucket_nodes: tuple[Bucket, Cluster], tmp_path: Path, seed: random.Random, tally: Tally
):
    bucket, cluster = bucket_nodes
    with a_walk(cluster, tmp_path, seed, tally, bucket) as walk, walk.step(STORE_AWAY, drivers=(1, 2)):
        actor = walk.start_hit("stop", "driver.commit.after")
        bucket.go("reset_before")
        actor.go_on()
        wait_until(bucket.has_failed_write, "the driver to report")
        time.sleep(seed.uniform(0, 3))
        bucket.go("silent_before")
        wait_until(bucket.has_failed_write, "the driver to try again")
        time.sleep(_STORE_SILENT_SECONDS)
        bucket.back()
        if actor.await_end() != EXIT_OK:
            walk.retry()


@pytest.mark.skipif(faketime_library() is None, reason="needs libfaketime: an id has the time of the master")
def test_an_id_that_two_drivers_have_at_the_same_time_delays_the_stream_and_costs_no_row(
    tmp_path: Path, seed: random.Random, tally: Tally
):
    script, end = tmp_path / "stranger.py", tmp_path / "end"
    script.write_text(f"import pathlib, time\nwhile not pathlib.Path({str(end)!r}).exists():\n    time.sleep(0.1)\n")
    forgetful = {"recovery": "NONE", **clock("2026-01-01 00:00:00")}
    with (
        a_cluster(tmp_path / "cluster", workers=1, leading=forgetful) as cluster,
        a_walk(cluster, tmp_path, seed, tally) as walk,
        walk.step(ID_AGAIN, drivers=2) as alive,
    ):
        actor = walk.start_hit("stop", BEFORE_WRITE)
        assert actor.hit is not None
        (driver,) = alive.started
        java = parent_of(actor.hit)
        worker = parent_of(java)
        actor.kill()
        # a worker that comes back with a driver that its master does not know kills it, unless the id is given again
        os.kill(worker, signal.SIGSTOP)
        cluster.leader.kill()
        cluster.leader.start()
        api = StandaloneCluster(cluster.first.master, cluster.first.rest_port)
        stranger = api.start(DriverRequest("stranger", script.as_uri(), (), {"spark.driver.memory": "600m"}, {}))
        assert stranger.id == driver
        os.kill(worker, signal.SIGCONT)
        wait_until(lambda: cluster.status(driver) == "RUNNING", "the stranger to run")
        retry = walk.start()
        wait_until(lambda: _FOUND in retry.said(), "the retry to find a driver of that id")
        actor.go_on()
        end.touch()
        assert "Another driver loads" in well_ended(retry).said()
        # its executors were killed, and the master that would give it others does not know it
        assert state_of(actor.hit) is not None
        os.kill(actor.hit, signal.SIGKILL)
        wait_until(lambda: state_of(java) is None, "the first driver to end")
