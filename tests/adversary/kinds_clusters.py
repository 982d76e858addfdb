"""Drivers that a cluster runs: their run, the driver, the master or staging dies, stands still or goes away."""

from __future__ import annotations

import signal
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from tests.adversary.cluster import CONF, Cluster
from tests.adversary.kinds_airflow import DagStream, name_of
from tests.adversary.kinds_runs import LIMITS, source_of, verdict
from tests.adversary.play import kind
from tests.adversary.scene import Running, Scene, Stream, VerdictError, grown
from tests.adversary.ways import settle

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.adversary.airflow_host import DagRun

#: Longer than the question of a run to the master waits for an answer, shorter than a worker may be silent.
_SILENT_SECONDS = (11, 25)
_FAULTS = (
    "the run dies", "the run dies", "the driver dies", "the driver stands still", "the driver is killed by the master",
    "the master is killed", "the master is silent", "staging is away", "a person gives the driver up",
)  # fmt: skip
#: After these, a driver may have been started that no entry names.
_LOSES_THE_START = ("staging is away", "the master is killed", "the master is silent")


class Runs:
    """The runs of one stream, by the command."""

    def __init__(self, scene: Scene, cluster: Cluster, link: Path) -> None:
        self.scene = scene
        self.source = source_of(scene)
        limit = scene.rng.choice(LIMITS)
        options = ("starting_version=0", *((limit,) if limit else ()))
        self.stream = Stream(scene, self.source.path, staging=link, options=options, spark=cluster.words())
        #: How many of them were killed.
        self.deaths = 0

    def start(self) -> Running | DagRun:
        """Start a run."""
        return self.stream.start()

    def die(self, running: Running | DagRun) -> None:
        """Kill a run."""
        self.deaths += 1
        running.signal(signal.SIGKILL)
        running.wait()

    def give_up(self) -> None:
        """Let the next run start another driver, as a person does."""
        self.stream.move("unlock", "--force")

    def settle(self) -> None:
        """Run until the stream is up to date."""
        settle(self.stream, allowed=("unlock",))

    def named(self) -> set[str]:
        """Return the drivers that the history names."""
        actions = (entry["action"] for entry in self.stream.history())
        return {action["driver"] for action in actions if action["kind"] == "submitted"}


class Tasks(Runs):
    """The runs of one stream, by a DAG."""

    def __init__(self, scene: Scene, cluster: Cluster, link: Path) -> None:
        super().__init__(scene, cluster, link)
        name, sink = name_of(scene), f"DeltaAppendSink({str(self.stream.sink)!r})"
        self.stream = replace(self.stream, name=name)
        options = ", ".join([*self.stream.options, ""])
        arguments = f"conf={CONF}, env_vars={{'PYSPARK_PYTHON': {sys.executable!r}}}"
        self._dag = DagStream(scene, self.source, sink, name, options, arguments, conn=cluster.connection())

    def start(self) -> Running | DagRun:
        return self._dag.start()

    def die(self, running: Running | DagRun) -> None:
        super().die(running)
        self._dag.give_up()

    def give_up(self) -> None:
        self._dag.move("unlock", "--force")

    def settle(self) -> None:
        self._dag.settle()


