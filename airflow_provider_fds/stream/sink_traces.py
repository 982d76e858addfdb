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
from airflow_provider_fds.delta.replay import transactions_with
from airflow_provider_fds.errors import (
    AccessDeniedError,
    FdsError,
    LedgerError,
    LogGapError,
    LogTruncatedError,
    TableNotFoundError,
)
from airflow_provider_fds.ledger.entries import Entry
from airflow_provider_fds.ledger.epoch_entries import Created
from airflow_provider_fds.ledger.layout import StreamFolder
from airflow_provider_fds.reasons import Reason

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


def batches_of_others(connected: ConnectedStream, sink: Sink) -> list[tuple[int, dict[str, object]]]:
    """Return version and metadata of the batches in the sink that other streams wrote, except those declared on it.

    Commits that log cleanup has removed are not seen; of a sink that may not be read from here, none is. A sink that
    was searched in this session is not read again.
    """
    ours = (connected.state.uuid, *sink.others)
    found = []
    for uri in sink.known_tables:
        if uri not in connected.batches_in:
            connected.batches_in[uri] = _batches(connected, uri)
        found += [(version, told) for version, told in connected.batches_in[uri] if told["uuid"] not in ours]
    return found


def has_other_streams(connected: ConnectedStream, sink: Sink) -> bool:
    """Whether the sink's transactions name a stream that is neither this one nor declared on the sink.

    Cheaper than :func:`batches_of_others`: it reads the newest log checkpoint and the commits after it. ``True`` if the
    transactions cannot be read.
    """
    ours = {connected.state.uuid, *sink.others}
    for uri in sink.known_tables:
        log = DeltaLog(connected.open_sink(uri))
        try:
            app_ids = transactions_with(log, log.latest(), "fds:")
        except TableNotFoundError:
            continue
        except (AccessDeniedError, LogGapError, LogTruncatedError):
            return True
        if any(stream_uuid(app_id) not in ours for app_id in app_ids):
            return True
    return False


def _batches(connected: ConnectedStream, uri: str) -> list[tuple[int, dict[str, object]]]:
    log = DeltaLog(connected.open_sink(uri))
    try:
        newest = log.latest()
    except (TableNotFoundError, AccessDeniedError, LogGapError):
        # Delta itself does not write to a table whose newest commits have a gap
        return []
    commits = _readable_commits(log, newest)
    return [(commit.version, told) for commit in commits if (told := _batch_of(commit)) is not None]


def _batch_of(commit: Commit) -> dict[str, object] | None:
    found = read_commit_metadata(None if commit.info is None else commit.info.userMetadata)
    return found if found is not None and "batch_id" in found else None


def _readable_commits(log: DeltaLog, newest: int) -> Iterator[Commit]:
    """Yield all existing commits, also around versions that are missing from the log."""
    first = log.earliest()
    try:
        for commit in _commits(log, newest):
            yield commit
            first = commit.version + 1
    except LogGapError:
        for version in range(first, newest + 1):
            if log.probe(version):
                yield log.commit(version)


def _search(connected: ConnectedStream, uri: str, others: set[str]) -> None:
    log = DeltaLog(connected.open_sink(uri))
    try:
        newest = log.latest()
    except TableNotFoundError:
        connected.batches_in[uri] = []
        return
    known = set(others)
    batches: list[tuple[int, dict[str, object]]] = []
    for commit in _commits(log, newest):
        if (batch := _batch_of(commit)) is not None:
            batches.append((commit.version, batch))
        text = commit.info.userMetadata if commit.info is not None else None
        found = read_commit_metadata(text) or read_write_metadata(text)
        if found is None or found.get("uuid") in others:
            continue
        if found.get("stream") == connected.stream.name:
            raise _lost(connected, log.table_uri, commit.version, found)
        known.add(str(found.get("uuid")))
    connected.batches_in[uri] = batches
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
    return f"stream {connected.stream.name!r} has a ledger in {staging} that knows of no batch in its sink"


def _lost(connected: ConnectedStream, sink: str, version: int, found: dict[str, object]) -> LedgerError:
    name = connected.stream.name
    # a function's write does not record the stream's position
    recover = f"; if it is lost, `fds recover {name} --sink URI --table URI` rebuilds it from the sink"
    where = f"batch {found['batch_id']} of epoch {found['epoch']}" if "write" in found else f"end {found.get('end')}"
    return LedgerError(
        f"{_subject(connected)}, but version {version} of the sink {sink} was written by a stream of this name "
        f"(uuid {found.get('uuid')}, {where}). The ledger was lost, or staging points elsewhere: a new start "
        "would load the same rows again. Point [fds] staging to the folder with the ledger, or restore "
        f"it{'' if 'write' in found else recover}; to start again, give the stream another name and, if it starts "
        "with rows that are already in the sink, another sink",
        table=sink,
        version=version,
        reason=Reason.LEDGER_LOST,
    )


def _maybe_lost(connected: ConnectedStream, sink: str, newest: int, unknown: Sequence[str]) -> LedgerError:
    return LedgerError(
        f"{_subject(connected)}, but the table {sink} (version {newest}) has transactions of unknown streams "
        f"(uuid {', '.join(unknown)}), without a commit that names their stream. If one of them was this stream, "
        "its ledger was lost: point [fds] staging to the folder with it, or restore it. If they are other "
        "streams, with ledgers in other staging folders, declare them on the sink: "
        f"other_streams={list(unknown)!r}",
        table=sink,
        version=newest,
        reason=Reason.LEDGER_LOST,
    )


__all__ = ["batches_of_others", "has_other_streams", "refuse_lost_ledger"]
