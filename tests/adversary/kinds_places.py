"""Folders, disks, clocks and other jobs: staging copied, lost, full, read-only; sinks and sources replaced."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import stat
import subprocess
import time
from collections import Counter
from pathlib import Path

import deltalake
import pyarrow as pa

from tests.adversary.checker import Bounds, count, judge_chain, judge_keys
from tests.adversary.kinds_people import EPOCHS, remove_rows
from tests.adversary.kinds_runs import begin, kill_a_run, moment, source_of, stall_a_run, stream_of, verdict
from tests.adversary.play import kind
from tests.adversary.scene import NotRunError, Scene, Stream, VerdictError, grown
from tests.adversary.servers import faketime_library
from tests.adversary.source import Source
from tests.adversary.warm import sql
from tests.adversary.ways import committed_before, settle


def copy(path: Path, to: Path) -> None:
    """Copy a file or folder over another one, with its times."""
    if to.is_dir():
        shutil.rmtree(to)
    elif to.exists():
        to.unlink()
    if path.is_dir():
        shutil.copytree(path, to)
    elif path.exists():
        shutil.copy2(path, to)


def foreign_commits(path: Path, number: int, *, rows: int = 0) -> None:
    """Commit to a sink as another job, this many times: without rows, like jobs that set properties or compact."""
    table = deltalake.DeltaTable(path)
    for count_ in range(number):
        if rows:
            like = table.to_pyarrow_table().slice(0, 1)
            foreign = like.set_column(like.column_names.index("id"), "id", pa.array([-1 - count_], pa.int64()))
            deltalake.write_deltalake(path, foreign.slice(0, min(rows, 1)), mode="append")
        else:
            table.alter.set_table_properties({"delta.logRetentionDuration": f"interval {30 + count_} days"})


@kind
def staging_lost(scene: Scene) -> None:
    """Staging is gone: the run reports it, and `recover` continues after what the sink has."""
    _staging_lost(scene, foreign=0)


@kind
def staging_lost_with_many_foreign_commits_since(scene: Scene) -> None:
    """The same, where another job has committed to the sink more than a hundred times since."""
    _staging_lost(scene, foreign=scene.rng.choice((101, 130, 205)))


def _staging_lost(scene: Scene, foreign: int) -> None:
    source, stream = begin(scene)
    stream.run()
    if foreign:
        foreign_commits(stream.sink, foreign)
        scene.note(f"{foreign} commits of another job in the sink")
    shutil.rmtree(stream.staging)
    if scene.rng.random() < 0.5:
        stream.checkpoint.unlink()
    scene.note("staging is gone" + ("" if stream.checkpoint.exists() else ", and the checkpoint"))
    if scene.rng.random() < 0.5:
        source.append()
    first = stream.run()
    if not first.is_refused:
        judge_keys(scene, Bounds(source.emitted()), stream.sink)
        raise VerdictError("silent", f"staging was lost, and the run says nothing: {first}")
    settle(stream, allowed=("recover",))
    verdict(scene, source, stream)


@kind
def staging_put_back_from_a_copy(scene: Scene) -> None:
    """Staging, checkpoint, or both are restored from an older copy, at rest or alongside a run."""
    source, stream = begin(scene)
    stream.run("--max-batches", "1")
    for place in (stream.staging, stream.checkpoint):
        copy(place, scene.root / f"copy-{place.name}")
    for _ in range(scene.rng.randint(1, 3)):
        source.append()
        stream.run("--max-batches", str(scene.rng.randint(1, 2)))
    what = scene.rng.choice(((stream.staging,), (stream.checkpoint,), (stream.staging, stream.checkpoint)))
    running = stall_a_run(scene, stream) if scene.rng.random() < 0.3 else None
    for place in what:
        copy(scene.root / f"copy-{place.name}", place)
    scene.note(f"put back from a copy: {[place.name for place in what]}")
    if running is not None:
        running.signal(signal.SIGCONT)
        running.wait()
    if scene.rng.random() < 0.5:
        source.append()
    settle(stream, allowed=("recover", "unlock"))
    verdict(scene, source, stream)


@kind
def sink_put_back_from_a_copy(scene: Scene) -> None:
    """The sink is restored from an older copy: the run refuses, and the named command leads to all rows."""
    source = source_of(scene)
    stream = Stream(scene, source.path, options=("starting_version=0", "max_versions_per_batch=1"))
    stream.run("--max-batches", "2")
    copy(stream.sink, scene.root / "copy-sink")
    source.append()
    stream.run()
    copy(scene.root / "copy-sink", stream.sink)
    scene.note("the sink is put back from a copy, with two batches")
    source.append()
    refused = stream.run()
    if not refused.is_refused:
        judge_keys(scene, Bounds(source.emitted()), stream.sink)
        raise VerdictError("silent", f"the sink was put back, and the run says nothing: {refused}")
    stream.move("rewind", "--to", "batch:2")
    settle(stream)
    verdict(scene, source, stream)


@kind
def everything_put_back_from_a_copy(scene: Scene) -> None:
    """Staging, checkpoint and sink are restored together: the stream continues from that time."""
    source, stream = begin(scene)
    stream.run("--max-batches", "1")
    places = (stream.staging, stream.checkpoint, stream.sink)
    for place in places:
        copy(place, scene.root / f"copy-{place.name}")
    source.append()
    stream.run()
    for place in places:
        copy(scene.root / f"copy-{place.name}", place)
    scene.note("staging, checkpoint and sink are put back from copies")
    source.append()
    settle(stream, allowed=("recover",))
    verdict(scene, source, stream)


@kind
def two_stagings_with_one_stream_name(scene: Scene) -> None:
    """Two machines, each with its own staging, and one sink: one of them must be refused."""
    source = source_of(scene)
    first = stream_of(scene, source)
    second = Stream(
        scene, source.path, staging=scene.root / "staging2", checkpoint=scene.root / "checkpoint2.json",
        options=first.options,
    )  # fmt: skip
    if scene.rng.random() < 0.5:
        second.checkpoint = first.checkpoint
    if scene.rng.random() < 0.6:
        deltalake.DeltaTable.create(first.sink, schema=source.table.schema())
        scene.note("the sink was there before, empty")
    order = scene.rng.choice(("together", "together", "one after the other", "first has begun", "planned both"))
    scene.note(f"order: {order}")
    if order == "together":
        runs = [first.start(), second.start()]
        ends = [run.wait() for run in runs]
    elif order == "planned both":
        first.plan("--max-batches", "1")
        second.plan("--max-batches", "1")
        ends = [first.run(), second.run()]
    elif order == "first has begun":
        ends = [first.run("--max-batches", "1"), second.run(), first.run()]
    else:
        ends = [first.run(), second.run()]
    source.append()
    ends += [first.run(), second.run()]
    told = any(end.is_refused for end in ends)
    found = count(scene, first.sink)
    doubled = [row for row, times in found.items() if times > 1]
    if doubled:
        raise VerdictError(
            "doubled", f"{len(doubled)} rows by two stagings; a run refused: {told}", doubled=len(doubled)
        )
    if not told:
        raise VerdictError("silent", "two stagings have loaded one sink under one name, and nobody was told")
    judge_keys(scene, Bounds(source.emitted()), first.sink)


@kind
def one_checkpoint_with_two_stagings(scene: Scene) -> None:
    """The checkpoint of one staging is given to a run on another one."""
    source = source_of(scene)
    first = stream_of(scene, source)
    first.run("--max-batches", "1")
    second = Stream(scene, source.path, staging=scene.root / "staging2", options=first.options)
    source.append()
    said = second.run()
    if not said.is_refused:
        judge_keys(scene, Bounds(source.emitted()), first.sink)
        raise VerdictError("silent", f"a checkpoint of another staging, and the run says nothing: {said}")
    settle(first)
    verdict(scene, source, first)


@kind
def two_streams_into_one_sink(scene: Scene) -> None:
    """Two streams of two tables append to one sink, killed and stalled: each has its rows there once."""
    source = source_of(scene)
    other = Source(scene, scene.root / "returns", next_id=100_000)
    other.create()
    other.append()
    one = stream_of(scene, source)
    two = Stream(scene, other.path, name="returns", options=one.options, checkpoint=scene.root / "checkpoint2.json")
    for _ in range(2):
        runs = [one.start(), two.start()]
        victim = scene.rng.choice(runs)
        if scene.rng.random() < 0.5:
            moment(scene, victim, one)
            victim.signal(signal.SIGKILL)
        for run in runs:
            run.wait()
        source.append()
        other.append()
    settle(one)
    settle(two)
    judge_keys(scene, Bounds(source.emitted() + other.emitted()), one.sink)
    judge_chain(scene, one.sink, "orders")
    judge_chain(scene, one.sink, "returns")


@kind
def full_disk_for_staging(scene: Scene) -> None:
    """Staging is on a small disk that is full for a while."""
    disk = small_disk(scene, "disk", scene.rng.choice(("256k", "400k")))
    source, stream = begin(scene)
    stream.staging = disk / "staging"
    if scene.rng.random() < 0.5:
        stream.run("--max-batches", "1")
    fill(disk, scene.rng.choice((0, 4096, 16384)))
    scene.note("the disk of staging is full")
    source.append()
    full = stream.run()
    (disk / "filler").unlink()
    scene.note(f"the disk has room again ({full.code})")
    source.append()
    settle(stream, allowed=("recover",))
    verdict(scene, source, stream)


@kind
def full_disk_for_the_sink(scene: Scene) -> None:
    """The sink is on a small disk that is full for a while."""
    disk = small_disk(scene, "disk", "512k")
    source, stream = begin(scene)
    stream.sink = disk / "bronze"
    if scene.rng.random() < 0.6:
        stream.run("--max-batches", "1")
    fill(disk, scene.rng.choice((0, 2048, 4096)))
    source.append()
    stream.run()
    (disk / "filler").unlink()
    source.append()
    settle(stream)
    verdict(scene, source, stream)


def small_disk(scene: Scene, name: str, size: str) -> Path:
    """Mount a small tmpfs."""
    disk = scene.root / name
    disk.mkdir()
    if shutil.which("mount") is None:
        raise NotRunError("there is no mount")
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(disk)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise NotRunError(f"mounting a tmpfs is not permitted: {done.stderr.strip()}")
    scene.cleanups.append(lambda: subprocess.run(["umount", "-l", str(disk)], capture_output=True, check=False))
    return disk


def fill(disk: Path, left: int) -> None:
    """Fill a disk except for this many bytes."""
    with (disk / "filler").open("wb", buffering=0) as filler:
        try:
            while True:
                filler.write(b"x" * 4096)
        except OSError:
            pass
        filler.truncate(max(0, filler.tell() - left))


@kind
def read_only_staging(scene: Scene) -> None:
    """Staging cannot be written for a while (a read-only mount)."""
    disk = small_disk(scene, "disk", "8m")
    source, stream = begin(scene)
    stream.staging = disk / "staging"
    if scene.rng.random() < 0.7:
        stream.run("--max-batches", "1")
    running = stall_a_run(scene, stream) if scene.rng.random() < 0.5 else None
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=False, capture_output=True)
    scene.note("staging is read-only")
    if running is not None:
        running.signal(signal.SIGCONT)
        running.wait()
    source.append()
    refused = stream.run()
    if not refused.is_refused and "nothing new" not in refused.out:
        judge_keys(scene, Bounds(source.emitted()), stream.sink)
    subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True, capture_output=True)
    scene.note("staging can be written again")
    settle(stream)
    verdict(scene, source, stream)


@kind
def sink_overwritten_by_another_job(scene: Scene) -> None:
    """Another job overwrites the sink: the stream's rows are gone, and the next run must report it."""
    source, stream = begin(scene)
    stream.run()
    rows = Source(scene, scene.root / "unused", next_id=900_000).rows(3)
    how = scene.rng.choice(("overwrite", "overwrite part", "delete all"))
    if how == "overwrite":
        deltalake.write_deltalake(stream.sink, rows, mode="overwrite")
    elif how == "overwrite part":
        deltalake.write_deltalake(stream.sink, rows.slice(0, 0), mode="overwrite", predicate="id >= 2")
    else:
        sql(scene, f"INSERT OVERWRITE delta.`{stream.sink}` SELECT * FROM delta.`{stream.sink}` WHERE id < 0")
    scene.note(f"another job: {how} of the sink")
    source.append()
    said = stream.run()
    after = stream.run() if not said.is_refused else said
    lines = said.said + after.said
    words = ("overw", "removed", "replaced", "DELETE", "another job", "not FDS")
    if not any(word.lower() in lines.lower() for word in words):
        raise VerdictError(
            "silent", f"{how}: rows of the stream were removed from the sink, and the run says nothing: {said}"
        )


