"""A change of a stream that a person requested: first described, then written to the ledger."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_provider_fds.ledger.request_entries import Requested
from airflow_provider_fds.source.offset import Offset

if TYPE_CHECKING:
    from airflow_provider_fds.ledger.action import BaseAction
    from airflow_provider_fds.ledger.log import Ledger
    from airflow_provider_fds.ledger.owner import Actor


@dataclass(frozen=True, slots=True)
class Move:
    """A requested change of a stream's position, not yet made.

    Attributes:
        stream: Name of the stream.
        commands: The actions written to the ledger, in order.
        before: The current position, in words.
        after: The position after the change, in words.
        notes: Consequences for the rows in the sink, and what to do there; one sentence or statement each.
        unchanged: The message if the ledger already has the requested state.
    """

    stream: str
    commands: tuple[BaseAction, ...]
    before: str
    after: str
    notes: tuple[str, ...] = ()
    unchanged: str = "is unchanged; there is nothing to do"

    def describe(self) -> str:
        """Return the move as shown to people before they confirm it."""
        lines = [f"stream {self.stream}", f"  before: {self.before}", f"  after:  {self.after}"]
        return "\n".join([*lines, *(f"  {note}" for note in self.notes)])


def perform(ledger: Ledger, move: Move, actor: Actor, request_id: str | None = None) -> str:
    """Write a move to the ledger and return the outcome in one sentence.

    Args:
        ledger: The stream's ledger.
        move: The move that was confirmed.
        actor: Who asks.
        request_id: Name of the request; a request that was answered before is not repeated.

    Raises:
        LedgerError: The stream has moved on since the move was worked out, or does not allow it.
    """
    entry = None
    for number, command in enumerate(move.commands):
        name = request_id if request_id is None or number == 0 else f"{request_id} ({number + 1})"
        entry = ledger.execute(command, actor, name) or entry
    if entry is None:
        return f"stream {move.stream!r} {move.unchanged}"
    done = f"stream {move.stream}: {move.after} (ledger entry {entry.n})"
    return f"{done}. The next run begins the epoch" if isinstance(move.commands[-1], Requested) else done


def is_answered(ledger: Ledger, request_id: str) -> bool:
    """Return whether the request was already made."""
    return any(answered.request_id == request_id for answered in ledger.state.answered)


def describe_position(position: str | None) -> str:
    """Return a position in words."""
    if position is None:
        return "no position"
    offset = Offset.from_json(position)
    if offset.is_initial_snapshot:
        return f"the snapshot of version {offset.version}, {offset.next_index} files in"
    if offset.next_index > 0:
        return f"version {offset.version}, {offset.next_index} files in"
    return f"the beginning of version {offset.version}"


def describe_batches(number: int, kind: str = "planned") -> str:
    """Return ``1 planned batch`` or ``3 planned batches``."""
    return f"{number} {kind} batch" if number == 1 else f"{number} {kind} batches"


__all__ = ["Move", "describe_batches", "describe_position", "is_answered", "perform"]
