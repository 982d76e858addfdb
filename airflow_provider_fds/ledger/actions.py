"""What an entry can say: one struct per action of docs/design/ledger.md, "Entries".

The field ``kind`` tells the actions apart in JSON. Offsets are Delta's streaming offset JSON (format 1): a start is
exclusive, an end inclusive; versions are inclusive. A field that is added later has a default, so that entries written
before it can be read; a change that an older reader would misread raises ``ENTRY_FORMAT``.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from airflow_provider_fds.ledger.layout import check_interval_name

# the annotations of a struct are read when it is defined
from airflow_provider_fds.ledger.measures import Measures  # noqa: TC001
from airflow_provider_fds.ledger.owner import Owner  # noqa: TC001
from airflow_provider_fds.ledger.values import (
    Fence,
    PlannedBatch,
    Recovered,
    Removal,
    SeenBatch,
    SinkBinding,
    Skipped,
    SnapshotRef,
)


class ActionBase(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind"):
    """Base of all actions."""

    @property
    def kind(self) -> str:
        """The tag of the action, as it is in JSON."""
        return str(self.__struct_config__.tag)


class Created(ActionBase, frozen=True, kw_only=True, tag="created"):
    """The stream exists; requests epoch 1, or the one after those that a sink knows of.

    Attributes:
        recovered: For a stream whose ledger was lost: what it goes on from.
    """

    uuid: str
    name: str
    table: str
    deployment: str
    recovered: Recovered | None = None


class Opened(ActionBase, frozen=True, kw_only=True, tag="opened"):
    """The start of an epoch is resolved, and the epochs before it are closed in the sink.

    Attributes:
        start: The epoch's start offset; for a snapshot the base of its version.
        landed: Highest batch of the epoch before that is in the sink though it was never committed here.
        last_commit_sha256: Digest of the commit file before the start, where it was read.
        meaning_digest: Of the options that a start within a version was counted with, ``None`` for any other start.
        continues: Whether the epoch goes on where the one before it was: a change of the schema at its start is judged
            against what was read before, instead of taken as it is.
    """

    epoch: int
    start: str
    table_id: str
    snapshot: SnapshotRef | None = None
    fence: Fence = Fence()
    landed: int | None = None
    last_commit_sha256: str | None = None
    meaning_digest: str | None = None
    continues: bool = False


class Bound(ActionBase, frozen=True, kw_only=True, tag="bound"):
    """From here on the stream writes to this sink; ``table_id`` is its ``metaData.id``, ``None`` if it is not there."""

    epoch: int
    sink: SinkBinding
    table_id: str | None = None


class Planned(ActionBase, frozen=True, kw_only=True, tag="planned"):
    """Batches frozen by a run.

    Attributes:
        target: Newest version the run saw when it planned first.
        options_digest: Digest of all source options.
        meaning_digest: Digest of the options that change what an index within a version counts.
    """

    epoch: int
    owner: Owner
    target: int
    batches: tuple[PlannedBatch, ...]
    options_digest: str
    meaning_digest: str


class Claimed(ActionBase, frozen=True, kw_only=True, tag="claimed"):
    """The planned batches have a new owner, since the one before does not run any more."""

    epoch: int
    owner: Owner
    previous: Owner
    why: str


class Committed(ActionBase, frozen=True, kw_only=True, tag="committed"):
    """A batch is in the sink, verified; the position moved to ``end``.

    Attributes:
        outcome: ``written``, ``verified`` (looked up in the sink's history) or ``own_job``.
        digest: Digest of the batch's manifest.
        rows: Rows written, ``None`` where an own job did not say.
        last_commit_sha256: Digest of the last consumed commit file of the source.
        was_accepted: Whether a person accepted a verification that failed.
        measures: What the driver measured, ``None`` where it said nothing.
    """

    epoch: int
    batch_id: int
    owner: Owner
    try_id: str
    outcome: Literal["written", "verified", "own_job"]
    digest: str
    end: str
    sink_version: int | None
    sink_table_id: str | None
    rows: int | None
    last_commit_sha256: str
    was_accepted: bool = False
    measures: Measures | None = None


class Advanced(ActionBase, frozen=True, kw_only=True, tag="advanced"):
    """A stretch without data is behind the position: plan and commit in one, nothing in the sink."""

    epoch: int
    owner: Owner
    start: str
    end: str
    first_version: int
    last_version: int
    skipped: tuple[Skipped, ...]
    log_digest: str
    last_commit_sha256: str


class Ended(ActionBase, frozen=True, kw_only=True, tag="ended"):
    """The end of the stream, which its options give as a time, is known for good: ``version`` (inclusive).

    Attributes:
        instant: That time, ISO 8601, UTC, milliseconds.
    """

    epoch: int
    instant: str
    version: int


class Blocked(ActionBase, frozen=True, kw_only=True, tag="blocked"):
    """What is in the sink is not what was planned; nothing goes on before a person's word.

    With an ``interval`` only that one stands still; ``epoch`` is its generation then.
    """

    epoch: int
    batch_id: int
    try_id: str
    reason: str
    rows_planned: int | None = None
    rows_written: int | None = None
    sink_version: int | None = None
    sink_table_id: str | None = None
    interval: str | None = None


class Accepted(ActionBase, frozen=True, kw_only=True, tag="accepted"):
    """A person takes the blocked batch, of the stream or of one interval, as it is in the sink."""

    epoch: int
    batch_id: int
    why: str
    interval: str | None = None


class Requested(ActionBase, frozen=True, kw_only=True, tag="requested"):
    """The epoch before ``epoch`` is closed at this entry; ``epoch`` has to be opened.

    Attributes:
        position: Position of the closed epoch, ``None`` if it was never opened.
        to: Where the new epoch starts: ``{"starting_version": …}`` or ``{"starting_timestamp": …}`` as of the source
            options, ``{"offset": …}`` (exclusive), ``{"start": "options"}`` for the stream's own start options;
            ``None``: at ``position``, or behind the batches that are in the sink though they were not committed here.
        is_automatic: Whether an operator asked, not a person.
        table_versions: Newest version of each named table of a function when it was asked, -1 of a missing one.
        seen: Uncommitted batches in the sink that the person was shown before: their rows may be read again.
        removal: What the fence removes from the sink, ``None``: nothing.
    """

    epoch: int
    reason: Literal["rewind", "reset", "replan", "rebind", "recover", "lost_position", "sink_appeared"]
    why: str
    position: str | None
    to: dict[str, Any] | None = None
    is_automatic: bool = False
    table_versions: dict[str, int] = {}
    seen: tuple[SeenBatch, ...] = ()
    removal: Removal | None = None


class Shown(ActionBase, frozen=True, kw_only=True, tag="shown"):
    """A run did not open the requested ``epoch``, because it would read these batches again; its error names them."""

    epoch: int
    batches: tuple[SeenBatch, ...]


class Quarantined(ActionBase, frozen=True, kw_only=True, tag="quarantined"):
    """The stream stops before ``version`` until a person acknowledges it or resumes the stream."""

    why: str
    version: int | None = None
    schema_version: int | None = None


class Held(ActionBase, frozen=True, kw_only=True, tag="held"):
    """A person paused the stream."""

    why: str


class Resumed(ActionBase, frozen=True, kw_only=True, tag="resumed"):
    """A person lets the stream go on after ``held`` or ``quarantined``."""

    why: str


class Acknowledged(ActionBase, frozen=True, kw_only=True, tag="acknowledged"):
    """A person looked at ``version`` and lets the stream pass it: its schema takes effect, or its rows are left out.

    Attributes:
        skip: Whether the rows are left out even if the stream may read them.
    """

    version: int
    why: str
    skip: bool = False


class Boundary(ActionBase, frozen=True, kw_only=True, tag="boundary"):
    """An instant of a data interval is resolved: ``version`` is the first one at or after it.

    Attributes:
        instant: ISO 8601, UTC, milliseconds.
        version: May be the one after the newest, when no commit had reached the instant.
        table_id: ``metaData.id`` of the source table.
    """

    instant: str
    version: int
    table_id: str = ""


class IntervalOpened(ActionBase, frozen=True, kw_only=True, tag="interval_opened"):
    """A data interval (``<start>/<end>``) is worked on, for the ``generation``-th time from 1.

    It has the versions ``first_version`` to ``last_version``, both inclusive; none if the last is below the first.
    """

    interval: str
    generation: int
    first_version: int
    last_version: int

    def __post_init__(self) -> None:
        check_interval_name(self.interval)


class IntervalPlanned(ActionBase, frozen=True, kw_only=True, tag="interval_planned"):
    """Batches of a data interval frozen by a run, or its uncommitted ones taken over by another."""

    interval: str
    generation: int
    owner: Owner
    batches: tuple[PlannedBatch, ...]
    options_digest: str

    def __post_init__(self) -> None:
        check_interval_name(self.interval)


class IntervalCommitted(ActionBase, frozen=True, kw_only=True, tag="interval_committed"):
    """Batches of a data interval up to ``batch_id`` are in the sink, in one transaction, verified.

    Attributes:
        measures: What the driver measured, ``None`` where it said nothing.
    """

    interval: str
    generation: int
    batch_id: int
    owner: Owner
    try_id: str
    outcome: Literal["written", "verified", "own_job"]
    digest: str
    sink_version: int | None
    sink_table_id: str | None
    rows: int | None
    measures: Measures | None = None

    def __post_init__(self) -> None:
        check_interval_name(self.interval)


class Transferred(ActionBase, frozen=True, kw_only=True, tag="transferred"):
    """Another Airflow installation owns the stream from here on."""

    previous: str
    deployment: str
    why: str


class Retired(ActionBase, frozen=True, kw_only=True, tag="retired"):
    """The stream has ended; nothing can follow."""

    why: str


#: All actions of format 1.
Action = (
    Created
    | Opened
    | Bound
    | Planned
    | Claimed
    | Committed
    | Advanced
    | Ended
    | Blocked
    | Accepted
    | Requested
    | Shown
    | Quarantined
    | Held
    | Resumed
    | Acknowledged
    | Boundary
    | IntervalOpened
    | IntervalPlanned
    | IntervalCommitted
    | Transferred
    | Retired
)
