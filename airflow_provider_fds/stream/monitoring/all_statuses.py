"""The statuses of all streams of a staging folder, for whoever watches them together."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from airflow_provider_fds.errors import ConfigurationError, FdsError
from airflow_provider_fds.ledger.layout import check_stream_name
from airflow_provider_fds.ledger.owner import Owner
from airflow_provider_fds.ledger.staging.log import Ledger
from airflow_provider_fds.stream.connected_stream import ConnectedStream
from airflow_provider_fds.stream.declaration.delta_stream import DeltaStream
from airflow_provider_fds.stream.known_tables import check_not_managed, source_name
from airflow_provider_fds.stream.monitoring.condition import attention_to_problem
from airflow_provider_fds.stream.monitoring.status import StreamStatus, status_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from airflow_provider_fds.delta.storage.storage import Storage
    from airflow_provider_fds.ledger.state import StreamState
    from airflow_provider_fds.places import Places
    from airflow_provider_fds.stream.connected_stream import StreamContext

#: Streams that are read at the same time; on an object store the time is spent waiting.
_THREADS: Final = 16


def all_statuses(
    context: StreamContext, places_for: Callable[[StreamState], Places] | None = None
) -> Iterator[StreamStatus]:
    """Yield the status of each stream in the staging folder, by name. Writes nothing.

    A ledger or table that cannot be read is a status with a problem, so that one stream does not hide the others.
    Backfills are streams too. A folder without a ledger is no stream.

    Args:
        context: How staging and tables are reached; the deployment is that of each stream.
        places_for: Returns what finds the table of a stream; ``None``: the places of the context.

    Raises:
        AccessDeniedError: The staging folder cannot be listed.
        StorageError: Staging did not answer.
    """
    from concurrent.futures import ThreadPoolExecutor

    staging = context.open_staging()
    with ThreadPoolExecutor(_THREADS) as threads:
        found = threads.map(lambda name: _status(context, staging, name, places_for), stream_names(staging))
        yield from (status for status in found if status is not None)


def stream_names(staging: Storage) -> list[str]:
    """Return the names of the folders in staging that can be streams."""
    return [name for name in staging.list_folders("") if _is_stream_name(name)]


def find_ledger(staging: Storage, name: str) -> Ledger | FdsError | None:
    """Return the ledger of a stream, read; ``None`` for a folder without one, or why it cannot be read."""
    ledger = Ledger(staging, name)
    try:
        state = ledger.find()
    except FdsError as problem:
        return problem
    return None if state.phase == "empty" else ledger


def open_stream(context: StreamContext, ledger: Ledger) -> ConnectedStream:
    """Return a stream of any deployment, to be read.

    Args:
        context: How staging and the table are reached: by the table's URI, or, if its places know a catalog, by the
            name in the ledger.
        ledger: Its ledger, as :func:`find_ledger` has read it. It is not read again, except for new entries.

    Raises:
        FdsError: The table cannot be opened, or not by its URI.
    """
    state = ledger.state
    table, conn_id = source_name(state, context.places)
    stream = DeltaStream(state.name, table=table, catalog_conn_id=conn_id, staging=context.staging_uri)
    context = replace(context, deployment=state.deployment, owner=Owner.of_plan(state.deployment))
    connected = ConnectedStream(stream, context, is_declared=False, staging=ledger.storage)
    check_not_managed(ledger, connected.place)
    connected.use(ledger)
    return connected


def unreadable(name: str, table: str, problem: FdsError) -> StreamStatus:
    """Return the status of a stream whose ledger or table cannot be read."""
    return StreamStatus(
        name=name,
        table=table,
        phase="unknown",
        condition="unreadable",
        problem=str(problem),
        reason_code=problem.reason_code,
        exit_code=problem.exit_code,
        cause=f"[{problem.reason_code}] {problem}",
        attention=attention_to_problem(name, problem),
    )


def _is_stream_name(name: str) -> bool:
    try:
        check_stream_name(name)
    except ConfigurationError:
        return False
    return True


def _status(
    context: StreamContext, staging: Storage, name: str, places_for: Callable[[StreamState], Places] | None
) -> StreamStatus | None:
    found = find_ledger(staging, name)
    if found is None:
        return None
    if isinstance(found, FdsError):
        return unreadable(name, "", found)
    try:
        if places_for is not None:
            context = replace(context, places=places_for(found.state))
        return status_of(open_stream(context, found))
    except FdsError as problem:
        return unreadable(name, found.state.table, problem)
