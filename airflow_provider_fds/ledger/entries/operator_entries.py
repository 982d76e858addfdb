"""Entries that stop a stream, let it continue, transfer it or retire it."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal, Self

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from airflow_provider_fds.batch.version_ranges import describe_range
from airflow_provider_fds.ledger.entries import refusals
from airflow_provider_fds.ledger.entries.action import BaseAction, register
from airflow_provider_fds.ledger.entries.conditions import check_next, check_open, check_owner
from airflow_provider_fds.ledger.facts import HeldFacts, QuarantinedFacts, RetiredFacts
from airflow_provider_fds.ledger.state import KEPT_SKIPS
from airflow_provider_fds.ledger.values import Acknowledgement, decision_to
from airflow_provider_fds.source.offset import Offset

if TYPE_CHECKING:
    from airflow_provider_fds.ledger.owner import Actor
    from airflow_provider_fds.ledger.state import StreamState


@register
class Quarantined(QuarantinedFacts, BaseAction, frozen=True, kw_only=True, tag="quarantined"):
    """The stream stops before ``version``, or at ``batch``, until a person decides on it or resumes the stream.

    Attributes:
        found_epoch: The epoch in which a run found the stop; unset at a batch, which has its own, and in older entries.
        found_at: The position (exclusive) from which that run read; unset as ``found_epoch``.
    """

    subject: ClassVar[str] = "quarantine the stream"

    found_epoch: int | UnsetType = UNSET
    found_at: str | UnsetType = UNSET

    @property
    def needs_format(self) -> int:
        """A reader of format 1 would load the batch again and again."""
        return 1 if self.batch is UNSET else 2

    def decide(self, state: StreamState) -> Self | None:
        """Allow it where the run found it, unless the stream already stops there or a person has decided on it.

        At a batch it is allowed only for its owner, as the next one.
        """
        known = state.quarantined
        if known is not None and QuarantinedFacts.of(self).is_same_stop(known):
            return None
        if self.found_epoch is not UNSET:
            check_open(state, self.found_epoch, self.describe())
            self._check_unchanged(state)
        if self.batch is not UNSET:
            check_open(state, self.batch.epoch, self.describe())
            (batch,) = check_next(state, state, self.batch.batch_id, self.describe())
            check_owner(state, state, self.batch.owner, self.describe())
            if not self.batch.is_of(state.epoch, batch):
                raise refusals.moved(state, f"batch {batch.batch_id} is another one now")
        return self

    def _check_unchanged(self, state: StreamState) -> None:
        """Refuse a stop that is not the stream's any more: it has moved on, or a person lets it pass."""
        if state.position != self.found_at or (state.planned and self.lost is UNSET):
            raise refusals.moved(state, f"cannot {self.describe()}: it was found at {self.found_at}")
        if self.version is None or self.way_on is UNSET:
            return
        words = state.acknowledged if state.table_id is None else state.decisions_on(state.table_id)
        passed = {word.version for word in words if word.lets_pass(self.way_on)}
        if passed.issuperset(range(self.version, 1 + (self.version if self.last is UNSET else self.last))):
            raise refusals.moved(state, f"cannot {self.describe()}: a person has let it pass version {self.version}")

    def apply(self, state: StreamState) -> StreamState:
        """Record it."""
        return replace(state, quarantined=QuarantinedFacts.of(self))


@register
class Held(HeldFacts, BaseAction, frozen=True, kw_only=True, tag="held"):
    """A person put the stream on hold: nothing new is planned; planned batches of a running owner may be committed."""

    subject: ClassVar[str] = "hold the stream"

    @property
    def needs_format(self) -> int:
        """A reader of format 1 would let an exported stream continue."""
        return 1 if self.exported_to is UNSET else 2

    def decide(self, state: StreamState) -> Self | None:
        """Allow it, unless the stream is already held; its position may be exported then."""
        return self if state.held is None or self.exported_to not in (UNSET, state.exported_to) else None

    def apply(self, state: StreamState) -> StreamState:
        """Record it."""
        return replace(state, held=HeldFacts.of(self))


