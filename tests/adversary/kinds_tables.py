"""Tables that change under a stream: features that only Spark writes, schemas, cleanup, damage, finished streams."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections import Counter
from typing import TYPE_CHECKING

import deltalake

from tests.adversary.checker import Bounds, count, judge_keys, read
from tests.adversary.kinds_people import EPOCHS, remove_rows
from tests.adversary.kinds_runs import begin, kill_a_run, moment, source_of, stream_of, verdict
from tests.adversary.play import kind
from tests.adversary.scene import Scene, Stream, VerdictError
from tests.adversary.servers import Server
from tests.adversary.source import Source
from tests.adversary.ways import follow, settle

if TYPE_CHECKING:
    from pathlib import Path


def killed(scene: Scene, stream: Stream) -> None:
    """Kill a run at any moment, or not at all."""
    if scene.rng.random() < 0.6:
        kill_a_run(scene, stream)


def spark_table(scene: Scene, **properties: str) -> Source:
    """Return a table created by Spark, with properties."""
    source = Source(scene, scene.root / "orders")
    listed = ", ".join(f"'{key.replace('__', '.')}' = '{value}'" for key, value in properties.items())
    source.sql(
        "CREATE TABLE {t} USING delta TBLPROPERTIES (" + listed + ") AS "
        "SELECT id, id % 12 AS k, concat('row ', id) AS v, CAST(id AS INT) AS n FROM range(0, 8, 1, 2)"
    )
    source.next_id = 8
    return source


def insert(source: Source, count_: int = 3, columns: str = "id, id % 12, concat('row ', id), CAST(id AS INT)") -> None:
    """Append rows with Spark."""
    first, source.next_id = source.next_id, source.next_id + count_
    source.sql(f"INSERT INTO {{t}} SELECT {columns} FROM range({first}, {source.next_id}, 1, 1)")


@kind
def deletion_vectors(scene: Scene) -> None:
    """Rows are deleted by deletion vectors, some before the snapshot, some after it; changes are skipped."""
    source = spark_table(scene, delta__enableDeletionVectors="true")
    source.sql("DELETE FROM {t} WHERE id IN (1, 5)")
    stream = Stream(
        scene,
        source.path,
        options=("skip_change_commits=true", scene.rng.choice(("max_files_per_batch=1", "whole_commits=true"))),
    )
    there = Counter(row[0] for row in read(scene, source.path))
    begun = source.version
    if scene.rng.random() < 0.5:
        stream.run("--max-batches", "1")
    else:
        stream.plan("--max-batches", "1")
    insert(source)
    source.sql(
        scene.rng.choice(
            (
                "DELETE FROM {t} WHERE id = 3",
                "UPDATE {t} SET v = 'new' WHERE id IN (2, 9)",
                "REORG TABLE {t} APPLY (PURGE)",
            )
        )
    )
    insert(source)
    killed(scene, stream)
    settle(stream)
    judge_keys(scene, Bounds(there + source.emitted(begun + 1)), stream.sink)


@kind
def renamed_column(scene: Scene) -> None:
    """A column is renamed: the stream stops before it, and continues when the change is accepted."""
    _barrier(scene, "ALTER TABLE {t} RENAME COLUMN v TO w", delta__columnMapping__mode="name")


@kind
def dropped_column(scene: Scene) -> None:
    """A column is dropped: the stream stops before it, and continues when the change is accepted."""
    _barrier(
        scene,
        "ALTER TABLE {t} DROP COLUMN v",
        columns="id, id % 12, CAST(id AS INT)",
        delta__columnMapping__mode="name",
    )


@kind
def widened_type(scene: Scene) -> None:
    """The type of a column is widened: the stream stops before it, and continues when the change is accepted."""
    _barrier(scene, "ALTER TABLE {t} ALTER COLUMN n TYPE BIGINT", delta__enableTypeWidening="true")


def _barrier(scene: Scene, change: str, columns: str | None = None, **properties: str) -> None:
    source = spark_table(scene, **properties)
    insert(source)
    stream = stream_of(scene, source, arguments=("--sink-option", "merge_schema=yes"))
    if scene.rng.random() < 0.7:
        stream.run()
    source.sql(change)
    insert(source, **({"columns": columns} if columns else {}))
    stopped = stream.run()
    if stopped.code == 0:
        judge_keys(scene, Bounds(source.emitted()), stream.sink)
        scene.note("the change passed without a stop")
        return
    for _ in range(3):
        follow(stream, stopped, ("accept", "skip"), [])
        stopped = stream.run()
        if stopped.code == 0:
            break
    if "sink" in scene.outcomes[-1].said and scene.outcomes[-1].code:
        # the owner must change the sink to the new schema; this tests that the message says so
        scene.note("the sink has to be changed first")
        return
    killed(scene, stream)
    settle(stream, allowed=("accept", "skip"))
    judge_keys(scene, Bounds(source.emitted()), stream.sink)


@kind
def added_column(scene: Scene) -> None:
    """The source adds a column; the sink adopts it, or the run refuses and says how."""
    source, stream = begin(scene)
    stream.run()
    source.add_column()
    killed(scene, stream)
    said = stream.run()
    if said.code == 0:
        verdict(scene, source, stream)
        return
    stream.arguments = ("--sink-option", "merge_schema=yes")
    settle(stream, allowed=("replan", "accept"))
    verdict(scene, source, stream)


@kind
def other_partitioning(scene: Scene) -> None:
    """The source is overwritten with other partition columns: never silently, and later rows are there once."""
    source, stream = begin(scene, "skip_change_commits=true")
    stream.run()
    rows = source.rows(3)
    deltalake.write_deltalake(source.path, rows, mode="overwrite", schema_mode="overwrite", partition_by=["k"])
    source.record("overwritten with partitions by k")
    deltalake.write_deltalake(source.path, source.rows(2), mode="append")
    source.record("append 2")
    killed(scene, stream)
    settle(stream, allowed=("accept", "skip"))
    verdict(scene, source, stream)


@kind
def truncated_and_filled_again(scene: Scene) -> None:
    """TRUNCATE, then rows again, alongside runs that die."""
    source, stream = begin(scene, "skip_change_commits=true")
    stream.run("--max-batches", "1")
    source.sql("TRUNCATE TABLE {t}")
    source.append()
    killed(scene, stream)
    source.truncate()
    source.append()
    settle(stream)
    verdict(scene, source, stream)


@kind
def initial_snapshot_in_pieces(scene: Scene) -> None:
    """A snapshot is read in several batches, while the table is compacted, vacuumed and changed."""
    source = source_of(scene, commits=6)
    source.delete("id = 2")
    there = Counter(row[0] for row in read(scene, source.path))
    begun = source.version
    stream = Stream(scene, source.path, options=("max_files_per_batch=1", "skip_change_commits=true"))
    stream.run("--max-batches", "1")
    for _ in range(scene.rng.randint(1, 3)):
        source.random_commit(changes=True)
    killed(scene, stream)
    source.append()
    settle(stream)
    judge_keys(scene, Bounds(there + source.emitted(begun + 1)), stream.sink)


@kind
def changes_appended(scene: Scene) -> None:
    """The change feed itself is appended: as many inserts, deletes and updates of each row as delta-rs reads."""
    source = Source(scene, scene.root / "orders", has_feed=True, is_partitioned=scene.rng.random() < 0.5)
    source.create(8)
    stream = stream_of(scene, source, "read_change_feed=true")
    for _ in range(scene.rng.randint(2, 5)):
        source.random_commit(changes=True)
    killed(scene, stream)
    for _ in range(2):
        source.random_commit(changes=True)
    settle(stream)
    feed = source.table.load_cdf(starting_version=0).read_all()
    import pyarrow as pa

    table = pa.table(feed)
    want = Counter(zip(table["id"].to_pylist(), table["_change_type"].to_pylist(), strict=True))
    found = Counter(read(scene, stream.sink, ("id", "_change_type")))
    if found != want:
        raise VerdictError(
            "lost" if want - found else "doubled",
            f"changes differ: missing {sorted((want - found).items())[:4]}, more {sorted((found - want).items())[:4]}",
            lost=sum((want - found).values()),
            doubled=sum((found - want).values()),
        )


def age(path: Path, days: int) -> None:
    """Backdate all commits of a table."""
    when = time.time() - days * 86400
    for number, commit in enumerate(sorted((path / "_delta_log").iterdir())):
        if commit.is_file():
            os.utime(commit, (when + number, when + number))


@kind
def log_of_the_source_expires(scene: Scene) -> None:
    """A month passes: cleanup removes commits of the source, read or not; a missing one is always reported."""
    source, stream = begin(scene)
    is_read = scene.rng.random() < 0.5
    if is_read:
        stream.run()
    else:
        stream.run("--max-batches", "1")
    age(source.path, 40)
    source.append()
    source.table.create_checkpoint()
    source.table.cleanup_metadata()
    left = sorted(path.name for path in (source.path / "_delta_log").glob("*.json"))
    scene.note(f"the log's commits now: {left}")
    source.append()
    said = stream.run()
    if said.code == 0:
        verdict(scene, source, stream)
    else:
        missing = Bounds(source.emitted())
        found = count(scene, stream.sink)
        if any(times > 1 for times in found.values()):
            judge_keys(scene, missing, stream.sink)
        if stream.status().code == 0:
            raise VerdictError("silent", f"the run fails ({said}), and `fds status` exits with 0")


@kind
def log_of_the_sink_expires(scene: Scene) -> None:
    """A month passes: cleanup removes the sink's commits; then a run, lost staging, or a batch in progress."""
    source, stream = begin(scene)
    stream.run("--max-batches", "2")
    then = scene.rng.choice(("run", "staging lost", "landed", "landed"))
    scene.note(f"then: {then}")
    if then == "landed":
        source.append()
        kill_a_run(scene, stream, point="the sink gets a commit")
        time.sleep(1)
    age(stream.sink, 40)
    sink = deltalake.DeltaTable(stream.sink)
    sink.alter.set_table_properties({"delta.appendOnly": "false"})
    sink.create_checkpoint()
    sink.cleanup_metadata()
    scene.note(f"the sink's commits now: {sorted(path.name for path in (stream.sink / '_delta_log').glob('*.json'))}")
    if then == "staging lost":
        shutil.rmtree(stream.staging)
        said = stream.run()
        if said.code == 0:
            judge_keys(scene, Bounds(source.emitted()), stream.sink)
            raise VerdictError("silent", f"staging was lost, and the run says nothing: {said}")
    source.append()
    settle(stream, allowed=("recover", "unlock", "replan", "rewind"))
    judge_keys(scene, Bounds(source.emitted()), stream.sink)


