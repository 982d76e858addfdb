"""Entries that close an epoch by requesting the next one, and that show what kept it from being opened."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Self

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from airflow_provider_fds.ledger.entries import refusals
from airflow_provider_fds.ledger.entries.action import BaseAction, register
from airflow_provider_fds.ledger.entries.conditions import check_epoch
from airflow_provider_fds.ledger.facts import RequestedFacts

# the annotations of a struct are read when it is defined
from airflow_provider_fds.ledger.values import SeenBatch, SinkNames  # noqa: TC001

if TYPE_CHECKING:
    from airflow_provider_fds.ledger.state import StreamState


@register
class Requested(RequestedFacts, BaseAction, frozen=True, kw_only=True, tag="requested"):
    """The epoch before ``epoch`` is closed at this entry; ``epoch`` must be opened.

    An automatic request adopts an open one; a person's request is refused while one is open, unless it replaces that.

    Attributes:
        deployment: The installation that owns the stream from here on, if the same decision transfers it.
        names: The sink's columns, for a recovery: the ledger may lack batches that say what fed them.
    """

    subject: ClassVar[str] = "request a {0.asked}"

    deployment: str | UnsetType = UNSET
    names: SinkNames | UnsetType = UNSET

    @property
    def needs_format(self) -> int:
        """A reader of format 1 would leave the stream to its earlier installation."""
        return 1 if self.deployment is UNSET else 2

    @property
    def new_deployment(self) -> str | None:
        """The installation that owns the stream from here on."""
        return None if self.deployment is UNSET else self.deployment

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
                or_else = ", and `--replace` replaces it with this one" if state.closed is not None else ""
                raise refusals.not_opened(state, f"request another {self.asked}", or_else=or_else)
        self._check_seen(state)
        self._check_removal(state)
        return replace(
            self,
            epoch=max(state.epoch + 1, self.epoch),
            position=state.position if state.closed is None else state.closed.position,
            closes=state.epoch,
        )

    def _check_seen(self, state: StreamState) -> None:
        """Refuse a request that refers to batches that no run has shown.

        The first request itself tells the person of a function's writes, since FDS can read its tables.
        """
        known = state.shown if state.request is None else (*state.shown, *state.request.seen)
        unknown = [batch for batch in self.seen if batch not in known and not (batch.write and state.request is None)]
        if unknown:
            raise refusals.moved(
                state, f"the {self.asked} refers to batches in the sink that no run has reported: {unknown}"
            )

    def _check_removal(self, state: StreamState) -> None:
        """Refuse to remove rows if FDS does not write the table itself, or for a reason other than a rewind."""
        if self.removal is None:
            return
        if self.reason not in ("rewind", "reset"):
            raise refusals.refusal(state, f"a {self.asked} cannot remove rows from the sink")
        if state.sink is None or not state.sink.can_remove_rows:
            bound = "is not bound to a sink" if state.sink is None else f"is bound to {state.sink.describe()}"
            raise refusals.refusal(state, f"FDS removes no rows from the sink of this stream, which {bound}")

    def apply(self, state: StreamState) -> StreamState:
        """Close the epoch; its planned batches are given up."""
        is_rebind = self.reason == "rebind"
        if self.names is not UNSET:
            state = replace(state, sink_names=self.names)
        return replace(
            state,
            phase="requested",
            deployment=self.new_deployment or state.deployment,
            epoch=self.epoch,
            request=RequestedFacts.of(self),
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


@register
class Shown(BaseAction, frozen=True, kw_only=True, tag="shown"):
    """A run did not open the requested ``epoch``, because it would read these batches again; its error names them."""

    subject: ClassVar[str] = "record what is in the sink"

    epoch: int
    batches: tuple[SeenBatch, ...]

    def decide(self, state: StreamState) -> Self | None:
        """Allow it while the epoch waits to be opened, for batches that were not shown before."""
        check_epoch(state, self.epoch, self.describe())
        if state.phase != "requested":
            raise refusals.moved(state, f"epoch {state.epoch} is already open")
        new = self._new(state)
        return replace(self, batches=new) if new else None

    def apply(self, state: StreamState) -> StreamState:
        """Remember the batches."""
        return replace(state, shown=(*state.shown, *self._new(state)))

    def _new(self, state: StreamState) -> tuple[SeenBatch, ...]:
        return tuple(batch for batch in self.batches if batch not in state.shown)
