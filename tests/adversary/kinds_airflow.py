"""Sinks that only operators have: merge, history, a function, replaced intervals; in runs of DAGs."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.adversary.airflow_host import DAG_TEXT, DAILY, DEPLOYMENT, DagRun
from tests.adversary.checker import Bounds, batches, judge_chain, judge_keys, read
from tests.adversary.play import kind
from tests.adversary.scene import Outcome, Scene, Stream, VerdictError, grown
from tests.adversary.source import Source
from tests.adversary.ways import named

if TYPE_CHECKING:
    from collections.abc import Callable

#: Column k is changed by updates and merges below; id identifies a row.
LIMITS = ("max_files_per_batch=1", "max_versions_per_batch=1", "max_files_per_batch=2", "max_bytes_per_batch=1500", "")


@dataclass
class DagStream:
    """A stream that a DAG runs."""

    scene: Scene
    source: Source
    sink: str
    name: str
    options: str = ""
    arguments: str = ""
    schedule: str = "None"
    #: Where it has Spark; ``None``: on a Connect server.
    conn: dict[str, Any] | None = None

    @property
    def staging(self) -> Path:
        return self.scene.root / "staging"

    def start(self, logical_date: str | None = None) -> DagRun:
        conn = self.conn
        if conn is None:
            port = self.scene.servers.get().port
            conn = {"conn_type": "spark_connect", "host": "127.0.0.1", "port": port, "login": "fds"}
        text = DAG_TEXT.format(
            name=self.name,
            table=str(self.source.path),
            staging=str(self.staging),
            options=self.options,
            dag_id=f"{self.name}_dag",
            schedule=self.schedule,
            task=f'DeltaIngestOperator(task_id="ingest", stream=stream, sink={self.sink}, conn_id="warm", '
            f"{self.arguments})",
        )
        return self.scene.host().start(self.scene, text, conn=conn, logical_date=logical_date)

    def run(self, logical_date: str | None = None) -> dict[str, Any]:
        return self.start(logical_date).wait()

    def die_once(self, *conditions: Callable[[], bool]) -> None:
        """Kill a run when one randomly chosen condition holds, or a little later."""
        running = self.start()
        running.when(self.scene.rng.choice(conditions))
        time.sleep(self.scene.rng.choice((0, 0, 0.2, 1)))
        self._kill(running)

    def die_somewhere(self, logical_date: str | None = None) -> None:
        """Kill a run at any moment."""
        running = self.start(logical_date)
        time.sleep(self.scene.rng.uniform(0.5, 4))
        self._kill(running)

    def _kill(self, running: DagRun) -> None:
        running.signal(signal.SIGKILL)
        running.wait()

    def give_up(self, *, by_force: bool = False) -> None:
        """Let the next run take over what a dead run has planned: marked failed in Airflow, or unlocked."""
        if by_force:
            self.move("unlock")
        else:
            self.scene.note("the run is marked failed")
            self.scene.host().mark_failed(self.scene, f"{self.name}_dag")

    def move(self, name: str, *more: str) -> Outcome:
        words = [name, self.name, "--staging", str(self.staging), "--why", f"a careless {name}", *more]
        if name not in ("hold", "resume"):
            words.append("--yes")
        done = self.scene.fds(*words, "--deployment", DEPLOYMENT)
        if done.is_refused and "--sink" in done.said and name == "rewind":
            # a sink that merges: a person must say what happens to its rows
            done = self.scene.fds(
                *words, "--sink-rows", "empty" if "start" in more else "keep", "--deployment", DEPLOYMENT
            )
        return done

    def settle(self, *, allowed: tuple[str, ...] = ("unlock",), tries: int = 6) -> dict[str, Any]:
        """Run until nothing is new; a batch whose owner is gone is freed as the message says."""
        found: dict[str, Any] = {}
        for _ in range(tries):
            found = self.run()
            state = found["states"].get("ingest")
            if state == "skipped" and "belong" not in found["said"]:
                return found
            if state == "success":
                continue
            said = Outcome("", 1, "", found["said"])
            for name, *rest in named(said):
                if name in allowed:
                    self.move(name, *(("--replace",) if "--replace" in rest else ()))
                    break
            else:
                if state == "skipped" and "unlock" in allowed:
                    self.give_up()
                elif state != "failed":
                    break
        raise VerdictError("stuck", f"the DAG does not come to an end: {found['states']} {found['said'][-1200:]}")


def name_of(scene: Scene) -> str:
    """Return a name that no other scenario uses: Airflow's Variables are shared."""
    return f"s{abs(hash((scene.kind, scene.seed, time.monotonic_ns()))) % 10**9}"


