"""The manual changes to a stream: rewind, reset, replan, rebind, skip and so on; each is described before it is made.

A :class:`PreparedAction` is derived from the ledger alone, so it can be made wherever staging can be reached. It takes
effect with one ledger entry. If that entry requests a new epoch, the next run of the stream first closes the old one in
the sink.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Literal

from msgspec import UNSET

from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.ledger.commit_entries import Accepted
from airflow_provider_fds.ledger.operator_entries import Acknowledged, Held, Resumed, Retired, Transferred
from airflow_provider_fds.ledger.owner import Owner
from airflow_provider_fds.ledger.plan_entries import Claimed
from airflow_provider_fds.ledger.request_entries import Requested
from airflow_provider_fds.ledger.state import KEPT_SKIPS
from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.sizes import format_batches
from airflow_provider_fds.source.offset import Offset, describe_position
from airflow_provider_fds.stream.actions.handed_out import HandedOut
from airflow_provider_fds.stream.actions.prepared_action import (
    PreparedAction,
    describe_skip,
    describe_standing,
    plans_with_owner,
)
from airflow_provider_fds.stream.actions.rewind_target import check_version, planned_batch, version_at
from airflow_provider_fds.stream.actions.sink_removal import Asked, SinkRows, removal_of
from airflow_provider_fds.stream.actions.stopping_version import check_accepted, check_skipped
from airflow_provider_fds.stream.epochs.rows_read_again import repeated_notes
from airflow_provider_fds.stream.epochs.sink_before import describe_seen
from airflow_provider_fds.stream.epochs.skipped_versions import refuse_skipped
from airflow_provider_fds.stream.planning.whole_commits import is_inside_commit
from airflow_provider_fds.stream.position.changed_start import start_options
from airflow_provider_fds.stream.position.data_interval import interval_asked

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from airflow_provider_fds.delta.reader.log import DeltaLog
    from airflow_provider_fds.delta.storage.storage import Storage
    from airflow_provider_fds.ledger.action import BaseAction
    from airflow_provider_fds.ledger.log import Ledger
    from airflow_provider_fds.ledger.state import StreamState
    from airflow_provider_fds.ledger.values import Removal

_EMPTY_COMMITS: Final = " The next run writes an empty commit into each of the two tables, if it exists."
_READ_AGAIN: Final = "Their rows are read again; remove them, or they are there twice."


@dataclass(frozen=True)
class ActionBuilder:
    """Prepares the operator actions of one stream.

    Args:
        ledger: The stream's ledger, read to its head, with at least one entry.
        why: The reason; it stays in the history.
        replaces: Whether the new request replaces one that is not opened yet.
        log: The source's log, to check a target against; ``None`` if it cannot be reached from here.
        sink_log: The sink's log, to check what is to be removed; ``None`` if it cannot be reached from here.
        owner_is_running: For a user job: whether the owner of planned batches is running.
        open_table: Opens the tables of a user's function; ``None`` if they cannot be reached from here.
        deployment: The Airflow installation that a transfer gives the stream to.
        is_forced: Whether to proceed although the owner of planned batches, or a query with the exported position, may
            be running.
    """

    ledger: Ledger
    why: str
    replaces: bool = False
    log: DeltaLog | None = None
    sink_log: DeltaLog | None = None
    owner_is_running: Callable[[Owner], bool] = field(default=lambda _owner: True)
    open_table: Callable[[str], Storage] | None = None
    deployment: str = ""
    is_forced: bool = False

    def rewind(
        self,
        *,
        to_version: int | None = None,
        to_timestamp: str | None = None,
        to_batch: int | None = None,
        landed: bool | Mapping[str, bool] | None = None,
        sink_rows: SinkRows | None = None,
        force_sink: bool = False,
    ) -> PreparedAction:
        """Read again from an earlier position.

        Args:
            to_version: First version to read (inclusive).
            to_timestamp: Read from the first commit at or after this time, UTC unless it has a zone.
            to_batch: Read from the start of this batch of the newest epoch that has one.
            landed: For a user job or function with a batch in progress: whether its rows are in the sink; for a
                function also per write.
            sink_rows: What becomes of the rows in the sink that are read again. ``delete``: the fence deletes them, by
                their provenance. ``empty``: it empties the sink. ``keep``: they stay. May be ``None`` only if no
                committed row is read again.
            force_sink: Remove rows even if others may have written to the sink.

        Raises:
            ConfigurationError: Not exactly one target, or an impossible one; rows that cannot be told apart from
                others.
            LedgerError: There is no such batch, or its owner still runs.
        """
        given = [value for value in (to_version, to_timestamp, to_batch) if value is not None]
        if len(given) != 1:
            raise ConfigurationError(
                f"stream {self._name!r}: a rewind needs exactly one of a version, a timestamp and a batch, got "
                f"{len(given)}"
            )
        self._handed_out.check(landed, needs_word=False)
        asked = Asked(sink_rows, is_forced=force_sink)
        if to_batch is not None:
            return self._to_batch(to_batch, asked)
        version = to_version if to_timestamp is None else version_at(self._name, self.log, to_timestamp)
        if version is not None:
            check_version(self._name, self.log, self._position(), version)
        removal = self._removal("rewind", asked, self._start_at(version), is_known=version is not None)
        to: dict[str, Any] = {"starting_version": version}
        if to_timestamp is not None and removal is None:
            to = {"starting_timestamp": to_timestamp}
        words = (
            "the first commit at or after " + to_timestamp if version is None and to_timestamp else f"version {version}"
        )
        return self._request("rewind", to, f"reads from {words} on", self._repeated(version, removal), removal)

    def reset(
        self, *, sink_rows: SinkRows | None = None, force_sink: bool = False, load_skipped: bool = False
    ) -> PreparedAction:
        """Start over from the stream's start options.

        Args:
            load_skipped: Load rows of skipped versions if the epoch begins with a snapshot that has them.
            sink_rows: As for a rewind.
            force_sink: Empty the sink even if others may have written to it.

        Raises:
            ConfigurationError: It is not stated what happens to the sink's rows, or that cannot be done.
            LedgerError: The stream begins with a snapshot that has rows of skipped versions.
        """
        begins = self._state.range_options
        if begins is not None and not load_skipped and not start_options(begins):
            refuse_skipped(self._state, None)
        self._handed_out.check(None, needs_word=False)
        removal = self._removal("reset", Asked(sink_rows, is_forced=force_sink), None, is_known=True)
        return self._request(
            "reset",
            {"start": "options"},
            "begins at its start options, like a new stream",
            repeated_notes(self.ledger, None, is_reset=True, removal=removal),
            removal,
            loads_skipped=load_skipped,
        )

    def replan(self, *, landed: bool | Mapping[str, bool] | None = None) -> PreparedAction:
        """Give up planned batches and plan again from the committed position, with the options of that run.

        Args:
            landed: For a user job or function with a batch in progress: whether its rows are in the sink; for a
                function also per write.
        """
        if self._handed_out.is_function:
            self._handed_out.writes.refuse_gone()
        to = self._after_landed(landed)
        state = self._state
        batches = len(state.planned if state.closed is None else state.closed.planned)
        note = f"Discards {format_batches(batches)}; those that are in the sink by then count as loaded."
        if self._handed_out.is_function:
            # the tables are checked for these now, and anything later is refused
            note = f"Discards {format_batches(batches)}."
        return self._request("replan", to, "stays there and plans again", (note,))

    def rebind(self, *, landed: bool | Mapping[str, bool] | None = None) -> PreparedAction:
        """Let the next run bind the stream to the sink that it names.

        Args:
            landed: For a user job or function with a batch in progress: whether its rows are in the sink; for a
                function also per write.
        """
        to = self._after_landed(landed)
        sink = "none" if self._state.sink is None else self._state.sink.describe()
        commits = "" if self._state.sink is None or self._state.sink.is_user_defined else _EMPTY_COMMITS
        return self._request(
            "rebind",
            to,
            "stays there; its next run binds it to that run's sink",
            (
                f"Its sink was {sink}. The rows in that sink stay; only new rows go to the new sink.{commits}",
                *self._inside_notes(None if to is None else Offset.from_json(to["offset"])),
            ),
        )

    def skip(self, version: tuple[int, int]) -> PreparedAction:
        """Leave out everything in some versions.

        Args:
            version: First and last version, both inclusive.

        Raises:
            ConfigurationError: More versions than the stream remembers, or none; the table has no such version.
        """
        first, last = version
        if not 0 <= last - first < KEPT_SKIPS:
            raise ConfigurationError(
                f"stream {self._name!r}: invalid version range {first} to {last}: expected 1 to {KEPT_SKIPS} versions, "
                "with the first not after the last. For a longer range, set skip_versions on the stream"
            )
        check_skipped(self._state, self.log, first, last)
        after, note = describe_skip(self._state, first, last)
        until = UNSET if first == last else last
        command = Acknowledged(version=first, last=until, why=self.why, skip=True, of="rows")
        return PreparedAction(self._name, (command,), describe_standing(self._state), after, (note,))

    def accept(
        self, version: int | None = None, batch: int | None = None, interval: str | None = None
    ) -> PreparedAction:
        """Accept the schema of a version, a blocked batch or a blocked data interval as it is.

        Raises:
            ConfigurationError: Not exactly one of the three; the version is not the one that stops the stream, or
                stops it for another reason.
        """
        if sum(given is not None for given in (version, batch, interval)) != 1:
            raise ConfigurationError(
                f"stream {self._name!r}: accept needs exactly one of a version, a batch and a data interval"
            )
        if version is not None:
            check_accepted(self._state, self.log, version)
            command: BaseAction = Acknowledged(version=version, why=self.why, of="schema")
            return self._word(command, f"goes on with the schema of version {version}, and loads its rows")
        if interval is not None:
            interval = interval_asked(interval)
            try:
                command = Accepted(interval=interval, why=self.why)
            except ValueError as error:
                raise ConfigurationError(f"stream {self._name!r}: {error}", reason=Reason.ACTION_REFUSED) from None
            return self._word(command, f"accepts {interval} as it is in the sink; now clear the task of that run")
        assert batch is not None  # noqa: S101  # one of the three is given
        command = Accepted(epoch=self._state.epoch, batch_id=batch, why=self.why)
        return self._word(command, f"accepts batch {batch} as it is in the sink")

    def hold(self) -> PreparedAction:
        """Plan nothing new until the stream is resumed."""
        return self._word(Held(why=self.why), "is held until `fds resume`", unchanged="was held already")

    def resume(self) -> PreparedAction:
        """Let the stream continue after a hold or a quarantine."""
        unchanged = "was neither held nor in quarantine"
        return self._word(
            Resumed(why=self.why, is_forced=self.is_forced or UNSET), "continues with its next run", unchanged=unchanged
        )

    def adopt(self) -> PreparedAction:
        """Let the next run take over planned batches whose owner is gone.

        Raises:
            ConfigurationError: The owner is considered to be running.
        """
        state = self._state
        owned = plans_with_owner(state)
        if not owned:
            return PreparedAction(
                self._name, (), describe_standing(self._state), "stays as it is", unchanged="has no planned batches"
            )
        for plan in owned:
            if not self.is_forced and self.owner_is_running(plan.owner):
                raise ConfigurationError(
                    f"{plan.subject} of stream {self._name!r} belong to {plan.owner.describe()}, which appears to be "
                    "running. If you are sure that it is gone, use --force",
                    reason=Reason.ACTION_REFUSED,
                )
        me = Owner.of_plan(state.deployment)
        claims = tuple(
            Claimed(epoch=plan.epoch, interval=plan.interval, owner=me, previous=plan.owner, why=self.why)
            for plan in owned
        )
        batches = format_batches(sum(plan.batches for plan in owned))
        return PreparedAction(
            self._name, claims, describe_standing(self._state), f"lets its next run take over {batches}"
        )

    def transfer(self) -> PreparedAction:
        """Give the stream to the Airflow installation that ``deployment`` names."""
        before = self._state.deployment
        after = f"belonged to deployment {before!r} and now belongs to {self.deployment!r}"
        return self._word(Transferred(deployment=self.deployment, why=self.why), after)

    def retire(self) -> PreparedAction:
        """End the stream for good."""
        return PreparedAction(
            self._name,
            (Retired(why=self.why),),
            describe_standing(self._state),
            "has ended for good; its name cannot be used again",
            ("Its ledger and manifests stay in staging; remove the folder when nobody needs the history.",),
        )

    def _word(
        self, command: BaseAction, after: str, *, unchanged: str = "is unchanged; there is nothing to do"
    ) -> PreparedAction:
        return PreparedAction(self._name, (command,), describe_standing(self._state), after, unchanged=unchanged)

    @property
    def _state(self) -> StreamState:
        return self.ledger.state

    @property
    def _name(self) -> str:
        return self._state.name

    def _request(
        self,
        reason: Literal["rewind", "reset", "replan", "rebind"],
        to: dict[str, Any] | None,
        after: str,
        notes: tuple[str, ...],
        removal: Removal | None = None,
        *,
        loads_skipped: bool = False,
    ) -> PreparedAction:
        on_their_way = len(self._state.planned if self._state.closed is None else self._state.closed.planned)
        after_epoch = 0
        # for a replan or a rebind, the position determines what is read again
        seen = self._state.shown if reason in ("rewind", "reset") else ()
        is_function = self._handed_out.is_function
        if is_function:
            notes = (*notes, *self._handed_out.notes(reason, to))
            writes = self._handed_out.writes
            seen, after_epoch = writes.seen, writes.newest_epoch
        elif on_their_way and reason in ("rewind", "reset"):
            given_up = f"Discards {format_batches(on_their_way)}. If one of them is in the sink by then, the next run "
            notes = (*notes, f"{given_up}reports it and reads nothing again until this is resolved.")
        if seen and not is_function:
            which = ", ".join(describe_seen(b) for b in seen)
            notes = (*notes, f"Not committed, but reported by an earlier run: the sink has {which}. {_READ_AGAIN}")
        epoch = max(self._state.epoch, after_epoch) + 1
        command = Requested(
            epoch=epoch,
            reason=reason,
            why=self.why,
            closes=self._state.epoch,
            to=to,
            replaces=self.replaces,
            seen=seen,
            removal=removal,
            loads_skipped=loads_skipped or UNSET,
        )
        return PreparedAction(self._name, (command,), describe_standing(self._state), f"epoch {epoch}, {after}", notes)

    @cached_property
    def _handed_out(self) -> HandedOut:
        is_running = (lambda _owner: False) if self.is_forced else self.owner_is_running
        return HandedOut(self.ledger, self.open_table, is_running)

    def _after_landed(self, landed: bool | Mapping[str, bool] | None) -> dict[str, Any] | None:
        """Return where an epoch continues if the batch in progress is known to be in the sink."""
        end = self._handed_out.end_of_landed(landed)
        return None if end is None else {"offset": end}

    def _position(self) -> Offset | None:
        state = self._state
        text = state.position if state.closed is None else state.closed.position
        return None if text is None else Offset.from_json(text)

    def _removal(
        self, reason: Literal["rewind", "reset"], asked: Asked, start: Offset | None, *, is_known: bool
    ) -> Removal | None:
        return removal_of(self.ledger, self.sink_log, reason, asked, start, is_known=is_known)

    def _start_at(self, version: int | None) -> Offset | None:
        return None if version is None else Offset(self._state.table_id or "", version)

    def _to_batch(self, batch_id: int, asked: Asked) -> PreparedAction:
        planned, batch = planned_batch(self.ledger, batch_id)
        start = Offset.from_json(batch.start)
        position = self._position()
        if position is not None and start > position:
            raise ConfigurationError(
                f"stream {self._name!r} is at {describe_position(position.to_json())}, but batch {batch_id} of "
                f"epoch {planned.epoch} begins later; a rewind can only move backwards",
                reason=Reason.ACTION_REFUSED,
            )
        to = {"offset": batch.start, "meaning_digest": planned.meaning_digest}
        after = f"reads from {describe_position(batch.start)} on, where batch {batch_id} of epoch {planned.epoch} began"
        removal = self._removal("rewind", asked, start, is_known=True)
        notes = (*repeated_notes(self.ledger, start, removal=removal), *self._inside_notes(start))
        return self._request("rewind", to, after, notes, removal)

    def _inside_notes(self, start: Offset | None) -> tuple[str, ...]:
        """Warn that a sink which decides per key may refuse to start at a position; ``None``: the current position."""
        place = start or self._position()
        if place is None or not is_inside_commit(place):
            return ()
        note = (
            f"That is inside version {place.version}. With read_change_feed, a sink that decides per key (a "
            "merge) needs the whole of a version that adds and removes rows. In that case use `fds rewind "
            f"{self._name} --to-version {place.version} --sink-rows keep --why …`."
        )
        return (note,)

    def _repeated(self, version: int | None, removal: Removal | None) -> tuple[str, ...]:
        if version is None:
            return ("Rows of commits at or after that time that are already in the sink are then there twice.",)
        return repeated_notes(self.ledger, self._start_at(version), removal=removal)


__all__ = ["ActionBuilder"]
