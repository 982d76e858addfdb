"""Entries that plan batches, change their owner, or move past commits without data."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Self

from msgspec.structs import replace

from airflow_provider_fds.batch.version_ranges import describe_range
from airflow_provider_fds.ledger.entries import refusals
from airflow_provider_fds.ledger.entries.action import BaseAction, BatchAction, register
from airflow_provider_fds.ledger.entries.conditions import (
    check_batches,
    check_meaning,
    check_not_blocked,
    check_not_held,
    check_not_stopped,
    check_nothing_planned,
    check_open,
    check_owner,
    check_stretch,
    check_target,
    interval_of,
    scope_of,
)

# structs read these annotations at run time, when they are defined
from airflow_provider_fds.ledger.facts import SubmittedFacts
from airflow_provider_fds.ledger.owner import Owner  # noqa: TC001
from airflow_provider_fds.ledger.values import PassedSchema, PlannedBatch, Skipped  # noqa: TC001

if TYPE_CHECKING:
    from airflow_provider_fds.ledger.records import IntervalRecord
    from airflow_provider_fds.ledger.state import StreamState


def skipped_in(state: StreamState, batches: tuple[PlannedBatch, ...]) -> tuple[int, ...]:
    """Return the versions of the batches that people skipped."""
    first = min((batch.first_version for batch in batches), default=0)
    last = max((batch.last_version for batch in batches), default=-1)
    return tuple(sorted(word.version for word in state.acknowledged if word.skip and first <= word.version <= last))


@register
class Planned(BatchAction, frozen=True, kw_only=True, tag="planned"):
    """Batches frozen by a run; their manifests are written.

    Attributes:
        target: Newest version that the run saw when it first planned, 2^63 - 1 if it lingers; the last version of a
            data interval.
        batches: At least one; none for a data interval without data and a sink that appends.
        options_digest: Digest of all source options.
        meaning_digest: Digest of the options that change what an index within a version counts.
        skipped: Commits of a data interval that are skipped and in none of its batches.
        schema_changes: Changes of the schema in its commits after the last batch.
        left_out: Versions of the batches that people had skipped when the batches were planned.
    """

    subject: ClassVar[str] = "plan batches"

    owner: Owner
    target: int
    batches: tuple[PlannedBatch, ...]
    options_digest: str
    meaning_digest: str
    skipped: tuple[Skipped, ...] = ()
    schema_changes: tuple[PassedSchema, ...] = ()
    left_out: tuple[int, ...] = ()

    def decide(self, state: StreamState) -> Self | None:
        """Allow batches that follow the position without a gap if nothing else is planned; for an interval, once."""
        what = self.describe()
        if self.interval is not None:
            return self._decide_of_interval(state)
        check_open(state, self.epoch, what)
        check_not_stopped(state, what)
        check_nothing_planned(state, self.owner, what)
        check_target(state, self.owner, self.target)
        check_batches(state, self.batches)
        check_meaning(state, self.meaning_digest)
        self._check_left_out(state)
        return self

    def _check_left_out(self, state: StreamState) -> None:
        """Refuse a plan that may have rows of a version that a person skipped in the meantime."""
        for version in skipped_in(state, self.batches):
            if version not in self.left_out:
                raise refusals.moved(state, f"cannot {self.describe()}: version {version} was skipped in the meantime")

    def _decide_of_interval(self, state: StreamState) -> Self | None:
        what = self.describe()
        record = interval_of(state, self)
        check_not_held(state, what)
        if record.is_planned:
            if self.batches != record.planned:
                raise refusals.moved(state, f"cannot {what}: the interval is already planned")
            check_owner(state, record, self.owner, what)
            return None
        if [batch.batch_id for batch in self.batches] != list(range(len(self.batches))):
            raise refusals.refusal(state, f"cannot {what}: the batches are not numbered from 0")
        outside = [
            batch.batch_id
            for batch in self.batches
            if batch.num_files
            and not record.first_version <= batch.first_version <= batch.last_version <= record.last_version
        ]
        if outside:
            raise refusals.refusal(
                state,
                f"cannot {what}: batches {outside} are not within "
                f"{describe_range(record.first_version, record.last_version)}",
            )
        if self.batches and state.sink is not None and not state.sink.replaces:
            self._check_others(state, record)
        self._check_left_out(state)
        return self

    def _check_others(self, state: StreamState, record: IntervalRecord) -> None:
        """Refuse versions of another interval: a sink that appends would have their rows twice."""
        for other in state.intervals:
            first = max(record.first_version, other.first_version)
            last = min(record.last_version, other.last_version)
            if other.interval != record.interval and first <= last and (other.planned or other.batches):
                which = f"{describe_range(first, last)} {'is' if first == last else 'are'}"
                raise refusals.refusal(
                    state,
                    f"cannot {self.describe()}: {which} also in interval {other.interval}, which is planned or "
                    "loaded, and the sink appends, so their rows would be duplicated. Manual runs and a changed "
                    "timetable cause such intervals. Make sure that no two runs of the stream overlap in time, or "
                    "use a stream with another name and a sink that replaces",
                )

    def check_complete(self) -> None:
        """Raise ``ValueError`` for a plan by offset without a batch."""
        if self.interval is None and not self.batches:
            raise ValueError("a plan by offset must have at least one batch")

    def apply(self, state: StreamState) -> StreamState:
        """Make the batches the planned ones; the first plan of a run fixes its target."""
        if self.interval is not None:
            return self.change(
                state,
                owner=self.owner,
                planned=self.batches,
                submitted=None,
                since=state.sink_version,
                options_digest=self.options_digest,
            )
        run = state.run
        if run is None or run.owner != self.owner or run.epoch != self.epoch:
            state = state.with_run(self.owner, self.epoch, self.target)
        elif run.target is None:
            state = replace(state, runs=(*state.runs[:-1], replace(run, target=self.target)))
        return replace(
            state,
            planned=self.batches,
            submitted=None,
            next_batch_id=self.batches[-1].batch_id + 1,
            options_digest=self.options_digest,
            meaning_digest=self.meaning_digest,
        )


@register
class Claimed(BatchAction, frozen=True, kw_only=True, tag="claimed"):
    """The planned batches have a new owner, since the previous one no longer runs.

    Attributes:
        previous: The owner that was found not to run. If another owner has claimed since, the claim is refused.
        why: How that was found.
    """

    subject: ClassVar[str] = "take over the planned batches"

    owner: Owner
    previous: Owner
    why: str

    def decide(self, state: StreamState) -> Self | None:
        """Allow it if the batches still belong to the owner that was found not to run."""
        what, scope = self.describe(), scope_of(state, self)
        if not scope.planned:
            raise refusals.moved(state, "there is no longer a planned batch to take over")
        if scope.owner == self.owner:
            return None
        check_owner(state, scope, self.previous, what)
        check_not_held(state, what)
        check_not_blocked(state, scope, what)
        return self

    def apply(self, state: StreamState) -> StreamState:
        """Give the batches to the new owner, whose run has no target yet.

        A run goes on with the driver that was submitted for them; a person who frees the batches gives it up.
        """
        if self.owner.only_plans:
            state = self.change(state, submitted=None)
        if self.interval is not None:
            return self.change(state, owner=self.owner)
        return state.with_run(self.owner, self.epoch)


@register
class Submitted(SubmittedFacts, BatchAction, frozen=True, kw_only=True, tag="submitted"):
    """A cluster has started a driver for planned batches, or the driver has ended before all of them were committed.

    Attributes:
        has_ended: Whether the owner has seen the end of this driver.
    """

    subject: ClassVar[str] = "record the driver of the planned batches"

    owner: Owner
    has_ended: bool = False

    def decide(self, state: StreamState) -> Self | None:
        """Allow it to the owner of the batches."""
        what, scope = self.describe(), scope_of(state, self)
        facts = SubmittedFacts.of(self)
        if self.has_ended and scope.submitted != facts:
            return None
        if not scope.planned:
            raise refusals.moved(state, f"cannot {what}: no batch is planned any longer")
        check_owner(state, scope, self.owner, what)
        return None if scope.submitted == facts and not self.has_ended else self

    def apply(self, state: StreamState) -> StreamState:
        """Remember the driver, or forget it."""
        return self.change(state, submitted=None if self.has_ended else SubmittedFacts.of(self))


@register
class Advanced(BaseAction, frozen=True, kw_only=True, tag="advanced"):
    """The position advanced over commits without data: plan and commit in one, nothing in the sink."""

    subject: ClassVar[str] = "move the position over commits without data"

    epoch: int
    owner: Owner
    start: str
    end: str
    first_version: int
    last_version: int
    skipped: tuple[Skipped, ...]
    log_digest: str
    last_commit_sha256: str
    schema_changes: tuple[PassedSchema, ...] = ()

    def decide(self, state: StreamState) -> Self | None:
        """Allow it if nothing is planned."""
        what = self.describe()
        check_open(state, self.epoch, what)
        if state.position == self.end:
            return None
        check_not_stopped(state, what)
        check_nothing_planned(state, self.owner, what)
        check_stretch(state, self.start, self.end, "the advance")
        return self

    def apply(self, state: StreamState) -> StreamState:
        """Move the position."""
        if state.run_of(self.owner) is None:
            state = state.with_run(self.owner, self.epoch)
        return replace(state, position=self.end, last_commit_sha256=self.last_commit_sha256)
