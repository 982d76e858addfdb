"""The manual changes to a stream: rewind, replan, skip, unlock and so on; each is described before it is made.

A :class:`PreparedAction` is derived from the ledger alone, so it can be made wherever staging can be reached. It takes
effect with one ledger entry. If that entry requests a new epoch, the next run of the stream first closes the old one in
the sink.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Literal

from msgspec import UNSET

from airflow_provider_fds.errors import ConfigurationError, FdsError
from airflow_provider_fds.ledger.entries.commit_entries import Accepted
from airflow_provider_fds.ledger.entries.operator_entries import Acknowledged, Held, Resumed, Retired, Transferred
from airflow_provider_fds.ledger.entries.plan_entries import Claimed
from airflow_provider_fds.ledger.entries.request_entries import Requested
from airflow_provider_fds.ledger.owner import Owner
from airflow_provider_fds.ledger.state import KEPT_SKIPS
from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.source.offset import Offset
from airflow_provider_fds.stream.actions.accepted_batch import accept_batch, describe_blocked
from airflow_provider_fds.stream.actions.handed_out import HandedOut
from airflow_provider_fds.stream.actions.moved_table import accept_moved
from airflow_provider_fds.stream.actions.owned_plans import describe_batches, describe_owner, plans_with_owner
from airflow_provider_fds.stream.actions.prepared_action import PreparedAction, describe_skip, describe_standing
from airflow_provider_fds.stream.actions.rewind_target import (
    START,
    batch_of,
    destination_of,
    is_time,
    known_start_options,
    parse_target,
)
from airflow_provider_fds.stream.actions.sink_removal import SinkRows, removal_of
from airflow_provider_fds.stream.actions.stopping_version import check_accepted, check_skipped
from airflow_provider_fds.stream.epochs.rows_read_again import repeated_notes
from airflow_provider_fds.stream.epochs.sink_before import describe_seen
from airflow_provider_fds.stream.epochs.skipped_versions import refuse_skipped
from airflow_provider_fds.stream.planning.whole_commits import is_inside_commit
from airflow_provider_fds.stream.position.data_interval import interval_asked

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from airflow_provider_fds.delta.reader.log import DeltaLog
    from airflow_provider_fds.delta.storage.storage import Storage
    from airflow_provider_fds.ledger.entries.action import BaseAction
    from airflow_provider_fds.ledger.staging.log import Ledger
    from airflow_provider_fds.ledger.state import StreamState
    from airflow_provider_fds.ledger.values import Removal
    from airflow_provider_fds.places import Places

_EMPTY_COMMITS: Final = " The next run writes an empty commit into each of the two tables, if it exists."
_READ_AGAIN: Final = "Their rows are read again; remove them, or they are duplicated."


@dataclass(frozen=True)
class ActionBuilder:
    """Prepares the operator actions of one stream.

    Args:
        ledger: The stream's ledger, read to its head, with at least one entry.
        why: The reason; it stays in the history.
        replaces: Whether the new request replaces one that is not opened yet.
        log: The source's log, to check a target against; ``None`` if it cannot be reached from here.
        sink_log: The sink's log, to check what is to be removed; ``None`` if it cannot be reached from here.
        owner_runs: Returns whether the owner of planned batches is running, ``None`` if that cannot be known from here.
        open_table: Opens the tables of a user's function; ``None`` if they cannot be reached from here.
        places: Finds the source where a catalog has moved it; ``None`` if it cannot be reached from here.
        deployment: The Airflow installation that a transfer gives the stream to.
        is_forced: Whether to proceed although the owner of planned batches, or a query with the exported position, may
            be running.
    """

    ledger: Ledger
    why: str
    replaces: bool = False
    log: DeltaLog | None = None
    sink_log: DeltaLog | None = None
    owner_runs: Callable[[Owner], bool | None] = field(default=lambda _owner: None)
    open_table: Callable[[str], Storage] | None = None
    places: Places | None = None
    deployment: str = ""
    is_forced: bool = False

    def rewind(
        self,
        *,
        to: int | str,
        landed: bool | Mapping[str, bool] | None = None,
        sink_rows: SinkRows | None = None,
        force_sink: bool = False,
        load_skipped: bool = False,
    ) -> PreparedAction:
        """Read again from an earlier position, or from the stream's start options.

        Args:
            to: First version to read (inclusive); a time, for the first commit at or after it, UTC unless it has a
                zone; ``batch:N``, for the start of this batch of the newest epoch that has one; or ``start``, for the
                stream's start options.
            landed: For a user job or function with a batch in progress: whether its rows are in the sink; for a
                function also per write.
            sink_rows: What becomes of the rows in the sink that are read again. ``delete``: the fence deletes them, by
                their provenance. ``empty``: it empties the sink. ``keep``: they stay. May be ``None`` only if no
                committed row is read again.
            force_sink: Remove rows even if others may have written to the sink.
            load_skipped: Load rows of skipped versions if the epoch begins with a snapshot that has them.

        Raises:
            ConfigurationError: An impossible target; rows that cannot be told apart from others.
            LedgerError: There is no such batch, or its owner still runs; the stream begins with a snapshot that has
                rows of skipped versions.
        """
        try:
            target = parse_target(to)
        except ValueError as error:
            raise ConfigurationError(f"stream {self._name!r}: to {error}", reason=Reason.ACTION_REFUSED) from None
        if load_skipped and target != START:
            raise ConfigurationError(f"stream {self._name!r}: --load-skipped is for --to start, not for --to {target}")
        if target == START and not load_skipped and known_start_options(self._state) == {}:
            refuse_skipped(self._state, None, self._table_id if self._state.acknowledged else None)
        self._handed_out.check(landed, needs_word=False)
        found = destination_of(target, self.ledger, self.log)
        removal = removal_of(self.ledger, self.sink_log, found, sink_rows, is_forced=force_sink)
        notes: tuple[str, ...] = (
            "Rows of commits at or after that time that are already in the sink are then duplicated.",
        )
        if found.is_known:
            is_start = target == START
            notes = repeated_notes(self.ledger, found.start, to_start=is_start, removal=removal)
        if batch_of(target) is not None:
            notes += self._inside_notes(found.start)
        if gone := self._decisions_that_end():
            notes += (f"The table was created again, so decisions on versions of the former one end: {gone}.",)
        request_to = found.to
        if removal is not None and is_time(target) and found.start is not None:
            request_to = {"starting_version": found.start.version}
        return self._request(found.reason, request_to, found.after, notes, removal, loads_skipped=load_skipped)

    def replan(self, *, landed: bool | Mapping[str, bool] | None = None, new_sink: bool = False) -> PreparedAction:
        """Give up planned batches and plan again from the committed position, with the options of that run.

        Args:
            landed: For a user job or function with a batch in progress: whether its rows are in the sink; for a
                function also per write.
            new_sink: Let the next run bind the stream to the sink that it names.
        """
        end = self._handed_out.end_of_landed(landed)
        to = None if end is None else {"offset": end}
        state = self._state
        if new_sink:
            sink = state.sink or state.fence_sink
            commits = "" if sink is None or not sink.has_log else _EMPTY_COMMITS
            moved = "It is not bound to a sink."
            if sink is not None:
                moved = (
                    f"Its sink was {sink.describe()}. The rows in that sink stay; only new rows go to the new "
                    f"sink.{commits}"
                )
            notes = self._inside_notes(None if to is None else Offset.from_json(to["offset"]))
            return self._request("rebind", to, "stays there; its next run binds it to that run's sink", (moved, *notes))
        note = f"Discards {describe_batches((state.closed or state).planned)}"
        # a function's tables are checked for these now, and anything later is refused
        note += "." if self._handed_out.is_function else "; those that are in the sink by then count as loaded."
        return self._request("replan", to, "stays there and plans again", (note,))

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
        rows = check_skipped(self._state, self.log, first, last)
        after, note = describe_skip(self._state, first, last)
        until = UNSET if first == last else last
        command = Acknowledged(version=first, last=until, why=self.why, skip=True, of="rows", **self._seen())
        notes = tuple(filter(None, (rows, note)))
        return PreparedAction(self._name, (command,), describe_standing(self._state), after, notes)

    def accept(
        self,
        version: int | None = None,
        batch: int | None = None,
        interval: str | None = None,
        moved_to: str | None = None,
    ) -> PreparedAction:
        """Accept the schema of a version, a batch or data interval as it is, or a new folder of the table.

        Raises:
            ConfigurationError: Not exactly one of the four; the version is not the one that stops the stream, or
                stops it for another reason; the folder has another table, or that cannot be found out.
        """
        if sum(given is not None for given in (version, batch, interval, moved_to)) != 1:
            raise ConfigurationError(
                f"stream {self._name!r}: accept needs exactly one of a version, a batch, a data interval and a folder"
            )
        if moved_to is not None:
            return accept_moved(self._state, moved_to, self.places, self.why)
        if version is not None:
            rows = check_accepted(self._state, self.log, version)
            command: BaseAction = Acknowledged(version=version, why=self.why, of="schema", **self._seen())
            after = f"goes on with the schema of version {version}, and loads its rows"
            return self._word(command, after, notes=(rows,) if rows else ())
        if interval is not None:
            interval = interval_asked(interval)
            try:
                command = Accepted(interval=interval, why=self.why)
            except ValueError as error:
                raise ConfigurationError(f"stream {self._name!r}: {error}", reason=Reason.ACTION_REFUSED) from None
            after = f"accepts {interval} as it is in the sink; now clear the task of that run"
            record = self._state.interval(interval)
            return self._word(command, after, notes=describe_blocked(None if record is None else record.blocked))
        assert batch is not None  # noqa: S101  # one of the four is given
        command, after, notes = accept_batch(self._state, batch, self.why)
        return self._word(command, after, notes)

    def hold(self) -> PreparedAction:
        """Plan nothing new until the stream is resumed."""
        return self._word(Held(why=self.why), "is held until `fds resume`", unchanged="was held already")

    def resume(self) -> PreparedAction:
        """Let the stream continue after a hold or a quarantine."""
        unchanged = "was neither held nor in quarantine"
        return self._word(
            Resumed(why=self.why, is_forced=self.is_forced or UNSET), "continues with its next run", unchanged=unchanged
        )

    def unlock(self) -> PreparedAction:
        """Let the next run take over planned batches whose owner is gone.

        Raises:
            ConfigurationError: The owner is known to be running.
        """
        state = self._state
        owned = plans_with_owner(state)
        if not owned:
            return PreparedAction(
                self._name, (), describe_standing(state), "stays as it is", unchanged="has no planned batches"
            )
        notes = []
        for plan in owned:
            runs = self.owner_runs(plan.owner)
            if runs and not self.is_forced:
                raise ConfigurationError(
                    f"{plan.subject} of stream {self._name!r} belong to {plan.owner.describe()}, which is running. "
                    "Stop it, or wait for it to end. With --force, they are released although it runs",
                    reason=Reason.ACTION_REFUSED,
                )
            notes.append(describe_owner(self.ledger, plan, runs=runs))
        me = Owner.of_plan(state.deployment)
        claims = tuple(
            Claimed(epoch=plan.epoch, interval=plan.interval, owner=me, previous=plan.owner, why=self.why)
            for plan in owned
        )
        batches = describe_batches([batch for plan in owned for batch in plan.batches])
        after = f"lets its next run take over {batches}, which checks the sink before it writes"
        return PreparedAction(self._name, claims, describe_standing(state), after, tuple(notes))

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
        self,
        command: BaseAction,
        after: str,
        notes: tuple[str, ...] = (),
        *,
        unchanged: str = "is unchanged; there is nothing to do",
    ) -> PreparedAction:
        return PreparedAction(self._name, (command,), describe_standing(self._state), after, notes, unchanged)

    @cached_property
    def _table_id(self) -> str | None:
        """Id of the source table now; ``None`` if its log cannot be read from here."""
        if self.log is None:
            return None
        try:
            return self.log.state_at(self.log.latest()).metadata.id
        except FdsError:
            # a move must also work for a table whose log is damaged
            return None

    def _decisions_that_end(self) -> str:
        """Return the decided versions of a former table at this place, in words."""
        # most streams have no decision, and need no look at the log
        if not self._state.acknowledged or self._table_id is None:
            return ""
        kept = {(word.version, word.of) for word in self._state.decisions_on(self._table_id)}
        ending = (word for word in self._state.acknowledged if (word.version, word.of) not in kept)
        return ", ".join(f"version {word.version} ({word.why})" for word in ending)

    def _seen(self) -> dict[str, Any]:
        """Return what tells the versions that a person decides on from others of the same numbers: table and stop."""
        state = self._state
        stop = UNSET if state.quarantined is None or state.quarantined_at is None else state.quarantined_at
        return {"table_id": self._table_id or state.table_id or UNSET, "answers": stop}

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
        on_their_way = (self._state.closed or self._state).planned
        after_epoch = 0
        table_versions: dict[str, int] = {}
        # for a replan, the position determines what is read again
        seen = self._state.shown if reason in ("rewind", "reset") else ()
        is_function = self._handed_out.is_function
        if is_function:
            notes = (*notes, *self._handed_out.notes(reason, to))
            writes = self._handed_out.writes
            seen, after_epoch = writes.seen, writes.newest_epoch
            table_versions = writes.table_versions if reason in ("replan", "rebind") else {}
        elif on_their_way and reason in ("rewind", "reset"):
            given_up = (
                f"Discards {describe_batches(on_their_way)}. If one of them is in the sink by then, the next run "
            )
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
            table_versions=table_versions,
            removal=removal,
            loads_skipped=loads_skipped or UNSET,
        )
        return PreparedAction(self._name, (command,), describe_standing(self._state), f"epoch {epoch}, {after}", notes)

    @cached_property
    def _handed_out(self) -> HandedOut:
        # a task or process that cannot be seen from here may still write
        return HandedOut(
            self.ledger, self.open_table, lambda owner: not self.is_forced and self.owner_runs(owner) is not False
        )

    def _inside_notes(self, start: Offset | None) -> tuple[str, ...]:
        """Warn that a sink which decides per key may refuse to start at a position; ``None``: the current position."""
        position = (self._state.closed or self._state).position
        place = start or (None if position is None else Offset.from_json(position))
        if place is None or not is_inside_commit(place):
            return ()
        note = (
            f"That is inside version {place.version}. With read_change_feed, a sink that decides per key (a "
            "merge) needs the whole of a version that adds and removes rows. In that case use `fds rewind "
            f"{self._name} --to {place.version} --sink-rows keep --why …`."
        )
        return (note,)
