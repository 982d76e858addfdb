"""What a person may do to a stream: rewind, reset, re-plan, rebind, skip and so on; each said before it is done.

A :class:`Move` is worked out from the ledger alone, so it can be made wherever staging is reached. It takes effect with
one ledger entry; where that requests a new epoch, the next run of the stream closes the old one in the sink first.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from airflow_provider_fds.errors import ConfigurationError, FdsError
from airflow_provider_fds.ledger.commands import Accept, Acknowledge, Hold, Request, Resume, Retire
from airflow_provider_fds.ledger.entries import Planned
from airflow_provider_fds.ledger.state import KEPT_ACKNOWLEDGEMENTS
from airflow_provider_fds.source.offset import Offset
from airflow_provider_fds.stream.function_writes import FunctionWrites
from airflow_provider_fds.stream.repeated import repeated_notes
from airflow_provider_fds.stream.whole_commits import is_inside_commit

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from airflow_provider_fds.delta.log import DeltaLog
    from airflow_provider_fds.delta.storage import Storage
    from airflow_provider_fds.ledger.commands import Command
    from airflow_provider_fds.ledger.entries import Actor, Owner
    from airflow_provider_fds.ledger.log import Ledger
    from airflow_provider_fds.ledger.state import StreamState
    from airflow_provider_fds.ledger.values import PlannedBatch, SinkBinding


@dataclass(frozen=True, slots=True)
class Move:
    """A change of a stream's position that was asked for, not yet made.

    Attributes:
        stream: Name of the stream.
        commands: What is put to the ledger, in order.
        before: Where the stream stands, in words.
        after: Where it will stand.
        notes: What it means for the rows in the sink, and what to do there; one sentence or statement each.
    """

    stream: str
    commands: tuple[Command, ...]
    before: str
    after: str
    notes: tuple[str, ...] = ()

    def words(self) -> str:
        """Return the move as people read it before they agree to it."""
        lines = [f"stream {self.stream}", f"  before: {self.before}", f"  after:  {self.after}"]
        return "\n".join([*lines, *(f"  {note}" for note in self.notes)])


@dataclass(frozen=True)
class Mover:
    """Works out moves of one stream.

    Args:
        ledger: The stream's ledger, read to its head, with at least one entry.
        why: The reason; it stays in the history.
        replaces: Whether a request that waits to be opened is given up for the new one.
        log: The source's log, to check a target against; ``None`` where it cannot be reached from here.
        owner_is_running: Asked, for a user's own job, about the owner of planned batches.
        open_table: Opens the tables of a user's function, ``None`` where they cannot be reached from here.
    """

    ledger: Ledger
    why: str
    replaces: bool = False
    log: DeltaLog | None = None
    owner_is_running: Callable[[Owner], bool] = field(default=lambda _owner: True)
    open_table: Callable[[str], Storage] | None = None

    def rewind(
        self,
        *,
        to_version: int | None = None,
        to_timestamp: str | None = None,
        to_batch: int | None = None,
        landed: bool | Mapping[str, bool] | None = None,
    ) -> Move:
        """Read again from an earlier position on.

        Args:
            to_version: First version to read (inclusive).
            to_timestamp: Read from the first commit at or after this time, UTC unless it carries a zone.
            to_batch: Read from the start of this batch of the newest epoch that has one.
            landed: For a job or function of the user's with a batch on its way: whether its rows are in the sink; of a
                function also by write.

        Raises:
            ConfigurationError: Not exactly one target, or one that cannot be.
            LedgerError: There is no such batch, or its owner still runs.
        """
        given = [value for value in (to_version, to_timestamp, to_batch) if value is not None]
        if len(given) != 1:
            raise ConfigurationError(
                f"stream {self._name!r}: a rewind takes exactly one of a version, a timestamp and a batch, got "
                f"{len(given)}"
            )
        self._check_own_job(landed, needs_word=False)
        if to_batch is not None:
            return self._to_batch(to_batch)
        version = to_version if to_timestamp is None else self._version_at(to_timestamp)
        if version is not None:
            self._check_version(version)
        to: dict[str, Any] = {"starting_version": to_version}
        if to_timestamp is not None:
            to = {"starting_timestamp": to_timestamp}
        words = (
            "the first commit at or after " + to_timestamp if version is None and to_timestamp else f"version {version}"
        )
        return self._request("rewind", to, f"reads from {words} on", self._repeated(version))

    def reset(self) -> Move:
        """Begin anew, as the stream's start options say."""
        self._check_own_job(None, needs_word=False)
        return self._request(
            "reset",
            {"start": "options"},
            "begins as its start options say, like a new stream",
            repeated_notes(self.ledger, None, is_reset=True),
        )

    def replan(self, *, landed: bool | Mapping[str, bool] | None = None) -> Move:
        """Give up planned batches and plan anew from the committed position, with the options of then.

        Args:
            landed: For a job or function of the user's with a batch on its way: whether its rows are in the sink; of a
                function also by write.
        """
        to = self._behind_landed(landed)
        state = self._state
        batches = len(state.planned if state.closed is None else state.closed.planned)
        note = f"{batches} planned batches are given up; those that are in the sink by then count as loaded."
        if self._is_function:
            # of these the tables are asked now, and what comes later is refused
            note = f"{batches} planned batches are given up."
        return self._request("replan", to, "stays there, and plans anew", (note,))

    def rebind(self, *, landed: bool | Mapping[str, bool] | None = None) -> Move:
        """Let the next run bind the stream to the sink that it names then.

        Args:
            landed: For a job or function of the user's with a batch on its way: whether its rows are in the sink; of a
                function also by write.
        """
        to = self._behind_landed(landed)
        sink = "none" if self._state.sink is None else self._state.sink.words()
        return self._request(
            "rebind",
            to,
            "stays there; its next run binds it to the sink it has then",
            (
                f"Its sink was {sink}; what is there stays there, and only what comes now goes to the new one.",
                *self._inside_notes(None if to is None else Offset.from_json(to["offset"])),
            ),
        )

    def skip(self, first: int, last: int | None = None) -> Move:
        """Leave out all that some versions hold.

        Args:
            first: First version (inclusive).
            last: Last version (inclusive), ``None``: only the first.

        Raises:
            ConfigurationError: More versions than the stream remembers, or none.
        """
        last = first if last is None else last
        if not 0 <= last - first < KEPT_ACKNOWLEDGEMENTS:
            raise ConfigurationError(
                f"stream {self._name!r}: versions {first} to {last} are none, or more than {KEPT_ACKNOWLEDGEMENTS}, "
                "which "
                "is as many as are remembered. For more, set skip_versions on the stream"
            )
        which = f"version {first}" if first == last else f"versions {first} to {last}"
        return Move(
            self._name,
            tuple(Acknowledge(version=version, why=self.why, skip=True) for version in range(first, last + 1)),
            self._before(),
            f"passes over {which} when it comes to it",
            (f"No row of {which} is loaded; the history says so, with the reason.",),
        )

    def acknowledge(self, version: int) -> Move:
        """Let the stream pass a version that it stops before."""
        return self._word(Acknowledge(version=version, why=self.why), f"may pass version {version}")

    def accept(self, batch_id: int) -> Move:
        """Take a blocked batch as it is in the sink."""
        command = Accept(epoch=self._state.epoch, batch_id=batch_id, why=self.why)
        return self._word(command, f"takes batch {batch_id} as it is in the sink")

    def hold(self) -> Move:
        """Plan nothing new until the stream is resumed."""
        return self._word(Hold(why=self.why), "is held until it is resumed")

    def resume(self) -> Move:
        """Let the stream go on after a hold or a quarantine."""
        return self._word(Resume(why=self.why), "goes on with its next run")

    def retire(self) -> Move:
        """End the stream for good."""
        return Move(
            self._name,
            (Retire(why=self.why),),
            self._before(),
            "has ended for good; its name can not be used again",
            ("Its ledger and manifests stay in staging; remove the folder when nobody needs the history.",),
        )

    def _word(self, command: Command, after: str) -> Move:
        return Move(self._name, (command,), self._before(), after)

    @property
    def _state(self) -> StreamState:
        return self.ledger.state

    @property
    def _name(self) -> str:
        return self._state.name

    def _before(self) -> str:
        state = self._state
        if state.phase == "open":
            return f"epoch {state.epoch}, {position_words(state.position)}"
        request = f"epoch {state.epoch} is requested"
        if state.request is not None:
            request += f" ({state.request.reason}: {state.request.why})"
        if state.closed is None:
            return f"{request}, and was not begun yet"
        return f"{request}; epoch {state.closed.epoch} stood at {position_words(state.closed.position)}"

    def _request(
        self,
        reason: Literal["rewind", "reset", "replan", "rebind"],
        to: dict[str, Any] | None,
        after: str,
        notes: tuple[str, ...],
    ) -> Move:
        on_their_way = len(self._state.planned if self._state.closed is None else self._state.closed.planned)
        if on_their_way and reason in ("rewind", "reset"):
            given_up = f"{on_their_way} planned batches are given up; should one be in the sink by then, the next run "
            notes = (*notes, f"{given_up}says so and reads nothing again before a person has looked.")
        versions: dict[str, int] = {}
        if self._is_function:
            writes = FunctionWrites(self.ledger, self.open_table)
            if self._on_their_way and reason in ("replan", "rebind"):
                notes = (*notes, writes.loaded_note((to or {}).get("offset")))
            notes, versions = (*notes, *writes.notes()), writes.table_versions()
        command = Request(
            reason=reason,
            why=self.why,
            epoch=self._state.epoch,
            to=to,
            replaces=self.replaces,
            table_versions=versions,
        )
        return Move(self._name, (command,), self._before(), f"epoch {self._state.epoch + 1}, {after}", notes)

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
                f"stream {self._name!r} stands at {position_words(position.to_json())}, and version {version} lies "
                f"behind that: a rewind goes back only. To leave a version out: `fds skip {self._name} "
                "--version N --why …`"
            )
        if self.log is not None and version < (earliest := self.log.earliest()):
            raise ConfigurationError(
                f"stream {self._name!r}: version {version} of {self.log.table_uri} is gone, the oldest commit in "
                "the log "
                f"is {earliest}. Rewind to that, or `fds reset {self._name} --why …` to begin with a snapshot"
            )

    def _to_batch(self, batch_id: int) -> Move:
        found: tuple[Planned, PlannedBatch] | None = None
        for entry in self.ledger.entries():
            if isinstance(entry.action, Planned):
                batches = (b for b in entry.action.batches if b.batch_id == batch_id)
                found = next(((entry.action, batch) for batch in batches), found)
        if found is None:
            raise ConfigurationError(f"stream {self._name!r} has no batch {batch_id}; see `fds history {self._name}`")
        planned, batch = found
        start = Offset.from_json(batch.start)
        position = self._position()
        if position is not None and start > position:
            raise ConfigurationError(
                f"stream {self._name!r} stands at {position_words(position.to_json())}; batch {batch_id} of epoch "
                f"{planned.epoch} begins behind that, and a rewind goes back only"
            )
        to = {"offset": batch.start, "meaning_digest": planned.meaning_digest}
        after = f"reads from {position_words(batch.start)} on, where batch {batch_id} of epoch {planned.epoch} began"
        notes = (*repeated_notes(self.ledger, start), *self._inside_notes(start))
        return self._request("rewind", to, after, notes)

    def _inside_notes(self, start: Offset | None) -> tuple[str, ...]:
        """Say that a sink which decides per key may refuse to begin at a place, ``None``: the position."""
        place = start or self._position()
        if place is None or not is_inside_commit(place):
            return ()
        note = (
            f"That is inside version {place.version}. With read_change_feed, a sink that decides per key (a merge) "
            "needs all of a version that adds and removes rows: then use "
            f"`fds rewind {self._name} --to-version {place.version} --why …`."
        )
        return (note,)

    def _repeated(self, version: int | None) -> tuple[str, ...]:
        if version is None:
            return ("Rows of commits at or after that time that the sink has already are there twice then.",)
        return repeated_notes(self.ledger, Offset(self._state.table_id or "", version))

    def _behind_landed(self, landed: bool | Mapping[str, bool] | None) -> dict[str, Any] | None:
        """Return where an epoch goes on if a person knows that the batch on its way is in the sink."""
        self._check_own_job(landed, needs_word=not self._is_function)
        if self._is_function:
            end = FunctionWrites(self.ledger, self.open_table).end_of_landed(landed) if self._on_their_way else None
            return None if end is None else {"offset": end}
        return {"offset": self._state.planned[0].end} if landed and self._state.planned else None

    @property
    def _bound(self) -> SinkBinding | None:
        """The sink, also of an epoch that a request has closed and that is to be asked for anew."""
        return self._state.sink or self._state.fence_sink

    @property
    def _is_function(self) -> bool:
        return self._bound is not None and self._bound.kind == "foreach_batch"

    @property
    def _on_their_way(self) -> tuple[PlannedBatch, ...]:
        state = self._state
        if state.closed is None:
            return state.planned
        # only of a function can be asked again what its tables have
        return state.closed.planned if self._is_function else ()

    def _check_own_job(self, landed: bool | Mapping[str, bool] | None, *, needs_word: bool) -> None:
        """A batch of a user's own job cannot be fenced: a person has to know what became of it."""
        state = self._state
        sink = self._bound
        if sink is None or not sink.is_users_own or not self._on_their_way:
            if landed is not None:
                raise ConfigurationError(
                    f"stream {self._name!r}: whether a batch landed is asked for a batch of a user's own job that is "
                    "planned and not committed; there is none"
                )
            return
        owner = state.owner
        if owner is not None and self.owner_is_running(owner):
            raise ConfigurationError(
                f"stream {self._name!r}: its planned batch belongs to {owner.words()}, which still runs as far as is "
                "known here, and nothing keeps its job from writing. Wait for it or end it; if it is gone for sure: "
                "--force"
            )
        if needs_word and landed is None:
            batch = self._on_their_way[0]
            raise ConfigurationError(
                f"stream {self._name!r}: batch {batch.batch_id} (versions {batch.first_version} to "
                f"{batch.last_version}) was handed to {sink.words()}, and only you can know whether its rows "
                "are in your tables: --landed yes, or --landed no"
            )


