"""Which commits a Delta sink still consists of: one rule, for the driver and for Airflow.

What streams have loaded into it is in ``loaded_streams``. Standard library only, Python 3.9 syntax.
"""
# The driver may run Python 3.9, so the annotations stay in its syntax.
# ruff: noqa: UP006, UP035, UP045

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, FrozenSet, Iterable, List, Optional, Tuple

if TYPE_CHECKING:
    from airflow_provider_fds.batch.sink.sink_commit import SinkCommit

#: Newest version that a table can have.
NEWEST = (1 << 63) - 1


@dataclass(frozen=True)
class Kept:
    """The commits that a table consists of, without those that a RESTORE, REPLACE or CLONE removed.

    Attributes:
        versions: Those of the commits read whose changes are in the table, or may be after a RESTORE to a time.
        unsure: Versions of which the log does not tell whether their rows are in the table: those before a RESTORE to a
            time, a REPLACE or a CLONE.
        broken_at: The commit that removed, or may have removed, the oldest commit read or earlier ones; ``None`` if
            they are in the table.
        restored_to: The version, earlier than all commits read, to which that commit restored the table; ``None`` if it
            does not say.
        first: Version of the oldest commit that was read, or ``None`` without commits.
        breaks: Versions of the commits that removed others, or may have; oldest first.
    """

    versions: FrozenSet[int]
    unsure: FrozenSet[int] = frozenset()
    broken_at: Optional[int] = None
    restored_to: Optional[int] = None
    first: Optional[int] = None
    breaks: Tuple[int, ...] = ()

    def place(self, version: int) -> str:
        """Return whether the rows of a commit are in the table: ``there``, ``gone`` or ``unsure``."""
        if self.first is None or version < self.first:
            if self.broken_at is None:
                return "there"
            if self.restored_to is None:
                return "unsure"
            return "there" if version <= self.restored_to else "gone"
        if version in self.unsure:
            return "unsure"
        return "there" if version in self.versions else "gone"

    def undone_at(self, version: int) -> Optional[int]:
        """Return the commit that removed the rows of a commit, or may have; ``None`` if they are there."""
        if self.place(version) == "there":
            return None
        return next((broke for broke in self.breaks if broke > version), None)


@dataclass(frozen=True)
class _Lineage:
    """The versions that a table consists of, as ranges (inclusive) in order; the last one grows with each commit."""

    ranges: Tuple[Tuple[int, int], ...]
    replaced: Tuple[Tuple[int, int], ...] = ()
    unsure_to: int = -1
    broken_at: Optional[int] = None
    restored_to: Optional[int] = None

    def at(self, version: int) -> _Lineage:
        """Return the same lineage as of an earlier version."""
        ranges = tuple((first, min(last, version)) for first, last in self.ranges if first <= version)
        return replace(self, ranges=ranges)


def kept(commits: Iterable[SinkCommit], app_id: str, *, before: int = NEWEST) -> Kept:
    """Return which of the commits the table still consists of.

    Args:
        commits: Commits without a gap, oldest first.
        app_id: The stream's transaction application id; a table that its transaction created, or a function's own
            replacement, removes nothing of the stream.
        before: Only commits before this version count (exclusive).
    """
    first: Optional[int] = None
    last = -1
    breaks: List[int] = []
    # the lineage from each breaking commit on, up to the next one
    lineages: List[_Lineage] = []
    for commit in commits:
        if commit.version >= before:
            break
        if first is None:
            first = commit.version
            breaks.append(first - 1)
            lineages.append(_Lineage(((first, NEWEST),)))
        last = commit.version
        if not commit.is_breaking or commit.transaction_of(app_id) is not None:
            continue
        now, target = lineages[-1].at(last - 1), commit.restored_to
        if commit.is_restore and target is not None and first <= target < last:
            now = lineages[bisect_right(breaks, target) - 1].at(target)
        elif commit.is_restore and target is not None and target >= last:
            now = replace(now, broken_at=last)
        elif commit.is_restore and target is None:
            # what a RESTORE to a time removed is not known
            now = replace(now, broken_at=last, restored_to=None, unsure_to=last)
        else:
            gone = () if commit.is_restore else (*now.replaced, *now.ranges)
            now = _Lineage((), gone, now.unsure_to, last, target)
        breaks.append(last)
        lineages.append(replace(now, ranges=(*now.ranges, (last + 1, NEWEST))))
    if first is None:
        return Kept(frozenset())
    lineage = lineages[-1].at(last)
    versions = _versions(lineage.ranges)
    unsure = _versions(lineage.replaced) | {version for version in versions if version < lineage.unsure_to}
    return Kept(versions, unsure, lineage.broken_at, lineage.restored_to, first, tuple(breaks[1:]))


def _versions(ranges: Iterable[Tuple[int, int]]) -> FrozenSet[int]:
    return frozenset(version for first, last in ranges for version in range(first, last + 1))
