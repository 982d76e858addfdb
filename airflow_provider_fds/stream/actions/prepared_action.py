"""An operator action, prepared: first described to a person, then written to the ledger."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

from msgspec import structs

from airflow_provider_fds.batch.version_ranges import describe_range
from airflow_provider_fds.ledger.entries.protocol import decide
from airflow_provider_fds.ledger.entries.request_entries import Requested
from airflow_provider_fds.ledger.staging.decisions import deciding
from airflow_provider_fds.source.offset import describe_position

if TYPE_CHECKING:
    from airflow_provider_fds.ledger.entries.action import BaseAction
    from airflow_provider_fds.ledger.owner import Actor
    from airflow_provider_fds.ledger.staging.log import Ledger
    from airflow_provider_fds.ledger.state import StreamState


@dataclass(frozen=True, slots=True)
class PreparedAction:
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
        """Return the action as shown to people before they confirm it."""
        lines = [f"stream {self.stream}", f"  before: {self.before}", f"  after:  {self.after}"]
        return "\n".join([*lines, *(f"  {note}" for note in self.notes)])

    def describe_unchanged(self) -> str:
        """Return the outcome if the ledger already has the requested state."""
        return f"stream {self.stream!r} {self.unchanged}"

    def changes(self, state: StreamState) -> bool:
        """Whether it would change the stream.

        Raises:
            LedgerError: The stream does not allow it.
        """
        decided = [decide(state, command) for command in self.commands]
        return any(one is not None for one in decided)

    def because(self, why: str) -> Self:
        """Return it with another reason."""
        return replace(self, commands=tuple(structs.replace(command, why=why) for command in self.commands))


def perform(
    ledger: Ledger,
    action: PreparedAction,
    actor: Actor,
    request_id: str | None = None,
    *,
    expected: int | None = None,
) -> str:
    """Write an action to the ledger and return the outcome in one sentence.

    Args:
        ledger: The stream's ledger.
        action: The action that was confirmed.
        actor: Who asks.
        request_id: Name of the request; a request that was answered before is not repeated.
        expected: Number of the last ledger entry on which the request is based; ``None``: any.

    Raises:
        LedgerError: The stream has moved on since the action was prepared, or does not allow it.
    """
    if not action.commands:
        return action.describe_unchanged()
    entry = None
    with deciding(ledger.storage):
        for left, command in zip(reversed(range(len(action.commands))), action.commands, strict=True):
            # the last entry has the name: a request that was half done is not answered, and its repetition goes on
            entry = ledger.execute(command, actor, None if left else request_id, expected=expected) or entry
            # the entries of this action are expected, too
            expected = None if expected is None else ledger.n
    if entry is None:
        return action.describe_unchanged()
    done = f"stream {action.stream}: {action.after} (ledger entry {entry.n})"
    return f"{done}. The next run begins the epoch" if isinstance(action.commands[-1], Requested) else done


def is_answered(ledger: Ledger, request_id: str) -> bool:
    """Return whether the request was already made, with all of its entries."""
    return any(answered.request_id == request_id for answered in ledger.state.answered)


def describe_standing(state: StreamState) -> str:
    """Return in words where a stream is."""
    if state.reads_by_interval:
        unfinished = sum(not record.is_done for record in state.intervals)
        return f"reads data intervals, {len(state.intervals)} so far, {unfinished} unfinished"
    if state.phase == "open":
        return f"epoch {state.epoch}, {describe_position(state.position)}"
    request = f"epoch {state.epoch} is requested"
    if state.request is not None:
        request += f" ({state.request.asked}: {state.request.why})"
    if state.closed is None:
        return f"{request} but has not begun"
    return f"{request}; epoch {state.closed.epoch} was at {describe_position(state.closed.position)}"


def describe_skip(state: StreamState, first: int, last: int) -> tuple[str, str]:
    """Return in words what skipping versions ``first`` to ``last`` does to a stream, and to its rows."""
    which = describe_range(first, last)
    note = f"No row of {which} is loaded; the history records this with the reason."
    if not state.reads_by_interval:
        return f"skips {which} when it reaches it", note
    note += " Rows that are already in the sink stay there until the run of their interval is cleared."
    return f"skips {which} when a run plans its interval", note