def option_of(scene: Scene) -> str:
    """Return a random limit, as an argument of DeltaStream."""
    limit = scene.rng.choice(LIMITS)
    return f"{limit}, " if limit else ""


def merging(
    scene: Scene, options: str | None = None, *, more: str = "", scd: int = 1
) -> tuple[Source, Path, DagStream]:
    """Return a table whose keys are updated, deleted, moved and overwritten, a sink that merges, and their stream.

    Args:
        scene: The scenario.
        options: Limits of the stream; ``None``: random.
        more: Its other options.
        scd: Whether the sink keeps the newest rows (1) or all (2).
    """
    source = Source(scene, scene.root / "orders", is_partitioned=True, has_feed=True)
    source.create(9)
    sink = scene.root / "silver"
    kept = ", scd=2" if scd == 2 else ""
    options = option_of(scene) if options is None else options
    text = f"DeltaMergeSink({str(sink)!r}, keys=['id']{kept})"
    return source, sink, DagStream(scene, source, text, name_of(scene), f"read_change_feed=True, {more}{options}")


def change(scene: Scene, source: Source) -> None:
    """Commit changes of all kinds."""
    moved = scene.rng.choice(("'p0'", "'p1'", "'p2'"))

    def move_key() -> None:
        source.table.update(updates={"p": moved}, predicate=f"k = {scene.rng.randrange(source.keys)}")
        source.record(f"rows moved to {moved}")

    def overwrite_same() -> None:
        source.overwrite_same()

    scene.rng.choice(
        (source.append, source.update, source.delete, source.merge, move_key, move_key, overwrite_same, overwrite_same,
         source.overwrite, source.replace_where, source.truncate, source.optimize)
    )()  # fmt: skip


def judge_merged(scene: Scene, source: Source, sink: Path) -> None:
    """The merge sink has the source's current rows, by id, with the same values."""
    columns = ("id", "k", "v", "p")
    want = Counter(source.live(columns))
    found = Counter(read(scene, sink, columns))
    lost, extra = want - found, found - want
    scene.note(
        f"verdict: {sum(found.values())} rows in the merge sink, {sum(lost.values())} lost, {sum(extra.values())} more"
    )
    if lost or extra:
        silent = "" if scene.refusals else "; every run succeeded (silent)"
        raise VerdictError(
            "lost" if lost else "doubled",
            f"merge sink differs: missing {sorted(lost)[:4]}, not in the source {sorted(extra)[:4]}{silent}",
            lost=sum(lost.values()),
            doubled=sum(extra.values()),
        )


@kind
def merged_change_feed(scene: Scene) -> None:
    """A merge sink follows a table with a change feed through any commits, with any limits."""
    source, sink, stream = merging(scene)
    stream.run()
    for _ in range(scene.rng.randint(2, 4)):
        change(scene, source)
    stream.run()
    for _ in range(scene.rng.randint(1, 3)):
        change(scene, source)
    stream.settle()
    judge_merged(scene, source, sink)
    judge_chain(scene, sink)


