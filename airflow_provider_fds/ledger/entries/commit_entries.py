"""Entries about the outcome of planned batches: committed, blocked by a failed verification, or accepted."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Self

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from airflow_provider_fds.batch.transactions import txn_version
from airflow_provider_fds.ledger.entries import refusals
from airflow_provider_fds.ledger.entries.action import BatchAction, register
from airflow_provider_fds.ledger.entries.conditions import (
    check_interval_stream,
    check_next,
    check_not_blocked,
    check_open,
    check_owner,
    check_sink_of_commit,
    scope_of,
)
from airflow_provider_fds.ledger.facts import BlockedFacts, CommittedFacts
from airflow_provider_fds.ledger.intervals import digest_of_parts
from airflow_provider_fds.ledger.position import watermark_at

if TYPE_CHECKING:
    from airflow_provider_fds.ledger.state import StreamState


@register
class Committed(CommittedFacts, BatchAction, frozen=True, kw_only=True, tag="committed"):
    """A batch is in the sink and verified; the position moved to ``end``.

    For a data interval, all planned batches up to ``batch_id`` are in the sink, in one transaction; no position moves.
    """

    subject: ClassVar[str] = "commit batch {0.batch_id}"

    def decide(self, state: StreamState) -> Self | None:
        """Allow the owner to commit the next transaction; nothing to do if it is already committed."""
        if self._is_committed(state):
            return None
        what, scope = self.describe(), scope_of(state, self)
        parts = check_next(state, scope, self.batch_id, what)
        check_owner(state, scope, self.owner, what)
        check_not_blocked(state, scope, what)
        if self.digest != digest_of_parts(parts):
            raise refusals.refusal(
                state,
                f"cannot {what}: its manifest has digest {digest_of_parts(parts)}, but the report names "
                f"{self.digest!r}. The job loaded something else; `fds status --full {state.name}` prints the plan",
            )
        if state.sink is None:
            raise refusals.refusal(
                state,
                f"cannot {what}: the stream is not bound to a sink. A run with a sink binds it",
            )
        if state.sink.is_user_job != (self.outcome == "user_job"):
            raise refusals.refusal(
                state,
                f"cannot {what}: the stream is bound to {state.sink.describe()}, but the commit is of kind "
                f"{self.outcome!r}. Load a stream in one way only, or `fds replan {state.name} --new-sink --why …`",
            )
        if not state.sink.is_user_defined:
            # intervals are committed in any order
            after = state.sink_version if self.interval is None else None
            check_sink_of_commit(state, self.batch_id, self.sink_version, self.sink_table_id, after=after)
        return replace(
            self,
            end=parts[-1].end,
            last_commit_sha256=parts[-1].last_commit_sha256,
            was_accepted=scope.accepted is not None or parts[-1].may_reject is not UNSET,
        )

    def _is_committed(self, state: StreamState) -> bool:
        if self.interval is None:
            last = state.last_committed
            return last is not None and last.epoch == self.epoch and self.batch_id <= last.batch_id
        record = state.interval(self.interval)
        if record is None or record.generation != self.epoch or not record.is_planned:
            return False
        return not record.planned or self.batch_id < record.planned[0].batch_id

    def apply(self, state: StreamState) -> StreamState:
        """Remove the batches from the planned ones; for a stream with an offset, move the position to their end."""
        if self.interval is not None:
            return self._apply_to_interval(state, self.interval)
        batch, *rest = state.planned
        is_user_defined = state.sink is not None and state.sink.is_user_defined
        watermark = state.watermark
        if batch.event_time is not None and batch.event_time.seen:
            watermark = max(watermark or "", batch.event_time.seen)
        keeps_version = is_user_defined and self.sink_version is None
        state = state.with_columns((batch,), self.sink_version)
        return replace(
            state,
            planned=tuple(rest),
            position=batch.end,
            last_txn_end=batch.end,
            last_committed=CommittedFacts.of(self),
            last_commit_sha256=self.last_commit_sha256,
            prev_txn_version=txn_version(self.epoch, self.batch_id),
            sink_version=state.sink_version if keeps_version else self.sink_version,
            sink_table_id=state.sink_table_id if self.sink_table_id is None else self.sink_table_id,
            sink_warnings=(),
            tables={**state.tables, **self.tables},
            accepted=None,
            quarantined=None if _stops_at(state, self.batch_id) else state.quarantined,
            watermark=watermark,
            runs=(*state.runs[:-1], state.runs[-1].plus(batch, self, watermark_at(batch.end, watermark))),
        )

    def _apply_to_interval(self, state: StreamState, interval: str) -> StreamState:
        record = state.interval(interval)
        if record is None:
            return state
        # intervals are committed in any order
        versions = [version for version in (state.sink_version, self.sink_version) if version is not None]
        parts = [batch for batch in record.planned if batch.batch_id <= self.batch_id]
        state = state.with_columns(parts, self.sink_version)
        state = replace(
            state,
            sink_version=max(versions, default=None),
            sink_table_id=self.sink_table_id or state.sink_table_id,
        )
        return state.with_interval(record.plus(self))


@register
class Blocked(BlockedFacts, BatchAction, frozen=True, kw_only=True, tag="blocked"):
    """The rows in the sink differ from the plan; nothing continues until a person accepts or discards the batch.

    With an ``interval``, only that interval stops.
    """

    subject: ClassVar[str] = "block batch {0.batch_id}"

    def decide(self, state: StreamState) -> Self | None:
        """Allow the owner to block the next transaction, unless a person has accepted exactly this failure."""
        what, scope = self.describe(), scope_of(state, self)
        if scope.blocked is not None:
            return None
        check_next(state, scope, self.batch_id, what)
        check_owner(state, scope, self.owner, what)
        return None if self._is_accepted_as(scope.accepted) else self

    def _is_accepted_as(self, accepted: BlockedFacts | None) -> bool:
        return accepted is not None and (accepted.sink_version, accepted.rows_written, accepted.reason) == (
            self.sink_version,
            self.rows_written,
            self.reason,
        )

    def apply(self, state: StreamState) -> StreamState:
        """Stop the stream, or the interval."""
        return self.change(state, blocked=BlockedFacts.of(self))


@register
class Accepted(BatchAction, frozen=True, kw_only=True, tag="accepted"):
    """A person accepts the blocked batch as it is in the sink, or the number of rows that a batch leaves out.

    Attributes:
        epoch: Derived for a data interval, as is ``batch_id``.
        digest: Of a batch that is not loaded yet: the digest of its manifest.
        rejected: Of such a batch: how many rows expectations may keep out of the sink.
    """

    subject: ClassVar[str] = "accept batch {0.batch_id}"

    epoch: int = 0
    batch_id: int = 0
    why: str
    digest: str | UnsetType = UNSET
    rejected: int | UnsetType = UNSET

    @property
    def needs_format(self) -> int:
        """A reader of format 1 would take it for a word on a blocked batch."""
        return 1 if self.digest is UNSET else 2

    def decide(self, state: StreamState) -> Self | None:
        """Allow it for a blocked batch, or for exactly the batch and the count that the stream stops at."""
        if self.digest is not UNSET:
            return self._decide_of_rejected(state)
        if self.interval is not None:
            return self._decide_of_interval(state, self.interval)
        what = self.describe()
        check_open(state, self.epoch, what)
        if state.blocked is None and state.accepted is not None and state.accepted.batch_id == self.batch_id:
            return None
        if state.blocked is None or state.blocked.batch_id != self.batch_id:
            found = "no batch is" if state.blocked is None else f"batch {state.blocked.batch_id} is"
            raise refusals.refusal(
                state, f"cannot {what}: {found} blocked in epoch {state.epoch}. See `fds status {state.name}`"
            )
        return self

    def _decide_of_rejected(self, state: StreamState) -> Self | None:
        what = self.describe()
        check_open(state, self.epoch, what)
        (batch,) = check_next(state, state, self.batch_id, what)
        if (batch.digest, batch.may_reject) == (self.digest, self.rejected) and state.quarantined is None:
            return None
        stop = None if state.quarantined is None else state.quarantined.batch
        known = (stop.digest, stop.rejected) if stop and stop.is_of(self.epoch, batch) else None
        if known != (self.digest, self.rejected):
            raise refusals.moved(state, f"cannot {what}: the stream does not stop at it with these rows any more")
        return self

    def _decide_of_interval(self, state: StreamState, interval: str) -> Self | None:
        check_interval_stream(state)
        record = state.interval(interval)
        if record is not None and record.blocked is None and record.accepted is not None:
            return None
        if record is None or record.blocked is None:
            blocked = [record.interval for record in state.intervals if record.blocked is not None]
            raise refusals.refusal(
                state,
                f"interval {interval!r} is not blocked. Blocked intervals: {', '.join(blocked) or 'none'}. See "
                f"`fds history {state.name}`",
            )
        return replace(self, epoch=record.generation, batch_id=record.blocked.batch_id)

    def apply(self, state: StreamState) -> StreamState:
        """Let the stream, or the interval, continue; an identical failure does not block again."""
        if self.digest is not UNSET:
            first = state.planned[:1]
            if not first or (first[0].batch_id, first[0].digest) != (self.batch_id, self.digest):
                return state
            accepted = replace(first[0], may_reject=self.rejected)
            planned = (accepted, *state.planned[1:])
            return replace(state, planned=planned, quarantined=None, let_through_at=state.quarantined_at)
        scope = state if self.interval is None else state.interval(self.interval)
        return self.change(state, blocked=None, accepted=None if scope is None else scope.blocked)


def _stops_at(state: StreamState, batch_id: int) -> bool:
    """Whether the stream is in quarantine for this batch."""
    stop = None if state.quarantined is None else state.quarantined.batch
    return stop.batch_id == batch_id if stop else False