class Shared:
    """The staging folder: a link that can lead nowhere for a time, for all sides."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.link, self._real = scene.root / "staging", scene.root / "staging-real"
        self._real.mkdir()
        self.link.symlink_to(self._real)

    def go(self) -> None:
        self._lead_to(self.link, "cannot be reached")

    def back(self) -> None:
        self._lead_to(self._real, "is back")

    def _lead_to(self, place: Path, what: str) -> None:
        self.scene.note(f"staging {what}")
        new = self.link.with_name("new-link")
        new.symlink_to(place)
        new.replace(self.link)


def moment(scene: Scene, running: Running | DagRun, cluster: Cluster, runs: Runs) -> str | None:
    """Wait for a moment of a run, and a little longer; return the driver that is at work then, if there is one."""
    points: dict[str, Callable[[], bool]] = {
        "a driver starts": grown(cluster.folder, "work/driver-*"),
        "the history grows": grown(runs.stream.staging, "*/ledger/*"),
        "an attempt is written down": grown(runs.stream.staging, "*/attempts/*/*/*"),
        "the sink gets a file": grown(runs.stream.sink, "**/*.parquet"),
        "the sink gets a commit": grown(runs.stream.sink, "_delta_log/*.json"),
    }
    point = scene.rng.choice(list(points))
    reached = running.when(points[point], timeout=240)
    pause = scene.rng.choice((0.0, 0.0, scene.rng.uniform(0, 1), scene.rng.uniform(0, 4)))
    time.sleep(pause)
    scene.note(f"moment: {point}{'' if reached else ' (not seen)'} + {pause:.2f} s")
    at_work = cluster.at_work()
    return at_work[-1] if at_work else None


def disturb(scene: Scene, cluster: Cluster, runs: Runs, shared: Shared, fault: str) -> None:
    """Start a run, and let something happen at a moment of it."""
    scene.note(f"-- {fault}")
    running = runs.start()
    driver = moment(scene, running, cluster, runs)
    which = scene.rng.choice(("python", "java", "both"))
    if fault == "the run dies":
        runs.die(running)
    elif fault == "the driver dies" and driver:
        cluster.signal_driver(driver, signal.SIGKILL, which)
    elif fault == "the driver is killed by the master" and driver:
        cluster.kill_driver(driver)
    elif fault == "the master is killed":
        cluster.signal_master(signal.SIGKILL)
        time.sleep(scene.rng.uniform(0, 6))
        cluster.start_master()
    elif fault == "the master is silent":
        cluster.signal_master(signal.SIGSTOP)
        time.sleep(scene.rng.uniform(*_SILENT_SECONDS))
        cluster.signal_master(signal.SIGCONT)
    elif fault == "staging is away":
        shared.go()
        time.sleep(scene.rng.choice((0.1, 1, scene.rng.uniform(2, 25))))
        shared.back()
    elif driver:
        cluster.signal_driver(driver, signal.SIGSTOP, "both")
        if scene.rng.random() < 0.7:
            runs.die(running)
            if fault == "a person gives the driver up":
                runs.give_up()
            running = runs.start()
            moment(scene, running, cluster, runs)
        cluster.signal_driver(driver, signal.SIGCONT, "both")
    running.wait()


def play(scene: Scene, kind_of_runs: type[Runs]) -> None:
    """Disturb runs and their drivers, and judge what they leave."""
    cluster, shared = Cluster(scene), Shared(scene)
    runs = kind_of_runs(scene, cluster, shared.link)
    faults = scene.rng.sample(_FAULTS, scene.rng.randint(1, 3))
    for fault in faults:
        disturb(scene, cluster, runs, shared, fault)
        runs.source.append()
    runs.settle()
    while any(map(cluster.processes, cluster.drivers())):
        time.sleep(0.2)
    verdict(scene, runs.source, runs.stream)
    unnamed = cluster.drivers() - runs.named()
    beside = len(unnamed) + faults.count("a person gives the driver up")
    scene.note(f"{len(cluster.drivers())} drivers, {len(unnamed)} of which no entry names; {cluster.most} at a time")
    # a run that cannot write the entry stops its driver; a master may start one, and its answer be lost
    lost = sum(fault in _LOSES_THE_START for fault in faults)
    if cluster.most > 1 + beside or len(unnamed) > runs.deaths + lost:
        raise VerdictError("silent", f"{cluster.most} drivers at a time, {sorted(unnamed)} are not in the history")


@kind
def cluster_of_drivers_disturbed(scene: Scene) -> None:
    """In a standalone cluster anything dies, stands still or goes away; a claim has one driver at a time."""
    play(scene, Runs)


@kind
def drivers_of_tasks_in_a_cluster_disturbed(scene: Scene) -> None:
    """The same with tasks of a DAG."""
    play(scene, Tasks)
