"""Decisions on data intervals: boundaries that are resolved once, and generations that follow each other.

Intervals are independent: what one is in never stands in another's way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_fds.errors import StreamBusyError
from airflow_provider_fds.ledger import refusals
from airflow_provider_fds.ledger.actions import (
    Accepted,
    Boundary,
    IntervalCommitted,
    IntervalOpened,
    IntervalPlanned,
)
from airflow_provider_fds.ledger.commands_interval import (
    AcceptInterval,
    BlockInterval,
    CommitInterval,
    IntervalCommand,
    OpenInterval,
    PlanInterval,
    ResolveBoundary,
)
from airflow_provider_fds.ledger.conditions import check_table_id
from airflow_provider_fds.ledger.decide_batch import blocked
from airflow_provider_fds.ledger.intervals import clamped, digest_of_parts, instants_of

if TYPE_CHECKING:
    from airflow_provider_fds.ledger.actions import Action
    from airflow_provider_fds.ledger.intervals import IntervalRecord
    from airflow_provider_fds.ledger.owner import Owner
    from airflow_provider_fds.ledger.state import StreamState


def decide_interval(state: StreamState, command: IntervalCommand) -> Action | None:
    """Return the action that a command on data intervals comes to; see :func:`~.decide.decide`."""
    if state.phase == "open":
        raise refusals.refusal(
            state,
            f"the stream reads by offset (it stands at {state.position}), and cannot read data intervals as well: its "
            "rows would come twice. Use a stream with another name",
        )
    match command:
        case ResolveBoundary():
            return _resolve(state, command)
        case OpenInterval():
            return _open(state, command)
        case PlanInterval():
            return _plan(state, command)
        case CommitInterval():
            return _commit(state, command)
        case BlockInterval():
            return _block(state, command)
        case AcceptInterval():
            return _accept(state, command)


def _resolve(state: StreamState, command: ResolveBoundary) -> Action | None:
    if any(known.instant == command.instant for known in state.boundaries):
        return None
    if state.table_id is not None and state.table_id != command.table_id:
        raise refusals.refusal(
            state,
            f"the table has id {command.table_id}, the intervals so far were read from {state.table_id}: another table "
            "lies at the URI. Put the old one back, or use a stream with another name for the new one",
        )
    version = clamped(state.boundaries, command.instant, command.version)
    return Boundary(instant=command.instant, version=version, table_id=command.table_id)


def _open(state: StreamState, command: OpenInterval) -> Action | None:
    what = f"opening interval {command.interval}"
    if state.held is not None:
        raise refusals.held(state, what)
    if state.sink is None:
        raise refusals.refusal(state, f"{what} is not possible, the stream is bound to no sink")
    first, end = (_version_at(state, instant, what) for instant in instants_of(command.interval))
    record = state.interval(command.interval)
    known = 0 if record is None else record.generation
    if record is not None and not record.is_planned and command.generation == known:
        return None
    if command.generation != known + 1:
        raise refusals.moved(state, f"{what} for the {command.generation}. time, it was opened {known} times")
    if record is not None:
        if not state.sink.replaces:
            raise refusals.refusal(
                state,
                f"{what} again is not possible: {state.sink.words()} appends, and its rows are there. To replace them "
                "use a stream with another name and a DeltaReplaceSink",
            )
        if not record.is_done and record.owner not in (None, command.owner, command.previous):
            raise _busy(state, what, record)
    return IntervalOpened(
        interval=command.interval, generation=command.generation, first_version=first, last_version=end - 1
    )


def _plan(state: StreamState, command: PlanInterval) -> Action | None:
    what = f"planning interval {command.interval}"
    if state.held is not None:
        raise refusals.held(state, what)
    record = _record(state, command.interval, command.generation, what)
    if record.is_planned:
        if command.batches != record.planned:
            raise refusals.moved(state, f"{what}: it is planned already")
        if record.owner == command.owner:
            return None
        if record.owner != command.previous:
            raise _busy(state, what, record)
        _check_not_blocked(state, record, what)
    else:
        _check_parts(state, command, record)
    return IntervalPlanned(
        interval=command.interval,
        generation=command.generation,
        owner=command.owner,
        batches=command.batches,
        options_digest=command.options_digest,
    )


def _commit(state: StreamState, command: CommitInterval) -> Action | None:
    what = f"committing interval {command.interval}"
    record = _record(state, command.interval, command.generation, what)
    if not record.is_planned or not record.planned or command.batch_id < record.planned[0].batch_id:
        if record.is_planned:
            return None
        raise refusals.moved(state, f"{what} is not possible, it is not planned")
    _check_owner(state, record, command.owner, what)
    _check_not_blocked(state, record, what)
    parts = record.planned if state.sink is not None and state.sink.replaces else record.planned[:1]
    if command.batch_id != parts[-1].batch_id or command.digest != digest_of_parts(parts):
        raise refusals.refusal(
            state,
            f"{what} is not possible: next is batch {parts[-1].batch_id} with digest {digest_of_parts(parts)}, the "
            f"report names batch {command.batch_id} with {command.digest!r}. The job loaded something else",
        )
    if command.sink_version is None or command.sink_table_id is None:
        raise refusals.refusal(state, f"{what}: the report does not say which version of which table holds it")
    check_table_id(state, command.sink_table_id)
    return IntervalCommitted(
        interval=command.interval,
        generation=command.generation,
        batch_id=command.batch_id,
        owner=command.owner,
        try_id=command.try_id,
        outcome=command.outcome,
        digest=command.digest,
        sink_version=command.sink_version,
        sink_table_id=command.sink_table_id,
        rows=command.rows,
        measures=command.measures,
    )


def _block(state: StreamState, command: BlockInterval) -> Action | None:
    what = f"blocking interval {command.interval}"
    record = _record(state, command.interval, command.generation, what)
    if record.blocked is not None:
        return None
    _check_owner(state, record, command.owner, what)
    return blocked(command, record.accepted, epoch=command.generation, interval=command.interval)


def _accept(state: StreamState, command: AcceptInterval) -> Action | None:
    record = state.interval(command.interval)
    if record is not None and record.blocked is None and record.accepted is not None:
        return None
    if record is None or record.blocked is None:
        blocked = [record.interval for record in state.intervals if record.blocked is not None]
        raise refusals.refusal(
            state,
            f"interval {command.interval!r} is not blocked; blocked are: {', '.join(blocked) or 'none'}. See "
            f"`fds history {state.name}`",
        )
    return Accepted(
        epoch=record.generation, batch_id=record.blocked.batch_id, why=command.why, interval=command.interval
    )


def _version_at(state: StreamState, instant: str, what: str) -> int:
    found = next((known.version for known in state.boundaries if known.instant == instant), None)
    if found is None:
        raise refusals.refusal(state, f"{what} is not possible, the version at {instant} is not resolved")
    return found


def _record(state: StreamState, interval: str, generation: int, what: str) -> IntervalRecord:
    record = state.interval(interval)
    if record is None or record.generation != generation:
        known = 0 if record is None else record.generation
        raise refusals.moved(state, f"{what} (generation {generation}) is not possible, it is in generation {known}")
    return record


def _check_owner(state: StreamState, record: IntervalRecord, owner: Owner, what: str) -> None:
    if record.owner != owner:
        raise _busy(state, what, record)


def _check_not_blocked(state: StreamState, record: IntervalRecord, what: str) -> None:
    if record.blocked is not None:
        raise refusals.refusal(
            state,
            f"{what} is not possible, it is blocked: {record.blocked.reason} (planned rows: "
            f"{record.blocked.rows_planned}, written: {record.blocked.rows_written}, sink version "
            f"{record.blocked.sink_version}). Compare sink and source; then `fds accept {state.name} --interval "
            f"{record.interval} --why …` takes it as it is in the sink",
        )


def _check_parts(state: StreamState, command: PlanInterval, record: IntervalRecord) -> None:
    what = f"planning interval {command.interval}"
    expected = list(range(len(command.batches)))
    if [batch.batch_id for batch in command.batches] != expected:
        raise refusals.refusal(state, f"{what}: its batches do not count up from 0")
    outside = [
        batch.batch_id
        for batch in command.batches
        if batch.num_files
        and not record.first_version <= batch.first_version <= batch.last_version <= record.last_version
    ]
    if outside:
        raise refusals.refusal(
            state,
            f"{what}: batches {outside} are not within versions {record.first_version} to {record.last_version}",
        )


def _busy(state: StreamState, what: str, record: IntervalRecord) -> StreamBusyError:
    owner = record.owner.words() if record.owner is not None else "another run"
    error = StreamBusyError(
        f"stream {state.name!r} of {state.table}: {what} is not possible, it belongs to {owner}. Wait for it; if it "
        "does not run any more, the next run takes over",
        owner=owner,
    )
    error.table = state.table or None
    return error


__all__ = ["decide_interval"]
