"""Traces of earlier loads in a sink: a stream is created only if none of them can be its own.

A sink outlives staging and checkpoint. Its commits name the streams that wrote them. If log cleanup has removed the
commits, the transactions in the table's state still show that a stream wrote.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Final

import msgspec

from airflow_provider_fds.batch.sink.loaded_streams import Loaded, read_loaded
from airflow_provider_fds.batch.transactions import stream_uuid
from airflow_provider_fds.delta.reader.log import DeltaLog
from airflow_provider_fds.delta.reader.replay import transactions_with
from airflow_provider_fds.errors import (
    AccessDeniedError,
    FdsError,
    LedgerError,
    LogGapError,
    TableNotFoundError,
)
from airflow_provider_fds.ledger.entries.entry import Entry
from airflow_provider_fds.ledger.entries.epoch_entries import Created
from airflow_provider_fds.ledger.layout import StreamFolder
from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.stream.sink_record.sink_commits import newest_commits, sink_commit
from airflow_provider_fds.stream.sink_record.sink_evidence import evidence_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from airflow_provider_fds.batch.sink.loaded_streams import LoadedStream
    from airflow_provider_fds.batch.sink.sink_commit import SinkCommit
    from airflow_provider_fds.delta.commits import Commit
    from airflow_provider_fds.sinks import Sink
    from airflow_provider_fds.stream.connected_stream import ConnectedStream

#: What loads data intervals of which only the sink knows: no command moves them, and it has rows of another stream.
LOST_INTERVALS: Final = "load the intervals into another sink with a stream of another name"


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
    evidence = evidence_of(connected, sink)
    if evidence is not None and (other := evidence.namesake(sink.others)) is not None:
        target = sink.identity()["target"]
        recover = f"`fds recover {connected.stream.name} --sink {shlex.quote(target)} --table URI --why …`"
        has, way = "has written to", f"{recover} rebuilds it from the sink"
        if not other.has_loaded:
            has, way = "is registered, without a batch, for", f"{recover} begins that stream again"
        if connected.state.phase != "empty":
            # a ledger with another uuid is not recovered from what that stream has loaded
            way = "give this stream another name and another table"
        elif other.has_loaded and (other.interval or connected.stream.reads_by_interval):
            way = LOST_INTERVALS
        raise LedgerError(
            f"{_subject(connected)}, but a stream of this name (uuid {other.uuid}) {has} {sink.describe()}. The "
            "ledger was lost, or staging points elsewhere: a new start would load the same rows again. Point [fds] "
            f"staging to the folder with the ledger; if it is lost, {way}; if the other stream loads different rows, "
            f"declare it on this sink: other_streams=['{other.uuid}']",
            table=target,
            reason=Reason.LEDGER_LOST,
        )


def loaded_by_others(connected: ConnectedStream, sink: Sink) -> tuple[LoadedStream, ...]:
    """Return what other streams have loaded into the sink, except those declared on it.

    What log cleanup has removed from the log is known only if a later batch has recorded it; of a sink that cannot be
    read from here, nothing is. A sink that was read in this session is not read again.
    """
    ours = {connected.state.uuid, *sink.others}
    found: list[LoadedStream] = []
    for uri in sink.known_tables:
        if uri not in connected.loaded_in:
            connected.loaded_in[uri] = _loaded(connected, uri)
        found += [stream for uuid, stream in connected.loaded_in[uri].streams.items() if uuid not in ours]
    return tuple(found)


def _loaded(connected: ConnectedStream, uri: str) -> Loaded:
    log = DeltaLog(connected.open_sink(uri))
    try:
        newest, earliest = log.latest(), log.earliest()
    except (TableNotFoundError, AccessDeniedError, LogGapError):
        # Delta itself does not write to a table whose newest commits have a gap
        return Loaded()
    try:
        commits = newest_commits(log, earliest, newest, lambda commit: Loaded.of_commit(commit) is not None)
        return read_loaded(
            commits, lambda first: [sink_commit(one) for one in log.commits(max(earliest, first or 0), newest)]
        )
    except LogGapError:
        readable = [sink_commit(commit) for commit in _readable_commits(log, newest)]
        return read_loaded(readable, lambda _: readable)


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
        connected.missing.add(uri)
        connected.loaded_in[uri] = Loaded()
        return
    known = set(others)
    commits: list[SinkCommit] = []
    for commit in map(sink_commit, _commits(log, newest)):
        commits.append(commit)
        found = commit.metadata or commit.write
        if found is None or found.get("uuid") in others:
            continue
        if found.get("stream") == connected.stream.name:
            raise _lost(connected, log.table_uri, commit.version, found)
        known.add(str(found.get("uuid")))
    connected.loaded_in[uri] = read_loaded(commits, lambda _: commits)
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
    recover = f"; if it is lost, `fds recover {name} --sink URI --table URI` rebuilds it from the sink"
    if connected.state.phase != "empty":
        recover = ""
    elif "interval" in found:
        recover = f"; if it is lost, {LOST_INTERVALS}"
    # a function's write does not record the stream's position
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
