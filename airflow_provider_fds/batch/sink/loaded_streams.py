"""Which positions of their sources the streams have loaded into a Delta sink, for the driver and for Airflow.

Each batch's commit records that (``seen`` in its metadata), so that it is known from the newest commits alone. Standard
library only, Python 3.9 syntax.
"""
# The driver may run Python 3.9, so the annotations stay in its syntax.
# ruff: noqa: UP006, UP035, UP045

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Callable, Dict, FrozenSet, Iterable, Optional, Sequence, Tuple

from airflow_provider_fds.batch.sink.sink_commit import leaves_no_rows
from airflow_provider_fds.batch.version_ranges import describe_range

if TYPE_CHECKING:
    from airflow_provider_fds.batch.sink.sink_commit import SinkCommit

#: A position in a table: version, and index of the last consumed file in it; Delta's order.
Position = Tuple[int, int]

#: Index before the first file of a version, and after its last.
_BASE, _END = -100, (1 << 63) - 1

#: A stream with more separate pieces than this is not recorded; they are then folded from the whole log.
_MOST_PIECES = 64


@dataclass(frozen=True)
class Piece:
    """What a stream has loaded of a table, without a gap: files of one version's snapshot, or of commits.

    Attributes:
        table_id: ``metaData.id`` of the source.
        start: Where it starts (exclusive).
        end: Where it ends (inclusive).
        is_snapshot: Whether the indexes count the files of the snapshot of the version, not those of commits.
        sink_version: The newest version of the sink that holds some of it.
    """

    table_id: str
    start: Position
    end: Position
    is_snapshot: bool
    sink_version: int

    def overlaps(self, other: Piece) -> bool:
        """Whether some rows of the table are in both."""
        if self.table_id != other.table_id:
            return False
        if self.is_snapshot != other.is_snapshot:
            # a snapshot has the rows of every commit up to its version
            snapshot, commits = (self, other) if self.is_snapshot else (other, self)
            return commits.start < (snapshot.end[0] + 1, _BASE)
        if self.is_snapshot and self.end[0] != other.end[0]:
            return True
        return self.start < other.end and other.start < self.end

    def touches(self, other: Piece) -> bool:
        """Whether both count the same files, and nothing is left between them."""
        if (self.table_id, self.is_snapshot) != (other.table_id, other.is_snapshot):
            return False
        is_one = not self.is_snapshot or self.end[0] == other.end[0]
        return is_one and self.start <= other.end and other.start <= self.end

    @property
    def versions(self) -> Tuple[int, int]:
        """First and last version of which it has rows, both inclusive."""
        if self.is_snapshot:
            return 0, self.end[0]
        return self.start[0], self.end[0] if self.end[1] >= 0 else self.end[0] - 1

    def describe(self) -> str:
        """Return the versions in words."""
        return f"the snapshot of version {self.end[0]}" if self.is_snapshot else describe_range(*self.versions)


def pieces(start: str, end: str, sink_version: int) -> Tuple[Piece, ...]:
    """Return what lies between two offsets of a table, as JSON of Delta; nothing if they are anything else."""
    try:
        first, last = _read(start), _read(end)
    except (KeyError, TypeError, ValueError, RecursionError):
        # anyone may write any text into a commit
        return ()
    table_id, found = last[0], []
    if first[0] != table_id:
        return ()
    if first[2]:
        version = first[1][0]
        is_within = last[2] and last[1][0] == version
        limit = last[1] if is_within else (version, _END)
        found.append(Piece(table_id, first[1], limit, is_snapshot=True, sink_version=sink_version))
        if is_within:
            return tuple(found)
        first = (table_id, (version + 1, _BASE), False)
    if first[1] < last[1]:
        found.append(Piece(table_id, first[1], last[1], is_snapshot=False, sink_version=sink_version))
    return tuple(found)


def table_id_of(offset: str) -> str:
    """Return ``metaData.id`` of the table of an offset, which is JSON of Delta."""
    return _read(offset)[0]


