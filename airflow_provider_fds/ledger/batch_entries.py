"""Entries on batches: planned, claimed, committed, blocked and accepted, and ranges without data."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal, Self

from msgspec.structs import replace

from airflow_provider_fds.batch.spec import txn_version
from airflow_provider_fds.ledger import refusals
from airflow_provider_fds.ledger.action import BaseAction
from airflow_provider_fds.ledger.conditions import (
    check_batches,
    check_first,
    check_interval_stream,
    check_meaning,
    check_not_stopped,
    check_nothing_planned,
    check_open,
    check_owner,
    check_sink_of_commit,
    check_stretch,
    check_target,
    interval_of,
)

# the annotations of a struct are read when it is defined
from airflow_provider_fds.ledger.measures import Measures  # noqa: TC001
from airflow_provider_fds.ledger.owner import Owner  # noqa: TC001
from airflow_provider_fds.ledger.values import PlannedBatch, Skipped  # noqa: TC001

if TYPE_CHECKING:
    from airflow_provider_fds.ledger.state import StreamState


class Planned(BaseAction, frozen=True, kw_only=True, tag="planned"):
    """Batches frozen by a run; their manifests are written.

    Attributes:
        target: Newest version the run saw when it planned first.
        options_digest: Digest of all source options.
        meaning_digest: Digest of the options that change what an index within a version counts.
    """

    subject: ClassVar[str] = "planning"

    epoch: int
    owner: Owner
    target: int
    batches: tuple[PlannedBatch, ...]
    options_digest: str
    meaning_digest: str

    def decide(self, state: StreamState) -> Self | None:
        """Allow batches that follow the position without a gap, if nothing else is planned."""
        what = self.describe()
        check_open(state, self.epoch, what)
        check_not_stopped(state, what)
        check_nothing_planned(state, self.owner, what)
        check_target(state, self.owner, self.target)
        check_batches(state, self.batches)
        check_meaning(state, self.meaning_digest)
        return self

    def apply(self, state: StreamState) -> StreamState:
        """Make the batches the planned ones; the first plan of a run fixes its target."""
        run = state.run
        if run is None or run.owner != self.owner or run.epoch != self.epoch:
            state = state.with_run(self.owner, self.epoch, self.target)
        elif run.target is None:
            state = replace(state, runs=(*state.runs[:-1], replace(run, target=self.target)))
        return replace(
            state,
            planned=self.batches,
            next_batch_id=self.batches[-1].batch_id + 1,
            options_digest=self.options_digest,
            meaning_digest=self.meaning_digest,
        )


class Claimed(BaseAction, frozen=True, kw_only=True, tag="claimed"):
    """The planned batches have a new owner, since the one before no longer runs.

    Attributes:
        previous: The owner that was found not to run. If another has claimed since, the claim is refused.
        why: How that was found out.
    """

    subject: ClassVar[str] = "taking over the planned batches"

    epoch: int
    owner: Owner
    previous: Owner
    why: str

    def decide(self, state: StreamState) -> Self | None:
        """Allow it if the batches still belong to the owner that was found not to run."""
        what = self.describe()
        check_open(state, self.epoch, what)
        if state.owner is None:
            raise refusals.moved(state, "there is no planned batch to take over any more")
        if state.owner == self.owner:
            return None
        check_owner(state, self.previous, what)
        if state.held is not None:
            raise refusals.held(state, what)
        if state.blocked is not None:
            raise refusals.blocked(state, what, state.blocked)
        return self

    def apply(self, state: StreamState) -> StreamState:
        """Begin a run of the new owner, which has no target of its own."""
        return state.with_run(self.owner, self.epoch)


class Committed(BaseAction, frozen=True, kw_only=True, tag="committed"):
    """A batch is in the sink, verified; the position moved to ``end``.

    Attributes:
        outcome: ``written``, ``verified`` (looked up in the sink's history) or ``own_job``.
        digest: Digest of the batch's manifest.
        end: End of the batch; derived.
        rows: Rows written, ``None`` where an own job did not say.
        last_commit_sha256: Digest of the last consumed commit file of the source; derived.
        was_accepted: Whether a person accepted a verification that failed; derived.
        measures: What the driver measured, ``None`` where it said nothing.
    """

    subject: ClassVar[str] = "committing batch {0.batch_id}"

    epoch: int
    batch_id: int
    owner: Owner
    try_id: str
    outcome: Literal["written", "verified", "own_job"]
    digest: str
    end: str = ""
    sink_version: int | None = None
    sink_table_id: str | None = None
    rows: int | None = None
    last_commit_sha256: str = ""
    was_accepted: bool = False
    measures: Measures | None = None

    def decide(self, state: StreamState) -> Self | None:
        """Allow it for the batch that is next in order, by its owner; nothing to do if it is committed already."""
        what, last = self.describe(), state.last_committed
        if last is not None and last.epoch == self.epoch and self.batch_id <= last.batch_id:
            return None
        check_open(state, self.epoch, what)
        batch = check_first(state, self.batch_id, what)
        check_owner(state, self.owner, what)
        if state.blocked is not None:
            raise refusals.blocked(state, what, state.blocked)
        if batch.digest != self.digest:
            raise refusals.refusal(
                state,
                f"{what} is not possible: its manifest has digest {batch.digest}, the report names {self.digest!r}. "
                f"The job loaded something else; `fds show {state.name}` prints the plan",
            )
        if state.sink is None:
            raise refusals.refusal(
                state,
                f"{what} is not possible, the stream is bound to no sink. Bind it first: a run with a sink does so",
            )
        if state.sink.is_own_job != (self.outcome == "own_job"):
            raise refusals.refusal(
                state,
                f"{what} is not possible: the stream is bound to {state.sink.words()}, the commit is of kind "
                f"{self.outcome!r}. Use one way to load a stream, or `fds rebind {state.name} --why …`",
            )
        if not state.sink.is_users_own:
            check_sink_of_commit(state, self.batch_id, self.sink_version, self.sink_table_id)
        return replace(
            self,
            end=batch.end,
            last_commit_sha256=batch.last_commit_sha256,
            was_accepted=state.accepted is not None,
        )

    def apply(self, state: StreamState) -> StreamState:
        """Move the position to the end of the batch."""
        batch, *rest = state.planned
        is_users_own = state.sink is not None and state.sink.is_users_own
        keeps_version = is_users_own and self.sink_version is None
        return replace(
            state,
            planned=tuple(rest),
            position=batch.end,
            last_txn_end=batch.end,
            last_committed=self,
            last_commit_sha256=self.last_commit_sha256,
            prev_txn_version=txn_version(self.epoch, self.batch_id),
            sink_version=state.sink_version if keeps_version else self.sink_version,
            sink_table_id=state.sink_table_id if self.sink_table_id is None else self.sink_table_id,
            accepted=None,
            runs=(*state.runs[:-1], state.runs[-1].plus(batch, self)),
        )


class Advanced(BaseAction, frozen=True, kw_only=True, tag="advanced"):
    """The position advanced over commits without data: plan and commit in one, nothing in the sink."""

    subject: ClassVar[str] = "moving the position over commits without data"

    epoch: int
    owner: Owner
    start: str
    end: str
    first_version: int
    last_version: int
    skipped: tuple[Skipped, ...]
    log_digest: str
    last_commit_sha256: str

    def decide(self, state: StreamState) -> Self | None:
        """Allow it if nothing is planned."""
        what = self.describe()
        check_open(state, self.epoch, what)
        if state.position == self.end:
            return None
        check_not_stopped(state, what)
        check_nothing_planned(state, self.owner, what)
        check_stretch(state, self.start, self.end, what)
        return self

    def apply(self, state: StreamState) -> StreamState:
        """Move the position."""
        if state.run_of(self.owner) is None:
            state = state.with_run(self.owner, self.epoch)
        return replace(state, position=self.end, last_commit_sha256=self.last_commit_sha256)


class Blocked(BaseAction, frozen=True, kw_only=True, tag="blocked"):
    """What is in the sink is not what was planned; nothing goes on until a person accepts it or gives it up.

    With an ``interval`` only that one stands still; ``epoch`` is its generation then.

    Attributes:
        owner: Who found it; ``None`` in older entries.
    """

    subject: ClassVar[str] = "blocking batch {0.batch_id}"

    epoch: int
    batch_id: int
    try_id: str
    reason: str
    rows_planned: int | None = None
    rows_written: int | None = None
    sink_version: int | None = None
    sink_table_id: str | None = None
    interval: str | None = None
    owner: Owner | None = None

    def describe(self) -> str:
        """See the base class."""
        return super().describe() if self.interval is None else f"blocking interval {self.interval}"

    def decide(self, state: StreamState) -> Self | None:
        """Allow it for the batch that is next in order, by its owner, unless a person has accepted the very same."""
        what = self.describe()
        if self.interval is None:
            check_open(state, self.epoch, what)
            if state.blocked is not None:
                return None
            check_first(state, self.batch_id, what)
            check_owner(state, self.owner, what)
            return None if self.is_as(state.accepted) else self
        check_interval_stream(state)
        record = interval_of(state, self.interval, self.epoch, what)
        if record.blocked is not None:
            return None
        if record.owner != self.owner:
            raise refusals.interval_busy(state, what, record)
        return None if self.is_as(record.accepted) else self

    def is_as(self, accepted: Blocked | None) -> bool:
        """Whether a person has accepted just this."""
        return accepted is not None and (accepted.sink_version, accepted.rows_written, accepted.reason) == (
            self.sink_version,
            self.rows_written,
            self.reason,
        )

    def apply(self, state: StreamState) -> StreamState:
        """Stop the stream, or the interval."""
        if self.interval is None:
            return replace(state, blocked=self)
        record = state.interval(self.interval)
        return state if record is None else state.with_interval(replace(record, blocked=self))


class Accepted(BaseAction, frozen=True, kw_only=True, tag="accepted"):
    """A person takes the blocked batch, of the stream or of one interval, as it is in the sink.

    Attributes:
        epoch: Generation of an interval; then derived.
        batch_id: Derived for an interval.
    """

    subject: ClassVar[str] = "accepting batch {0.batch_id}"

    epoch: int = 0
    batch_id: int = 0
    why: str
    interval: str | None = None

    def decide(self, state: StreamState) -> Self | None:
        """Allow it for a blocked batch."""
        if self.interval is not None:
            check_interval_stream(state)
            return self._decide_of_interval(state, self.interval)
        what = self.describe()
        check_open(state, self.epoch, what)
        if state.accepted is not None and state.accepted.batch_id == self.batch_id and state.blocked is None:
            return None
        if state.blocked is None or state.blocked.batch_id != self.batch_id:
            found = "no batch is" if state.blocked is None else f"batch {state.blocked.batch_id} is"
            raise refusals.refusal(
                state, f"{what} is not possible: {found} blocked in epoch {state.epoch}. See `fds status {state.name}`"
            )
        return self

    def _decide_of_interval(self, state: StreamState, interval: str) -> Self | None:
        record = state.interval(interval)
        if record is not None and record.blocked is None and record.accepted is not None:
            return None
        if record is None or record.blocked is None:
            blocked = [record.interval for record in state.intervals if record.blocked is not None]
            raise refusals.refusal(
                state,
                f"interval {interval!r} is not blocked; blocked are: {', '.join(blocked) or 'none'}. See "
                f"`fds history {state.name}`",
            )
        return replace(self, epoch=record.generation, batch_id=record.blocked.batch_id)

    def apply(self, state: StreamState) -> StreamState:
        """Let the stream, or the interval, go on; the next block that says just the same is none."""
        if self.interval is None:
            return replace(state, blocked=None, accepted=state.blocked)
        record = state.interval(self.interval)
        if record is None:
            return state
        return state.with_interval(replace(record, blocked=None, accepted=record.blocked))


__all__ = ["Accepted", "Advanced", "Blocked", "Claimed", "Committed", "Planned"]
