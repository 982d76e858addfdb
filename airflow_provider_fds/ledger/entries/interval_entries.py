"""Entries of a stream that reads data intervals: boundaries, resolved once, and generations of an interval.

Intervals are independent: the state of one never blocks another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Self

from msgspec.structs import replace

from airflow_provider_fds.ledger.entries import refusals
from airflow_provider_fds.ledger.entries.action import BaseAction, register
from airflow_provider_fds.ledger.entries.conditions import check_interval_stream, check_not_held, check_owner
from airflow_provider_fds.ledger.intervals import KnownBoundary, clamped, instants_of
from airflow_provider_fds.ledger.layout import check_interval_name

# structs read these annotations at run time, when they are defined
from airflow_provider_fds.ledger.owner import Owner  # noqa: TC001

if TYPE_CHECKING:
    from airflow_provider_fds.ledger.state import StreamState


@register
class Boundary(BaseAction, frozen=True, kw_only=True, tag="boundary"):
    """An instant of a data interval is resolved: ``version`` is the first one at or after it.

    Attributes:
        instant: ISO 8601, UTC, milliseconds.
        version: The version after the newest one, if no commit had reached the instant. Known boundaries take
            precedence over the proposed version.
        table_id: ``metaData.id`` of the source table.
    """

    subject: ClassVar[str] = "resolve {0.instant}"

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
                f"the table has id {self.table_id}, but earlier intervals were read from {state.table_id}: "
                "another table is at the URI. Restore the old table, or use a stream with another name and another "
                "sink for the new one",
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


@register
class IntervalOpened(BaseAction, frozen=True, kw_only=True, tag="interval_opened"):
    """A data interval (``<start>/<end>``) is loaded for the ``generation``-th time, counted from 1.

    It has the versions ``first_version`` to ``last_version``, both inclusive; none if the last is below the first.

    Attributes:
        generation: The next generation.
        first_version: Derived from the boundaries, as is ``last_version``.
        owner: Who opens it; ``None`` in older entries.
        previous: Owner of an earlier, uncommitted generation that was found not to run.
    """

    subject: ClassVar[str] = "open interval {0.interval}"

    interval: str
    generation: int
    first_version: int = 0
    last_version: int = -1
    owner: Owner | None = None
    previous: Owner | None = None

    def __post_init__(self) -> None:
        check_interval_name(self.interval)

    def decide(self, state: StreamState) -> Self | None:
        """Allow it once both boundaries are resolved; a second time only for a sink that replaces."""
        what = self.describe()
        check_interval_stream(state)
        check_not_held(state, what)
        if state.sink is None:
            raise refusals.refusal(state, f"cannot {what}: the stream is not bound to a sink")
        first, end = (self._version_at(state, instant) for instant in instants_of(self.interval))
        record = state.interval(self.interval)
        known = 0 if record is None else record.generation
        if record is not None and not record.is_planned and self.generation == known:
            return None
        if self.generation != known + 1:
            raise refusals.moved(
                state, f"cannot {what}: generation {self.generation} does not follow generation {known}"
            )
        if record is not None:
            if not state.sink.replaces:
                raise refusals.refusal(
                    state,
                    f"cannot {what} again: {state.sink.describe()} appends, and its rows are already there. To "
                    "replace them, use a stream with another name and a sink that replaces",
                )
            if not record.is_done and record.owner != self.previous:
                check_owner(state, record, self.owner, what)
        return replace(self, first_version=first, last_version=end - 1)

    def _version_at(self, state: StreamState, instant: str) -> int:
        found = next((known.version for known in state.boundaries if known.instant == instant), None)
        if found is None:
            raise refusals.refusal(state, f"cannot {self.describe()}: the version at {instant} is not resolved")
        return found

    def apply(self, state: StreamState) -> StreamState:
        """Begin the generation."""
        return state.with_generation(self.interval, self.generation, self.first_version, self.last_version)
