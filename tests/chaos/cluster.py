"""A standalone cluster whose drivers get faults, and the faults of the cluster itself."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import urllib.error
import urllib.request
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from airflow_provider_fds.fault_points import ASKED_BY, ASKED_LATER, MARKS_IN, Fault
from airflow_provider_fds.spark.installation.jars import s3a_jars
from tests.chaos.actors import state_of, wait_until
from tests.chaos.lake import Lake
from tests.interop.s3_server import Fault as StoreFault
from tests.interop.s3_server import Server
from tests.standalone_cluster import SMALL, Leader, Running, running

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from tests.chaos.actors import Actor, Stage

#: States of a driver that is, or may be, at work.
AT_WORK = frozenset({"SUBMITTED", "RUNNING", "RELAUNCHING"})
_WATCH_SECONDS = 0.3


@dataclass
class Cluster:
    """A master, its workers, and the drivers that they have started."""

    first: Running
    #: Folder with the fault of the next driver, and the marks of those that hit.
    marks: Path
    leader: Leader
    #: More settings of the drivers.
    conf: Mapping[str, str] = field(default_factory=dict)

    @property
    def spark(self) -> tuple[str, ...]:
        """The arguments of `fds run` that let this cluster run the driver."""
        conf = {
            **SMALL,
            "spark.cores.max": "1",
            "spark.driver.memory": "600m",
            "spark.driver.host": "127.0.0.1",
            "spark.pyspark.python": sys.executable,
            "spark.master.rest.port": self.first.rest_port,
            **self.conf,
        }
        words = [word for name, value in conf.items() for word in ("--conf", f"{name}={value}")]
        return ("--master", self.first.master, "--deploy-mode", "cluster", *words)

    def drivers(self) -> set[str]:
        """Return the ids of all drivers that a worker has started."""
        return {folder.name for folder in self.first.work.glob("driver-*")}

    def status(self, driver: str) -> str | None:
        """Return the state that the master has of a driver, ``None`` if it does not tell."""
        with suppress(OSError, ValueError):
            return self._ask("GET", f"status/{driver}").get("driverState")
        return None

    def said(self, driver: str) -> str:
        """Return what a driver has printed."""
        return "".join((self.first.work / driver / name).read_text(errors="replace") for name in ("stdout", "stderr"))

    def await_ends(self) -> None:
        """Wait until no driver is at work."""
        wait_until(
            lambda: not [driver for driver in self.drivers() if self.status(driver) in AT_WORK], "all drivers to end"
        )

    def kill_driver(self, driver: str) -> None:
        """Have the master kill a driver, as a person does in its page."""
        assert self._ask("POST", f"kill/{driver}")["success"]

    def _ask(self, method: str, what: str) -> dict[str, Any]:
        url = f"http://127.0.0.1:{self.first.rest_port}/v1/submissions/{what}"
        with urllib.request.urlopen(urllib.request.Request(url, method=method), timeout=10) as answer:
            return dict(json.load(answer))

    def stall_master(self) -> None:
        """Let the master stand still."""
        os.killpg(self.leader.process_id, signal.SIGSTOP)

    def continue_master(self) -> None:
        """Let it go on."""
        os.killpg(self.leader.process_id, signal.SIGCONT)

    def arm(self, fault: Fault | None) -> None:
        """Let the driver that starts next have a fault."""
        asked = self.marks / ASKED_LATER
        if fault is None:
            asked.unlink(missing_ok=True)
            return
        (self.marks / str(fault)).unlink(missing_ok=True)
        asked.write_text(str(fault))


@contextmanager
def a_cluster(
    folder: Path,
    *,
    workers: int = 2,
    leading: Mapping[str, str] | None = None,
    conf: Mapping[str, str] | None = None,
    **environment: str,
) -> Iterator[Cluster]:
    """Yield a master and workers, which have room for two drivers at a time with one executor each."""
    marks = folder / "marks"
    marks.mkdir(parents=True)
    faults = {ASKED_BY: ASKED_LATER, MARKS_IN: str(marks)}
    with running(folder, workers=workers, cores=4 // workers, leading=leading, **faults, **environment) as first:
        leader = Leader(first, **leading or {})
        try:
            yield Cluster(first, marks, leader, conf or {})
        finally:
            leader.end()


class Alive:
    """Counts the drivers that the cluster calls running at the same time, while its body runs."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._before = cluster.drivers()
        self._ended: set[str] = set()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self.most = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    @property
    def started(self) -> set[str]:
        """The drivers that were started since the body began."""
        return self._cluster.drivers() - self._before

    def _watch(self) -> None:
        while not self._is_over.wait(_WATCH_SECONDS):
            states = {driver: self._cluster.status(driver) for driver in self._cluster.drivers() - self._ended}
            self._ended |= {driver for driver, state in states.items() if state not in (*AT_WORK, None, "UNKNOWN")}
            self.most = max(self.most, sum(state in AT_WORK for state in states.values()))


