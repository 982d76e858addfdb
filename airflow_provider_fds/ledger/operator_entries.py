"""Entries that stop a stream, let it continue, transfer it or retire it."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Self

from msgspec.structs import replace

from airflow_provider_fds.batch.version_ranges import describe_range
from airflow_provider_fds.ledger import refusals
from airflow_provider_fds.ledger.action import BaseAction, register
from airflow_provider_fds.ledger.facts import HeldFacts, QuarantinedFacts, RetiredFacts
from airflow_provider_fds.ledger.state import KEPT_ACKNOWLEDGEMENTS
from airflow_provider_fds.source.offset import Offset

if TYPE_CHECKING:
    from airflow_provider_fds.ledger.owner import Actor
    from airflow_provider_fds.ledger.state import StreamState


@register
class Quarantined(QuarantinedFacts, BaseAction, frozen=True, kw_only=True, tag="quarantined"):
    """The stream stops before ``version`` until a person acknowledges it or resumes the stream."""

    subject: ClassVar[str] = "quarantine the stream"

    def decide(self, state: StreamState) -> Self | None:
        """Allow it, unless the stream already stops before that version."""
        is_known = state.quarantined is not None and state.quarantined.version == self.version
        return None if is_known else self

    def apply(self, state: StreamState) -> StreamState:
        """Record it."""
        return replace(state, quarantined=QuarantinedFacts.of(self))


@register
class Held(HeldFacts, BaseAction, frozen=True, kw_only=True, tag="held"):
    """A person paused the stream: nothing new is planned; planned batches of a running owner may be committed."""

    subject: ClassVar[str] = "hold the stream"

    def decide(self, state: StreamState) -> Self | None:
        """Allow it, unless the stream is already held."""
        return self if state.held is None else None

    def apply(self, state: StreamState) -> StreamState:
        """Record it."""
        return replace(state, held=HeldFacts.of(self))


@register
class Resumed(BaseAction, frozen=True, kw_only=True, tag="resumed"):
    """A person lets the stream continue after ``held`` or ``quarantined``."""

    subject: ClassVar[str] = "resume the stream"

    why: str

    def decide(self, state: StreamState) -> Self | None:
        """Allow it if the stream is held or in quarantine."""
        return None if state.held is None and state.quarantined is None else self

    def apply(self, state: StreamState) -> StreamState:
        """End both hold and quarantine."""
        return replace(state, held=None, quarantined=None)


@register
class Acknowledged(BaseAction, frozen=True, kw_only=True, tag="acknowledged"):
    """A person examined ``version`` and lets the stream pass it: its schema takes effect, or its rows are omitted.

    Attributes:
        skip: Whether the rows are omitted even if the stream may read them.
    """

    subject: ClassVar[str] = "acknowledge version {0.version}"

    version: int
    why: str
    skip: bool = False

    def decide(self, state: StreamState) -> Self | None:
        """Allow it unless already acknowledged; with ``skip`` only for a version that is not read or planned yet."""
        if self.skip:
            self._check_unread(state)
        self._check_room(state)
        is_known = any((known.version, known.skip) == (self.version, self.skip) for known in state.acknowledged)
        is_waited_for = state.quarantined is not None and state.quarantined.version == self.version
        return None if is_known and not is_waited_for else self

    def _check_unread(self, state: StreamState) -> None:
        if state.planned and state.planned[0].first_version <= self.version <= state.planned[-1].last_version:
            raise refusals.refusal(
                state,
                f"version {self.version} is part of planned batches "
                f"({describe_range(state.planned[0].first_version, state.planned[-1].last_version)}), which no longer "
                f"change. Discard them first with `fds replan {state.name} --why …`, then skip the version",
            )
        self._check_not_appended(state)
        if state.position is None:
            return
        position = Offset.from_json(state.position)
        is_begun = position.version == self.version and (position.next_index > 0 or position.is_initial_snapshot)
        if self.version < position.version or is_begun:
            raise refusals.refusal(
                state,
                f"the stream is at {state.position} and has already read version {self.version}, or a part of it",
            )

    def _check_room(self, state: StreamState) -> None:
        """Refuse it if the stream would forget another skipped version that it may still read."""
        others = [known for known in state.acknowledged if known.version != self.version]
        if len(others) < KEPT_ACKNOWLEDGEMENTS or not others[0].skip:
            return
        oldest = others[0].version
        if state.position is None or oldest >= Offset.from_json(state.position).version:
            raise refusals.refusal(
                state,
                f"the stream remembers {KEPT_ACKNOWLEDGEMENTS} versions, and would load version {oldest}, which is "
                "skipped, if this one were added. Set skip_versions on the stream for all of them",
            )

    def _check_not_appended(self, state: StreamState) -> None:
        """Refuse a version of an interval that is never planned again, because the sink appends."""
        if state.sink is not None and state.sink.replaces:
            return
        for record in state.intervals:
            if record.is_planned and record.first_version <= self.version <= record.last_version:
                raise refusals.refusal(
                    state,
                    f"version {self.version} is in interval {record.interval}, which is planned or loaded, and the "
                    "sink appends, so the interval is never planned again. Remove the rows from the sink instead",
                )

    def apply_as(self, state: StreamState, actor: Actor) -> StreamState:
        """Record it with the person's name; it ends a quarantine before that version."""
        quarantined = state.quarantined
        if quarantined is not None and quarantined.version == self.version:
            quarantined = None
        state = state.with_acknowledged(self.version, who=actor.describe(), why=self.why, skip=self.skip)
        return replace(state, quarantined=quarantined)


@register
class Transferred(BaseAction, frozen=True, kw_only=True, tag="transferred"):
    """Another Airflow installation, ``deployment``, owns the stream from here on.

    Attributes:
        previous: The installation that owned it before; derived.
    """

    subject: ClassVar[str] = "transfer the stream"

    previous: str = ""
    deployment: str
    why: str

    def decide(self, state: StreamState) -> Self | None:
        """Allow it, unless that installation already owns the stream."""
        return None if state.deployment == self.deployment else replace(self, previous=state.deployment)

    def apply(self, state: StreamState) -> StreamState:
        """Change the owner."""
        return replace(state, deployment=self.deployment)


@register
class Retired(RetiredFacts, BaseAction, frozen=True, kw_only=True, tag="retired"):
    """The stream has ended; nothing can follow."""

    subject: ClassVar[str] = "retire the stream"

    def decide(self, state: StreamState) -> Self | None:
        """Allow it once."""
        return self if state.retired is None else None

    def apply(self, state: StreamState) -> StreamState:
        """Record it."""
        return replace(state, retired=RetiredFacts.of(self))


__all__ = ["Acknowledged", "Held", "Quarantined", "Resumed", "Retired", "Transferred"]
