"""Entries of a stream that reads data intervals: boundaries that are resolved once, and generations of an interval.

Intervals are independent: the state of one never prevents another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal, Self

from msgspec.structs import replace

from airflow_provider_fds.ledger import refusals
from airflow_provider_fds.ledger.action import BaseAction
from airflow_provider_fds.ledger.conditions import check_interval_stream, check_table_id, interval_of
from airflow_provider_fds.ledger.intervals import (
    IntervalRecord,
    KnownBoundary,
    clamped,
    digest_of_parts,
    instants_of,
)
from airflow_provider_fds.ledger.layout import check_interval_name

# the annotations of a struct are read when it is defined
from airflow_provider_fds.ledger.measures import Measures  # noqa: TC001
from airflow_provider_fds.ledger.owner import Owner  # noqa: TC001
from airflow_provider_fds.ledger.values import PlannedBatch  # noqa: TC001

if TYPE_CHECKING:
    from airflow_provider_fds.ledger.state import StreamState


class Boundary(BaseAction, frozen=True, kw_only=True, tag="boundary"):
    """An instant of a data interval is resolved: ``version`` is the first one at or after it.

    Attributes:
        instant: ISO 8601, UTC, milliseconds.
        version: May be the one after the newest, when no commit had reached the instant. The boundaries that are
            known win over what is proposed.
        table_id: ``metaData.id`` of the source table.
    """

    subject: ClassVar[str] = "resolving {0.instant}"

    instant: str
    version: int
    table_id: str = ""

    def decide(self, state: StreamState) -> Self | None:
        """Allow it once per instant, between the versions of its neighbours."""
        check_interval_stream(state)
        if any(known.instant == self.instant for known in state.boundaries):
            return None
        if state.table_id is not None and state.table_id != self.table_id:
            raise refusals.refusal(
                state,
                f"the table has id {self.table_id}, the intervals so far were read from {state.table_id}: another "
                "table lies at the URI. Put the old one back, or use a stream with another name for the new one",
            )
        return replace(self, version=clamped(state.boundaries, self.instant, self.version))

    def apply(self, state: StreamState) -> StreamState:
        """Add the boundary."""
        known = KnownBoundary(self.instant, self.version)
        return replace(
            state,
            boundaries=tuple(sorted((*state.boundaries, known), key=lambda boundary: boundary.instant)),
            table_id=self.table_id or state.table_id,
        )


class IntervalOpened(BaseAction, frozen=True, kw_only=True, tag="interval_opened"):
    """A data interval (``<start>/<end>``) is worked on, for the ``generation``-th time from 1.

    It has the versions ``first_version`` to ``last_version``, both inclusive; none if the last is below the first.

    Attributes:
        generation: The next one.
        first_version: Derived from the boundaries, as is ``last_version``.
        owner: Who opens it; ``None`` in older entries.
        previous: Owner of an uncommitted generation before it that was found not to run.
    """

    subject: ClassVar[str] = "opening interval {0.interval}"

    interval: str
    generation: int
    first_version: int = 0
    last_version: int = -1
    owner: Owner | None = None
    previous: Owner | None = None

    def __post_init__(self) -> None:
        check_interval_name(self.interval)

    def decide(self, state: StreamState) -> Self | None:
        """Allow it once both boundaries are resolved; again only for a sink that replaces."""
        what = self.describe()
        check_interval_stream(state)
        if state.held is not None:
            raise refusals.held(state, what)
        if state.sink is None:
            raise refusals.refusal(state, f"{what} is not possible, the stream is bound to no sink")
        first, end = (self._version_at(state, instant) for instant in instants_of(self.interval))
        record = state.interval(self.interval)
        known = 0 if record is None else record.generation
        if record is not None and not record.is_planned and self.generation == known:
            return None
        if self.generation != known + 1:
            raise refusals.moved(state, f"{what}: generation {self.generation} does not follow generation {known}")
        if record is not None:
            if not state.sink.replaces:
                raise refusals.refusal(
                    state,
                    f"{what} again is not possible: {state.sink.words()} appends, and its rows are there. To replace "
                    "them use a stream with another name and a DeltaReplaceSink",
                )
            if not record.is_done and record.owner not in (None, self.owner, self.previous):
                raise refusals.interval_busy(state, what, record)
        return replace(self, first_version=first, last_version=end - 1)

    def _version_at(self, state: StreamState, instant: str) -> int:
        found = next((known.version for known in state.boundaries if known.instant == instant), None)
        if found is None:
            raise refusals.refusal(
                state, f"{self.describe()} is not possible, the version at {instant} is not resolved"
            )
        return found

    def apply(self, state: StreamState) -> StreamState:
        """Begin the generation."""
        return state.with_interval(
            IntervalRecord(
                interval=self.interval,
                generation=self.generation,
                first_version=self.first_version,
                last_version=self.last_version,
            )
        )


class IntervalPlanned(BaseAction, frozen=True, kw_only=True, tag="interval_planned"):
    """Batches of a data interval frozen by a run, or its uncommitted ones taken over by another.

    Attributes:
        batches: Their manifests are written. None in an interval without data for a sink that appends.
        previous: Owner that was found not to run, whose uncommitted batches these are.
    """

    subject: ClassVar[str] = "planning interval {0.interval}"

    interval: str
    generation: int
    owner: Owner
    batches: tuple[PlannedBatch, ...]
    options_digest: str
    previous: Owner | None = None

    def __post_init__(self) -> None:
        check_interval_name(self.interval)

    def decide(self, state: StreamState) -> Self | None:
        """Allow it for the newest generation, once; taking it over if its owner is the one found not to run."""
        what = self.describe()
        check_interval_stream(state)
        if state.held is not None:
            raise refusals.held(state, what)
        record = interval_of(state, self.interval, self.generation, what)
        if not record.is_planned:
            self._check_batches(state, record)
            return self
        if self.batches != record.planned:
            raise refusals.moved(state, f"{what}: it is planned already")
        if record.owner == self.owner:
            return None
        if record.owner != self.previous:
            raise refusals.interval_busy(state, what, record)
        if record.blocked is not None:
            raise refusals.interval_blocked(state, what, record.interval, record.blocked)
        return self

    def _check_batches(self, state: StreamState, record: IntervalRecord) -> None:
        if [batch.batch_id for batch in self.batches] != list(range(len(self.batches))):
            raise refusals.refusal(state, f"{self.describe()}: its batches do not count up from 0")
        outside = [
            batch.batch_id
            for batch in self.batches
            if batch.num_files
            and not record.first_version <= batch.first_version <= batch.last_version <= record.last_version
        ]
        if outside:
            raise refusals.refusal(
                state,
                f"{self.describe()}: batches {outside} are not within versions {record.first_version} to "
                f"{record.last_version}",
            )

    def apply(self, state: StreamState) -> StreamState:
        """Make the batches the planned ones of the interval, its owner theirs."""
        record = state.interval(self.interval)
        if record is None:
            return state
        return state.with_interval(
            replace(
                record,
                owner=self.owner,
                planned=self.batches,
                since=record.since if record.is_planned else state.sink_version,
                options_digest=self.options_digest,
            )
        )


class IntervalCommitted(BaseAction, frozen=True, kw_only=True, tag="interval_committed"):
    """Batches of a data interval up to ``batch_id`` are in the sink, in one transaction, verified.

    Attributes:
        measures: What the driver measured, ``None`` where it said nothing.
    """

    subject: ClassVar[str] = "committing interval {0.interval}"

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

    def decide(self, state: StreamState) -> Self | None:
        """Allow it for the batches that are next in order, by their owner; all of them if the sink replaces."""
        what = self.describe()
        check_interval_stream(state)
        record = interval_of(state, self.interval, self.generation, what)
        if not record.is_planned:
            raise refusals.moved(state, f"{what} is not possible, it is not planned")
        if not record.planned or self.batch_id < record.planned[0].batch_id:
            return None
        if record.owner != self.owner:
            raise refusals.interval_busy(state, what, record)
        if record.blocked is not None:
            raise refusals.interval_blocked(state, what, record.interval, record.blocked)
        parts = record.planned if state.sink is not None and state.sink.replaces else record.planned[:1]
        if self.batch_id != parts[-1].batch_id or self.digest != digest_of_parts(parts):
            raise refusals.refusal(
                state,
                f"{what} is not possible: next is batch {parts[-1].batch_id} with digest {digest_of_parts(parts)}, the "
                f"report names batch {self.batch_id} with {self.digest!r}. The job loaded something else",
            )
        if self.sink_version is None or self.sink_table_id is None:
            raise refusals.refusal(state, f"{what}: the report does not say which version of which table holds it")
        check_table_id(state, self.sink_table_id)
        return self

    def apply(self, state: StreamState) -> StreamState:
        """Move the batches to the committed ones of the interval."""
        record = state.interval(self.interval)
        if record is None:
            return state
        parts = [batch for batch in record.planned if batch.batch_id <= self.batch_id]
        # intervals are committed in any order
        versions = [version for version in (state.sink_version, self.sink_version) if version is not None]
        state = replace(
            state,
            sink_version=max(versions, default=None),
            sink_table_id=self.sink_table_id or state.sink_table_id,
        )
        return state.with_interval(
            replace(
                record,
                planned=tuple(batch for batch in record.planned if batch.batch_id > self.batch_id),
                batches=record.batches + len(parts),
                num_files=record.num_files + sum(batch.num_files for batch in parts),
                num_bytes=record.num_bytes + sum(batch.num_bytes for batch in parts),
                rows=None if record.rows is None or self.rows is None else record.rows + self.rows,
                measures=record.measures.plus(self.measures),
                sink_version=self.sink_version,
                accepted=None,
            )
        )


__all__ = ["Boundary", "IntervalCommitted", "IntervalOpened", "IntervalPlanned"]
