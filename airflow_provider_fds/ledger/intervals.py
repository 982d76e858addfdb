"""Data intervals: their names, the instants between them, and the digest of batches that form one transaction."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow_provider_fds.ledger.values import PlannedBatch

_DIGEST_CHARACTERS: Final = 32


class KnownBoundary(msgspec.Struct, frozen=True, array_like=True):
    """A resolved instant.

    Attributes:
        instant: ISO 8601, UTC, milliseconds; the strings sort like the times.
        version: First version of the interval that begins here; the previous interval ends before it.
    """

    instant: str
    version: int


def interval_name(start: str, end: str) -> str:
    """Return the name of an interval, ``<start>/<end>``."""
    return f"{start}/{end}"


def instants_of(interval: str) -> tuple[str, str]:
    """Return start (inclusive) and end (exclusive) of an interval's name."""
    start, _, end = interval.partition("/")
    return start, end


def interval_folder(interval: str) -> str:
    """Return the name as a folder name, without characters that have a meaning to a store or to Hadoop."""
    return interval.replace("/", "_").replace(":", "").replace("-", "")


def digest_of_parts(parts: Sequence[PlannedBatch]) -> str:
    """Return the digest of batches that form one transaction: the batch's own, or one over all of theirs, in order."""
    if len(parts) == 1:
        return parts[0].digest
    return hashlib.sha256("\n".join(part.digest for part in parts).encode()).hexdigest()[:_DIGEST_CHARACTERS]


def rows_of_parts(parts: Sequence[PlannedBatch]) -> int | None:
    """Return the rows of batches according to the log's statistics, or ``None`` if a file has no statistics."""
    rows = [part.num_rows for part in parts]
    return None if None in rows else sum(row or 0 for row in rows)


def neighbours(known: Sequence[KnownBoundary], instant: str) -> tuple[KnownBoundary | None, KnownBoundary | None]:
    """Return the last known boundary at or before ``instant``, and the first at or after it."""
    lower = next((b for b in reversed(known) if b.instant <= instant), None)
    upper = next((b for b in known if b.instant >= instant), None)
    return lower, upper


def clamped(known: Sequence[KnownBoundary], instant: str, version: int) -> int:
    """Return the version of a new boundary: the version that was found, clamped between those of its neighbours.

    File times can change (a copy, a restored backup) and depend on which files are left. Known boundaries stay, so that
    each version belongs to exactly one interval.
    """
    lower, upper = neighbours(known, instant)
    if lower is not None:
        version = max(version, lower.version)
    return version if upper is None else min(version, upper.version)
