"""Folders that are not mounted for a while: the sink's or the source's, for everybody or for Spark alone.

In the place of such a folder is nothing, or an empty folder of the local disk, which keeps what is written meanwhile.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.adversary.kinds_runs import begin, moment, verdict
from tests.adversary.play import kind
from tests.adversary.scene import NotRunError, Outcome, Scene, Stream, VerdictError
from tests.adversary.servers import Server
from tests.adversary.ways import named, settle

if TYPE_CHECKING:
    from pathlib import Path

    from tests.adversary.source import Source

#: What only a person may advise who knows that rows are gone.
_GIVING_UP = {"skip", "rewind --to start"}


@dataclass
class Mount:
    """A folder that goes away and comes back.

    Attributes:
        scene: The scenario.
        path: The folder.
        is_empty: Whether an empty folder is in its place meanwhile.
        server: The Connect server that alone does not see it; ``None``: nobody does.
    """

    scene: Scene
    path: Path
    is_empty: bool
    server: Server | None = None
    #: What was written in its place.
    below: list[Path] = field(default_factory=list)

    @property
    def _away(self) -> Path:
        return self.path.with_name(f"{self.path.name}-mounted")

    def go(self) -> None:
        """Unmount the folder."""
        self.scene.note(f"{self.path.name} is not mounted{' for Spark' if self.server else ''}")
        if self.server is not None:
            below = self.path.with_name(f"{self.path.name}-below-{len(self.below)}")
            below.mkdir()
            self.below.append(below)
            self._in_spark("mount", "--bind", str(below), str(self.path))
            return
        self.path.rename(self._away)
        if self.is_empty:
            self.path.mkdir()

    def back(self) -> None:
        """Mount it again."""
        if self.server is not None:
            self._in_spark("umount", "-l", str(self.path))
        else:
            while not self._is_in_place():
                below = self.path.with_name(f"{self.path.name}-below-{len(self.below)}")
                self.path.rename(below)
                self.below.append(below)
        there = sum(path.is_file() for below in self.below for path in below.rglob("*"))
        self.scene.note(f"{self.path.name} is mounted again; {there} files were written in its place so far")

    def _is_in_place(self) -> bool:
        try:
            # also succeeds if an empty folder is there
            os.rename(self._away, self.path)  # noqa: PTH104
        except OSError:
            return False
        return True

    def _in_spark(self, *words: str) -> None:
        assert self.server is not None
        assert self.server.process is not None
        enter = ["nsenter", "-t", str(self.server.process.pid), "-m", "--", *words]
        done = subprocess.run(enter, capture_output=True, text=True, check=False)
        if done.returncode:
            raise NotRunError(f"{' '.join(words)}: {done.stderr.strip()}")

    def move_files(self) -> bool:
        """Move data files that were written in its place into the folder, as a person does whom a message asks to."""
        moved = 0
        for below in self.below:
            for path in below.rglob("*.parquet"):
                to = self.path / path.relative_to(below)
                if "_delta_log" not in path.parts and not to.exists():
                    to.parent.mkdir(parents=True, exist_ok=True)
                    shutil.move(path, to)
                    moved += 1
        self.scene.note(f"{moved} files are moved into {self.path.name}")
        return moved > 0


def mount_of(scene: Scene, path: Path) -> Mount:
    """Return the folder's mount, for everybody or for a server of its own."""
    if scene.rng.random() < 0.5:
        return Mount(scene, path, is_empty=scene.rng.random() < 0.7)
    if shutil.which("unshare") is None or subprocess.run(["unshare", "-m", "true"], check=False).returncode:
        raise NotRunError("mounts of its own are not permitted")
    server = Server(scene.root / "own-server", prefix=("unshare", "-m", "--propagation", "private"))
    scene.cleanups.append(server.stop)
    server.start(scene.servers.jars())
    return Mount(scene, path, is_empty=True, server=server)


def run_meanwhile(scene: Scene, stream: Stream, mount: Mount) -> list[Outcome]:
    """Run the stream while the folder goes and comes back, and perhaps once more while it is away."""
    words = stream.describe()
    if mount.server is not None:
        words[words.index("--remote") + 1] = mount.server.url
    is_early = scene.rng.random() < 0.3
    if is_early:
        mount.go()
    running = scene.start(*words)
    if is_early:
        time.sleep(scene.rng.uniform(0, 4))
    for turn in range(scene.rng.randint(1, 3)):
        if turn or not is_early:
            moment(scene, running, stream)
            mount.go()
        if scene.rng.random() < 0.3:
            break
        time.sleep(scene.rng.choice((0.02, 0.1, 0.3, scene.rng.uniform(0.2, 2))))
        mount.back()
        if not running.is_running:
            return [_ended(scene, running.wait())]
    else:
        return [_ended(scene, running.wait())]
    ends = [_ended(scene, running.wait())]
    if scene.rng.random() < 0.5:
        ends.append(scene.fds(*words))
    mount.back()
    return ends


def _ended(scene: Scene, outcome: Outcome) -> Outcome:
    scene.outcomes.append(outcome)
    scene.refusals += outcome.is_refused
    return outcome


def judge_mounted(scene: Scene, source: Source, stream: Stream, mount: Mount) -> None:
    """Run until the stream is up to date; files that a message misses are moved to where they belong."""
    try:
        settle(stream, allowed=("unlock",))
    except VerdictError as stuck:
        if "data files are not there" not in str(stuck) or not mount.move_files():
            raise
        settle(stream, allowed=("unlock",))
    verdict(scene, source, stream)


@kind
def unmounted_sink(scene: Scene) -> None:
    """The sink's folder goes away during a batch and comes back, for everybody or for Spark alone."""
    source, stream = begin(scene)
    stream.run("--max-batches", "1")
    mount = mount_of(scene, stream.sink)
    for _ in range(scene.rng.randint(1, 2)):
        for _ in range(scene.rng.randint(1, 3)):
            source.append()
        run_meanwhile(scene, stream, mount)
    source.append()
    judge_mounted(scene, source, stream, mount)


@kind
def unmounted_source(scene: Scene) -> None:
    """The source's folder does; nothing may say that its rows are gone."""
    source, stream = begin(scene)
    if scene.rng.random() < 0.6:
        stream.run("--max-batches", "1")
    mount = mount_of(scene, source.path)
    for _ in range(scene.rng.randint(1, 2)):
        for _ in range(scene.rng.randint(1, 3)):
            source.append()
        for said in run_meanwhile(scene, stream, mount):
            advised = _GIVING_UP & {"rewind --to start" if "start" in rest else name for name, *rest in named(said)}
            if advised or "earliest" in said.err:
                raise VerdictError("silent", f"a folder is not mounted, and the message gives its rows up: {said}")
    source.append()
    judge_mounted(scene, source, stream, mount)