@kind
def staging_copied_and_both_used(scene: Scene) -> None:
    """Staging is copied and both copies are used: the older one must notice."""
    source = source_of(scene)
    one = stream_of(scene, source)
    one.run("--max-batches", "1")
    two = Stream(
        scene, source.path, staging=scene.root / "staging2", checkpoint=scene.root / "checkpoint2.json",
        options=one.options,
    )  # fmt: skip
    shutil.copytree(one.staging, two.staging)
    if scene.rng.random() < 0.5:
        shutil.copy(one.checkpoint, two.checkpoint)
    scene.note("staging is copied, and both are used")
    source.append()
    if scene.rng.random() < 0.5:
        runs = [one.start(), two.start()]
        for run in runs:
            run.wait()
    for _ in range(2):
        first, second = scene.rng.sample((one, two), 2)
        first.run()
        second.run()
        source.append()
    for stream in (one, two):
        settle(stream, allowed=("recover", "unlock"))
    verdict(scene, source, one)


@kind
def damaged_staging(scene: Scene) -> None:
    """A file of staging is deleted, truncated or overwritten: refused, or repaired by `recover`; never wrong rows."""
    source, stream = begin(scene)
    stream.run("--max-batches", "2")
    source.append()
    stream.plan("--max-batches", "1")
    places = sorted(path for path in stream.staging.rglob("*") if path.is_file())
    victim = scene.rng.choice(places)
    how = scene.rng.choice(("gone", "cut", "garbage"))
    scene.note(f"damage: {victim.relative_to(stream.staging)} {how}")
    if how == "gone":
        victim.unlink()
    else:
        victim.write_bytes(victim.read_bytes()[:20] if how == "cut" else b"\x00garbage")
    source.append()
    said = stream.run()
    if said.code == 0:
        verdict(scene, source, stream)
        return
    found = count(scene, stream.sink)
    if any(times > 1 for times in found.values()):
        judge_keys(scene, Bounds(source.emitted()), stream.sink)
    shutil.rmtree(stream.staging)
    scene.note("the damaged staging is removed, as a person would in the end")
    settle(stream, allowed=("recover",))
    verdict(scene, source, stream)


