"""The manual changes to a stream: rewind, reset, replan, rebind, skip and so on; each is described before it is made.

A :class:`Move` is derived from the ledger alone, so it can be made wherever staging can be reached. It takes effect
with one ledger entry. If that entry requests a new epoch, the next run of the stream first closes the old one in the
sink.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Literal

from airflow_provider_fds.errors import ConfigurationError, FdsError
from airflow_provider_fds.ledger.commit_entries import Accepted
from airflow_provider_fds.ledger.epoch_entries import Requested
from airflow_provider_fds.ledger.operator_entries import Acknowledged, Held, Resumed, Retired, Transferred
from airflow_provider_fds.ledger.owner import Owner
from airflow_provider_fds.ledger.plan_entries import Claimed, Planned
from airflow_provider_fds.ledger.state import KEPT_ACKNOWLEDGEMENTS
from airflow_provider_fds.source.offset import Offset
from airflow_provider_fds.stream.function_writes import FunctionWrites
from airflow_provider_fds.stream.move import Move, describe_position
from airflow_provider_fds.stream.repeated import repeated_notes
from airflow_provider_fds.stream.sink_before import UNKNOWN_VERSION
from airflow_provider_fds.stream.sink_removal import Asked, removal_of
from airflow_provider_fds.stream.whole_commits import is_inside_commit

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from airflow_provider_fds.delta.log import DeltaLog
    from airflow_provider_fds.delta.storage import Storage
    from airflow_provider_fds.ledger.entries import Action
    from airflow_provider_fds.ledger.log import Ledger
    from airflow_provider_fds.ledger.state import StreamState
    from airflow_provider_fds.ledger.values import PlannedBatch, Removal, SeenBatch, SinkBinding


_READ_AGAIN: Final = "Their rows are read again, and are there twice unless they were taken out."


@dataclass(frozen=True)
class Mover:
    """Derives the moves of one stream.

    Args:
        ledger: The stream's ledger, read to its head, with at least one entry.
        why: The reason; it stays in the history.
        replaces: Whether the new request replaces one that is not opened yet.
        log: The source's log, to check a target against; ``None`` if it cannot be reached from here.
        sink_log: The sink's log, to check what is to be removed; ``None`` if it cannot be reached from here.
        owner_is_running: For a user job: whether the owner of planned batches is running.
        open_table: Opens the tables of a user's function; ``None`` if they cannot be reached from here.
        deployment: The Airflow installation that a transfer gives the stream to.
    """

    ledger: Ledger
    why: str
    replaces: bool = False
    log: DeltaLog | None = None
    sink_log: DeltaLog | None = None
    owner_is_running: Callable[[Owner], bool] = field(default=lambda _owner: True)
    open_table: Callable[[str], Storage] | None = None
    deployment: str = ""

    def rewind(
        self,
        *,
        to_version: int | None = None,
        to_timestamp: str | None = None,
        to_batch: int | None = None,
        landed: bool | Mapping[str, bool] | None = None,
        delete: bool = False,
        sink: str | None = None,
        force_sink: bool = False,
    ) -> Move:
        """Read again from an earlier position.

        Args:
            to_version: First version to read (inclusive).
            to_timestamp: Read from the first commit at or after this time, UTC unless it has a zone.
            to_batch: Read from the start of this batch of the newest epoch that has one.
            landed: For a user job or function with a batch in progress: whether its rows are in the sink; for a
                function also per write.
            delete: Whether the fence deletes the rows that are read again, by their provenance.
            sink: ``empty``: the fence empties the sink. ``keep``: its rows stay. A sink that merges needs one of them.
            force_sink: Remove rows even if others may have written to the sink.

        Raises:
            ConfigurationError: Not exactly one target, or an impossible one; rows that cannot be told apart from
                others.
            LedgerError: There is no such batch, or its owner still runs.
        """
        given = [value for value in (to_version, to_timestamp, to_batch) if value is not None]
        if len(given) != 1:
            raise ConfigurationError(
                f"stream {self._name!r}: a rewind takes exactly one of a version, a timestamp and a batch, got "
                f"{len(given)}"
            )
        self._check_user_job(landed, needs_word=False)
        asked = Asked(is_delete=delete, sink=sink, is_forced=force_sink)
        if to_batch is not None:
            return self._to_batch(to_batch, asked)
        version = to_version if to_timestamp is None else self._version_at(to_timestamp)
        if version is not None:
            self._check_version(version)
        removal = self._removal("rewind", asked, self._start_at(version), is_known=version is not None)
        to: dict[str, Any] = {"starting_version": version}
        if to_timestamp is not None and removal is None:
            to = {"starting_timestamp": to_timestamp}
        words = (
            "the first commit at or after " + to_timestamp if version is None and to_timestamp else f"version {version}"
        )
        return self._request("rewind", to, f"reads from {words} on", self._repeated(version, removal), removal)

    def reset(self, *, sink: str | None = None, force_sink: bool = False) -> Move:
        """Start over from the stream's start options.

        Args:
            sink: ``empty``: the fence empties the sink. ``keep``: its rows stay. A sink that merges needs one of them.
            force_sink: Empty the sink even if others may have written to it.

        Raises:
            ConfigurationError: It is not stated what happens to the sink's rows, or that cannot be done.
        """
        self._check_user_job(None, needs_word=False)
        removal = self._removal("reset", Asked(is_delete=False, sink=sink, is_forced=force_sink), None, is_known=True)
        return self._request(
            "reset",
            {"start": "options"},
            "begins as its start options say, like a new stream",
            repeated_notes(self.ledger, None, is_reset=True, removal=removal),
            removal,
        )

    def replan(self, *, landed: bool | Mapping[str, bool] | None = None) -> Move:
        """Give up planned batches and plan again from the committed position, with the options of that run.

        Args:
            landed: For a user job or function with a batch in progress: whether its rows are in the sink; for a
                function also per write.
        """
        if self._is_function:
            self._writes.refuse_gone()
        to = self._behind_landed(landed)
        state = self._state
        batches = len(state.planned if state.closed is None else state.closed.planned)
        note = f"{batches} planned batches are given up; those that are in the sink by then count as loaded."
        if self._is_function:
            # the tables are checked for these now, and anything later is refused
            note = f"{batches} planned batches are given up."
        return self._request("replan", to, "stays there, and plans anew", (note,))

    def rebind(self, *, landed: bool | Mapping[str, bool] | None = None) -> Move:
        """Let the next run bind the stream to the sink that it names.

        Args:
            landed: For a user job or function with a batch in progress: whether its rows are in the sink; for a
                function also per write.
        """
        to = self._behind_landed(landed)
        sink = "none" if self._state.sink is None else self._state.sink.describe()
        return self._request(
            "rebind",
            to,
            "stays there; its next run binds it to the sink it has then",
            (
                f"Its sink was {sink}. The rows in that sink stay; only new rows go to the new sink.",
                *self._inside_notes(None if to is None else Offset.from_json(to["offset"])),
            ),
        )

    def skip(self, version: tuple[int, int]) -> Move:
        """Leave out everything in some versions.

        Args:
            version: First and last version, both inclusive.

        Raises:
            ConfigurationError: More versions than the stream remembers, or none.
        """
        first, last = version
        if not 0 <= last - first < KEPT_ACKNOWLEDGEMENTS:
            raise ConfigurationError(
                f"stream {self._name!r}: invalid version range {first} to {last}: expected 1 to "
                f"{KEPT_ACKNOWLEDGEMENTS} versions, with the first not after the last. For a longer range, set "
                "skip_versions on the stream"
            )
        which = f"version {first}" if first == last else f"versions {first} to {last}"
        return Move(
            self._name,
            tuple(Acknowledged(version=version, why=self.why, skip=True) for version in range(first, last + 1)),
            self._before(),
            f"passes over {which} when it comes to it",
            (f"No row of {which} is loaded; the history says so, with the reason.",),
        )

    def acknowledge(self, version: int) -> Move:
        """Let the stream pass a version at which it stops.

        Raises:
            ConfigurationError: The stream has already passed it.
        """
        position = self._state.position
        if position is not None and version < Offset.from_json(position).version:
            raise ConfigurationError(
                f"stream {self._name!r} is at {position}, already past version {version}; nothing was done. Use the "
                "version in the message of the run that stopped"
            )
        return self._word(Acknowledged(version=version, why=self.why), f"may pass version {version}")

    def accept(self, batch: int | None = None, interval: str | None = None) -> Move:
        """Accept a blocked batch, or a blocked data interval, as it is in the sink.

        Raises:
            ConfigurationError: Not exactly one of the two.
        """
        if (batch is None) == (interval is None):
            raise ConfigurationError(f"stream {self._name!r}: accept takes a batch or a data interval, and one of them")
        if interval is not None:
            command = Accepted(interval=interval, why=self.why)
            return self._word(command, f"takes {interval} as it is in the sink; now clear the task of that run")
        assert batch is not None  # noqa: S101  # one of the two is given
        taken = Accepted(epoch=self._state.epoch, batch_id=batch, why=self.why)
        return self._word(taken, f"takes batch {batch} as it is in the sink")

    def hold(self) -> Move:
        """Plan nothing new until the stream is resumed."""
        return self._word(Held(why=self.why), "is held until `fds resume`", unchanged="was held already")

    def resume(self) -> Move:
        """Let the stream continue after a hold or a quarantine."""
        unchanged = "was neither held nor in quarantine"
        return self._word(Resumed(why=self.why), "continues with its next run", unchanged=unchanged)

    def adopt(self) -> Move:
        """Let the next run take over planned batches whose owner is gone.

        Raises:
            ConfigurationError: The owner is considered to be running.
        """
        state = self._state
        owner = state.owner
        if owner is None:
            return Move(self._name, (), self._before(), "stays as it is", unchanged="has no planned batches")
        if self.owner_is_running(owner):
            raise ConfigurationError(
                f"the planned batches of stream {self._name!r} belong to {owner.describe()}, which counts as "
                "running here. If it is gone for sure: --force"
            )
        claim = Claimed(epoch=state.epoch, owner=Owner.of_plan(state.deployment), previous=owner, why=self.why)
        return self._word(claim, f"has a next run that takes over {len(state.planned)} planned batches")

    def transfer(self) -> Move:
        """Give the stream to the Airflow installation that ``deployment`` names."""
        before = self._state.deployment
        after = f"belonged to deployment {before!r}, now to {self.deployment!r}"
        return self._word(Transferred(deployment=self.deployment, why=self.why), after)

    def retire(self) -> Move:
        """End the stream for good."""
        return Move(
            self._name,
            (Retired(why=self.why),),
            self._before(),
            "has ended for good; its name can not be used again",
            ("Its ledger and manifests stay in staging; remove the folder when nobody needs the history.",),
        )

    def _word(self, command: Action, after: str, *, unchanged: str = "stays as it is, nothing to do") -> Move:
        return Move(self._name, (command,), self._before(), after, unchanged=unchanged)

    @property
    def _state(self) -> StreamState:
        return self.ledger.state

    @property
    def _name(self) -> str:
        return self._state.name

    def _before(self) -> str:
        state = self._state
        if state.phase == "open":
            return f"epoch {state.epoch}, {describe_position(state.position)}"
        request = f"epoch {state.epoch} is requested"
        if state.request is not None:
            request += f" ({state.request.reason}: {state.request.why})"
        if state.closed is None:
            return f"{request}, and was not begun yet"
        return f"{request}; epoch {state.closed.epoch} stood at {describe_position(state.closed.position)}"

    def _request(
        self,
        reason: Literal["rewind", "reset", "replan", "rebind"],
        to: dict[str, Any] | None,
        after: str,
        notes: tuple[str, ...],
        removal: Removal | None = None,
    ) -> Move:
        on_their_way = len(self._state.planned if self._state.closed is None else self._state.closed.planned)
        versions: dict[str, int] = {}
        after_epoch = 0
        if self._is_function:
            notes = (*notes, *self._function_notes(reason, on_their_way, to))
            versions, after_epoch = self._writes.table_versions(), self._writes.newest_epoch
        elif on_their_way and reason in ("rewind", "reset"):
            given_up = f"{on_their_way} planned batches are given up; should one be in the sink by then, the next run "
            notes = (*notes, f"{given_up}says so and reads nothing again before a person has looked.")
        # for a replan or a rebind, the position determines what is read again
        seen = self._state.shown if reason in ("rewind", "reset") or self._is_function else ()
        if seen and not self._is_function:
            which = ", ".join(_describe_seen(b) for b in seen)
            notes = (*notes, f"Not committed, and shown by an earlier run: the sink has {which}. {_READ_AGAIN}")
        epoch = max(self._state.epoch, after_epoch) + 1
        command = Requested(
            epoch=epoch,
            reason=reason,
            why=self.why,
            closes=self._state.epoch,
            to=to,
            replaces=self.replaces,
            table_versions=versions,
            seen=seen,
            removal=removal,
        )
        return Move(self._name, (command,), self._before(), f"epoch {epoch}, {after}", notes)

    def _function_notes(self, reason: str, on_their_way: int, to: Mapping[str, Any] | None) -> tuple[str, ...]:
        """Describe what a request means for the tables of a function."""
        notes: tuple[str, ...] = ()
        if reason in ("rewind", "reset"):
            if on_their_way:
                given_up = f"{on_their_way} planned batches are given up. Where one is written into a named table after"
                notes = (f"{given_up} this request, the next run says so and does not begin the epoch.",)
            notes = (*notes, *self._writes.repeated_notes())
        elif self._on_their_way:
            notes = (self._writes.loaded_note((to or {}).get("offset")),)
        return (*notes, *self._writes.notes())

    @cached_property
    def _writes(self) -> FunctionWrites:
        return FunctionWrites(self.ledger, self.open_table)

    def _position(self) -> Offset | None:
        state = self._state
        text = state.position if state.closed is None else state.closed.position
        return None if text is None else Offset.from_json(text)

    def _version_at(self, text: str) -> int | None:
        from airflow_provider_fds.delta.timestamps import CommitTimestamps, parse_timestamp

        try:
            instant = parse_timestamp(text)
        except ValueError as error:
            raise ConfigurationError(f"stream {self._name!r}: the time to rewind to {error}") from error
        if self.log is None:
            return None
        found = CommitTimestamps(self.log).at_or_after(instant)
        if found is None:
            raise ConfigurationError(
                f"stream {self._name!r}: no commit of {self.log.table_uri} is as young as {text}; a rewind goes back"
            )
        return found

    def _check_version(self, version: int) -> None:
        position = self._position()
        if position is not None and version > position.version:
            raise ConfigurationError(
                f"stream {self._name!r} is at {describe_position(position.to_json())}, and version {version} is "
                f"later; a rewind can only move backwards. To skip a version: `fds skip {self._name} "
                "--version N --why …`"
            )
        if self.log is not None and version < (earliest := self.log.earliest()):
            raise ConfigurationError(
                f"stream {self._name!r}: version {version} of {self.log.table_uri} is gone, the oldest commit in "
                "the log "
                f"is {earliest}. Rewind to that, or `fds reset {self._name} --why …` to begin with a snapshot"
            )

    def _removal(
        self, reason: Literal["rewind", "reset"], asked: Asked, start: Offset | None, *, is_known: bool
    ) -> Removal | None:
        return removal_of(self.ledger, self.sink_log, reason, asked, start, is_known=is_known)

    def _start_at(self, version: int | None) -> Offset | None:
        return None if version is None else Offset(self._state.table_id or "", version)

    def _to_batch(self, batch_id: int, asked: Asked) -> Move:
        found: tuple[Planned, PlannedBatch] | None = None
        expected = 0
        is_known = True
        for entry in self.ledger.entries():
            is_known = is_known and entry.n == expected
            expected = entry.n + 1
            if isinstance(entry.action, Planned):
                is_known = is_known or any(b.batch_id == batch_id for b in entry.action.batches)
                batches = (b for b in entry.action.batches if b.batch_id == batch_id)
                found = next(((entry.action, batch) for batch in batches), found)
        if found is None:
            raise ConfigurationError(f"stream {self._name!r} has no batch {batch_id}; see `fds history {self._name}`")
        if not is_known:
            raise ConfigurationError(
                f"stream {self._name!r}: entries of its ledger are gone or cannot be read, and may have planned a "
                f"later batch {batch_id} than the one that is known. Name a version: --to-version N"
            )
        planned, batch = found
        start = Offset.from_json(batch.start)
        position = self._position()
        if position is not None and start > position:
            raise ConfigurationError(
                f"stream {self._name!r} stands at {describe_position(position.to_json())}; batch {batch_id} of epoch "
                f"{planned.epoch} begins later; a rewind can only move backwards"
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
            f"That is inside version {place.version}. With read_change_feed, a sink that decides per key (a merge) "
            "needs all of a version that adds and removes rows: then use "
            f"`fds rewind {self._name} --to-version {place.version} --sink keep --why …`."
        )
        return (note,)

    def _repeated(self, version: int | None, removal: Removal | None) -> tuple[str, ...]:
        if version is None:
            return ("Rows of commits at or after that time that the sink has already are there twice then.",)
        return repeated_notes(self.ledger, self._start_at(version), removal=removal)

    def _behind_landed(self, landed: bool | Mapping[str, bool] | None) -> dict[str, Any] | None:
        """Return where an epoch continues if a person knows that the batch in progress is in the sink."""
        self._check_user_job(landed, needs_word=not self._is_function)
        if self._is_function:
            end = self._writes.end_of_landed(landed)
            return None if end is None else {"offset": end}
        return {"offset": self._state.planned[0].end} if landed and self._state.planned else None

    @property
    def _bound(self) -> SinkBinding | None:
        """The sink, also that of an epoch that a request has closed and that is requested again."""
        return self._state.sink or self._state.fence_sink

    @property
    def _is_function(self) -> bool:
        return self._bound is not None and self._bound.is_function

    @property
    def _on_their_way(self) -> tuple[PlannedBatch, ...]:
        state = self._state
        if state.closed is None:
            return state.planned
        # only a function's tables can be checked again
        return state.closed.planned if self._is_function else ()

    def _check_user_job(self, landed: bool | Mapping[str, bool] | None, *, needs_word: bool) -> None:
        """A batch of a user job cannot be fenced: a person must know what became of it."""
        state = self._state
        sink = self._bound
        if sink is None or not sink.is_user_defined or not self._on_their_way:
            if landed is not None:
                raise ConfigurationError(
                    f"stream {self._name!r}: --landed is only for a planned, uncommitted batch of a user job; "
                    "the stream has no such batch"
                )
            return
        owner = state.owner
        if owner is not None and self.owner_is_running(owner):
            raise ConfigurationError(
                f"stream {self._name!r}: its planned batch belongs to {owner.describe()}, which appears to be "
                "running, and its job may still write. Wait for it or stop it; if you are sure that it is gone, use "
                "--force"
            )
        if needs_word and landed is None:
            batch = self._on_their_way[0]
            raise ConfigurationError(
                f"stream {self._name!r}: batch {batch.batch_id} (versions {batch.first_version} to "
                f"{batch.last_version}) was handed to {sink.describe()}, and only you can know whether its rows "
                "are in your tables: --landed yes, or --landed no"
            )


def _describe_seen(batch: SeenBatch) -> str:
    where = f" (version {batch.sink_version})" if batch.sink_version != UNKNOWN_VERSION else ""
    return f"batch {batch.batch_id} of epoch {batch.epoch}{where}"


def readable(log: DeltaLog) -> DeltaLog | None:
    """Return the log if it can be read from here, else ``None``."""
    try:
        log.latest()
    except FdsError:
        return None
    return log


def readable_sink(state: StreamState, open_table: Callable[[str], Storage]) -> DeltaLog | None:
    """Return the log of the sink that FDS writes to if it can be read from here, else ``None``."""
    from airflow_provider_fds.delta.log import DeltaLog

    if state.sink is None or state.sink.is_user_defined:
        return None
    try:
        return readable(DeltaLog(open_table(state.sink.target)))
    except FdsError:
        return None


__all__ = ["Mover", "readable", "readable_sink"]
