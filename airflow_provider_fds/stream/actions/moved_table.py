"""Whether the table at another folder is the one that a stream has read: the way on after its catalog moved it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_fds.delta.reader.log import DeltaLog
from airflow_provider_fds.delta.storage.open import open_place
from airflow_provider_fds.errors import ConfigurationError, FdsError, TableNotFoundError
from airflow_provider_fds.ledger.entries.epoch_entries import Named
from airflow_provider_fds.places import Paths
from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.schemes import location
from airflow_provider_fds.source.offset import Offset
from airflow_provider_fds.stream.actions.prepared_action import PreparedAction, describe_standing

if TYPE_CHECKING:
    from airflow_provider_fds.ledger.state import StreamState
    from airflow_provider_fds.places import Place, Places


def accept_moved(state: StreamState, folder: str, places: Places | None, why: str) -> PreparedAction:
    """Return the action that lets a stream go on with its table in another folder.

    The commit before the position must be the one that the stream has read: then nothing that it has read was changed,
    and what comes after it is new.

    Args:
        state: State of the stream.
        folder: URI of the folder, or the name of the table if ``places`` asks a catalog.
        places: Finds the table of the stream; ``None``: it cannot be reached from here.
        why: The reason that a person gives.

    Raises:
        ConfigurationError: It is not the table, or that cannot be found out.
        FdsError: The log there cannot be read.
    """
    if state.catalog is None:
        raise _refusal(state, "it has found its table by a URI, and not by a name in a catalog. Restore that URI")
    if places is None:
        raise _refusal(state, f"{folder} cannot be read from here, so it is unknown whether it has the same table")
    log = DeltaLog(open_place(_place(state.catalog.name, folder, places)))
    if log.table_uri != state.table:
        _check_commit(state, log)
    known = state.catalog
    command = Named(connection=known.connection, name=known.name, table_id=known.table_id, table=log.table_uri, why=why)
    after = f"goes on with the table in {log.table_uri}"
    note = f"It has read it in {state.table}. The commit before its position is the same in both folders."
    return PreparedAction(state.name, (command,), describe_standing(state), after, (note,))


def _place(name: str, folder: str, places: Places) -> Place:
    """Return the place of the folder, with the credentials of the catalog if the name of the stream's table means it.

    The storage connection is perhaps not allowed to open a table for which the catalog gives credentials.
    """
    if not isinstance(places, Paths) and "/" in folder:
        try:
            named = places.resolve(name)
        except TableNotFoundError:
            # renamed: only its new name leads to the credentials
            return places.resolve(folder)
        if location(named.uri) == location(folder):
            return named
    return places.resolve(folder)


def _check_commit(state: StreamState, log: DeltaLog) -> None:
    before = state.closed or state
    position = None if before.position is None else Offset.from_json(before.position)
    known = before.last_commit_sha256
    if state.reads_by_interval or position is None:
        raise _unknown(state, "the stream has no position")
    if position.is_initial_snapshot:
        raise _unknown(state, f"the stream is inside the snapshot of version {position.version}")
    last = position.version if position.next_index > 0 else position.version - 1
    if not known or last < 0:
        raise _unknown(state, "the ledger has no digest of the commit before the position")
    found_id = log.state_at(log.latest()).metadata.id
    if found_id != position.table_id:
        raise _refusal(
            state,
            f"{log.table_uri} has another table: its id is {found_id}, and that of the table that the stream has read "
            f"is {position.table_id}",
        )
    if not log.probe(last):
        newest = log.latest()
        lacks = "ends before it" if newest < last else "no longer has it"
        raise _unknown(state, f"the commit before the position is that of version {last}, and the log there {lacks}")
    try:
        found = log.commit(last).sha256
    except FdsError as error:
        raise _unknown(state, f"the commit of version {last} there cannot be read: {error}") from None
    if found != known:
        raise _refusal(
            state,
            f"version {last} in {log.table_uri} is not the commit that the stream has read: its content has SHA-256 "
            f"{found}, but the ledger has {known}",
        )


def _unknown(state: StreamState, why: str) -> ConfigurationError:
    return _refusal(state, f"whether the new folder has what the stream has read cannot be checked: {why}")


def _refusal(state: StreamState, problem: str) -> ConfigurationError:
    return ConfigurationError(
        f"stream {state.name!r}: {problem}. Nothing was done", table=state.table, reason=Reason.ACTION_REFUSED
    )
