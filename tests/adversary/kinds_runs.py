"""Runs that are killed, stopped, overtaken and continued at moments drawn by lot."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

from tests.adversary.checker import Bounds, judge_chain, judge_keys
from tests.adversary.play import kind
from tests.adversary.scene import Running, Scene, Stream, grown
from tests.adversary.source import Source
from tests.adversary.ways import settle

if TYPE_CHECKING:
    from collections.abc import Callable

LIMITS = ("max_versions_per_batch=1", "max_versions_per_batch=2", "max_files_per_batch=1", "max_files_per_batch=3", "")


def source_of(scene: Scene, *, commits: int = 3, partitioned: bool = False, feed: bool = False) -> Source:
    """Return a table with some commits."""
    source = Source(scene, scene.root / "orders", is_partitioned=partitioned, has_feed=feed)
    source.create(scene.rng.randint(2, 6))
    for _ in range(commits):
        source.append()
    return source


def stream_of(scene: Scene, source: Source, *options: str, arguments: tuple[str, ...] = ()) -> Stream:
    """Return a stream from version 0 on, with limits drawn by lot."""
    limit = scene.rng.choice(LIMITS)
    chosen = ("starting_version=0", *options, *((limit,) if limit else ()))
    return Stream(scene, source.path, options=chosen, arguments=arguments)


def moment(scene: Scene, running: Running, stream: Stream, point: str | None = None) -> str:
    """Wait for a moment of a run that can be seen from outside, and a little longer."""
    points: dict[str, Callable[[], bool]] = {
        "staging grows": grown(stream.staging, "*/*/*"),
        "a try is written down": grown(stream.staging, "*/tries/*/*/*"),
        "the sink gets a file": grown(stream.sink, "**/*.parquet"),
        "the sink gets a commit": grown(stream.sink, "_delta_log/*.json"),
        "the checkpoint is written": _changed(stream),
    }
    point = point or scene.rng.choice(list(points))
    reached = running.when(points[point])
    pause = scene.rng.choice((0.0, 0.0, scene.rng.uniform(0, 0.3), scene.rng.uniform(0, 1.5)))
    time.sleep(pause)
    scene.note(f"moment: {point}{'' if reached else ' (not seen)'} + {pause:.2f} s")
    return point


def _changed(stream: Stream) -> Callable[[], bool]:
    def stamp() -> int:
        return stream.checkpoint.stat().st_mtime_ns if stream.checkpoint.exists() else 0

    before = stamp()
    return lambda: stamp() != before


def verdict(scene: Scene, source: Source, stream: Stream, bounds: Bounds | None = None) -> None:
    """All rows once, or as the bounds say, and a sink history without gap."""
    judge_keys(scene, bounds or Bounds(source.emitted()), stream.sink)
    judge_chain(scene, stream.sink, stream.name)


@kind
def killed_python_on_a_server(scene: Scene) -> None:
    """The process dies, its write goes on in the server; again and again; then a run that nothing disturbs."""
    source = source_of(scene)
    stream = stream_of(scene, source)
    for _ in range(scene.rng.randint(1, 3)):
        running = stream.start()
        moment(scene, running, stream)
        running.signal(signal.SIGKILL)
        running.wait()
        source.append()
    settle(stream)
    verdict(scene, source, stream)


@kind
def zombie_overtaken_on_a_server(scene: Scene) -> None:
    """One stands still, one takes over, the first goes on beside it or after it."""
    source = source_of(scene)
    stream = stream_of(scene, source)
    if scene.rng.random() < 0.5:
        stream.run("--max-batches", "1")
        source.append()
    zombies = []
    for _ in range(scene.rng.randint(1, 2)):
        zombie = stream.start("--take-over")
        moment(scene, zombie, stream)
        zombie.signal(signal.SIGSTOP)
        zombies.append(zombie)
        source.append()
    stream.run("--take-over")
    for zombie in zombies:
        zombie.signal(signal.SIGCONT)
    source.append()
    if scene.rng.random() < 0.5:
        stream.run("--take-over")
    for zombie in zombies:
        zombie.wait()
    settle(stream, allowed=("take-over",))
    verdict(scene, source, stream)


@kind
def two_runs_at_once(scene: Scene) -> None:
    """Two and three runs start at the same moment, some told to take over."""
    source = source_of(scene)
    stream = stream_of(scene, source)
    for _ in range(2):
        runs = [stream.start(*scene.rng.choice((("--take-over",), ()))) for _ in range(scene.rng.randint(2, 3))]
        for run in runs:
            run.wait()
        source.append()
    settle(stream, allowed=("take-over",))
    verdict(scene, source, stream)


@kind
def killed_with_all_its_processes(scene: Scene) -> None:
    """spark-submit: the whole group dies, or the JVM alone, or the Python alone."""
    source = source_of(scene)
    stream = stream_of(scene, source)
    which = scene.rng.choice(("group", "jvm", "python"))
    running = stream.start(via="submit")
    moment(
        scene,
        running,
        stream,
        scene.rng.choice(("a try is written down", "the sink gets a file", "the sink gets a commit")),
    )
    running.signal(signal.SIGKILL, which)
    running.wait()
    source.append()
    settle(stream)
    verdict(scene, source, stream)


@kind
def zombie_of_spark_submit(scene: Scene) -> None:
    """The driver stands still in the middle of its write, is overtaken on a server, and goes on."""
    source = source_of(scene, commits=1)
    stream = stream_of(scene, source)
    zombie = stream.start(via="submit")
    moment(scene, zombie, stream, scene.rng.choice(("a try is written down", "the sink gets a file")))
    zombie.signal(signal.SIGSTOP)
    source.append()
    if scene.rng.random() < 0.5:
        zombie.signal(signal.SIGKILL, "python")
    stream.run("--take-over")
    zombie.signal(signal.SIGCONT)
    zombie.wait()
    settle(stream, allowed=("take-over",))
    verdict(scene, source, stream)


@kind
def source_written_and_vacuumed_meanwhile(scene: Scene) -> None:
    """Every kind of commit beside runs that are killed; changes are skipped by option."""
    source = source_of(scene, partitioned=scene.rng.random() < 0.5, feed=scene.rng.random() < 0.3)
    stream = stream_of(scene, source, "skip_change_commits=true")
    for _ in range(scene.rng.randint(2, 3)):
        running = stream.start()
        for _ in range(scene.rng.randint(1, 3)):
            source.random_commit(changes=True)
        if scene.rng.random() < 0.6:
            moment(scene, running, stream)
            running.signal(signal.SIGKILL)
        running.wait()
    settle(stream)
    verdict(scene, source, stream)