@kind
def zombie_of_a_sink_that_did_not_exist(scene: Scene) -> None:
    """The first write of a stream stops before its commit; a new epoch begins; the zombie creates the sink."""
    source, stream = begin(scene, commits=1)
    zombie = stall_a_run(scene, stream, via="submit", point="the sink gets a file")
    if (stream.sink / "_delta_log").exists() and list((stream.sink / "_delta_log").glob("*.json")):
        scene.note("the commit was there already")
    name, *more = scene.rng.choice((("replan",), ("rewind", "--to", "start"), ("rewind", "--to", "0")))
    asked = stream.move(name, *more)
    if scene.rng.random() < 0.5:
        # the epoch begins, and nothing is loaded: the zombie creates the sink
        stream.plan("--max-batches", "1")
    second = stream.start("--max-batches", "1")
    # the new epoch has begun without a sink, and its first batch is not written yet
    second.when(grown(stream.staging, "*/attempts/2/[0-9]*/*"))
    second.signal(scene.rng.choice((signal.SIGKILL, signal.SIGSTOP)))
    zombie.signal(signal.SIGCONT)
    zombie.wait()
    second.signal(signal.SIGCONT)
    second.wait()
    source.append()
    settle(stream, allowed=EPOCHS)
    bounds = Bounds(source.emitted())
    if name != "replan":
        # a slow machine: all was committed before the process stopped, and the command says that it is read again
        bounds.maybe_again(committed_before(asked, source))
    if any("twice" in one.said and one.is_refused for one in scene.outcomes):
        bounds.maybe_again(count(scene, stream.sink))
    judge_keys(scene, bounds, stream.sink)