class Shared:
    """The staging folder, which all sides reach by a link that can lead nowhere for a time."""

    def __init__(self, root: Path) -> None:
        self._link = root / "staging"
        self._real = root / "staging-real"
        self._real.mkdir(parents=True)
        self._link.symlink_to(self._real)
        self.uri = str(self._link)
        self.options: dict[str, str] = {}

    def go(self) -> None:
        """Let each access fail with an error of the file system."""
        self._lead_to(self._link)

    def back(self) -> None:
        """Let all reach it again."""
        self._lead_to(self._real)

    def _lead_to(self, place: Path) -> None:
        link = self._link.with_name("link")
        link.symlink_to(place)
        link.replace(self._link)


class Bucket:
    """Staging in a bucket, which all sides reach without keys, and whose server can be away for a time.

    Keys in the options of a run would be settings of its driver, which FDS refuses.
    """

    def __init__(self) -> None:
        self._server = Server()
        self._server.new_bucket("staging")
        everybody = {"Effect": "Allow", "Principal": "*", "Action": "s3:*", "Resource": "arn:aws:s3:::staging/*"}
        policy = urllib.request.Request(
            f"{self._server.endpoint}/staging?policy",
            data=json.dumps({"Version": "2012-10-17", "Statement": [everybody]}).encode(),
            headers={"Content-Type": "application/json"},
            method="PUT",
        )
        urllib.request.urlopen(policy, timeout=30).close()
        self.uri = "s3://staging/fds"
        self.options = {"endpoint": self._server.endpoint, "region": "us-east-1", "skip_signature": "true"}

    def nodes(self) -> dict[str, Any]:
        """Return the arguments of :func:`a_cluster` with which its nodes reach the bucket."""
        jars = ":".join(map(str, s3a_jars()))
        s3a = {
            "endpoint": self._server.endpoint,
            "endpoint.region": "us-east-1",
            "path.style.access": "true",
            "aws.credentials.provider": "org.apache.hadoop.fs.s3a.AnonymousAWSCredentialsProvider",
        }
        return {
            "conf": {"spark.driver.extraClassPath": jars, "spark.executor.extraClassPath": jars},
            # a worker fetches the modules of a driver
            "SPARK_DAEMON_CLASSPATH": jars,
            "SPARK_WORKER_OPTS": " ".join(f"-Dspark.hadoop.fs.s3a.{name}={value}" for name, value in s3a.items()),
        }

    def go(self, kind: str) -> None:
        """Let the server do to each request what the kind of a fault says."""
        self._listing = StoreFault(kind, "LIST")
        self._server.faults[:] = [self._listing, StoreFault(kind)]

    def has_failed_write(self) -> bool:
        """Whether the driver has come across the fault: before it writes a file, it looks for a folder of that name."""
        return self._listing.times < StoreFault.times

    def back(self) -> None:
        """Let it answer again."""
        self._server.heal()

    def end(self) -> None:
        """Stop the server."""
        self._server.stop()


def lake_of(root: Path, cluster: Cluster, shared: Shared | Bucket) -> Lake:
    """Return a lake whose runs have their drivers in the cluster: all that is there is one batch."""
    options = ("starting_version=0", "max_versions_per_batch=1000")
    return Lake(root, shared.uri, shared.options, options=options, pause_seconds=20, spark=cluster.spark)


def start_hit(stage: Stage, cluster: Cluster, fault: Fault) -> Actor:
    """Start a run whose driver gets a fault, and wait until that has hit."""
    cluster.arm(fault)
    actor = stage.start(more=("--max-batches", "1"))
    actor.fault, actor.marks = fault, cluster.marks
    assert actor.await_hit(), f"no driver came to {fault}: {actor.said()[-5000:]}"
    cluster.arm(None)
    return actor


def continue_driver(actor: Actor) -> None:
    """Let a driver that stands still go on, and wait until it has ended."""
    hit = actor.hit
    assert hit is not None
    actor.go_on()
    wait_until(lambda: state_of(hit) is None, f"the driver {hit} to end")
