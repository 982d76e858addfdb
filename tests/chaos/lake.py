"""A source that grows all the time, a sink, and the verdict on what arrived."""

from __future__ import annotations

import json
import random
import threading
from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Self

import deltalake
import pyarrow as pa

from airflow_provider_fds.batch.sink.commit_metadata import read_commit_metadata
from airflow_provider_fds.delta.storage.open import open_storage
from airflow_provider_fds.ledger.staging.log import Ledger
from airflow_provider_fds.source.offset import Offset

if TYPE_CHECKING:
    from pathlib import Path

    from airflow_provider_fds.ledger.entries.entry import Entry

STREAM = "orders"


@dataclass(frozen=True)
class Lake:
    """The folders of one round."""

    root: Path
    staging: str
    storage_options: dict[str, str] = field(default_factory=dict)
    #: Source options of the stream.
    options: tuple[str, ...] = ("starting_version=0", "max_versions_per_batch=20")
    #: Longest pause between two commits of the writer.
    pause_seconds: float = 3.0
    stream: str = STREAM
    #: Where `fds run` has Spark.
    spark: tuple[str, ...] = ("--master", "local[1]")

    @property
    def source(self) -> Path:
        return self.root / "orders"

    @property
    def sink(self) -> Path:
        return self.root / "bronze"

    @property
    def checkpoint(self) -> Path:
        return self.root / "checkpoint.json"

    def arguments(self) -> list[str]:
        """The arguments of `fds run`."""
        found = [
            *("run", str(self.source), "--sink", str(self.sink), "--staging", self.staging),
            *("--checkpoint", str(self.checkpoint), "--stream", self.stream, *self.spark, "--output", "json"),
        ]
        for option in self.options:
            found += ["--option", option]
        for key, value in self.storage_options.items():
            found += ["--storage-option", f"{key}={value}"]
        return found

    def ledger(self) -> Ledger:
        return Ledger(open_storage(self.staging, self.storage_options), self.stream)

    def shown(self) -> dict[str, Any]:
        """Return the position that people see: the checkpoint."""
        return dict(json.loads(self.checkpoint.read_text()))


class Writer:
    """Commits a few rows to the source all the time until it is stopped. Each row has a unique key."""

    def __init__(self, lake: Lake, seed: int) -> None:
        self._lake = lake
        self._random = random.Random(seed)
        self._stopped = threading.Event()
        self._lock = threading.RLock()
        self._failure: Exception | None = None
        self.keys = 0
        self.commits = 0
        self._thread = threading.Thread(target=self._run, name=f"writer of {lake.root.name}")

    def __enter__(self) -> Self:
        for _ in range(3):
            self.append()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def append(self) -> None:
        with self._lock:
            keys = range(self.keys, self.keys + self._random.randint(1, 20))
            rows = pa.table({"id": list(keys), "value": [f"row {key}" for key in keys]})
            deltalake.write_deltalake(self._lake.source, rows, mode="append")
            self.keys, self.commits = keys.stop, self.commits + 1

    def compact(self) -> None:
        """Commit without data, as OPTIMIZE does."""
        with self._lock:
            deltalake.DeltaTable(self._lake.source).optimize.compact()
            self.commits += 1

    def quiet(self) -> threading.RLock:
        """Return the lock that pauses the writer while another thread holds it."""
        return self._lock

    def _run(self) -> None:
        try:
            while not self._stopped.wait(self._random.uniform(0.2, self._lake.pause_seconds)):
                self.append()
        except Exception as failure:  # noqa: BLE001 - raised where the writer is stopped
            self._failure = failure


@dataclass(frozen=True)
class Verdict:
    """The outcome of a round."""

    lost: int
    doubled: int
    rows: int
    batches: int
    problems: tuple[str, ...]


def judge(lake: Lake, keys: int) -> Verdict:
    """Compare the sink with what was written, row by row, and check ledger and sink history against the invariants.

    Args:
        lake: A finished round: the stream is up to date and no process works any longer.
        keys: The keys 0 to ``keys`` (exclusive) were written to the source, each once.
    """
    table = deltalake.DeltaTable(lake.sink)
    rows = table.to_pyarrow_table().to_pydict()
    found = Counter(zip(rows["id"], rows["value"], strict=True))
    expected = {(key, f"row {key}") for key in range(keys)}
    problems = [f"rows nobody wrote: {sorted(found.keys() - expected)[:5]}"] if found.keys() - expected else []
    ledger = lake.ledger()
    state = ledger.find()
    entries = list(ledger.entries())
    problems += _ledger_problems(entries)
    problems += _sink_problems(entries, _commits(table))
    if state.planned:
        problems.append(f"{len(state.planned)} planned batches are left, though the last run said it was up to date")
    newest = deltalake.DeltaTable(lake.source).version()
    if state.position is None or Offset.from_json(state.position).version != newest + 1:
        problems.append(f"the position is {state.position}, the table's newest version {newest}")
    checkpoint = lake.shown()
    if (checkpoint["n"], checkpoint["offset"]) != (ledger.n, state.position):
        problems.append(f"the checkpoint is {checkpoint}, the ledger is at {ledger.n}, {state.position}")
    return Verdict(
        lost=len(expected - found.keys()),
        doubled=sum(count - 1 for count in found.values()),
        rows=keys,
        batches=sum(entry.action.kind == "committed" for entry in entries),
        problems=tuple(problems),
    )