@kind
def table_recreated_under_a_planned_batch(scene: Scene) -> None:
    """A batch is planned, the source is dropped and recreated with other rows: old and new rows never mix silently."""
    source, stream = begin(scene)
    if scene.rng.random() < 0.5:
        stream.run("--max-batches", "1")
        source.append()
    there = count(scene, stream.sink)
    if scene.rng.random() < 0.5:
        stream.plan("--max-batches", str(scene.rng.randint(1, 2)))
    else:
        kill_a_run(scene, stream, point=scene.rng.choice(("staging grows", "an attempt is written down")))
    looked = stream.status()
    # an error has no position
    position = json.loads(looked.out).get("position") if looked.out.startswith("{") else None
    if position is None:
        scene.note("killed before the stream had begun: it belongs to no table yet")
        return
    source.recreate(scene.rng.randint(2, 6))
    for _ in range(scene.rng.randint(0, 6)):
        source.append()
    said = stream.run("--unlock")
    if not said.is_refused:
        found = count(scene, stream.sink)
        raise VerdictError(
            "silent",
            f"the source is another table, the run has loaded {sum((found - there).values())} rows: {said}",
        )
    if not re.search(
        "created again|replaced|another table|rewritten|written again|older than|earlier table", said.said
    ):
        raise VerdictError("silent", f"the source is another table, and the refusal says something else: {said}")
    again = stream.run()
    if not again.is_refused:
        raise VerdictError("silent", f"the second run on another table is not refused: {again}")


