"""Entries that create a stream, open its epochs, and bind it to a sink."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Self

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from airflow_provider_fds.batch.transactions import fence_version
from airflow_provider_fds.ledger.entries import refusals
from airflow_provider_fds.ledger.entries.action import BaseAction, register
from airflow_provider_fds.ledger.entries.conditions import (
    check_deployment,
    check_epoch,
    check_open,
    check_table_id,
    offset_of,
)
from airflow_provider_fds.ledger.entries.request_entries import Requested
from airflow_provider_fds.ledger.facts import EndedFacts, HeldFacts

# the annotations of a struct are read when it is defined
from airflow_provider_fds.ledger.values import (
    Acknowledgement,
    CatalogName,
    Fence,
    LeftSink,
    Origin,
    Recovered,
    SinkBinding,
    SnapshotRef,
)
from airflow_provider_fds.source.offset import Offset

if TYPE_CHECKING:
    from airflow_provider_fds.ledger.state import StreamState
    from airflow_provider_fds.ledger.values import PlannedBatch


@register
class Created(BaseAction, frozen=True, kw_only=True, tag="created"):
    """The stream exists; requests epoch 1, or the one after the epochs that a sink knows of.

    The sender has made sure that no commit of the sink names a stream of this name; if one does, the ledger was lost.

    Attributes:
        uuid: Random id of the new stream; an earlier one wins.
        recovered: For a stream whose ledger was lost or cannot be read: what it continues from; ``uuid`` is then the
            earlier one.
        start: Where the first epoch starts (exclusive), instead of by the start options.
        acknowledged: What people have decided on versions for the stream that this one backfills.
    """

    subject: ClassVar[str] = "create it again"

    uuid: str
    name: str
    table: str
    deployment: str
    recovered: Recovered | None = None
    start: str | UnsetType = UNSET
    acknowledged: tuple[Acknowledgement, ...] | UnsetType = UNSET

    @property
    def needs_format(self) -> int:
        """A reader of format 1 would open the epoch by the start options, load skipped versions, or need a position."""
        is_new = self.recovered is not None and self.recovered.position is None
        return 1 if self.start is UNSET and self.acknowledged is UNSET and not is_new else 2

    @property
    def known_origin(self) -> Origin | None:
        """The stream that this one continues as a fork, or ``None`` if it is not known to be a fork."""
        return None if self.recovered is None else self.recovered.origin

    @property
    def passes(self) -> tuple[Acknowledgement, ...]:
        """Versions that people had let the stream pass before this entry."""
        if self.recovered is not None:
            return self.recovered.acknowledged
        return () if self.acknowledged is UNSET else self.acknowledged

    def decide(self, state: StreamState) -> Self | None:
        """Allow it if no stream has this name; one that reads the same table is the same stream."""
        if state.phase == "empty":
            return self
        check_deployment(state, self.deployment)
        if state.table != self.table:
            raise refusals.refusal(
                state,
                f"the name is taken: the stream reads {state.table}, not {self.table}. A stream reads one table: "
                "use another name, or restore the table's URI",
            )
        return None

    def apply(self, state: StreamState) -> StreamState:
        """Request the first epoch, or one after those that the sink and readable entries know of.

        Unreadable entries do not contribute to the state.
        """
        state = type(state)(
            name=self.name,
            phase="requested",
            uuid=self.uuid,
            table=self.table,
            deployment=self.deployment,
            epoch=1,
            given_start=None if self.start is UNSET else self.start,
            acknowledged=self.passes,
        )
        found = self.recovered
        if found is None:
            return state
        to = {"start": "options"} if found.position is None else {"offset": found.position}
        if found.meaning_digest is not None:
            to["meaning_digest"] = found.meaning_digest
        request = Requested(
            epoch=max(found.epoch, found.after) + 1,
            reason="recover",
            why="entries of the ledger could not be read" if found.given_up else "the ledger was lost",
            position=found.position,
            to=to,
            names=found.names,
        )
        state = replace(
            state,
            epoch=found.epoch,
            position=found.position,
            sink=found.sink,
            snapshot=found.snapshot,
            held=None if found.held is None else HeldFacts(why=found.held),
            origin=found.origin,
        )
        # as if the epoch that the sink knows of had just been closed
        return request.apply(state)


@register
class Forked(Created, frozen=True, kw_only=True, tag="forked"):
    """The stream exists and continues where another one was; requests epoch 1.

    Attributes:
        origin: That stream. Its ledger is only read.
        why: The reason that a person gave.
    """

    subject: ClassVar[str] = "create it as a fork of {0.origin.stream}"

    origin: Origin
    why: str | UnsetType = UNSET

    @property
    def known_origin(self) -> Origin:
        """That stream."""
        return self.origin

    @property
    def passes(self) -> tuple[Acknowledgement, ...]:
        """Versions that people had let that stream pass."""
        return self.origin.acknowledged

    def decide(self, state: StreamState) -> Self | None:
        """Allow it if no stream has this name; a fork of the same stream is the same stream."""
        if super().decide(state) is not None:
            return self
        if state.origin is None or state.origin.stream != self.origin.stream:
            raise refusals.refusal(
                state,
                f"the name is taken: the stream is not a fork of stream {self.origin.stream!r}. Use another name",
            )
        return None

    def apply(self, state: StreamState) -> StreamState:
        """Request the first epoch, and remember where it begins and what people let the other stream pass."""
        return replace(super().apply(state), origin=self.origin)


@register
class Named(CatalogName, BaseAction, frozen=True, kw_only=True, tag="named"):
    """The stream has found its table by this name in a catalog.

    Attributes:
        table: URI of the folder to which the table was moved; unset: the one that it had.
        why: The reason that a person gave for going on there.
    """

    subject: ClassVar[str] = "record the name {0.name}"

    table: str | UnsetType = UNSET
    why: str | UnsetType = UNSET

    def decide(self, state: StreamState) -> Self | None:
        """Allow it, unless name and folder are those that were recorded last; a new folder only without a plan."""
        if self.table is UNSET or state.table == self.table:
            return None if state.catalog == self._value() else self
        if state.planned or any(record.planned for record in state.intervals):
            raise refusals.refusal(
                state,
                f"batches are planned that read files in {state.table}. Discard them first with "
                f"`fds replan {state.name} --why …`",
            )
        return self

    def apply(self, state: StreamState) -> StreamState:
        """Record it."""
        return replace(state, catalog=self._value(), table=state.table if self.table is UNSET else self.table)

    def _value(self) -> CatalogName:
        return CatalogName(connection=self.connection, name=self.name, table_id=self.table_id)


@register
class Opened(BaseAction, frozen=True, kw_only=True, tag="opened"):
    """The start of an epoch is resolved, and the previous epochs are closed in the sink.

    Attributes:
        start: The epoch's start offset; for a snapshot the base of its version.
        landed: Highest batch of the previous epoch that is in the sink but was never committed here.
        last_commit_sha256: Digest of the commit file before the start, if it was read.
        meaning_digest: Of the options that determined a start within a version, or ``None`` for any other start.
        continues: Whether the epoch continues where the previous one stopped: a schema change at its start is then
            checked against what was read before, instead of being accepted.
        range_options: The stream's options of start and end if they decided the start, or a start was given instead of
            them; ``None`` for an epoch that was requested with a start of its own, and in older entries.
        columns: After a recovery: which column of the source has fed each column of the sink, ``""`` where no column
            of the source at the start has its name.
    """

    subject: ClassVar[str] = "open epoch {0.epoch}"

    epoch: int
    start: str
    table_id: str
    snapshot: SnapshotRef | None = None
    fence: Fence = Fence()
    landed: int | None = None
    last_commit_sha256: str | None = None
    meaning_digest: str | None = None
    continues: bool = False
    range_options: dict[str, Any] | None = None
    columns: dict[str, str] | UnsetType = UNSET

    def decide(self, state: StreamState) -> Self | None:
        """Allow it for the requested epoch, once the previous epochs are closed in the sink."""
        check_epoch(state, self.epoch, self.describe())
        if state.phase == "open":
            return None
        start = offset_of(state, self.start, "the start")
        if start.table_id != self.table_id:
            raise refusals.refusal(
                state,
                f"the start at {start.describe()} belongs to the table with id {start.table_id}, but the table has "
                f"id {self.table_id}",
            )
        self._check_fence(state)
        return self

    def _check_fence(self, state: StreamState) -> None:
        if state.fence_sink is None or not state.fence_sink.is_fenced:
            return
        fence, expected = self.fence, fence_version(state.epoch)
        is_done = fence.status == "done" and bool(fence.versions) and set(fence.versions.values()) == {expected}
        if not is_done and fence.status != "sink_missing":
            raise refusals.refusal(
                state,
                f"epoch {state.epoch} cannot be opened until a transaction with version {expected} closes the "
                f"earlier epochs in {state.fence_sink.describe()} (found: {fence.status}, {fence.versions}). The "
                "next run of the stream writes it",
            )
        wanted = None if state.request is None else state.request.removal
        if is_done and fence.removal != wanted:
            raise refusals.refusal(
                state,
                f"epoch {state.epoch} cannot be opened: its request asks for the removal of {wanted} from the "
                f"sink, but the fence removed {fence.removal}. Repeat the request with --replace",
            )

    def apply(self, state: StreamState) -> StreamState:
        """Begin the epoch at its start, with the fence as the newest transaction in the sink."""
        landed = self._landed(state)
        if self.range_options is not None:
            state = replace(state, range_options=self.range_options, start_kept=None)
        state = replace(
            state,
            left=self._left(state),
            phase="open",
            request=None,
            fence_sink=None,
            closed=None,
            shown=(),
            epoch_start=self.start,
            continues=self.continues,
            position=self.start,
            last_txn_end=self.start,
            table_id=self.table_id,
            acknowledged=state.decisions_on(self.table_id),
            snapshot=self.snapshot,
            last_commit_sha256=self.last_commit_sha256,
            next_batch_id=0,
            prev_txn_version=None,
            meaning_digest=self.meaning_digest,
            watermark=self._watermark(state) if self.continues else None,
            sink_warnings=self._sink_warnings(state),
            # the function creates a table that is missing now
            tables={app_id.partition("#")[2]: 0 for app_id in self.fence.versions if "#" in app_id and state.sink},
        )
        if self.columns is not UNSET and state.sink_names is not None:
            since = state.sink_names.version if self.columns else None
            state = replace(state, columns=self.columns, columns_since=since)
        state = replace(state, sink_names=None).with_columns(landed, self.fence.sink_version)
        removal = self.fence.removal
        if self.fence.status == "sink_missing" or (removal is not None and removal.what == "all"):
            # no row has values of these columns any longer
            state = replace(state, columns={}, columns_since=None)
        if self.fence.status == "done" and state.sink is not None:
            return replace(
                state,
                prev_txn_version=fence_version(self.epoch),
                sink_version=self.fence.sink_version,
                sink_table_id=self.fence.sink_table_id or state.sink_table_id,
            )
        if self.fence.status == "sink_missing":
            return replace(state, sink_table_id=None, sink_version=None)
        return state

    def _landed(self, state: StreamState) -> list[PlannedBatch]:
        """Return the planned batches that are in the sink but were never committed here."""
        if self.landed is None or state.closed is None:
            return []
        return [batch for batch in state.closed.planned if batch.batch_id <= self.landed]

    def _watermark(self, state: StreamState) -> str | None:
        """Return the watermark with the planned batches that the epoch begins after, because they had landed."""
        found, start = state.watermark, Offset.from_json(self.start)
        for batch in () if state.closed is None else state.closed.planned:
            if batch.event_time is None or not batch.event_time.seen:
                continue
            end = Offset.from_json(batch.end)
            if end.table_id == start.table_id and not start.reads_rows_up_to(end):
                found = max(found or "", batch.event_time.seen)
        return found

    def _sink_warnings(self, state: StreamState) -> tuple[str, ...]:
        """Return the warnings still to be given. After a rewind, the missed rows are read again."""
        is_moved = state.request is not None and state.request.reason in ("rewind", "reset")
        before = () if is_moved else state.sink_warnings
        skips = {word.version for word in state.decisions_on(self.table_id) if word.skip}
        too_late = tuple(
            f"version {version} was skipped after the sink had its rows, with batch {batch.batch_id} of the previous "
            "epoch: they stay there"
            for batch in self._landed(state)
            for version in sorted(skips.difference(one.version for one in batch.skipped))
            if batch.first_version <= version <= batch.last_version
        )
        return tuple(dict.fromkeys((*before, *self.fence.warnings, *too_late)))

    def _left(self, state: StreamState) -> LeftSink | None:
        """Return the fenced sink if the epoch is bound to none and that sink lacks no committed batch."""
        fence, sink = self.fence, state.fence_sink
        if state.sink is not None or sink is None or fence.status != "done" or fence.lacks_committed:
            return None
        return LeftSink(
            sink=sink, version=fence.sink_version, table_id=fence.sink_table_id, txn_version=fence_version(self.epoch)
        )


@register
class Bound(BaseAction, frozen=True, kw_only=True, tag="bound"):
    """From here on, the stream writes to this sink.

    Attributes:
        table_id: Current ``metaData.id`` of the sink, or ``None`` if it has no id or was not looked up.
    """

    subject: ClassVar[str] = "bind a sink"

    epoch: int
    sink: SinkBinding
    table_id: str | None = None

    def decide(self, state: StreamState) -> Self | None:
        """Allow it if the stream is not bound to a sink, or to the same function with fewer writes."""
        if not state.reads_by_interval:
            check_open(state, self.epoch, self.describe())
        if state.sink is None or self.sink.adds_writes_to(state.sink):
            return self
        if state.sink != self.sink:
            raise refusals.other_sink(state, state.sink, self.sink)
        check_table_id(state, self.table_id)
        return None

    def apply(self, state: StreamState) -> StreamState:
        """Bind the sink; the sink that a replan with a new sink has left contains the fence of this epoch."""
        left = state.left
        if state.sink is None:
            state = replace(state, columns={}, columns_since=None)
        state = replace(state, sink=self.sink, sink_table_id=self.table_id, left=None)
        if left is None or (left.sink.target, left.sink.app_ids) != (self.sink.target, self.sink.app_ids):
            return state
        return replace(
            state,
            prev_txn_version=left.txn_version,
            sink_version=left.version,
            sink_table_id=self.table_id or left.table_id,
        )


@register
class Ended(EndedFacts, BaseAction, frozen=True, kw_only=True, tag="ended"):
    """The end of the stream, which its options give as a time, is now fixed: ``version`` (inclusive)."""

    subject: ClassVar[str] = "record the end of the stream"

    def decide(self, state: StreamState) -> Self | None:
        """Allow it once per instant."""
        check_open(state, self.epoch, self.describe())
        return None if state.ended is not None and state.ended.instant == self.instant else self

    def apply(self, state: StreamState) -> StreamState:
        """Remember it."""
        return replace(state, ended=EndedFacts.of(self))


@register
class StartKept(BaseAction, frozen=True, kw_only=True, tag="start_kept"):
    """A run had other start options than the stream began with; they have no effect, and its position is kept.

    Attributes:
        options: The start options of that run; empty when a later run has those that the stream began with.
    """

    subject: ClassVar[str] = "record start options that have no effect"

    epoch: int
    options: dict[str, Any]

    def decide(self, state: StreamState) -> Self | None:
        """Allow it when the options differ from those last recorded."""
        check_open(state, self.epoch, self.describe())
        return None if self.options == (state.start_kept or {}) else self

    def apply(self, state: StreamState) -> StreamState:
        """Remember the options, for the status of the stream."""
        return replace(state, start_kept=self.options or None)