@kind
def overwrites_cut_by_limits_before_a_merge(scene: Scene) -> None:
    """A table of several files is overwritten with the same keys, where limits would split the commit."""
    limit = scene.rng.choice(("max_files_per_batch=1", "max_files_per_batch=2", "max_bytes_per_batch=900"))
    source, sink, stream = merging(scene, f"{limit}, ")
    stream.run()
    source.overwrite_same(by_spark=scene.rng.random() < 0.7)
    if scene.rng.random() < 0.5:
        source.update()
        source.overwrite_same(by_spark=True)
    stream.settle()
    judge_merged(scene, source, sink)


@kind
def merge_killed_and_taken_up(scene: Scene) -> None:
    """The task dies or stops during a merge."""
    source, sink, stream = merging(scene)
    if scene.rng.random() < 0.5:
        stream.run()
    for _ in range(2):
        change(scene, source)
    for _ in range(scene.rng.randint(1, 2)):
        stream.die_once(
            grown(stream.staging, "*/*/*"),
            grown(stream.staging, "*/attempts/*/*/*"),
            grown(sink, "**/*.parquet"),
            grown(sink, "_delta_log/*.json"),
        )
        stream.give_up()
        change(scene, source)
    stream.settle()
    judge_merged(scene, source, sink)


@kind
def adopted_by_force_in_airflow(scene: Scene) -> None:
    """A task dies without Airflow noticing; `unlock` lets the next run of the DAG take over its batches."""
    source = Source(scene, scene.root / "orders")
    source.create()
    source.append()
    sink = scene.root / "bronze"
    stream = DagStream(scene, source, f"DeltaAppendSink({str(sink)!r})", name_of(scene), option_of(scene))
    stream.die_once(grown(stream.staging, "*/attempts/*/*/*"))
    stream.give_up(by_force=True)
    source.append()
    stream.settle(allowed=(), tries=3)
    judge_keys(scene, Bounds(source.emitted()), sink)


@kind
def merge_rewound(scene: Scene) -> None:
    """With scd 1 a rewind merges rows again: once it has caught up, the sink is right."""
    source, sink, stream = merging(scene, more="starting_version=0, ")
    for _ in range(3):
        change(scene, source)
    stream.run()
    stream.move("rewind", "--to", str(scene.rng.randint(0, source.version)))
    change(scene, source)
    stream.settle()
    judge_merged(scene, source, sink)


@kind
def recreated_source_and_reset_with_a_merge(scene: Scene) -> None:
    """The source is replaced by another table; a rewind to the start must not leave old rows in a merge silently."""
    source, sink, stream = merging(scene, "")
    stream.run()
    source.recreate(6)
    refused = stream.run()
    if refused["states"].get("ingest") != "failed":
        raise VerdictError("silent", f"another table under this name, and the run passes: {refused['states']}")
    asked = stream.move("rewind", "--to", "start")
    words = asked.out.lower()
    stream.settle()
    try:
        judge_merged(scene, source, sink)
    except VerdictError:
        if any(word in words for word in ("stay", "remain", "keeps rows", "deleted", "are not removed")):
            scene.note("the rewind said that rows of the old table stay")
            return
        raise


@kind
def merge_reset(scene: Scene) -> None:
    """Rows are deleted from the source, then the stream starts over: a merge sink must not keep them silently."""
    source, sink, stream = merging(scene)
    stream.run()
    source.delete()
    change(scene, source)
    stream.move("rewind", "--to", "start")
    change(scene, source)
    stream.settle()
    judge_merged(scene, source, sink)


@kind
def merge_moved_in_any_order(scene: Scene) -> None:
    """Rewinds, resets, replans and dead runs of a merge, one after another: in the end, the sink equals the source."""
    source, sink, stream = merging(scene, more="starting_version=0, ")
    for _ in range(scene.rng.randint(3, 5)):
        change(scene, source)
        step = scene.rng.choice(("run", "kill", "kill", "rewind", "replan", "replan", "rewind twice"))
        scene.note(f"-- {step}")
        if step == "kill":
            stream.die_somewhere()
            stream.give_up()
        elif step == "run":
            stream.run()
        elif step == "replan":
            stream.move("replan")
        else:
            for number in range(2 if "twice" in step else 1):
                to = str(scene.rng.randint(0, source.version))
                stream.move("rewind", "--to", to, *(("--replace",) if number else ()))
    stream.settle(allowed=("replan",))
    judge_merged(scene, source, sink)