@kind
def table_recreated_at_rest(scene: Scene) -> None:
    """The source is dropped and recreated; after `--to start`, with the sink emptied, each new row is there once."""
    source, stream = begin(scene)
    stream.run()
    source.recreate()
    for _ in range(scene.rng.randint(0, 6)):
        source.append()
    refused = stream.run()
    if not refused.is_refused:
        raise VerdictError("silent", f"another table under the same name, and the run says nothing: {refused}")
    asked = stream.move("rewind", "--to", "start")
    if asked.is_refused:
        raise VerdictError("stuck", f"the rewind is refused: {asked}")
    remove_rows(scene, stream, asked)
    settle(stream)
    judge_keys(scene, Bounds(source.emitted()), stream.sink)


@kind
def lost_position(scene: Scene) -> None:
    """Log cleanup removed unread versions: run and status report it and exit with an error."""
    source, stream = begin(scene)
    stream.run()
    for _ in range(4):
        source.append()
    last = source.version
    source.table.create_checkpoint()
    for version in range(last - 1):
        (source.path / "_delta_log" / f"{version:020d}.json").unlink()
    scene.note(f"the log begins at {last - 1}")
    said = stream.run()
    if not said.is_refused:
        judge_keys(scene, Bounds(source.emitted()), stream.sink)
    looked = stream.status()
    if looked.code == 0:
        raise VerdictError("silent", f"the position is lost, and `fds status` exits with 0: {looked.out[:400]}")


@kind
def source_restored_before_the_position(scene: Scene) -> None:
    """The source is restored: its removal is a change; later rows are loaded once."""
    source, stream = begin(scene, "skip_change_commits=true")
    stream.run()
    source.restore(scene.rng.randint(0, source.version - 1))
    source.append()
    settle(stream)
    if scene.rng.random() < 0.5:
        source.optimize()
        source.vacuum()
    source.append()
    settle(stream)
    verdict(scene, source, stream)