def judge_epochs(lake: Lake, keys: int) -> Verdict:
    """Like :func:`judge`, if a person has opened new epochs: all rows once, and nothing of an epoch after the next one.

    Applies to moves that continue after what the sink has (`fds replan`, `fds recover`): the chain of offsets also has
    no gap at the end of an epoch.
    """
    table = deltalake.DeltaTable(lake.sink)
    found = Counter(table.to_pyarrow_table().column("id").to_pylist())
    commits = _commits(table)
    order = [(facts["epoch"], facts["batch_id"]) for _, facts in commits]
    problems = [] if order == sorted(set(order)) else [f"epochs and batches in the sink are {order}"]
    entries = list(lake.ledger().entries())
    advanced = {e.action.start: e.action.end for e in entries if e.action.kind == "advanced"}
    for (_, before), (version, facts) in pairwise(commits):
        for one, other in ((before["end"], facts["after"]), (facts["after"], facts["start"])):
            position = one
            while position != other and position in advanced:
                position = advanced[position]
            if position != other:
                problems.append(f"version {version} of the sink: nothing covers what lies between {one} and {other}")
    recorded = [(e.action.epoch, e.action.batch_id) for e in entries if e.action.kind == "committed"]
    if recorded != sorted(set(recorded)) or set(recorded) - set(order):
        problems.append(f"committed are {recorded}, in the sink {order}")
    return Verdict(
        lost=len(set(range(keys)) - found.keys()),
        doubled=sum(count - 1 for count in found.values()),
        rows=keys,
        batches=len(order),
        problems=tuple(problems),
    )


def _ledger_problems(entries: list[Entry]) -> list[str]:
    """Invariants 2 to 4: plans follow each other without a gap, each batch is planned once and committed once."""
    problems: list[str] = []
    if [entry.n for entry in entries] != list(range(len(entries))):
        problems.append(f"the entries are {[entry.n for entry in entries]}")
    position: str | None = None
    planned: dict[int, Any] = {}
    committed: list[int] = []
    next_version: int | None = None
    for entry in entries:
        action: Any = entry.action
        stretches: list[Any] = []
        match action.kind:
            case "opened":
                position = action.start
            case "planned":
                stretches = list(action.batches)
                problems += [f"batch {b.batch_id} is planned twice" for b in stretches if b.batch_id in planned]
                planned |= {batch.batch_id: batch for batch in stretches}
            case "advanced":
                stretches = [action]
            case "committed":
                committed.append(action.batch_id)
                if action.batch_id not in planned or planned[action.batch_id].digest != action.digest:
                    problems.append(f"batch {action.batch_id} is committed with {action.digest}, not as planned")
        for stretch in stretches:
            if stretch.start != position:
                problems.append(f"entry {entry.n} starts at {stretch.start}, the one before ends at {position}")
            position = stretch.end
            if next_version is not None and not next_version - 1 <= stretch.first_version <= next_version:
                problems.append(f"entry {entry.n} goes from version {next_version} to {stretch.first_version}")
            next_version = stretch.last_version + 1
    if committed != sorted(planned):
        problems.append(f"planned were {sorted(planned)}, committed {committed}")
    return problems


def _sink_problems(entries: list[Entry], commits: list[tuple[int, dict[str, Any]]]) -> list[str]:
    """Invariants 1 and 9: one commit per batch, each beginning where the previous one ended."""
    problems: list[str] = []
    batches = {b.batch_id: b for entry in entries if entry.action.kind == "planned" for b in entry.action.batches}
    recorded = {e.action.batch_id: e.action.sink_version for e in entries if e.action.kind == "committed"}
    advanced = {e.action.start: e.action.end for e in entries if e.action.kind == "advanced"}
    start = next((entry.action.start for entry in entries if entry.action.kind == "opened"), None)
    if [facts["batch_id"] for _, facts in commits] != sorted(batches):
        problems.append(f"commits of the sink: {[(v, facts['batch_id']) for v, facts in commits]}")
    after = start
    for version, facts in commits:
        batch = batches.get(facts["batch_id"])
        if batch is None or (facts["start"], facts["end"], facts["digest"]) != (batch.start, batch.end, batch.digest):
            problems.append(f"version {version} of the sink is not as planned: {facts}")
        if recorded.get(facts["batch_id"]) != version:
            problems.append(f"batch {facts['batch_id']} is version {version} of the sink, {recorded} says the ledger")
        if facts["after"] != after:
            problems.append(f"version {version} of the sink comes after {facts['after']}, not after {after}")
        position = facts["after"]
        while position != facts["start"] and position in advanced:
            position = advanced[position]
        if position != facts["start"]:
            problems.append(f"nothing covers what lies between {facts['after']} and {facts['start']}")
        after = facts["end"]
    return problems


def _commits(table: deltalake.DeltaTable) -> list[tuple[int, dict[str, Any]]]:
    """Versions of the sink that carry a batch, oldest first; fences carry none."""
    found = [(commit["version"], read_commit_metadata(commit.get("userMetadata"))) for commit in table.history()]
    batches = ((version, facts) for version, facts in found if facts is not None and "batch_id" in facts)
    return sorted(batches, key=lambda item: item[0])