def _read(offset: str) -> Tuple[str, Position, bool]:
    value = json.loads(offset)
    table_id, version, index = value["reservoirId"], value["reservoirVersion"], value["index"]
    if not isinstance(table_id, str) or type(version) is not int or type(index) is not int:
        raise ValueError(offset)
    return table_id, (version, _BASE if index == -1 else index), value["isStartingVersion"] is True


@dataclass(frozen=True)
class LoadedStream:
    """What one stream has loaded into the sink.

    Attributes:
        name: Name of the stream.
        pieces: They do not touch each other.
        same_values: Columns, in lower case, with the value that they have in each of its rows.
    """

    name: str
    pieces: Tuple[Piece, ...] = ()
    same_values: FrozenSet[Tuple[str, str | int]] = frozenset()

    def with_batch(self, told: Dict[str, Any], sink_version: int) -> LoadedStream:
        """Return it with one more batch, by the metadata of its commit."""
        values = told.get("same_values")
        same = frozenset(item for item in (values if isinstance(values, dict) else {}).items() if _is_value(item))
        found = replace(self, same_values=self.same_values & same if self.pieces else same)
        for piece in pieces(str(told.get("start")), told["end"], sink_version):
            found = found.with_piece(piece)
        return found

    def with_piece(self, piece: Piece) -> LoadedStream:
        """Return it with one more piece, joined with those that it touches."""
        apart = []
        for one in self.pieces:
            if one.touches(piece):
                start, end = min(one.start, piece.start), max(one.end, piece.end)
                newest = max(one.sink_version, piece.sink_version)
                piece = replace(piece, start=start, end=end, sink_version=newest)
            else:
                apart.append(one)
        return replace(self, pieces=(*apart, piece))

    def before(self, version: int) -> LoadedStream:
        """Return it without rows of ``version`` (inclusive) and later ones."""
        limit = (version, _BASE)
        left = []
        for one in self.pieces:
            if one.is_snapshot:
                if one.end[0] < version:
                    left.append(one)
            elif one.start < limit:
                left.append(replace(one, end=min(one.end, limit)))
        return replace(self, pieces=tuple(left))


@dataclass(frozen=True)
class Loaded:
    """What the streams have loaded into a sink, as far as their rows are there or may be.

    Attributes:
        to: The newest version of the sink that is taken into account; -1 before the first.
        streams: By uuid.
    """

    to: int = -1
    streams: Dict[str, LoadedStream] = field(default_factory=dict)

    def overlap(self, uuid: str, own: Sequence[Piece], others: Iterable[str]) -> Optional[Tuple[Piece, str, Piece]]:
        """Return a piece of the stream, the name of another stream, and a piece of it with the same rows.

        Args:
            uuid: The stream's uuid.
            own: What it is about to load, besides what it has loaded.
            others: UUIDs of streams that load other rows.
        """
        mine = (*own, *self.streams.get(uuid, LoadedStream("")).pieces)
        for other, stream in self.streams.items():
            if other == uuid or other in others:
                continue
            for piece in stream.pieces:
                found = next((one for one in mine if one.overlaps(piece)), None)
                if found is not None:
                    return found, stream.name, piece
        return None

    def after(self, commit: SinkCommit, earlier: Callable[[int], Optional[Dict[str, LoadedStream]]]) -> Loaded:
        """Return what is loaded after one more commit.

        Args:
            commit: The next commit of the sink.
            earlier: Returns what was loaded at an earlier version of the sink, ``None`` if it is not known.
        """
        told = commit.metadata or {}
        found: Optional[Dict[str, LoadedStream]] = self.streams
        if commit.restored_to is not None:
            found = earlier(commit.restored_to)
        elif isinstance(told.get("removes"), dict):
            found = self._without(told["removes"])
        elif "batch_id" in told:
            stream = self.streams.get(told["uuid"], LoadedStream(told["stream"]))
            found = {**self.streams, told["uuid"]: stream.with_batch(told, commit.version)}
        elif leaves_no_rows(commit):
            found = {}
        return Loaded(commit.version, self.streams if found is None else found)

    def _without(self, removes: Dict[str, Any]) -> Optional[Dict[str, LoadedStream]]:
        """Return it without what a fence removes, ``None`` if that is not known: anyone may write any values there."""
        if removes.get("what") == "all":
            return {}
        first = removes.get("from_version")
        if type(first) is not int:
            return None
        return {uuid: one.before(first) for uuid, one in self.streams.items()}

    def to_metadata(self) -> Optional[Dict[str, Any]]:
        """Return it as a commit records it, or ``None`` if that is too long."""
        if any(len(one.pieces) > _MOST_PIECES for one in self.streams.values()):
            return None
        streams = {
            uuid: [
                one.name,
                [[p.table_id, int(p.is_snapshot), *p.start, *p.end, p.sink_version] for p in one.pieces],
                *([sorted(one.same_values)] if one.same_values else []),
            ]
            for uuid, one in self.streams.items()
            if one.pieces
        }
        return {"to": self.to, "streams": streams}

    @classmethod
    def of_commit(cls, commit: SinkCommit) -> Optional[Loaded]:
        """Return what a batch's commit records of the commits before it, or ``None`` if it does not."""
        told: Any = (commit.metadata or {}).get("seen")
        try:
            streams = {
                uuid: LoadedStream(
                    name,
                    tuple(Piece(p[0], (p[2], p[3]), (p[4], p[5]), p[1] == 1, p[6]) for p in found),
                    frozenset((column, value) for same in more for column, value in same),
                )
                for uuid, (name, found, *more) in told["streams"].items()
            }
            is_valid = -1 <= told["to"] < commit.version and all(
                isinstance(one.name, str) and all(map(_is_piece, one.pieces)) and all(map(_is_value, one.same_values))
                for one in streams.values()
            )
            return cls(told["to"], streams) if is_valid else None
        except (AttributeError, IndexError, KeyError, TypeError, ValueError):
            return None


