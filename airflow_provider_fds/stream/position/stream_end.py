"""Where a stream ends, according to its ledger or to the table's current log.

The run that learns the end records it: log cleanup may remove the commits that a time was resolved from, and who knows
only the ledger, such as a monitor, must see that the stream is finished.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from airflow_provider_fds.delta.moments import parse_timestamp
from airflow_provider_fds.errors import LogTruncatedError, LostPositionError
from airflow_provider_fds.ledger.entries.entry import iso_time
from airflow_provider_fds.ledger.entries.epoch_entries import Ended
from airflow_provider_fds.source.offset import Offset
from airflow_provider_fds.source.planning.end import StreamEnd, ending_at, known_end
from airflow_provider_fds.stream.declaration.backfill_range import LIVE_START
from airflow_provider_fds.stream.position.source_unchanged import check_position, check_table

if TYPE_CHECKING:
    from airflow_provider_fds.ledger.state import StreamState
    from airflow_provider_fds.stream.connected_stream import ConnectedStream


#: ``version`` of an end that the options no longer have: no table gets there.
_NO_END: Final = 2**63 - 1


def end_of(connected: ConnectedStream, state: StreamState) -> StreamEnd | None:
    """Return where the stream ends, or ``None`` if it has no end or the end is not known yet. Writes nothing.

    A time is not known while another table is there, or an older one.
    """
    end = _known_end(connected, state)
    try:
        _check_source(connected, state, end)
    except LostPositionError:
        return None
    return end


def _known_end(connected: ConnectedStream, state: StreamState) -> StreamEnd | None:
    ended = state.ended
    if not connected.is_declared:
        if ended is None or ended.version == _NO_END:
            return None
        return StreamEnd(ended.version, f"its end ({ended.instant}) is version {ended.version}")
    options = connected.stream.options
    text = options.ending_timestamp
    if text is not None and ended is not None and ended.instant == _instant(text):
        return ending_at(text, ended.version)
    position = None if state.position is None else Offset.from_json(state.position)
    return known_end(connected.log, options, position)


def settle_end(connected: ConnectedStream, state: StreamState) -> tuple[StreamState, StreamEnd | None]:
    """Return the stream's end as :func:`end_of` does, and record it in the ledger, or that the options have none.

    Raises:
        LostPositionError: A time is to be resolved, but another table is there, or an older one.
    """
    end, ended = _known_end(connected, state), state.ended
    _check_source(connected, state, end)
    instant, version = _declared(connected, end)
    if instant is None and ended is not None and ended.version != _NO_END:
        instant, version = "none", _NO_END
    is_recorded = ended is not None and ended.instant == instant
    if instant is None or version is None or is_recorded:
        return state, end
    return connected.execute(Ended(epoch=state.epoch, instant=instant, version=version)), end


def _check_source(connected: ConnectedStream, state: StreamState, end: StreamEnd | None) -> None:
    """Refuse to resolve a time in another table than that of the stream: it means another version there."""
    if end is None or not end.is_of_log or state.position is None:
        return
    log = connected.log
    check_table(log, Offset.from_json(state.position))
    with suppress(LogTruncatedError):
        check_position(log, state)


def _declared(connected: ConnectedStream, end: StreamEnd | None) -> tuple[str | None, int | None]:
    """Return the end of the options as the ledger has it, each ``None`` if there is none or it is not known yet."""
    options, backfill = connected.stream.options, connected.stream.backfill_range
    version = None if end is None else end.version
    if backfill is not None and backfill.ends_at_live_start:
        return LIVE_START, version
    if options.ending_timestamp is not None:
        # before a later commit, or if all commits are later, it is not final
        return _instant(options.ending_timestamp), version if end is not None and end.is_a_commit else None
    if options.ending_version is not None:
        return f"ending_version={options.ending_version}", version
    if options.is_bounded:
        return "version_as_of" if options.version_as_of is not None else "timestamp_as_of", version
    return None, None


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
