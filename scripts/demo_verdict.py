"""What the demo claims at its end, computed from the two tables and the ledger, not from what FDS says of itself.

The rows are read with delta-rs, which had no part in loading them. The chain is DESIGN's invariant 9: ``after`` of each
batch in the sink is the ``end`` of the batch before it (or the epoch's start), and what lies between a batch's
``after`` and its ``start`` is covered by ``advanced`` entries of the ledger.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc
from deltalake import DeltaTable
from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

from airflow_provider_fds.batch.sink.commit_metadata import read_commit_metadata

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    import pyarrow as pa


@dataclass(frozen=True)
class KeyComparison:
    """Rows and keys of both tables. A key is lost if only the source has it, foreign if only the sink has it."""

    source_rows: int
    source_keys: int
    sink_rows: int
    sink_keys: int
    lost: int
    foreign: int

    @property
    def duplicated(self) -> int:
        """Rows of the sink beyond one per key."""
        return self.sink_rows - self.sink_keys


@dataclass(frozen=True)
class Verdict:
    """The result of the demo; ``problems`` is empty if every row landed exactly once."""

    keys: KeyComparison
    num_batches: int
    num_advanced: int
    newest_version: int
    committed_version: int
    problems: tuple[str, ...]

    @property
    def lines(self) -> list[str]:
        """The verdict as people read it."""
        keys = self.keys
        chain = "gapless" if not self.problems else "see below"
        source = f"source   {keys.source_rows:>9,} rows  {keys.source_keys:>9,} distinct keys"
        sink = f"sink     {keys.sink_rows:>9,} rows  {keys.sink_keys:>9,} distinct keys"
        return [
            f"{source}  at version {self.newest_version}",
            f"{sink}  up to version {self.committed_version}",
            f"chain    {self.num_batches:>9,} batches and {self.num_advanced} stretches without data: {chain}",
            f"{keys.lost:,} lost, {keys.duplicated:,} duplicated",
            *(f"PROBLEM: {problem}" for problem in self.problems),
        ]


def judge(source: Path, sink: Path, ledger: Path, key: str) -> Verdict:
    """Compare the tables and check the chain.

    Args:
        source: Folder of the source table.
        sink: Folder of the sink table.
        ledger: Folder of the stream's ledger entries.
        key: Column that is distinct in every row of the source.
    """
    keys = compare_keys(_column(source, key), _column(sink, key))
    batches = sink_batches(sink)
    entries = ledger_entries(ledger)
    newest = DeltaTable(source).version()
    committed = committed_version(entries)
    problems = [*key_problems(keys), *chain_problems(batches, entries)]
    if committed != newest:
        problems.append(f"the source is at version {newest}, the stream has committed up to version {committed}")
    num_advanced = sum(entry["action"]["kind"] == "advanced" for entry in entries)
    return Verdict(keys, len(batches), num_advanced, newest, committed, tuple(problems))


def compare_keys(source: pa.ChunkedArray, sink: pa.ChunkedArray) -> KeyComparison:
    """Count rows, distinct keys, and keys that only one side has."""
    source_keys, sink_keys = source.unique(), sink.unique()
    in_both = pc.sum(pc.is_in(source_keys, value_set=sink_keys)).as_py() or 0
    return KeyComparison(
        source_rows=len(source),
        source_keys=len(source_keys),
        sink_rows=len(sink),
        sink_keys=len(sink_keys),
        lost=len(source_keys) - in_both,
        foreign=len(sink_keys) - in_both,
    )


def key_problems(keys: KeyComparison) -> list[str]:
    """Return what keeps the sink from having each row of the source exactly once."""
    problems = []
    if keys.source_rows != keys.source_keys:
        problems.append(f"the source has {keys.source_rows} rows but {keys.source_keys} keys: they are not distinct")
    for count, what in (
        (keys.lost, "keys of the source are not in the sink"),
        (keys.duplicated, "rows of the sink are there more than once"),
        (keys.foreign, "keys of the sink are not in the source"),
    ):
        if count:
            problems.append(f"{count} {what}")
    return problems


def sink_batches(sink: Path) -> list[dict[str, Any]]:
    """Return the ``userMetadata`` of the sink's commits that FDS made, in the order of the commits."""
    found = []
    for commit in sorted((sink / "_delta_log").glob("*.json")):
        for line in commit.read_text().splitlines():
            info = json.loads(line).get("commitInfo") or {}
            batch = read_commit_metadata(info.get("userMetadata"))
            # a fence of an epoch carries no batch
            if batch is not None and batch.get("batch_id") is not None:
                found.append(batch)
    return found


def ledger_entries(ledger: Path) -> list[dict[str, Any]]:
    """Return the entries of a ledger, in order."""
    return [json.loads(entry.read_bytes()) for entry in sorted(ledger.glob("*.json"))]


def committed_version(entries: Iterable[dict[str, Any]]) -> int:
    """Return the newest version of the source that the stream has read completely, -1 if it has read none."""
    moves = [entry["action"] for entry in entries if entry["action"]["kind"] in ("committed", "advanced")]
    return json.loads(moves[-1]["end"])["reservoirVersion"] - 1 if moves else -1


def chain_problems(batches: Sequence[dict[str, Any]], entries: Sequence[dict[str, Any]]) -> list[str]:
    """Return every place where the chain of batches has a gap, an overlap or another story than the ledger."""
    problems = [
        f"ledger entry {entry['n']} is in place {place}" for place, entry in enumerate(entries) if entry["n"] != place
    ]
    actions = [entry["action"] for entry in entries]
    position = {action["epoch"]: json.loads(action["start"]) for action in actions if action["kind"] == "opened"}
    for batch in batches:
        name = f"batch {batch['epoch']}/{batch['batch_id']}"
        after, start = json.loads(batch["after"]), json.loads(batch["start"])
        if after != position.get(batch["epoch"]):
            problems.append(f"{name} comes after {after}, but the chain is at {position.get(batch['epoch'])}")
        if _pass_advanced(after, actions, batch["epoch"]) != start and after != start:
            problems.append(f"{name} starts at {start}; nothing in the ledger covers the way there from {after}")
        position[batch["epoch"]] = json.loads(batch["end"])
    landed = [(batch["epoch"], batch["batch_id"], batch["digest"]) for batch in batches]
    committed = [(a["epoch"], a["batch_id"], a["digest"]) for a in actions if a["kind"] == "committed"]
    if landed != committed:
        problems.append(f"the sink has the batches {landed}, the ledger has committed {committed}")
    return problems


def _pass_advanced(position: Any, actions: Iterable[dict[str, Any]], epoch: int) -> Any:
    """Return where the stretches without data that begin at ``position`` lead."""
    for action in actions:
        if action["kind"] == "advanced" and action["epoch"] == epoch and json.loads(action["start"]) == position:
            position = json.loads(action["end"])
    return position


def _column(table: Path, column: str) -> pa.ChunkedArray:
    # deltalake's own file system has threads that may abort the interpreter when it ends
    files = SubTreeFileSystem(str(table), LocalFileSystem())
    return DeltaTable(table).to_pyarrow_table(columns=[column], filesystem=files)[column]
