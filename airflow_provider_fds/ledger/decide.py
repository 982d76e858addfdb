"""``decide``: the action a command comes to in a state, nothing at all, or a refusal. Pure.

The rules are those of docs/design/ledger.md, "Entries", column "allowed when".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from airflow_provider_fds.ledger import refusals
from airflow_provider_fds.ledger.commands import (
    Accept,
    Advance,
    Bind,
    Block,
    Claim,
    Command,
    Commit,
    Create,
    End,
    Open,
    Plan,
    Request,
    Retire,
    Show,
)
from airflow_provider_fds.ledger.commands_interval import IntervalCommand
from airflow_provider_fds.ledger.decide_batch import (
    decide_accept,
    decide_advance,
    decide_block,
    decide_claim,
    decide_commit,
    decide_plan,
)
from airflow_provider_fds.ledger.decide_epoch import (
    decide_bind,
    decide_create,
    decide_end,
    decide_open,
    decide_request,
    decide_show,
    decide_word,
)
from airflow_provider_fds.ledger.decide_interval import decide_interval

if TYPE_CHECKING:
    from airflow_provider_fds.ledger.actions import Action
    from airflow_provider_fds.ledger.state import StreamState


#: What only a stream with an offset can be asked.
_OF_AN_OFFSET: Final = (Open, Plan, Claim, Commit, Advance, End, Block, Accept, Request, Show)


def decide(state: StreamState, command: Command) -> Action | None:  # noqa: C901, PLR0911, PLR0912  # one line each
    """Return the action that ``command`` comes to, ``None`` if the ledger already says what it asks for.

    Raises:
        StreamMovedError: The ledger moved on since the sender looked (retryable: look again).
        EpochClosedError: The command belongs to a closed epoch (retryable: in the newest one).
        StreamBusyError: The planned batches belong to another run (retryable).
        SinkError: The sink is another one, or not as the ledger knows it.
        LedgerError: Anything else that the state does not allow; the message names the command to run.
    """
    if isinstance(command, Create):
        return decide_create(state, command)
    if state.phase == "empty":
        raise refusals.not_created(state)
    if state.retired is not None and not isinstance(command, Retire):
        raise refusals.retired(state, f"to {type(command).__name__.lower()}")
    if isinstance(command, IntervalCommand):
        return decide_interval(state, command)
    if state.reads_by_interval and isinstance(command, _OF_AN_OFFSET):
        raise refusals.by_interval(state, f"to {type(command).__name__.lower()}")
    match command:
        case Open():
            return decide_open(state, command)
        case Bind():
            return decide_bind(state, command)
        case Plan():
            return decide_plan(state, command)
        case Claim():
            return decide_claim(state, command)
        case Commit():
            return decide_commit(state, command)
        case Advance():
            return decide_advance(state, command)
        case End():
            return decide_end(state, command)
        case Block():
            return decide_block(state, command)
        case Accept():
            return decide_accept(state, command)
        case Request():
            return decide_request(state, command)
        case Show():
            return decide_show(state, command)
        case _:
            return decide_word(state, command)


__all__ = ["decide"]