@register
class Resumed(BaseAction, frozen=True, kw_only=True, tag="resumed"):
    """A person lets the stream continue after ``held`` or ``quarantined``.

    Attributes:
        is_forced: Whether it continues although its position was exported for a query.
    """

    subject: ClassVar[str] = "resume the stream"

    why: str
    is_forced: bool | UnsetType = UNSET

    def decide(self, state: StreamState) -> Self | None:
        """Allow it if the stream is held or in quarantine, and no query has its position."""
        if state.exported_to is not None and self.is_forced is not True:
            raise refusals.refusal(
                state,
                f"cannot {self.describe()}: its position was exported to {state.exported_to}, and a query that "
                "continues there loads the same rows. End the stream with `fds retire`, or load another sink with "
                "`fds fork`. If no query was or will be started with that checkpoint, remove it and use --force",
            )
        return None if state.held is None and state.quarantined is None else self

    def apply(self, state: StreamState) -> StreamState:
        """End both hold and quarantine."""
        return replace(state, held=None, quarantined=None)


@register
class Acknowledged(BaseAction, frozen=True, kw_only=True, tag="acknowledged"):
    """A person decided on ``version``, or on all from it to ``last``: the schema takes effect, or rows are omitted.

    Attributes:
        skip: Whether the rows are omitted even if the stream may read them.
        of: As for :class:`~.values.Acknowledgement`.
        last: The last version (inclusive), if it is not ``version``.
        table_id: ``metaData.id`` of the source table that the person saw; unset: that of the stream's epoch.
        answers: Number of the ``quarantined`` entry that the person saw; unset without one, and in older entries.
    """

    subject: ClassVar[str] = "acknowledge version {0.version}"

    version: int
    why: str
    skip: bool = False
    of: Literal["schema", "rows"] | UnsetType = UNSET
    last: int | UnsetType = UNSET
    table_id: str | UnsetType = UNSET
    answers: int | UnsetType = UNSET

    @property
    def needs_format(self) -> int:
        """A reader of format 1 would omit rows, or let a schema take effect, which nobody decided."""
        return 1 if (self.of, self.last) == (UNSET, UNSET) else 2

    @property
    def decision(self) -> str:
        """The decision in the words of the commands."""
        if self.skip:
            return "skipped"
        return "accepted" if self.of == "schema" else "acknowledged"

    @property
    def versions(self) -> range:
        """The versions that it is about."""
        return range(self.version, 1 + (self.version if self.last is UNSET else self.last))

    def decide(self, state: StreamState) -> Self | None:
        """Allow it unless already acknowledged, or if the stream stops at the version for another reason by now.

        With ``skip`` it is allowed only for versions that are not read or planned yet.
        """
        if self.skip:
            for version in self.versions:
                self._check_unread(state, version)
            self._check_room(state)
        known = {word.version for word in state.acknowledged if (word.skip, word.of) == (self.skip, self.of)}
        if known.issuperset(self.versions) and not self._ends(state.quarantined):
            return None
        stop = state.quarantined
        if stop is None or self.answers in (UNSET, state.quarantined_at) or stop.version not in self.versions:
            return self
        raise refusals.moved(
            state, f"cannot {self.describe()}: it answers another stop than the one at version {stop.version} now"
        )

    def _ends(self, quarantined: QuarantinedFacts | None) -> bool:
        """Return whether it decides what the stream waits for."""
        if quarantined is None or quarantined.version not in self.versions:
            return False
        return self.of is UNSET or decision_to(skip=self.skip) in quarantined.ways_on

    def _check_unread(self, state: StreamState, version: int) -> None:
        if state.planned and state.planned[0].first_version <= version <= state.planned[-1].last_version:
            raise refusals.refusal(
                state,
                f"version {version} is part of planned batches "
                f"({describe_range(state.planned[0].first_version, state.planned[-1].last_version)}), which no longer "
                f"change. Discard them first with `fds replan {state.name} --why …`, then skip the version",
            )
        self._check_not_appended(state, version)
        if (position := _next_start(state)) is None:
            return
        is_begun = position.version == version and (position.next_index > 0 or position.is_initial_snapshot)
        if version < position.version or is_begun:
            raise refusals.refusal(
                state,
                f"the stream continues at {position.describe()} and has already read version {version}, or a part of "
                f"it. {_way_out(state, version)}",
            )

    def _check_room(self, state: StreamState) -> None:
        """Refuse more skipped versions than the state may hold: none of them is forgotten."""
        skipped = {word.version for word in state.acknowledged if word.skip}.union(self.versions)
        if len(skipped) > KEPT_SKIPS:
            raise refusals.refusal(
                state,
                f"the stream remembers at most {KEPT_SKIPS} skipped versions, and would have {len(skipped)}. Set "
                "skip_versions on the stream for all of them",
            )

    def _check_not_appended(self, state: StreamState, version: int) -> None:
        """Refuse a version of an interval that is never planned again, because the sink appends."""
        if state.sink is not None and state.sink.replaces:
            return
        for record in state.intervals:
            if record.is_planned and record.first_version <= version <= record.last_version:
                raise refusals.refusal(
                    state,
                    f"version {version} is in interval {record.interval}, which is planned or loaded, and the "
                    "sink appends, so the interval is never planned again. Remove the rows from the sink instead",
                )

    def apply_as(self, state: StreamState, actor: Actor) -> StreamState:
        """Record it with the person's name; it ends a quarantine that waits for it."""
        quarantined = None if self._ends(state.quarantined) else state.quarantined
        words = (
            Acknowledgement(
                version=version,
                who=actor.describe(),
                why=self.why,
                skip=self.skip,
                of=self.of,
                table_id=self.table_id or state.table_id or UNSET,
            )
            for version in self.versions
        )
        return replace(state.with_acknowledged(*words), quarantined=quarantined)


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

    @property
    def new_deployment(self) -> str:
        """The installation that owns the stream from here on."""
        return self.deployment

    def decide(self, state: StreamState) -> Self | None:
        """Allow it, unless that installation already owns the stream."""
        return None if state.deployment == self.deployment else replace(self, previous=state.deployment)

    def apply(self, state: StreamState) -> StreamState:
        """Change the owner."""
        return replace(state, deployment=self.deployment)


