"""What can be asked of a stream that reads data intervals; see ``commands.py``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

if TYPE_CHECKING:
    from airflow_provider_fds.ledger.measures import Measures
    from airflow_provider_fds.ledger.owner import Owner
    from airflow_provider_fds.ledger.values import PlannedBatch


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolveBoundary:
    """Give an instant its version, once; what is known of its neighbours wins over ``version``.

    Attributes:
        instant: As in ``intervals.KnownBoundary``.
        version: First version at or after it, as the log says now; the one after the newest if there is none.
        table_id: ``metaData.id`` of the table.
    """

    comes_to: ClassVar[str] = "boundary"

    instant: str
    version: int
    table_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenInterval:
    """Work on an interval for the first time, or again.

    Attributes:
        generation: The next one.
        previous: Owner of the one before that was found not to run, if that is not committed.
    """

    comes_to: ClassVar[str] = "interval_opened"

    interval: str
    generation: int
    owner: Owner
    previous: Owner | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanInterval:
    """Freeze the batches of an interval, whose manifests are written; or take over those of another owner.

    Attributes:
        batches: None in an interval without data for a sink that appends.
        previous: Owner that was found not to run, whose uncommitted batches these are.
    """

    comes_to: ClassVar[str] = "interval_planned"

    interval: str
    generation: int
    owner: Owner
    batches: tuple[PlannedBatch, ...]
    options_digest: str
    previous: Owner | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitInterval:
    """Record that the sink has batches of an interval, verified; up to ``batch_id`` in one transaction."""

    comes_to: ClassVar[str] = "interval_committed"

    interval: str
    generation: int
    batch_id: int
    owner: Owner
    try_id: str
    outcome: Literal["written", "verified"]
    digest: str
    sink_version: int | None
    sink_table_id: str | None
    rows: int | None
    measures: Measures | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockInterval:
    """Record that verification of a batch of an interval failed; fields as in ``actions.Blocked``."""

    comes_to: ClassVar[str] = "blocked"

    interval: str
    generation: int
    batch_id: int
    owner: Owner
    try_id: str
    reason: str
    rows_planned: int | None = None
    rows_written: int | None = None
    sink_version: int | None = None
    sink_table_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptInterval:
    """A person takes the blocked batch of an interval as it is in the sink."""

    comes_to: ClassVar[str] = "accepted"

    interval: str
    why: str


IntervalCommand = ResolveBoundary | OpenInterval | PlanInterval | CommitInterval | BlockInterval | AcceptInterval

__all__ = [
    "AcceptInterval",
    "BlockInterval",
    "CommitInterval",
    "IntervalCommand",
    "OpenInterval",
    "PlanInterval",
    "ResolveBoundary",
]