@kind
def history_of_rows(scene: Scene) -> None:
    """scd 2: the current rows are those of the source, and no key is current twice."""
    source, sink, stream = merging(scene, scd=2)
    stream.run()
    for _ in range(scene.rng.randint(2, 5)):
        change(scene, source)
    if scene.rng.random() < 0.5:
        stream.die_somewhere()
        stream.give_up()
    stream.settle()
    rows = read(scene, sink, ("id", "k", "v", "p", "_is_current", "_valid_from", "_valid_to"))
    current = Counter(row[:4] for row in rows if row[4])
    want = Counter(source.live(("id", "k", "v", "p")))
    if current != want:
        raise VerdictError(
            "lost" if want - current else "doubled",
            f"current rows differ: missing {sorted(want - current)[:4]}, too many {sorted(current - want)[:4]}",
        )
    again = [key for key, times in Counter((row[0], row[5]) for row in rows).items() if times > 1]
    if again:
        raise VerdictError("doubled", f"two rows of a key begin at one time: {again[:4]}")
    open_rows = [row for row in rows if (row[6] is None) != bool(row[4])]
    if open_rows:
        raise VerdictError("silent", f"_valid_to and _is_current disagree: {open_rows[:2]}")


@kind
def function_with_transactions(scene: Scene) -> None:
    """ForeachBatchSink with txn_options in two tables: each row once, whatever dies."""
    source = Source(scene, scene.root / "orders")
    source.create()
    source.append()
    is_named = scene.rng.random() < 0.5
    shutil.copy(Path(__file__).with_name("adversary_functions.py"), scene.root)
    target = scene.root / "split"
    tables = {name: str(target / name) for name in ("small", "large")}
    writes = tables if is_named else list(tables)
    stream = DagStream(
        scene, source, f"ForeachBatchSink('adversary_functions:split', writes={writes})", name_of(scene),
        f"starting_version=0, {option_of(scene)}",
        f"conf={{'spark.adversary.target': {str(target)!r}}}",
    )  # fmt: skip
    for _ in range(scene.rng.randint(1, 3)):
        stream.die_once(
            grown(stream.staging, "*/attempts/*/*/*"),
            grown(target, "small/_delta_log/*.json"),
            grown(target, "large/*.parquet"),
        )
        stream.give_up()
        source.append()
    stream.settle()
    judge_keys(scene, Bounds(source.emitted()), target / "small", target / "large")


@kind
def replaced_intervals(scene: Scene) -> None:
    """Days are loaded in any order, again, and killed: each row of a day is there once."""
    source = Source(scene, scene.root / "orders")
    source.create()
    sink = scene.root / "daily"
    day = datetime(2026, 1, 1, tzinfo=UTC)
    days: dict[int, Counter[int]] = {}
    for version in range(6):
        if version:
            source.append()
        number = min(version // 2, 3)
        when = day + timedelta(days=number, hours=1 + version)
        os.utime(source.path / "_delta_log" / f"{version:020d}.json", (when.timestamp(), when.timestamp()))
        days.setdefault(number, Counter()).update(source.emitted(version, version))
    stream = DagStream(
        scene, source, f"DeltaReplaceSink({str(sink)!r}, provenance=True)", name_of(scene), "read='data_interval', ",
        schedule=DAILY,
    )  # fmt: skip
    order = [0, 1, 0, 1]
    scene.rng.shuffle(order)
    for number in order:
        date = (day + timedelta(days=number + 1)).isoformat()
        if scene.rng.random() < 0.4:
            stream.die_somewhere(date)
        found = stream.run(date)
        if found["states"].get("ingest") != "success":
            stream.run(date)
    judge_keys(scene, Bounds(days[0] + days[1]), sink)


__all__ = ["Stream", "batches"]
