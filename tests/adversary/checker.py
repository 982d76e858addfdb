"""The verdict: by key, and by chain. It reads the sink itself and trusts nothing that the package reports.

**The rule of each manual action**, in one place. A row "must be there once" unless an action allows otherwise:

- `rewind` without the statement that it shows: rows of the versions read again may appear once more, at most once for
  each rewind. With the statement before the next run: exactly once.
- `rewind` with the statement after the next run (late): either exactly once, or the command or the next runs report it.
- a rewind to the start without emptying the sink: each row of the sink may appear once more. Emptied: exactly once.
- `replan`, `hold`, `resume`, `unlock`, `recover`: no exception (with `--new-sink`: sinks are counted together).
- `skip`: rows of that version may be missing. They never appear twice.
- `accept`: rows of that batch may be missing or appear twice, as the block said.
- The sink restored, overwritten or emptied by someone else: the next run must refuse; silence is a failure.
"""

from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import deltalake

from tests.adversary.scene import VerdictError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tests.adversary.scene import Scene


class Bounds:
    """How often each row must be there at least, and may be there at most."""

    def __init__(self, once: Counter[int] | None = None) -> None:
        self.lower: Counter[int] = Counter(once or {})
        self.upper: Counter[int] = Counter(once or {})

    def once(self, ids: Counter[int]) -> None:
        """Expect rows once (as often as the source has them)."""
        self.lower.update(ids)
        self.upper.update(ids)

    def maybe_again(self, ids: Iterable[int]) -> None:
        """Allow rows once more: a rewind whose statement was not run."""
        self.upper.update(set(ids))

    def maybe_missing(self, ids: Iterable[int]) -> None:
        """Allow rows to be missing: `skip`, `accept`."""
        for number in set(ids):
            self.lower[number] = 0


def read(scene: Scene, path: Path, columns: tuple[str, ...] = ("id",)) -> list[tuple[Any, ...]]:
    """Return a table's rows, by delta-rs, or by Spark if delta-rs does not know a feature."""
    # a writer that was stopped before its first commit leaves a log without one
    if not any((path / "_delta_log").glob("*.json")):
        return []
    try:
        table = deltalake.DeltaTable(path).to_pyarrow_table(columns=list(columns))
        return list(zip(*(table.column(name).to_pylist() for name in columns), strict=True))
    except Exception:  # noqa: BLE001 - a feature that delta-rs cannot read
        from tests.adversary.warm import sql

        return [tuple(row) for row in sql(scene, f"SELECT {', '.join(columns)} FROM delta.`{path}`")]


def count(scene: Scene, *paths: Path) -> Counter[int]:
    """Return how often each row is in these tables together."""
    found: Counter[int] = Counter()
    for path in paths:
        found.update(row[0] for row in read(scene, path))
    return found


def judge_keys(scene: Scene, bounds: Bounds, *paths: Path) -> None:
    """Compare sinks with the bounds, row by row."""
    found = count(scene, *paths)
    lost = {row: least - found[row] for row, least in bounds.lower.items() if found[row] < least}
    doubled = {row: times - bounds.upper[row] for row, times in found.items() if times > bounds.upper[row]}
    scene.note(f"verdict: {sum(found.values())} rows in the sink, {len(lost)} lost, {len(doubled)} too many")
    if lost or doubled:
        told = scene.refusals > 0
        verdict = "lost" if lost else "doubled"
        words = f"{len(lost)} lost {sorted(lost)[:8]}, {len(doubled)} doubled {sorted(doubled)[:8]}"
        if not told:
            words += "; every command ended with 0 (silent)"
        raise VerdictError(verdict, words, lost=len(lost), doubled=len(doubled))


def batches(path: Path, stream: str | None = None) -> list[tuple[int, dict[str, Any]]]:
    """Return (version of the sink, metadata) of each batch in the sink's own log, oldest first."""
    found = []
    for commit in sorted((path / "_delta_log").glob("*.json")):
        for line in commit.read_text().splitlines():
            info = json.loads(line).get("commitInfo") if line.strip() else None
            try:
                facts = json.loads((info or {}).get("userMetadata") or "null")
            except ValueError:
                continue
            if isinstance(facts, dict) and "batch_id" in facts and stream in (None, facts.get("stream")):
                found.append((int(commit.stem), facts))
    return found


def judge_chain(scene: Scene, path: Path, stream: str | None = None, *, streams: int = 1) -> None:
    """Check the sink's own history: batches in order, each once, each after the previous one."""
    found = [facts for _, facts in batches(path, stream)]
    for uuid in {facts.get("uuid") for facts in found}:
        mine = [facts for facts in found if facts.get("uuid") == uuid]
        order = [(facts["epoch"], facts["batch_id"]) for facts in mine if facts.get("interval") is None]
        if order != sorted(set(order)):
            raise VerdictError("doubled", f"batches in the sink's history are {order}")
        for before, after in pairwise(mine):
            is_next = before["epoch"] == after["epoch"]
            if is_next and after.get("after") is not None and _position(after["after"]) != _position(before["end"]):
                raise VerdictError(
                    "lost", f"a gap in the sink's history: {before['end']} is followed by {after['after']}"
                )
    uuids = {facts.get("uuid") for facts in found}
    if stream is not None and len(uuids) > streams:
        raise VerdictError(
            "silent", f"the sink has batches of {len(uuids)} streams named {stream}: {sorted(map(str, uuids))}"
        )


def _position(text: str) -> tuple[Any, ...]:
    offset = json.loads(text)
    return offset["reservoirVersion"], offset["index"], offset["isStartingVersion"]