def _is_value(item: Tuple[Any, Any]) -> bool:
    return isinstance(item[0], str) and type(item[1]) in (str, int)


def _is_piece(piece: Piece) -> bool:
    numbers = (*piece.start, *piece.end, piece.sink_version)
    return isinstance(piece.table_id, str) and all(type(number) is int for number in numbers)


def loaded(commits: Sequence[SinkCommit], *, are_all: bool = False) -> Optional[Loaded]:
    """Return what the streams have loaded, or ``None`` if these commits do not tell.

    Args:
        commits: The sink's newest commits without a gap, oldest first.
        are_all: Whether the log has no others: nobody knows then what the commits before them have loaded, unless a
            batch has recorded it.
    """
    base = _recorded(commits, are_all=are_all)
    if base is None:
        return None
    states = {base.to: base.streams}
    for commit in commits:
        if commit.version <= base.to:
            continue
        if commit.restored_to is not None and commit.restored_to not in states and not are_all:
            # earlier commits tell what was there
            return None
        base = base.after(commit, states.get)
        states[commit.version] = base.streams
    return base


def _recorded(commits: Sequence[SinkCommit], *, are_all: bool) -> Optional[Loaded]:
    """Return what was loaded before some of the commits, from which the rest follows; ``None`` if it is not known."""
    if not commits or commits[0].version == 0:
        return Loaded()
    before = commits[0].version - 1
    recorded = (Loaded.of_commit(commit) for commit in reversed(commits))
    found = next((one for one in recorded if one is not None and one.to >= before), None)
    return Loaded(before) if found is None and are_all else found


def read_loaded(commits: Sequence[SinkCommit], read: Callable[[Optional[int]], Sequence[SinkCommit]]) -> Loaded:
    """Return what the streams have loaded, from the newest commits and as few others as possible.

    Others are read if no batch among the newest has recorded what it saw of the earlier ones, or another commit came
    between its look and its own.

    Args:
        commits: The sink's newest commits without a gap, oldest first.
        read: Returns the commits from a version (inclusive) on, or all for ``None``; oldest first.
    """
    found = loaded(commits)
    if found is None:
        seen = [one.to for commit in commits if (one := Loaded.of_commit(commit)) is not None]
        if seen:
            found = loaded(read(max(seen) + 1))
    if found is None:
        found = loaded(read(None), are_all=True)
    return found or Loaded()