@kind
def edited_checkpoint(scene: Scene) -> None:
    """The checkpoint file is edited, emptied, or replaced by another stream's: refused, with the next command."""
    source, stream = begin(scene)
    stream.run("--max-batches", "1")
    how = scene.rng.choice(("offset", "empty", "garbage", "n"))
    value = json.loads(stream.checkpoint.read_text())
    if how == "offset":
        offset = json.loads(value["offset"])
        offset["reservoirVersion"] += scene.rng.choice((-1, 1))
        value["offset"] = json.dumps(offset)
    elif how == "n":
        value["n"] += 1
    text = {"empty": "", "garbage": "}{"}.get(how, json.dumps(value))
    stream.checkpoint.write_text(text)
    scene.note(f"the checkpoint is edited: {how}")
    source.append()
    settle(stream, allowed=("recover",))
    verdict(scene, source, stream)


@kind
def sink_dropped(scene: Scene) -> None:
    """The sink is dropped, perhaps created again by others: the run refuses, `--to start` leads to every row once."""
    source, stream = begin(scene)
    stream.run()
    shutil.rmtree(stream.sink)
    if scene.rng.random() < 0.5:
        deltalake.DeltaTable.create(stream.sink, schema=source.table.schema())
        scene.note("the sink was made anew, empty")
    source.append()
    said = stream.run()
    if said.code == 0:
        judge_keys(scene, Bounds(source.emitted()), stream.sink)
        raise VerdictError("silent", f"the sink was dropped, and the run says nothing: {said}")
    asked = stream.move("rewind", "--to", "start")
    if asked.is_refused:
        raise VerdictError("stuck", f"the rewind is refused: {asked}")
    settle(stream)
    verdict(scene, source, stream)


