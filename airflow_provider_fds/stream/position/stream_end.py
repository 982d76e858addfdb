"""Where a stream ends, according to its ledger or to the table's current log.

``ending_timestamp`` resolves to a version once there is a later commit. The run that resolves it records the version:
log cleanup may remove the commits it was resolved from, and the stream must still count as finished.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from airflow_provider_fds.delta.moments import parse_timestamp
from airflow_provider_fds.ledger.entries import iso_time
from airflow_provider_fds.ledger.epoch_entries import Ended
from airflow_provider_fds.source.offset import Offset
from airflow_provider_fds.source.planning.end import StreamEnd, ending_at, known_end
from airflow_provider_fds.stream.declaration.backfill_range import LIVE_START

if TYPE_CHECKING:
    from airflow_provider_fds.ledger.state import StreamState
    from airflow_provider_fds.stream.connected_stream import ConnectedStream


def end_of(connected: ConnectedStream, state: StreamState) -> StreamEnd | None:
    """Return where the stream ends, or ``None`` if it has no end or the end is not known yet. Writes nothing."""
    options, ended = connected.stream.options, state.ended
    text = options.ending_timestamp
    if text is not None and ended is not None and ended.instant == _instant(text):
        return ending_at(text, ended.version)
    position = None if state.position is None else Offset.from_json(state.position)
    return known_end(connected.log, options, position)


def settle_end(connected: ConnectedStream, state: StreamState) -> tuple[StreamState, StreamEnd | None]:
    """Return the stream's end as :func:`end_of` does, and record the version that a timestamp resolves to."""
    end = end_of(connected, state)
    text = connected.stream.options.ending_timestamp
    backfill = connected.stream.backfill_range
    if end is not None and backfill is not None and backfill.ends_at_live_start and state.ended is None:
        return connected.execute(Ended(epoch=state.epoch, instant=LIVE_START, version=end.version)), end
    if text is None or end is None or not end.is_a_commit:
        return state, end
    instant = _instant(text)
    if state.ended is None or state.ended.instant != instant:
        state = connected.execute(Ended(epoch=state.epoch, instant=instant, version=end.version))
    return state, end


def finished_reason(connected: ConnectedStream) -> str | None:
    """Return a sentence if the stream has read everything up to its end, else ``None``."""
    state = connected.state
    if state.position is None or state.planned:
        return None
    return reason_to_end(state, end_of(connected, state))


def reason_to_end(state: StreamState, end: StreamEnd | None) -> str | None:
    """Return :func:`finished_reason` for a known end."""
    if end is None or state.position is None or state.planned:
        return None
    return end.describe(state.name, state.table) if end.is_reached(Offset.from_json(state.position)) else None


def _instant(text: str) -> str:
    return iso_time(datetime.fromtimestamp(parse_timestamp(text) / 1000, UTC))


__all__ = ["end_of", "finished_reason", "reason_to_end", "settle_end"]
