"""The conditions under which a decision is allowed: each is a check that refuses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_fds.batch.transactions import txn_version
from airflow_provider_fds.ledger.entries import refusals
from airflow_provider_fds.source.offset import BASE_INDEX, Offset, describe_position

if TYPE_CHECKING:
    from airflow_provider_fds.ledger.entries.action import BatchAction
    from airflow_provider_fds.ledger.owner import Owner
    from airflow_provider_fds.ledger.records import IntervalRecord
    from airflow_provider_fds.ledger.state import ScopeRecord, StreamState
    from airflow_provider_fds.ledger.values import PlannedBatch


def check_deployment(state: StreamState, deployment: str) -> None:
    """Refuse requests from an Airflow installation that does not own the stream."""
    if state.phase != "empty" and state.deployment != deployment:
        raise refusals.other_deployment(state, deployment)


def check_epoch(state: StreamState, epoch: int, what: str) -> None:
    """Refuse ``what`` if ``epoch`` is not the stream's epoch, or if the stream has no epochs."""
    if state.reads_by_interval:
        raise refusals.by_interval(state, what)
    if epoch < state.epoch:
        raise refusals.epoch_closed(state, what, epoch)
    if epoch > state.epoch:
        raise refusals.refusal(
            state, f"cannot {what}: it is for epoch {epoch}, but the stream is in epoch {state.epoch}"
        )


def check_open(state: StreamState, epoch: int, what: str) -> None:
    """Refuse ``what`` if ``epoch`` is not the stream's epoch or is not open."""
    check_epoch(state, epoch, what)
    if state.phase != "open":
        raise refusals.not_opened(state, what)


def scope_of(state: StreamState, action: BatchAction) -> ScopeRecord:
    """Return the scope of the action if the action is for its newest epoch or generation, else refuse it."""
    if action.interval is not None:
        return interval_of(state, action)
    check_open(state, action.epoch, action.describe())
    return state


def interval_of(state: StreamState, action: BatchAction) -> IntervalRecord:
    """Return the record of the action's interval if the action is for its newest generation, else refuse it."""
    check_interval_stream(state)
    record = state.interval(action.interval or "")
    if record is None or record.generation != action.epoch:
        known = 0 if record is None else record.generation
        raise refusals.moved(
            state, f"cannot {action.describe()} (generation {action.epoch}): the interval is in generation {known}"
        )
    return record


def check_interval_stream(state: StreamState) -> None:
    """Refuse work on data intervals for a stream that reads by offset."""
    position = state.position if state.closed is None else state.closed.position
    if position is not None:
        raise refusals.refusal(
            state,
            f"the stream reads by offset (it is at {describe_position(position)}) and cannot also read data "
            "intervals: its rows would be loaded twice. Use a stream with another name",
        )


def check_not_held(state: StreamState, what: str) -> None:
    """Refuse ``what`` if the stream is held."""
    if state.held is not None:
        raise refusals.held(state, what)


def check_not_blocked(state: StreamState, scope: ScopeRecord, what: str) -> None:
    """Refuse ``what`` while a failed verification waits for a person."""
    if scope.blocked is not None:
        raise refusals.blocked(state, what, scope.blocked)


def check_not_stopped(state: StreamState, what: str) -> None:
    """Refuse ``what`` if the stream is held, in quarantine or blocked."""
    check_not_held(state, what)
    check_not_blocked(state, state, what)
    if state.quarantined is not None:
        raise refusals.quarantined(state, what)


def check_owner(state: StreamState, scope: ScopeRecord, owner: Owner | None, what: str) -> None:
    """Refuse ``what`` if the planned batches belong to another owner."""
    if scope.owner is not None and scope.owner != owner:
        raise refusals.busy(state, what, scope, scope.owner)


def check_nothing_planned(state: StreamState, owner: Owner, what: str) -> None:
    """Refuse ``what`` while batches are planned and not committed."""
    check_owner(state, state, owner, what)
    if state.planned:
        raise refusals.moved(state, f"cannot {what}: this run already has planned batches ({len(state.planned)})")


def check_next(state: StreamState, scope: ScopeRecord, batch_id: int, what: str) -> tuple[PlannedBatch, ...]:
    """Return the batches of the next transaction if ``batch_id`` is the last of them, else refuse ``what``.

    The next transaction is the first planned batch; for an interval whose sink replaces, all planned batches.
    """
    is_whole = scope is not state and state.sink is not None and state.sink.replaces
    parts = scope.planned if is_whole else scope.planned[:1]
    if parts and parts[-1].batch_id == batch_id:
        return parts
    if scope is state and batch_id < state.first_uncommitted:
        found = f"batch {batch_id} is already committed"
    elif parts:
        found = (
            f"the next batch in order is {parts[-1].batch_id} ({len(scope.planned)} planned): the job "
            "loaded something else"
        )
    else:
        found = f"nothing is planned; the next batch to plan is {state.next_batch_id}"
    raise refusals.refusal(
        state, f"cannot {what}: {found}. Batches are committed in order; see `fds status {state.name}`"
    )


