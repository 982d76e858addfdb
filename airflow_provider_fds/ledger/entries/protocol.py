"""The protocol as two pure functions: what may be written next, and what the entries result in.

Each kind of entry has its own rule and effect; this module has what applies to all (docs/design/ledger.md, "Entries").
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from msgspec.structs import replace

from airflow_provider_fds.ledger.entries import refusals
from airflow_provider_fds.ledger.entries.epoch_entries import Created
from airflow_provider_fds.ledger.entries.operator_entries import Quarantined, Retired

if TYPE_CHECKING:
    from airflow_provider_fds.ledger.entries.action import BaseAction
    from airflow_provider_fds.ledger.entries.entry import Entry
    from airflow_provider_fds.ledger.state import StreamState

    ActionT = TypeVar("ActionT", bound=BaseAction)


def decide(state: StreamState, action: ActionT) -> ActionT | None:
    """Return a proposed action as it will be written, or ``None`` if the ledger already says what it asks for.

    Raises:
        StreamMovedError: The ledger has moved on since the sender read it (retryable after reading again).
        EpochClosedError: The action belongs to a closed epoch (retryable in the newest one).
        StreamBusyError: The planned batches belong to another run (retryable).
        SinkError: The sink is another one, or contradicts the ledger.
        LedgerError: The state does not allow the action for another reason; the message names the command to run.
    """
    if state.phase == "empty" and not isinstance(action, Created):
        raise refusals.not_created(state)
    if state.retired is not None and not isinstance(action, Retired):
        raise refusals.retired(state, action.describe())
    return action.decide(state)


def evolve(state: StreamState, entry: Entry) -> StreamState:
    """Return the state after one more entry."""
    before, state = state.position, entry.action.apply_as(state, entry.actor)
    if state.position != before:
        state = replace(state, moved_at=None if state.position is None else entry.time)
    if isinstance(entry.action, Quarantined):
        state = replace(state, quarantined_at=entry.n)
    return state if entry.request_id is None else state.with_answered(entry.request_id, entry.n, entry.action.kind)
