"""``evolve`` for entries of data intervals. Pure, and total: an entry that was written is a fact."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from airflow_provider_fds.ledger.actions import (
    Accepted,
    Blocked,
    Boundary,
    IntervalCommitted,
    IntervalOpened,
    IntervalPlanned,
)
from airflow_provider_fds.ledger.intervals import IntervalRecord, KnownBoundary

if TYPE_CHECKING:
    from airflow_provider_fds.ledger.state import StreamState

IntervalAction = Boundary | IntervalOpened | IntervalPlanned | IntervalCommitted | Blocked | Accepted


def evolve_interval(state: StreamState, action: IntervalAction) -> StreamState:
    """Return the state after an entry of a data interval."""
    if isinstance(action, Boundary):
        known = KnownBoundary(action.instant, action.version)
        return replace(
            state,
            boundaries=tuple(sorted((*state.boundaries, known), key=lambda boundary: boundary.instant)),
            table_id=action.table_id or state.table_id,
        )
    if isinstance(action, IntervalOpened):
        return _with(
            state,
            IntervalRecord(
                interval=action.interval,
                generation=action.generation,
                first_version=action.first_version,
                last_version=action.last_version,
            ),
        )
    record = state.interval(action.interval or "")
    if record is None:
        return state
    match action:
        case IntervalPlanned():
            since = record.since if record.is_planned else state.sink_version
            return _with(
                state,
                replace(
                    record,
                    owner=action.owner,
                    planned=action.batches,
                    since=since,
                    options_digest=action.options_digest,
                ),
            )
        case IntervalCommitted():
            return _committed(state, record, action)
        case Blocked():
            return _with(state, replace(record, blocked=action))
        case Accepted():
            return _with(state, replace(record, blocked=None, accepted=record.blocked))


def _committed(state: StreamState, record: IntervalRecord, action: IntervalCommitted) -> StreamState:
    parts = [batch for batch in record.planned if batch.batch_id <= action.batch_id]
    rows = None if record.rows is None or action.rows is None else record.rows + action.rows
    record = replace(
        record,
        planned=tuple(batch for batch in record.planned if batch.batch_id > action.batch_id),
        batches=record.batches + len(parts),
        num_files=record.num_files + sum(batch.num_files for batch in parts),
        num_bytes=record.num_bytes + sum(batch.num_bytes for batch in parts),
        rows=rows,
        measures=record.measures.plus(action.measures),
        sink_version=action.sink_version,
        accepted=None,
    )
    # intervals are committed in any order
    known = [version for version in (state.sink_version, action.sink_version) if version is not None]
    return replace(
        _with(state, record),
        sink_version=max(known, default=None),
        sink_table_id=action.sink_table_id or state.sink_table_id,
    )


def _with(state: StreamState, record: IntervalRecord) -> StreamState:
    others = tuple(known for known in state.intervals if known.interval != record.interval)
    return replace(state, intervals=(*others, record))


__all__ = ["IntervalAction", "evolve_interval"]
