"""What the state of a stream remembers of single entries.

An entry that is remembered derives from its facts, which are its fields without rule and effect. The state holds the
facts; so it knows no entry, and entries know the state.
"""

from __future__ import annotations

from typing import Any, Literal, Self

import msgspec
from msgspec import UNSET, UnsetType

from airflow_provider_fds.ledger.layout import check_interval_name

# structs read these annotations at run time, when they are defined
from airflow_provider_fds.ledger.measures import Measures  # noqa: TC001
from airflow_provider_fds.ledger.owner import Owner  # noqa: TC001
from airflow_provider_fds.ledger.values import PlannedBatch, Removal, SeenBatch  # noqa: TC001


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all facts."""

    @classmethod
    def of(cls, entry: Self) -> Self:
        """Return the facts of an entry, which derives from them."""
        return cls(**{name: getattr(entry, name) for name in cls.__struct_fields__})


class BatchFacts(Facts, frozen=True, kw_only=True):
    """Facts of an entry about planned batches.

    Attributes:
        epoch: The stream's epoch; for a data interval, its generation.
        interval: The data interval, ``<start>/<end>``; ``None`` for a stream that reads by offset.
    """

    epoch: int
    interval: str | None = None

    def __post_init__(self) -> None:
        if self.interval is not None:
            check_interval_name(self.interval)


class SubmittedFacts(BatchFacts, frozen=True, kw_only=True):
    """A driver that works in a cluster, whatever becomes of the process that started it.

    Attributes:
        attempt_id: The attempt that started it, under whose name it reports.
        batch_id: The last batch of its job; the first one is the first that was planned and not committed.
        cluster: Kind of the cluster.
        address: Where the cluster was asked for it.
        driver: The cluster's name of it.
    """

    attempt_id: str
    batch_id: int
    cluster: str
    address: str
    driver: str


class CommittedFacts(BatchFacts, frozen=True, kw_only=True):
    """A batch that is in the sink and verified.

    Attributes:
        outcome: ``written``, ``verified`` (looked up in the sink's history) or ``user_job``.
        digest: Digest of the batch's manifest, or of all batches of the transaction.
        end: End of the batch; derived.
        rows: Rows written, or ``None`` if a user job did not report them.
        last_commit_sha256: Digest of the last consumed commit file of the source; derived.
        was_accepted: Whether a person accepted a failed verification, or the share of rejected rows; derived.
        measures: What the driver measured, or ``None`` if it reported nothing.
        tables: For a function: by named table, the version that holds the newest transaction of its write.
    """

    batch_id: int
    owner: Owner
    attempt_id: str
    outcome: Literal["written", "verified", "user_job"]
    digest: str
    end: str = ""
    sink_version: int | None = None
    sink_table_id: str | None = None
    rows: int | None = None
    last_commit_sha256: str = ""
    was_accepted: bool = False
    measures: Measures | None = None
    tables: dict[str, int] = msgspec.field(default_factory=dict)


class BlockedFacts(BatchFacts, frozen=True, kw_only=True):
    """A failed verification.

    Attributes:
        owner: Who found the difference; ``None`` in older entries.
    """

    batch_id: int
    attempt_id: str
    reason: str
    rows_planned: int | None = None
    rows_written: int | None = None
    sink_version: int | None = None
    sink_table_id: str | None = None
    owner: Owner | None = None


class EndedFacts(Facts, frozen=True, kw_only=True):
    """The end of a stream.

    Attributes:
        instant: The time that the options give, ISO 8601, UTC, milliseconds; ``live_start`` for a backfill that ends
            where its live stream began.
        version: The last version (inclusive).
    """

    epoch: int
    instant: str
    version: int


class RequestedFacts(Facts, frozen=True, kw_only=True):
    """A request for an epoch.

    Attributes:
        epoch: The new epoch. Derived: the one after the stream's, or the proposed one if that is later.
        position: Position of the closed epoch, or ``None`` if it was never opened; derived.
        to: Where the new epoch starts: ``{"starting_version": …}`` or ``{"starting_timestamp": …}`` as in the source
            options, ``{"offset": …}`` (exclusive), ``{"start": "options"}`` for the stream's own start options;
            ``None``: at ``position``, or after the batches that are in the sink but were not committed here.
        is_automatic: Whether an operator asked, not a person.
        table_versions: For a replan: by write, the version of a function's table that has an uncommitted write, when it
            was requested. The fence compares it with what has become of the table since.
        seen: Uncommitted batches in the sink that the person was shown before: their rows may be read again. For a
            function, also those that the first request itself has named.
        removal: What the fence removes from the sink, ``None``: nothing.
        closes: The stream's epoch as the sender saw it. If a person gave none, the stream's epoch.
        replaces: Whether this request replaces one that is not opened yet.
        loads_skipped: Whether the new epoch may begin with a snapshot that has rows of skipped versions.
    """

    epoch: int = 0
    reason: Literal["rewind", "reset", "replan", "rebind", "recover", "lost_position", "sink_appeared"]
    why: str
    position: str | None = None
    to: dict[str, Any] | None = None
    is_automatic: bool = False
    table_versions: dict[str, int] = msgspec.field(default_factory=dict)
    seen: tuple[SeenBatch, ...] = ()
    removal: Removal | None = None
    closes: int | None = None
    replaces: bool = False
    loads_skipped: bool | UnsetType = UNSET

    @property
    def asked(self) -> str:
        """The request in the words of the commands: ``fds rewind --to start``, for example, is a ``reset`` here."""
        return {"reset": "rewind to start", "rebind": "replan with a new sink"}.get(self.reason, self.reason)


class StoppedBatch(msgspec.Struct, frozen=True, kw_only=True):
    """A planned batch of which expectations would keep more rows out of the sink than ``max_rejected`` allows.

    Attributes:
        digest: Digest of its manifest.
        owner: Who owned the batch when its driver refused it.
        rows: Rows that were tested.
        rejected: Rows of them that would not be in the sink.
        failed: By expectation, the number of rows that fail it.
        max_rejected: The greatest share, 0 to 1, when it was refused.
        rejects: URI of the table for rows that fail an expectation with the action ``reject``, if there is one.
    """

    epoch: int
    batch_id: int
    digest: str
    owner: Owner
    rows: int
    rejected: int
    failed: dict[str, int]
    max_rejected: float
    rejects: str | UnsetType = UNSET

    def is_of(self, epoch: int, batch: PlannedBatch) -> bool:
        """Whether it is this batch of this epoch."""
        return (self.epoch, self.batch_id, self.digest) == (epoch, batch.batch_id, batch.digest)


class QuarantinedFacts(Facts, frozen=True, kw_only=True):
    """A quarantine.

    Attributes:
        version: The version before which the stream stops; of a batch, its first one.
        can_be_acknowledged: Whether acknowledging the version lets the stream pass it; ``True`` in older entries.
        operation: ``commitInfo.operation`` of the version with its parameters; ``None`` if unknown, and in older
            entries.
        way_on: The decision that lets the stream pass the version: ``accept`` its schema, or ``skip`` its rows; unset
            in older entries.
        batch: The planned batch that the stream stops at, unless it stops before a version.
        lost: The reason code, if the table's log no longer has what the stream must read from ``version`` on.
        last: The last version (inclusive) that a person may skip together with ``version``.
    """

    why: str
    version: int | None = None
    schema_version: int | None = None
    can_be_acknowledged: bool = True
    operation: str | None = None
    way_on: Literal["accept", "skip"] | UnsetType = UNSET
    batch: StoppedBatch | UnsetType = UNSET
    lost: str | UnsetType = UNSET
    last: int | UnsetType = UNSET

    def is_same_stop(self, other: QuarantinedFacts) -> bool:
        """Whether a person decides on the same in both."""
        fields = ("version", "batch", "lost", "last")
        return all(getattr(self, name) == getattr(other, name) for name in fields)

    @property
    def ways_on(self) -> tuple[Literal["accept", "skip"], ...]:
        """The decisions that may let the stream pass the version; none if it cannot be passed."""
        if self.version is None or not self.can_be_acknowledged:
            return ()
        return ("accept", "skip") if self.way_on is UNSET else (self.way_on,)

    @property
    def decisions(self) -> tuple[tuple[str, str, int | str], ...]:
        """The actions that may let the stream pass: the name, and that and the value of the one argument of each."""
        if self.batch is not UNSET:
            return (("accept", "batch", self.batch.batch_id),)
        if self.version is None:
            return ()
        about = self.version if self.last in (UNSET, self.version) else f"{self.version}-{self.last}"
        return tuple((way, "version", about) for way in self.ways_on)


class HeldFacts(Facts, frozen=True, kw_only=True):
    """A pause that a person asked for.

    Attributes:
        exported_to: URI of the checkpoint from which a Structured Streaming query continues at the stream's position.
    """

    why: str
    exported_to: str | UnsetType = UNSET


class RetiredFacts(Facts, frozen=True, kw_only=True):
    """The retirement of a stream.

    Attributes:
        exported_to: As for a pause, if the position was exported after the retirement.
    """

    why: str
    exported_to: str | UnsetType = UNSET