def perform(ledger: Ledger, move: Move, actor: Actor, request_id: str | None = None) -> str:
    """Put a move to the ledger, and say in a sentence what came of it.

    Args:
        ledger: The stream's ledger.
        move: What was agreed to.
        actor: Who asks.
        request_id: Name of the request; one that was answered before is not made again.

    Raises:
        LedgerError: The stream has moved on since the move was worked out, or does not allow it.
    """
    entry = None
    for number, command in enumerate(move.commands):
        name = request_id if request_id is None or number == 0 else f"{request_id} ({number + 1})"
        entry = ledger.execute(command, actor, name) or entry
    if entry is None:
        return f"stream {move.stream}: nothing to do, it is so already"
    done = f"stream {move.stream}: {move.after} (ledger entry {entry.n})"
    return f"{done}. The next run begins the epoch" if isinstance(move.commands[-1], Request) else done


def is_answered(ledger: Ledger, request_id: str) -> bool:
    """Say whether the request was made before."""
    return any(answered.request_id == request_id for answered in ledger.state.answered)


def readable(log: DeltaLog) -> DeltaLog | None:
    """Return the log if it can be read from here, else ``None``."""
    try:
        log.latest()
    except FdsError:
        return None
    return log


def position_words(position: str | None) -> str:
    """Return a position as people read it."""
    if position is None:
        return "no position"
    offset = Offset.from_json(position)
    if offset.is_initial_snapshot:
        return f"the snapshot of version {offset.version}, {offset.next_index} files in"
    if offset.next_index > 0:
        return f"version {offset.version}, {offset.next_index} files in"
    return f"the beginning of version {offset.version}"


__all__ = ["Move", "Mover", "is_answered", "perform", "position_words", "readable"]
