"""Where a stream ends, as its ledger has it or as the table's log says now.

``ending_timestamp`` means a version from the moment a later commit is there. The run that finds it writes it down:
log cleanup may take the commits by which it was found, and the stream is finished all the same.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from airflow_provider_fds.delta.timestamps import parse_timestamp
from airflow_provider_fds.ledger.entries import iso_time
from airflow_provider_fds.ledger.epoch_entries import Ended
from airflow_provider_fds.source.end import StreamEnd, ending_at, known_end
from airflow_provider_fds.source.offset import Offset

if TYPE_CHECKING:
    from airflow_provider_fds.ledger.state import StreamState
    from airflow_provider_fds.stream.connect import ConnectedStream


def end_of(connected: ConnectedStream, state: StreamState) -> StreamEnd | None:
    """Return where the stream ends, ``None`` if it has no end or the end is not known yet. Writes nothing."""
    options, ended = connected.stream.options, state.ended
    text = options.ending_timestamp
    if text is not None and ended is not None and ended.instant == _instant(text):
        return ending_at(text, ended.version)
    position = None if state.position is None else Offset.from_json(state.position)
    return known_end(connected.log, options, position)


def settle_end(connected: ConnectedStream, state: StreamState) -> tuple[StreamState, StreamEnd | None]:
    """Return where the stream ends as :func:`end_of` does, and write down a version that a time has come to mean."""
    end = end_of(connected, state)
    text = connected.stream.options.ending_timestamp
    if text is None or end is None or not end.is_a_commit:
        return state, end
    instant = _instant(text)
    if state.ended is None or state.ended.instant != instant:
        state = connected.execute(Ended(epoch=state.epoch, instant=instant, version=end.version))
    return state, end


def finished_reason(connected: ConnectedStream) -> str | None:
    """Return in a sentence that the stream has read all up to its end, ``None`` if it has not or has no end."""
    state = connected.state
    if state.position is None or state.planned:
        return None
    return reason_to_end(state, end_of(connected, state))


def reason_to_end(state: StreamState, end: StreamEnd | None) -> str | None:
    """Return :func:`finished_reason` for an end that is known."""
    if end is None or state.position is None or state.planned:
        return None
    return end.describe(state.name, state.table) if end.is_reached(Offset.from_json(state.position)) else None


def _instant(text: str) -> str:
    return iso_time(datetime.fromtimestamp(parse_timestamp(text) / 1000, UTC))


__all__ = ["end_of", "finished_reason", "reason_to_end", "settle_end"]
