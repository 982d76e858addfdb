"""Streams that wait for a person: in quarantine, or held."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import UNSET

from airflow_provider_fds.errors import StoppedError
from airflow_provider_fds.ledger.entries.operator_entries import Quarantined
from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.stream.attempt.result import RunWork
from airflow_provider_fds.stream.monitoring.condition import Evidence, advice_on

if TYPE_CHECKING:
    from airflow_provider_fds.ledger.state import StreamState
    from airflow_provider_fds.stream.connected_stream import ConnectedStream


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
    if state.held is None and state.quarantined is None:
        return None
    cause, commands = advice_on("quarantined" if state.held is None else "held", Evidence(state))
    ways = ", ".join(f"`{command}` {effect}" for command, effect in commands)
    return f"stream {state.name!r}{cause.removeprefix('The stream')}\n{ways}"


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
