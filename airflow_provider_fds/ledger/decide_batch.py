"""Decisions on batches: planning, taking over, committing, blocking, and moving over stretches without data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_fds.ledger import refusals
from airflow_provider_fds.ledger.actions import Accepted, Advanced, Blocked, Claimed, Committed, Planned
from airflow_provider_fds.ledger.conditions import (
    check_batches,
    check_first,
    check_meaning,
    check_not_stopped,
    check_nothing_planned,
    check_open,
    check_sink_of_commit,
    check_stretch,
    check_target,
)

if TYPE_CHECKING:
    from airflow_provider_fds.ledger.actions import Action
    from airflow_provider_fds.ledger.commands import Accept, Advance, Block, Claim, Commit, Plan
    from airflow_provider_fds.ledger.commands_interval import BlockInterval
    from airflow_provider_fds.ledger.state import StreamState


def decide_plan(state: StreamState, command: Plan) -> Action:
    """Freeze batches that follow the position without a gap, if nothing else is planned."""
    what = "planning"
    check_open(state, command.epoch, what)
    check_not_stopped(state, what)
    check_nothing_planned(state, command.owner, what)
    check_target(state, command.owner, command.target)
    check_batches(state, command.batches)
    check_meaning(state, command.meaning_digest)
    return Planned(
        epoch=command.epoch,
        owner=command.owner,
        target=command.target,
        batches=command.batches,
        options_digest=command.options_digest,
        meaning_digest=command.meaning_digest,
    )


def decide_claim(state: StreamState, command: Claim) -> Action | None:
    """Give the planned batches to another owner, if the one before is still the one found not to run."""
    what = "taking over the planned batches"
    check_open(state, command.epoch, what)
    if state.owner is None:
        raise refusals.moved(state, "there is no planned batch to take over any more")
    if state.owner == command.owner:
        return None
    if state.owner != command.previous:
        raise refusals.busy(state, what, state.owner)
    if state.held is not None:
        raise refusals.held(state, what)
    if state.blocked is not None:
        raise refusals.blocked(state, what, state.blocked)
    return Claimed(epoch=command.epoch, owner=command.owner, previous=command.previous, why=command.why)


def decide_commit(state: StreamState, command: Commit) -> Action | None:
    """Commit the batch that is next in order, by its owner; ``None`` if it is committed already."""
    what = f"committing batch {command.batch_id}"
    last = state.last_committed
    if last is not None and last.epoch == command.epoch and command.batch_id <= last.batch_id:
        return None
    check_open(state, command.epoch, what)
    batch = check_first(state, command.batch_id, what)
    if state.owner is not None and state.owner != command.owner:
        raise refusals.busy(state, what, state.owner)
    if state.blocked is not None:
        raise refusals.blocked(state, what, state.blocked)
    if batch.digest != command.digest:
        raise refusals.refusal(
            state,
            f"{what} is not possible: its manifest has digest {batch.digest}, the report names {command.digest!r}. "
            f"The job loaded something else; `fds show {state.name}` prints the plan",
        )
    if state.sink is None:
        raise refusals.refusal(
            state, f"{what} is not possible, the stream is bound to no sink. Bind it first: a run with a sink does so"
        )
    if state.sink.is_own_job != (command.outcome == "own_job"):
        raise refusals.refusal(
            state,
            f"{what} is not possible: the stream is bound to {state.sink.words()}, the commit is of kind "
            f"{command.outcome!r}. Use one way to load a stream, or `fds rebind {state.name} --why …`",
        )
    check_sink_of_commit(state, command)
    return Committed(
        epoch=command.epoch,
        batch_id=command.batch_id,
        owner=command.owner,
        try_id=command.try_id,
        outcome=command.outcome,
        digest=command.digest,
        end=batch.end,
        sink_version=command.sink_version,
        sink_table_id=command.sink_table_id,
        rows=command.rows,
        last_commit_sha256=batch.last_commit_sha256,
        was_accepted=state.accepted is not None,
        measures=command.measures,
    )


def decide_advance(state: StreamState, command: Advance) -> Action | None:
    """Move the position over a stretch without data, if nothing is planned."""
    what = "moving the position over a stretch without data"
    check_open(state, command.epoch, what)
    if state.position == command.end:
        return None
    check_not_stopped(state, what)
    check_nothing_planned(state, command.owner, what)
    check_stretch(state, command.start, command.end, what)
    return Advanced(
        epoch=command.epoch,
        owner=command.owner,
        start=command.start,
        end=command.end,
        first_version=command.first_version,
        last_version=command.last_version,
        skipped=command.skipped,
        log_digest=command.log_digest,
        last_commit_sha256=command.last_commit_sha256,
    )


def decide_block(state: StreamState, command: Block) -> Action | None:
    """Block the batch that is next in order, by its owner."""
    what = f"blocking batch {command.batch_id}"
    check_open(state, command.epoch, what)
    if state.blocked is not None:
        return None
    check_first(state, command.batch_id, what)
    if state.owner is not None and state.owner != command.owner:
        raise refusals.busy(state, what, state.owner)
    return blocked(command, state.accepted, epoch=command.epoch)


def blocked(
    command: Block | BlockInterval, accepted: Blocked | None, *, epoch: int, interval: str | None = None
) -> Blocked | None:
    """Return the block, ``None`` if a person has accepted the very same one."""
    if (
        accepted is not None
        and accepted.sink_version == command.sink_version
        and accepted.rows_written == command.rows_written
        and accepted.reason == command.reason
    ):
        return None
    return Blocked(
        epoch=epoch,
        batch_id=command.batch_id,
        try_id=command.try_id,
        reason=command.reason,
        rows_planned=command.rows_planned,
        rows_written=command.rows_written,
        sink_version=command.sink_version,
        sink_table_id=command.sink_table_id,
        interval=interval,
    )


def decide_accept(state: StreamState, command: Accept) -> Action | None:
    """Accept the blocked batch as it is in the sink."""
    what = f"accepting batch {command.batch_id}"
    check_open(state, command.epoch, what)
    if state.accepted is not None and state.accepted.batch_id == command.batch_id and state.blocked is None:
        return None
    if state.blocked is None or state.blocked.batch_id != command.batch_id:
        found = "no batch is" if state.blocked is None else f"batch {state.blocked.batch_id} is"
        raise refusals.refusal(
            state, f"{what} is not possible: {found} blocked in epoch {state.epoch}. See `fds status {state.name}`"
        )
    return Accepted(epoch=command.epoch, batch_id=command.batch_id, why=command.why)