@kind
def server_killed_in_a_run(scene: Scene) -> None:
    """The Connect server dies during a batch, and another one replaces it."""
    source, stream = begin(scene)
    own = Server(scene.root / "own-server")
    scene.cleanups.append(own.stop)
    own.start(scene.servers.jars())
    words = stream.describe()
    words[words.index("--remote") + 1] = own.url
    running = scene.start(*words)
    moment(scene, running, stream)
    own.stop()
    scene.note("the Connect server is dead")
    running.wait()
    source.append()
    settle(stream)
    verdict(scene, source, stream)


@kind
def finished_stream_rewound(scene: Scene) -> None:
    """A stream with an end finishes; it is rewound, its rows are removed, and it finishes again with every row once."""
    source = source_of(scene)
    end = source.version
    stream = stream_of(scene, source, f"ending_version={end}", arguments=("--sink-option", "provenance=yes"))
    stream.run()
    source.append()
    asked = stream.move("rewind", "--to", str(scene.rng.randint(0, end)))
    if not asked.is_refused:
        remove_rows(scene, stream, asked)
    killed(scene, stream)
    settle(stream, allowed=EPOCHS)
    judge_keys(scene, Bounds(source.emitted(0, end)), stream.sink)


@kind
def transferred_and_retired(scene: Scene) -> None:
    """A transferred stream is refused here and continues in the other installation; a retired one continues nowhere."""
    source, stream = begin(scene)
    stream.run("--max-batches", "1")
    source.append()
    stream.move("transfer", "--deployment", "elsewhere")
    here = stream.run()
    if here.code == 0:
        raise VerdictError("silent", f"a stream of another installation was run here: {here}")
    stream.arguments = ("--deployment", "elsewhere")
    # the earlier checkpoint names the old installation
    settle(stream, allowed=("recover", "transfer"))
    judge_keys(scene, Bounds(source.emitted()), stream.sink)
    scene.fds(
        "retire", stream.name, "--staging", str(stream.staging), "--deployment", "elsewhere", "--why", "x", "--yes"
    )
    source.append()
    before = count(scene, stream.sink)
    retired = stream.run()
    if count(scene, stream.sink) != before or retired.code == 0:
        raise VerdictError("silent", f"a retired stream runs: {retired}")