@register
class Retired(RetiredFacts, BaseAction, frozen=True, kw_only=True, tag="retired"):
    """The stream has ended; nothing can follow, but that its position is exported."""

    subject: ClassVar[str] = "retire the stream"

    def decide(self, state: StreamState) -> Self | None:
        """Allow it once, and only if no planned batch may land after it: nothing would close its epoch in the sink.

        It is repeated for a checkpoint that the position of the retired stream is exported to.
        """
        if state.retired is not None:
            return self if self.exported_to not in (UNSET, state.exported_to) else None
        planned = state.planned if state.closed is None else state.closed.planned
        if planned:
            raise refusals.on_its_way(state, planned[0], len(planned))
        interval = next((record.interval for record in state.intervals if record.planned), None)
        if interval is not None:
            raise refusals.interval_on_its_way(state, interval)
        return self

    def apply(self, state: StreamState) -> StreamState:
        """Record it."""
        return replace(state, retired=RetiredFacts.of(self))


def _next_start(state: StreamState) -> Offset | None:
    """Return where reading continues (exclusive); ``None`` if only the log tells."""
    if state.closed is None:
        return None if state.position is None else Offset.from_json(state.position)
    to = None if state.request is None else state.request.to
    if to is None or "offset" in to:
        position = state.closed.position if to is None else to["offset"]
        return None if position is None else Offset.from_json(position)
    version, table_id = to.get("starting_version"), state.known_table_id
    return Offset(table_id, version) if isinstance(version, int) and table_id is not None else None


def _way_out(state: StreamState, version: int) -> str:
    """Return how the rows of a version that was read leave the sink before it is skipped."""
    name, sink = state.name, state.sink
    then = "then skip the version, and the next run loads what follows it again"
    if sink is not None and sink.merges:
        return (
            "A sink that merges has not kept the rows that the version replaced, so they cannot be taken back: "
            "correct them in the source"
        )
    snapshot = state.snapshot if state.closed is None else state.closed.snapshot
    if snapshot is not None and version <= snapshot.version:
        return (
            f"Its rows came with the snapshot of version {snapshot.version}, of which no version can be left out: "
            "remove them from the source and from the sink"
        )
    if sink is None or sink.can_remove_rows:
        return (
            f"To take its rows out of the sink: `fds rewind {name} --to {version} --sink-rows delete --why …`, {then}"
        )
    return (
        f"To take its rows out of the sink: `fds rewind {name} --to {version} --sink-rows keep --why …`, remove "
        f"exactly the rows that it says are read again (those of a snapshot carry its version), {then}"
    )
