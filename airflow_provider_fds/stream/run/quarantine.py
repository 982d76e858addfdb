"""Streams that wait for a person: in quarantine, or held."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import UNSET

from airflow_provider_fds.errors import StoppedError
from airflow_provider_fds.ledger.operator_entries import Quarantined
from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.stream.attempt.result import RunWork

if TYPE_CHECKING:
    from airflow_provider_fds.ledger.state import StreamState
    from airflow_provider_fds.stream.connected_stream import ConnectedStream


#: What each decision on the version of a quarantine does.
EFFECTS: Final = {"accept": "with the new schema", "skip": "without the rows of the version"}


def paused_work(state: StreamState) -> RunWork | None:
    """Return the work of a run of a stream in quarantine or on hold, or ``None`` if it is neither."""
    if (reason := pause_of(state)) is None:
        return None
    version = None if state.quarantined is None else state.quarantined.version
    code = Reason.STREAM_QUARANTINED if state.held is None else Reason.STREAM_HELD
    operation = None if state.quarantined is None else state.quarantined.operation
    stopped = StoppedError(reason, table=state.table, version=version, operation=operation, reason=code)
    return RunWork("paused", state.epoch, reason=reason, warning=stopped)


def pause_of(state: StreamState) -> str | None:
    """Return why the stream is paused and what resumes it, or ``None`` if it is not paused."""
    if state.held is not None:
        return f"stream {state.name!r} is held ({state.held.why}); `fds resume {state.name} --why …` lets it continue"
    if state.quarantined is None:
        return None
    found = state.quarantined
    ways = "".join(
        f"`fds {way} {state.name} --version {found.version} --why …` lets it continue {EFFECTS[way]}, "
        for way in found.ways_on
    )
    return (
        f"stream {state.name!r} is in quarantine: {found.why}\n{ways}`fds resume {state.name} "
        "--why …` lets it try again, for example with other options"
    )


def quarantine(connected: ConnectedStream, error: StoppedError) -> RunWork | None:
    """Record that the stream stops before a version, and return the work of the run: none.

    Args:
        connected: The stream, with nothing planned.
        error: The violation.
    """
    entry = Quarantined(
        why=str(error),
        version=error.version,
        can_be_acknowledged=error.way_on is not None,
        way_on=error.way_on or UNSET,
        operation=error.operation,
    )
    return paused_work(connected.execute(entry))
