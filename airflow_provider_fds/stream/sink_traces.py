"""Traces of earlier loads in a sink: a stream is created only if none of them can be its own.

A sink outlives staging and checkpoint. Its commits name the streams that wrote them. If log cleanup has removed the
commits, the transactions in the table's state still show that a stream wrote.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from airflow_provider_fds.batch.commit_metadata import read_commit_metadata, read_write_metadata
from airflow_provider_fds.batch.spec import stream_uuid
from airflow_provider_fds.delta.log import DeltaLog
from airflow_provider_fds.delta.snapshot import transactions_with
from airflow_provider_fds.errors import FdsError, LedgerError, LogGapError, TableNotFoundError
from airflow_provider_fds.ledger.entries import Entry
from airflow_provider_fds.ledger.epoch_entries import Created
from airflow_provider_fds.ledger.layout import StreamFolder

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from airflow_provider_fds.delta.log import Commit
    from airflow_provider_fds.sinks import Sink
    from airflow_provider_fds.stream.connect import ConnectedStream


def refuse_lost_ledger(connected: ConnectedStream, sink: Sink) -> None:
    """Refuse to create or bind a stream if an earlier stream of its name has written to the sink: its ledger was lost.

    Searches each table once in a session.

    Args:
        connected: The stream; it has no ledger, or is not bound to the sink.
        sink: The sink, with the uuids that a person has declared to be other streams'.

    Raises:
        LedgerError: A commit names a stream of this name; or the sink has a transaction, without its commit, of an
            unknown stream.
    """
    for uri in sink.known_tables:
        if uri not in connected.searched:
            _search(connected, uri, {*sink.others, connected.state.uuid})
            connected.searched.add(uri)


def _search(connected: ConnectedStream, uri: str, others: set[str]) -> None:
    log = DeltaLog(connected.open_sink(uri))
    try:
        newest = log.latest()
    except TableNotFoundError:
        return
    known = set(others)
    for commit in _commits(log, newest):
        text = commit.info.userMetadata if commit.info is not None else None
        found = read_commit_metadata(text) or read_write_metadata(text)
        if found is None or found.get("uuid") in others:
            continue
        if found.get("stream") == connected.stream.name:
            raise _lost(connected, log.table_uri, commit.version, found)
        known.add(str(found.get("uuid")))
    transactions = transactions_with(log, newest, "fds:")
    unknown = {uuid for app_id in transactions if (uuid := stream_uuid(app_id)) is not None} - known
    if unknown:
        unknown -= set(_uuids_in_staging(connected))
    if unknown:
        raise _maybe_lost(connected, log.table_uri, newest, sorted(unknown))


def _commits(log: DeltaLog, newest: int) -> Iterator[Commit]:
    """Yield all existing commits, oldest first, continuing after each gap in the log."""
    first = log.earliest()
    while first <= newest:
        try:
            yield from log.commits(first, newest)
        except LogGapError as gap:
            # an unfinished log cleanup; the commits before the gap were already yielded
            if gap.earliest_version is None or gap.earliest_version <= first:
                raise
            first = gap.earliest_version
        else:
            return


def _uuids_in_staging(connected: ConnectedStream) -> Iterator[str]:
    """Yield the uuids of the streams whose ledgers are in the same staging folder."""
    for name in connected.staging.list_folders(""):
        try:
            key = StreamFolder(name).entry(0)
            entry = Entry.from_json(connected.staging.get(key)[0], where=key)
        except (FileNotFoundError, FdsError, msgspec.MsgspecError):
            # not a stream, or an unreadable one: it proves nothing
            continue
        if isinstance(entry.action, Created):
            yield entry.action.uuid


def _subject(connected: ConnectedStream) -> str:
    state, staging = connected.state, connected.staging.uri
    if state.phase == "empty":
        return f"stream {connected.stream.name!r} has no ledger in {staging}"
    return f"stream {connected.stream.name!r} has a ledger in {staging} that knows no batch in its sink"


def _lost(connected: ConnectedStream, sink: str, version: int, found: dict[str, object]) -> LedgerError:
    name = connected.stream.name
    # a function's write does not record the stream's position
    recover = f"; where it is gone, `fds recover {name} --sink URI --table URI` makes it again from the sink"
    where = f"batch {found['batch_id']} of epoch {found['epoch']}" if "write" in found else f"end {found.get('end')}"
    return LedgerError(
        f"{_subject(connected)}, but version {version} of the sink {sink} was written by a stream of this name (uuid "
        f"{found.get('uuid')}, {where}). The ledger was lost, or staging points elsewhere: started "
        "anew, the stream would load the same rows again. Point [fds] staging to the folder with the ledger, or "
        f"restore it{'' if 'write' in found else recover}. For "
        "a new beginning, give the stream another name and, where it starts with rows that the sink has, another sink",
        table=sink,
        version=version,
    )


def _maybe_lost(connected: ConnectedStream, sink: str, newest: int, unknown: Sequence[str]) -> LedgerError:
    return LedgerError(
        f"{_subject(connected)}, but the table {sink} (version {newest}) has transactions of streams that nobody here "
        f"knows (uuid {', '.join(unknown)}), without a commit that names their stream. If one of them was this stream, "
        "its ledger was lost: point [fds] staging to the folder with it, or restore it. If they are other streams, "
        f"with ledgers in other staging folders, say so on the sink: other_streams={list(unknown)!r}",
        table=sink,
        version=newest,
    )


__all__ = ["refuse_lost_ledger"]
