"""Reports how the run of a stream has ended in the stream's status file, for those who look at it later."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from airflow_provider_fds.stream.monitoring.run_failure import RunEnd
from airflow_provider_fds.stream.monitoring.status import status_of
from airflow_provider_fds.stream.monitoring.status_file import write_status_file

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_provider_fds.stream.connected_stream import ConnectedStream
    from airflow_provider_fds.stream.run.session import StreamSession

_log: Final = logging.getLogger(__name__)


def is_refused(connected: ConnectedStream) -> bool:
    """Whether the ledger with the name of a run's stream is that of another stream, from which the run was refused.

    Such a run says nothing about the stream whose name it has used: neither a status nor an incident.
    """
    state = connected.state
    return state.phase != "empty" and (
        state.table != connected.table.uri or state.deployment != connected.context.deployment
    )


@contextmanager
def reporting_end(session: StreamSession) -> Iterator[None]:
    """Write the status file of a stream after a run without Airflow, also if it fails."""
    try:
        yield
    except Exception as error:
        write_end(session, error)
        raise
    write_end(session, None)


def write_end(session: StreamSession, error: Exception | None) -> None:
    """Write how a run without Airflow has ended. Never raises.

    Args:
        session: The run.
        error: Why it failed.
    """
    connected = session.connected
    try:
        status = status_of(
            connected, end=RunEnd(error, interval=session.scope.interval, waits_for=session.scope.waits_for)
        )
        if not is_refused(connected):
            write_status_file(
                connected.staging, status, connected.state, written_by="run", actor=connected.context.actor
            )
    except Exception as failure:  # noqa: BLE001  # whatever goes wrong, the run ends for its own reason
        if str(failure) == str(error):
            # it is said as the end of the run
            return
        _log.warning("The status of the stream was not reported: %s: %s", type(failure).__name__, failure)