def check_target(state: StreamState, owner: Owner, target: int) -> None:
    """Refuse a run that plans past the target it fixed when it first planned."""
    run = state.run_of(owner)
    if run is not None and run.target is not None and run.target != target:
        raise refusals.refusal(
            state,
            f"{owner.describe()} fixed version {run.target} as its target when it first planned, so it cannot "
            f"plan to version {target}. The next run continues from there",
        )


def check_batches(state: StreamState, batches: tuple[PlannedBatch, ...]) -> None:
    """Refuse batches that do not follow the position, and each other, without a gap."""
    if not batches:
        raise refusals.refusal(
            state, "a plan must have at least one batch; commits without data only advance the position"
        )
    if batches[0].batch_id != state.next_batch_id:
        raise refusals.moved(
            state,
            f"the plan begins with batch {batches[0].batch_id}, but the next batch in order is {state.next_batch_id}",
        )
    previous_end, previous_txn = state.position or "", state.prev_txn_version
    for batch_id, batch in enumerate(batches, start=state.next_batch_id):
        what = f"batch {batch_id}"
        if batch.batch_id != batch_id:
            raise refusals.refusal(state, f"the plan has batch {batch.batch_id}, but {what} is next in order")
        check_stretch(state, batch.start, batch.end, what, after=previous_end)
        if batch.prev_txn_version != previous_txn:
            raise refusals.refusal(
                state,
                f"{what} expects transaction {batch.prev_txn_version} in the sink, but the previous one is "
                f"{previous_txn}",
            )
        previous_end, previous_txn = batch.end, txn_version(state.epoch, batch_id)


def check_stretch(state: StreamState, start: str, end: str, what: str, *, after: str | None = None) -> None:
    """Refuse a range that does not start where ``after`` (default: the position) ends, or does not move forward."""
    begin, finish = offset_of(state, start, f"the start of {what}"), offset_of(state, end, f"the end of {what}")
    expected = state.position if after is None else after
    if not expected or begin != Offset.from_json(expected):
        if expected == state.position:
            raise refusals.moved(state, f"{what} starts at {start}, but the position is {expected}")
        raise refusals.refusal(state, f"{what} starts at {start}, but the batch before it ends at {expected}")
    if finish <= begin:
        raise refusals.refusal(state, f"{what} ends at {end}, which is not after its start {start}")


def check_meaning(state: StreamState, meaning_digest: str) -> None:
    """Refuse options that count the files of a version differently while the position is inside a version.

    The index within an initial snapshot counts the files of the frozen snapshot, which no option changes.
    """
    if state.meaning_digest is None or state.meaning_digest == meaning_digest or state.position is None:
        return
    position = Offset.from_json(state.position)
    if position.index == BASE_INDEX or position.is_initial_snapshot:
        return
    raise refusals.refusal(
        state,
        "options that decide which files of a version count were changed while the position is inside version "
        f"{position.version} (after file {position.index}). Restore them until that version is done, or run `fds "
        f"rewind {state.name} --to {position.version} --why …` to read it again from its beginning",
    )


def check_table_id(state: StreamState, table_id: str | None) -> None:
    """Refuse a sink whose table id differs from the one in the ledger."""
    if table_id is not None and state.sink_table_id is not None and table_id != state.sink_table_id:
        raise refusals.changed_sink(state, f"its table id is {table_id}, but the ledger has {state.sink_table_id}")


def check_sink_of_commit(
    state: StreamState, batch_id: int, version: int | None, table_id: str | None, *, after: int | None
) -> None:
    """Refuse a commit to a sink that contradicts the ledger; its version must be later than ``after``."""
    if version is None or table_id is None:
        raise refusals.refusal(
            state, f"the report of batch {batch_id} does not say which version of which table holds it"
        )
    check_table_id(state, table_id)
    if after is not None and version <= after:
        raise refusals.changed_sink(
            state,
            f"batch {batch_id} is in its version {version}, but an earlier commit is in version {after}",
        )


def offset_of(state: StreamState, text: str, what: str) -> Offset:
    """Parse ``text`` as an offset; refuse ``what`` if it belongs to another table than the stream's."""
    offset = Offset.from_json(text)
    if state.table_id is not None and offset.table_id != state.table_id and state.phase == "open":
        raise refusals.refusal(
            state, f"{what} belongs to the table with id {offset.table_id}, but the stream reads {state.table_id}"
        )
    return offset