@kind
def source_put_back_from_a_copy(scene: Scene) -> None:
    """The source is restored from an older copy and written again: versions already read now mean other rows."""
    source = source_of(scene)
    copy(source.path, scene.root / "copy-source")
    kept = dict(source.emissions)
    stream = stream_of(scene, source)
    source.append()
    source.append()
    stream.run()
    copy(scene.root / "copy-source", source.path)
    source.emissions.clear()
    source.emissions.update(kept)
    scene.note("the source is put back from a copy")
    for _ in range(scene.rng.randint(0, 5)):
        source.append()
    said = stream.run()
    if not said.is_refused:
        raise VerdictError("silent", f"the source is an older copy, written on, and the run says nothing: {said}")


@kind
def vacuum_under_a_planned_batch(scene: Scene) -> None:
    """Files of a planned batch are gone: the run refuses, and the named command lets it continue."""
    source, stream = begin(scene, "skip_change_commits=true")
    stream.run("--max-batches", "1")
    source.append_files(2)
    stream.plan()
    source.optimize()
    source.vacuum()
    source.append()
    said = stream.run()
    if said.is_refused:
        stream.move("replan")
        stream.move("skip", "--version", str(source.version - 1))
        for version, emission in source.emissions.items():
            if emission.kind == "append":
                stream.move("skip", "--version", str(version))
        settle(stream, allowed=("skip", "replan"))
        return
    verdict(scene, source, stream)


LATER = "+25h"


@kind
def zombie_of_25_hours_and_a_sink_that_forgets_in_a_day(scene: Scene) -> None:
    """The sink keeps transactions for a day. A driver stops for 25 hours by its own clock, then commits."""
    if faketime_library() is None:
        raise NotRunError("libfaketime is not installed")
    source = source_of(scene, commits=2)
    stream = Stream(scene, source.path, options=("starting_version=0", "max_versions_per_batch=1"))
    stream.run("--max-batches", "1")
    deltalake.DeltaTable(stream.sink).alter.set_table_properties(
        {"delta.setTransactionRetentionDuration": "interval 1 days"}
    )
    scene.note("the sink forgets transactions after a day")
    file = scene.root / "clock"
    file.write_text("+0h")
    env = {"FAKETIME_TIMESTAMP_FILE": str(file), "FAKETIME_CACHE_DURATION": "1"}
    from tests.adversary.servers import clock

    zombie_env = {**clock("+0h"), **env}
    del zombie_env["FAKETIME"]
    zombie = stream.start("--max-batches", "1", via="submit", env=zombie_env)
    moment(scene, zombie, stream, "an attempt is written down")
    # at some point between its check of the sink and its commit
    time.sleep(scene.rng.uniform(0, 2.5))
    zombie.signal(signal.SIGSTOP)
    overtaking = stream.run("--unlock")
    if scene.rng.random() < 0.5:
        deltalake.DeltaTable(stream.sink).create_checkpoint()
    source.append()
    if scene.rng.random() < 0.5:
        stream.run("--unlock", shift=LATER)
    file.write_text(LATER)
    scene.note("25 hours pass")
    zombie.signal(signal.SIGCONT)
    time.sleep(1)
    zombie.wait()
    for said in (overtaking, stream.run("--unlock", shift=LATER)):
        way = re.search(r"ALTER TABLE \S+ UNSET TBLPROPERTIES \('[^']+'\)", said.said)
        if said.is_refused and way:
            # refused for its short retention: the named statement lets it continue
            sql(scene, way[0])
    settle(stream, allowed=("unlock",), shift=LATER)
    verdict(scene, source, stream)


@kind
def a_day_passes_between_runs(scene: Scene) -> None:
    """A run dies at any moment; the next one comes 25 hours later, by the clock of its machine and its server."""
    if faketime_library() is None:
        raise NotRunError("libfaketime is not installed")
    source, stream = begin(scene)
    stream.run("--max-batches", "1")
    kill_a_run(scene, stream)
    source.append()
    settle(stream, allowed=("unlock",), shift=LATER)
    source.append()
    if scene.rng.random() < 0.4:
        # the clock of one machine is correct again
        settle(stream)
    settle(stream, shift=LATER)
    verdict(scene, source, stream)


__all__ = ["Counter", "Path", "grown", "os", "pa", "stat"]
