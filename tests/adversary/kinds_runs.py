"""Runs that are killed, stopped, overtaken and continued at random moments."""

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
    """Return a stream from version 0, with random limits."""
    limit = scene.rng.choice(LIMITS)
    chosen = ("starting_version=0", *options, *((limit,) if limit else ()))
    return Stream(scene, source.path, options=chosen, arguments=arguments)


def begin(
    scene: Scene, *options: str, arguments: tuple[str, ...] = (), commits: int = 3, **table: bool
) -> tuple[Source, Stream]:
    """Return a table with some commits, and a stream that reads it from version 0."""
    source = source_of(scene, commits=commits, **table)
    return source, stream_of(scene, source, *options, arguments=arguments)


def moment(scene: Scene, running: Running, stream: Stream, point: str | None = None) -> str:
    """Wait for a moment of a run that is visible from outside, and a little longer."""
    points: dict[str, Callable[[], bool]] = {
        "staging grows": grown(stream.staging, "*/*/*"),
        "an attempt is written down": grown(stream.staging, "*/attempts/*/*/*"),
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


def kill_a_run(scene: Scene, stream: Stream, *words: str, point: str | None = None) -> None:
    """Kill a run at a moment."""
    running = stream.start(*words)
    moment(scene, running, stream, point)
    running.signal(signal.SIGKILL)
    running.wait()


def stall_a_run(
    scene: Scene,
    stream: Stream,
    *words: str,
    via: str = "connect",
    point: str | None = None,
    which: tuple[str, ...] = ("group",),
) -> Running:
    """Stop a run from a moment on; ``which`` are the processes that may be stopped."""
    running = stream.start(*words, via=via)
    moment(scene, running, stream, point)
    running.signal(signal.SIGSTOP, scene.rng.choice(which))
    return running


def _changed(stream: Stream) -> Callable[[], bool]:
    def stamp() -> int:
        return stream.checkpoint.stat().st_mtime_ns if stream.checkpoint.exists() else 0

    before = stamp()
    return lambda: stamp() != before


def verdict(scene: Scene, source: Source, stream: Stream, bounds: Bounds | None = None) -> None:
    """All rows once, or within the bounds, and a sink history without a gap."""
    judge_keys(scene, bounds or Bounds(source.emitted()), stream.sink)
    judge_chain(scene, stream.sink, stream.name)


@kind
def killed_python_on_a_server(scene: Scene) -> None:
    """The process dies, its write continues on the server, several times; then a run without faults."""
    source, stream = begin(scene)
    for _ in range(scene.rng.randint(1, 3)):
        kill_a_run(scene, stream)
        source.append()
    settle(stream)
    verdict(scene, source, stream)


@kind
def zombie_overtaken_on_a_server(scene: Scene) -> None:
    """One run stops, another takes over, and the first continues during or after it."""
    source, stream = begin(scene)
    if scene.rng.random() < 0.5:
        stream.run("--max-batches", "1")
        source.append()
    zombies = []
    for _ in range(scene.rng.randint(1, 2)):
        zombie = stall_a_run(scene, stream, "--unlock")
        zombies.append(zombie)
        source.append()
    stream.run("--unlock")
    for zombie in zombies:
        zombie.signal(signal.SIGCONT)
    source.append()
    if scene.rng.random() < 0.5:
        stream.run("--unlock")
    for zombie in zombies:
        zombie.wait()
    settle(stream, allowed=("unlock",))
    verdict(scene, source, stream)


@kind
def two_runs_at_once(scene: Scene) -> None:
    """Two or three runs start at the same moment, some with `--unlock`."""
    source, stream = begin(scene)
    for _ in range(2):
        runs = [stream.start(*scene.rng.choice((("--unlock",), ()))) for _ in range(scene.rng.randint(2, 3))]
        for run in runs:
            run.wait()
        source.append()
    settle(stream, allowed=("unlock",))
    verdict(scene, source, stream)


@kind
def killed_with_all_its_processes(scene: Scene) -> None:
    """spark-submit: the whole group dies, or only the JVM, or only the Python."""
    source, stream = begin(scene)
    which = scene.rng.choice(("group", "jvm", "python"))
    running = stream.start(via="submit")
    moment(
        scene,
        running,
        stream,
        scene.rng.choice(("an attempt is written down", "the sink gets a file", "the sink gets a commit")),
    )
    running.signal(signal.SIGKILL, which)
    running.wait()
    source.append()
    settle(stream)
    verdict(scene, source, stream)


@kind
def zombie_of_spark_submit(scene: Scene) -> None:
    """The driver stops during its write, is overtaken on a server, and continues."""
    source, stream = begin(scene, commits=1)
    zombie = stall_a_run(
        scene, stream, via="submit", point=scene.rng.choice(("an attempt is written down", "the sink gets a file"))
    )
    source.append()
    if scene.rng.random() < 0.5:
        zombie.signal(signal.SIGKILL, "python")
    stream.run("--unlock")
    zombie.signal(signal.SIGCONT)
    zombie.wait()
    settle(stream, allowed=("unlock",))
    verdict(scene, source, stream)


@kind
def source_written_and_vacuumed_meanwhile(scene: Scene) -> None:
    """Every kind of commit alongside runs that are killed; changes are skipped by option."""
    source, stream = begin(
        scene, "skip_change_commits=true", partitioned=scene.rng.random() < 0.5, feed=scene.rng.random() < 0.3
    )
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
