"""What can be asked of a stream: one frozen value per command; ``decide`` turns it into an action or refuses.

A command that builds on what its sender has seen names it (``epoch``, ``previous``, a start offset), so that it is
refused when the ledger has moved on in the meantime. Offsets are Delta's streaming offset JSON.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from airflow_provider_fds.ledger.commands_interval import IntervalCommand
from airflow_provider_fds.ledger.values import Fence

if TYPE_CHECKING:
    from airflow_provider_fds.ledger.measures import Measures
    from airflow_provider_fds.ledger.owner import Owner
    from airflow_provider_fds.ledger.values import (
        PlannedBatch,
        Recovered,
        Removal,
        SeenBatch,
        SinkBinding,
        Skipped,
        SnapshotRef,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Create:
    """Bring the stream into being.

    The caller has made sure that no commit of the sink names a stream of this name (else the ledger was lost).

    Attributes:
        uuid: Random id of the new stream; another one that was created before wins.
        recovered: For a stream whose ledger was lost: what its sink says; ``uuid`` is then the one of before.
    """

    comes_to: ClassVar[str] = "created"

    uuid: str
    name: str
    table: str
    deployment: str
    recovered: Recovered | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Open:
    """Open the requested epoch at a resolved start; fields as in ``actions.Opened``."""

    comes_to: ClassVar[str] = "opened"

    epoch: int
    start: str
    table_id: str
    snapshot: SnapshotRef | None = None
    fence: Fence = Fence()  # noqa: RUF009  # immutable
    landed: int | None = None
    last_commit_sha256: str | None = None
    meaning_digest: str | None = None
    continues: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Bind:
    """Bind the stream to its sink; nothing to do if it is bound to it already.

    Attributes:
        table_id: ``metaData.id`` of the sink as it is now, ``None`` if there is none or it was not looked up.
        by_interval: Whether the stream reads data intervals, and is never opened at an offset.
    """

    comes_to: ClassVar[str] = "bound"

    epoch: int
    sink: SinkBinding
    table_id: str | None = None
    by_interval: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Freeze batches, whose manifests are written; fields as in ``actions.Planned``."""

    comes_to: ClassVar[str] = "planned"

    epoch: int
    owner: Owner
    target: int
    batches: tuple[PlannedBatch, ...]
    options_digest: str
    meaning_digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """Take over the planned batches of an owner that does not run any more.

    Attributes:
        previous: The owner that was found not to run. If another has claimed since, the claim is refused.
        why: How that was found out.
    """

    comes_to: ClassVar[str] = "claimed"

    epoch: int
    owner: Owner
    previous: Owner
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """Record that the sink has a batch, verified; fields as in ``actions.Committed``."""

    comes_to: ClassVar[str] = "committed"

    epoch: int
    batch_id: int
    owner: Owner
    try_id: str
    outcome: Literal["written", "verified", "own_job"]
    digest: str
    sink_version: int | None = None
    sink_table_id: str | None = None
    rows: int | None = None
    measures: Measures | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Advance:
    """Move the position over a stretch without data; fields as in ``actions.Advanced``."""

    comes_to: ClassVar[str] = "advanced"

    epoch: int
    owner: Owner
    start: str
    end: str
    first_version: int
    last_version: int
    skipped: tuple[Skipped, ...]
    log_digest: str
    last_commit_sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """Record which version a time as the stream's end means; fields as in ``actions.Ended``."""

    comes_to: ClassVar[str] = "ended"

    epoch: int
    instant: str
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Record that verification of a batch failed; fields as in ``actions.Blocked``."""

    comes_to: ClassVar[str] = "blocked"

    epoch: int
    batch_id: int
    owner: Owner
    try_id: str
    reason: str
    rows_planned: int | None = None
    rows_written: int | None = None
    sink_version: int | None = None
    sink_table_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Accept:
    """A person takes a blocked batch as it is in the sink."""

    comes_to: ClassVar[str] = "accepted"

    epoch: int
    batch_id: int
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Close the epoch and ask for a new one; fields as in ``actions.Requested``.

    An automatic request adopts an open one, a person's is refused while one is open.

    Attributes:
        epoch: The epoch to close, as the sender saw it. ``None``, for a person only: the newest.
        after: The new epoch comes after this one too: the newest that the sink knows of.
        replaces: Whether a request that waits to be opened is given up for this one.
    """

    comes_to: ClassVar[str] = "requested"

    reason: Literal["rewind", "reset", "replan", "rebind", "recover", "lost_position", "sink_appeared"]
    why: str
    epoch: int | None = None
    to: dict[str, Any] | None = None
    is_automatic: bool = False
    after: int = 0
    replaces: bool = False
    table_versions: dict[str, int] = field(default_factory=dict)
    seen: tuple[SeenBatch, ...] = ()
    removal: Removal | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Show:
    """Record what a run showed instead of opening the requested epoch; fields as in ``actions.Shown``."""

    comes_to: ClassVar[str] = "shown"

    epoch: int
    batches: tuple[SeenBatch, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Quarantine:
    """Stop the stream before ``version`` until a person's word."""

    comes_to: ClassVar[str] = "quarantined"

    why: str
    version: int | None = None
    schema_version: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """Pause the stream: nothing new is planned; what is planned and running may be committed."""

    comes_to: ClassVar[str] = "held"

    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Resume:
    """Let the stream go on after a hold or a quarantine."""

    comes_to: ClassVar[str] = "resumed"

    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledge:
    """Let the stream pass the change of ``version``; with ``skip`` leave its rows out whatever they are."""

    comes_to: ClassVar[str] = "acknowledged"

    version: int
    why: str
    skip: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """Give the stream to another Airflow installation, the one that sends this command."""

    comes_to: ClassVar[str] = "transferred"

    deployment: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Retire:
    """End the stream for good."""

    comes_to: ClassVar[str] = "retired"

    why: str


Command = (
    Create
    | Open
    | Bind
    | Plan
    | Claim
    | Commit
    | Advance
    | End
    | Block
    | Accept
    | Request
    | Show
    | Quarantine
    | Hold
    | Resume
    | Acknowledge
    | Transfer
    | Retire
    | IntervalCommand
)

__all__ = [
    "Accept",
    "Acknowledge",
    "Advance",
    "Bind",
    "Block",
    "Claim",
    "Command",
    "Commit",
    "Create",
    "End",
    "Hold",
    "Open",
    "Plan",
    "Quarantine",
    "Request",
    "Resume",
    "Retire",
    "Show",
    "Transfer",
]
