"""Data intervals as the ledger keeps them: the instants between them, and what was done with each."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

import msgspec

# the annotations of a struct are read when it is defined
from airflow_provider_fds.ledger.batch_entries import Blocked  # noqa: TC001
from airflow_provider_fds.ledger.measures import NONE_YET, Measures
from airflow_provider_fds.ledger.owner import Owner  # noqa: TC001
from airflow_provider_fds.ledger.values import PlannedBatch  # noqa: TC001

if TYPE_CHECKING:
    from collections.abc import Sequence

_DIGEST_CHARACTERS: Final = 32


class KnownBoundary(msgspec.Struct, frozen=True, array_like=True):
    """A resolved instant.

    Attributes:
        instant: ISO 8601, UTC, milliseconds; texts compare as the times do.
        version: First version that belongs to the interval that begins here; the one before it ends below.
    """

    instant: str
    version: int


class IntervalRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What was done with one data interval.

    Attributes:
        interval: ``<start>/<end>``, both as in :class:`KnownBoundary`; the end is exclusive.
        generation: Counts from 1 how often the interval was opened; it takes the place of an epoch in transactions.
        first_version: First version of the interval.
        last_version: Last version of it (inclusive), one below the first if it has none.
        owner: Who planned this generation, ``None`` as long as it is not planned.
        planned: Batches of this generation that are not committed.
        since: Version of the sink that was the newest of this stream when the generation was planned.
        batches: Number of committed batches of this generation, as far as the next fields go.
        rows: Rows written, ``None`` if one batch did not say.
        measures: What was measured of the committed batches, together.
        blocked: The verification that failed, until a person's word or the next generation.
        accepted: The failed verification that a person accepted, until its batch is committed.
    """

    interval: str
    generation: int
    first_version: int
    last_version: int
    owner: Owner | None = None
    planned: tuple[PlannedBatch, ...] = ()
    since: int | None = None
    options_digest: str | None = None
    batches: int = 0
    num_files: int = 0
    num_bytes: int = 0
    rows: int | None = 0
    measures: Measures = NONE_YET
    sink_version: int | None = None
    blocked: Blocked | None = None
    accepted: Blocked | None = None

    @property
    def is_planned(self) -> bool:
        """Whether this generation was planned, if only to find that there is nothing in it."""
        return self.owner is not None

    @property
    def is_done(self) -> bool:
        """Whether all of this generation is committed."""
        return self.is_planned and not self.planned


def interval_name(start: str, end: str) -> str:
    """Return the name of an interval, ``<start>/<end>``."""
    return f"{start}/{end}"


def instants_of(interval: str) -> tuple[str, str]:
    """Return start (inclusive) and end (exclusive) of an interval's name."""
    start, _, end = interval.partition("/")
    return start, end


def interval_folder(interval: str) -> str:
    """Return the name as a folder: no character in it that a store or Hadoop takes for something else."""
    return interval.replace("/", "_").replace(":", "").replace("-", "")


def digest_of_parts(parts: Sequence[PlannedBatch]) -> str:
    """Return the digest of batches that are one transaction: their own for one, else one over theirs, in order."""
    if len(parts) == 1:
        return parts[0].digest
    return hashlib.sha256("\n".join(part.digest for part in parts).encode()).hexdigest()[:_DIGEST_CHARACTERS]


def neighbours(known: Sequence[KnownBoundary], instant: str) -> tuple[KnownBoundary | None, KnownBoundary | None]:
    """Return the last known boundary at or before ``instant``, and the first at or after it."""
    lower = next((b for b in reversed(known) if b.instant <= instant), None)
    upper = next((b for b in known if b.instant >= instant), None)
    return lower, upper


def clamped(known: Sequence[KnownBoundary], instant: str, version: int) -> int:
    """Return the version of a new boundary: the one that was found, moved between those of its neighbours.

    Times that files have can change (a copy, a restored backup) and depend on which of them are left; what is
    known stays, so that no version is in two intervals and none in neither.
    """
    lower, upper = neighbours(known, instant)
    if lower is not None:
        version = max(version, lower.version)
    return version if upper is None else min(version, upper.version)


__all__ = [
    "IntervalRecord",
    "KnownBoundary",
    "clamped",
    "digest_of_parts",
    "instants_of",
    "interval_folder",
    "interval_name",
    "neighbours",
]
