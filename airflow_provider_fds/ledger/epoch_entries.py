"""Entries that create a stream, close and open its epochs, and bind it to a sink."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import msgspec
from msgspec.structs import replace

from airflow_provider_fds.batch.spec import fence_version
from airflow_provider_fds.ledger import refusals
from airflow_provider_fds.ledger.action import BaseAction
from airflow_provider_fds.ledger.conditions import check_deployment, check_epoch, check_open, check_table_id, offset_of
from airflow_provider_fds.ledger.operator_entries import Held

# the annotations of a struct are read when it is defined
from airflow_provider_fds.ledger.values import (
    Fence,
    LeftSink,
    Recovered,
    Removal,
    SeenBatch,
    SinkBinding,
    SnapshotRef,
)

if TYPE_CHECKING:
    from airflow_provider_fds.ledger.state import StreamState


class Created(BaseAction, frozen=True, kw_only=True, tag="created"):
    """The stream exists; requests epoch 1, or the one after the epochs that a sink knows of.

    The sender has made sure that no commit of the sink names a stream of this name; if one does, the ledger was lost.

    Attributes:
        uuid: Random id of the new stream; an earlier one wins.
        recovered: For a stream whose ledger was lost or cannot be read: what it continues from; ``uuid`` is then the
            earlier one.
    """

    subject: ClassVar[str] = "creating it again"

    uuid: str
    name: str
    table: str
    deployment: str
    recovered: Recovered | None = None

    def decide(self, state: StreamState) -> Self | None:
        """Allow it if no stream has this name; one that reads the same table is the same stream."""
        if state.phase == "empty":
            return self
        check_deployment(state, self.deployment)
        if state.table != self.table:
            raise refusals.refusal(
                state,
                f"the name is taken: the stream reads {state.table}, not {self.table}. One stream reads one table; use "
                "another name, or write the table's URI as it was",
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
        )
        found = self.recovered
        if found is None:
            return state
        to = {"offset": found.position}
        if found.meaning_digest is not None:
            to["meaning_digest"] = found.meaning_digest
        request = Requested(
            epoch=max(found.epoch, found.after) + 1,
            reason="recover",
            why="entries of the ledger could not be read" if found.given_up else "the ledger was lost",
            position=found.position,
            to=to,
        )
        state = replace(
            state,
            epoch=found.epoch,
            position=found.position,
            sink=found.sink,
            snapshot=found.snapshot,
            held=None if found.held is None else Held(why=found.held),
            acknowledged=found.acknowledged,
        )
        # as if the epoch that the sink knows of had just been closed
        return request.apply(state)


class Opened(BaseAction, frozen=True, kw_only=True, tag="opened"):
    """The start of an epoch is resolved, and the previous epochs are closed in the sink.

    Attributes:
        start: The epoch's start offset; for a snapshot the base of its version.
        landed: Highest batch of the previous epoch that is in the sink but was never committed here.
        last_commit_sha256: Digest of the commit file before the start, if it was read.
        meaning_digest: Of the options that determined a start within a version, ``None`` for any other start.
        continues: Whether the epoch continues where the previous one stopped: a schema change at its start is then
            checked against what was read before, instead of being accepted.
    """

    subject: ClassVar[str] = "opening epoch {0.epoch}"

    epoch: int
    start: str
    table_id: str
    snapshot: SnapshotRef | None = None
    fence: Fence = Fence()
    landed: int | None = None
    last_commit_sha256: str | None = None
    meaning_digest: str | None = None
    continues: bool = False

    def decide(self, state: StreamState) -> Self | None:
        """Allow it for the requested epoch, once the previous epochs are closed in the sink."""
        check_epoch(state, self.epoch, self.describe())
        if state.phase == "open":
            return None
        start = offset_of(state, self.start, "the start")
        if start.table_id != self.table_id:
            raise refusals.refusal(
                state, f"the start {self.start} belongs to table id {start.table_id}, the table has {self.table_id}"
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
                f"epoch {state.epoch} cannot be opened before the epochs before it are closed in "
                f"{state.fence_sink.describe()} by a transaction with version {expected} (found: {fence.status}, "
                f"{fence.versions}). The next run of the stream writes it",
            )
        wanted = None if state.request is None else state.request.removal
        if is_done and fence.removal != wanted:
            raise refusals.refusal(
                state,
                f"epoch {state.epoch} cannot be opened: its request asks for {wanted} to be removed from the sink, and "
                f"the fence removed {fence.removal}. Make the request again with --replace",
            )

    def apply(self, state: StreamState) -> StreamState:
        """Begin the epoch at its start, with the fence as the newest transaction in the sink."""
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
            snapshot=self.snapshot,
            last_commit_sha256=self.last_commit_sha256,
            next_batch_id=0,
            prev_txn_version=None,
            meaning_digest=self.meaning_digest,
            sink_warnings=self._sink_warnings(state),
            # the function creates a table that is missing now
            tables={app_id.partition("#")[2]: 0 for app_id in self.fence.versions if "#" in app_id and state.sink},
        )
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

    def _sink_warnings(self, state: StreamState) -> tuple[str, ...]:
        """Return the warnings still to be given. After a rewind or reset, the missed rows are read again."""
        is_moved = state.request is not None and state.request.reason in ("rewind", "reset")
        before = () if is_moved else state.sink_warnings
        return tuple(dict.fromkeys((*before, *self.fence.warnings)))

    def _left(self, state: StreamState) -> LeftSink | None:
        """Return the fenced sink if the epoch is bound to none and that sink lacks no committed batch."""
        fence, sink = self.fence, state.fence_sink
        if state.sink is not None or sink is None or fence.status != "done" or fence.lacks_committed:
            return None
        return LeftSink(
            sink=sink, version=fence.sink_version, table_id=fence.sink_table_id, txn_version=fence_version(self.epoch)
        )


class Bound(BaseAction, frozen=True, kw_only=True, tag="bound"):
    """From here on, the stream writes to this sink.

    Attributes:
        table_id: Current ``metaData.id`` of the sink, ``None`` if there is none or it was not looked up.
    """

    subject: ClassVar[str] = "binding a sink"

    epoch: int
    sink: SinkBinding
    table_id: str | None = None

    def decide(self, state: StreamState) -> Self | None:
        """Allow it if the stream is bound to no sink, or to the same function with fewer writes."""
        if not state.reads_by_interval:
            check_open(state, self.epoch, self.describe())
        if state.sink is None or self.sink.adds_writes_to(state.sink):
            return self
        if state.sink != self.sink:
            raise refusals.other_sink(state, state.sink, self.sink)
        check_table_id(state, self.table_id)
        return None

    def apply(self, state: StreamState) -> StreamState:
        """Bind the sink; the sink that a rebind has left contains the fence of this epoch."""
        left = state.left
        state = replace(state, sink=self.sink, sink_table_id=self.table_id, left=None)
        if left is None or (left.sink.target, left.sink.app_ids) != (self.sink.target, self.sink.app_ids):
            return state
        return replace(
            state,
            prev_txn_version=left.txn_version,
            sink_version=left.version,
            sink_table_id=self.table_id or left.table_id,
        )


class Ended(BaseAction, frozen=True, kw_only=True, tag="ended"):
    """The end of the stream, which its options give as a time, is now fixed: ``version`` (inclusive).

    Attributes:
        instant: That time, ISO 8601, UTC, milliseconds.
    """

    subject: ClassVar[str] = "recording the end of the stream"

    epoch: int
    instant: str
    version: int

    def decide(self, state: StreamState) -> Self | None:
        """Allow it once per instant."""
        check_open(state, self.epoch, self.describe())
        return None if state.ended is not None and state.ended.instant == self.instant else self

    def apply(self, state: StreamState) -> StreamState:
        """Remember it."""
        return replace(state, ended=self)


class Requested(BaseAction, frozen=True, kw_only=True, tag="requested"):
    """The epoch before ``epoch`` is closed at this entry; ``epoch`` must be opened.

    An automatic request adopts an open one; a person's request is refused while one is open, unless it replaces that.

    Attributes:
        epoch: The new epoch. Derived: the one after the stream's, or the proposed one if that is later.
        position: Position of the closed epoch, ``None`` if it was never opened; derived.
        to: Where the new epoch starts: ``{"starting_version": …}`` or ``{"starting_timestamp": …}`` as in the source
            options, ``{"offset": …}`` (exclusive), ``{"start": "options"}`` for the stream's own start options;
            ``None``: at ``position``, or after the batches that are in the sink but were not committed here.
        is_automatic: Whether an operator asked, not a person.
        table_versions: For each named table of a function, its newest version when it was first asked for since an
            epoch was opened, -1 if it was missing; the versions of earlier requests are kept when it is written.
        seen: Uncommitted batches in the sink that the person was shown before: their rows may be read again.
        removal: What the fence removes from the sink, ``None``: nothing.
        closes: The stream's epoch as the sender saw it. If a person gave none, the stream's epoch.
        replaces: Whether this request replaces one that is not opened yet.
    """

    subject: ClassVar[str] = "the {0.reason}"

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

    def decide(self, state: StreamState) -> Self | None:
        """Allow it, unless a request is already open."""
        if state.reads_by_interval:
            raise refusals.by_interval(state, self.describe())
        if self.closes is not None and self.closes != state.epoch:
            if self.is_automatic and self.closes < state.epoch:
                return None
            check_epoch(state, self.closes, self.describe())
        if state.phase == "requested":
            if self.is_automatic and state.request is not None:
                return None
            if not self.replaces or state.closed is None:
                or_else = ", `--replace` makes this one in its place" if state.closed is not None else ""
                raise refusals.not_opened(state, f"another {self.reason}", or_else=or_else)
        self._check_seen(state)
        self._check_removal(state)
        return replace(
            self,
            epoch=max(state.epoch + 1, self.epoch),
            position=state.position if state.closed is None else state.closed.position,
            closes=state.epoch,
            table_versions=self._versions_of_first(state),
        )

    def _versions_of_first(self, state: StreamState) -> dict[str, int]:
        """Return the table versions of the first request since an epoch was opened."""
        found = dict(self.table_versions)
        for name, version in ({} if state.request is None else state.request.table_versions).items():
            found[name] = min(version, found.get(name, version))
        return found

    def _check_seen(self, state: StreamState) -> None:
        """Refuse a request that refers to batches that no run has shown."""
        unknown = [batch for batch in self.seen if batch not in state.shown]
        if unknown:
            raise refusals.moved(
                state, f"the {self.reason} refers to batches in the sink that no run has shown: {unknown}"
            )

    def _check_removal(self, state: StreamState) -> None:
        """Refuse to remove rows if FDS does not write the table itself, or for a reason other than rewind or reset."""
        if self.removal is None:
            return
        if self.reason not in ("rewind", "reset"):
            raise refusals.refusal(state, f"a {self.reason} cannot remove rows from the sink")
        if state.sink is None or state.sink.is_user_defined:
            bound = "is bound to no sink" if state.sink is None else f"is bound to {state.sink.describe()}"
            raise refusals.refusal(
                state, f"rows can only be removed from a table that FDS itself writes, and the stream {bound}"
            )

    def apply(self, state: StreamState) -> StreamState:
        """Close the epoch; its planned batches are given up."""
        is_rebind = self.reason == "rebind"
        return replace(
            state,
            phase="requested",
            epoch=self.epoch,
            request=self,
            # an epoch that was requested but never opened leaves the previous epoch's sink to be fenced
            fence_sink=state.sink or state.fence_sink or (None if state.left is None else state.left.sink),
            # an epoch that was requested but never opened keeps what it was to follow
            closed=state.closed or state.as_closed(),
            left=None,
            sink=None if is_rebind else state.sink,
            sink_table_id=None if is_rebind else state.sink_table_id,
            sink_version=None if is_rebind else state.sink_version,
            epoch_start=None,
            position=None,
            ended=None,
            last_txn_end=None,
            snapshot=None,
            next_batch_id=0,
            planned=(),
            prev_txn_version=None,
            last_commit_sha256=None,
            blocked=None,
            accepted=None,
            quarantined=None,
        )


class Shown(BaseAction, frozen=True, kw_only=True, tag="shown"):
    """A run did not open the requested ``epoch``, because it would read these batches again; its error names them."""

    subject: ClassVar[str] = "showing what is in the sink"

    epoch: int
    batches: tuple[SeenBatch, ...]

    def decide(self, state: StreamState) -> Self | None:
        """Allow it while the epoch waits to be opened, for batches that were not shown before."""
        check_epoch(state, self.epoch, self.describe())
        if state.phase != "requested":
            raise refusals.moved(state, f"epoch {state.epoch} is open already")
        new = self._new(state)
        return replace(self, batches=new) if new else None

    def apply(self, state: StreamState) -> StreamState:
        """Remember the batches."""
        return replace(state, shown=(*state.shown, *self._new(state)))

    def _new(self, state: StreamState) -> tuple[SeenBatch, ...]:
        return tuple(batch for batch in self.batches if batch not in state.shown)


__all__ = ["Bound", "Created", "Ended", "Opened", "Requested", "Shown"]
