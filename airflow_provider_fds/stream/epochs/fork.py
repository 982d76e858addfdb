"""Forks: a new stream that continues where another one is; the other stream's ledger is only read."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import uuid4

from msgspec import UNSET

from airflow_provider_fds.errors import ConfigurationError, LostPositionError
from airflow_provider_fds.ledger.entries.epoch_entries import Forked
from airflow_provider_fds.ledger.layout import StreamFolder
from airflow_provider_fds.ledger.staging.log import Ledger
from airflow_provider_fds.ledger.values import Origin
from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.source.offset import Offset, describe_position
from airflow_provider_fds.stream.position.source_unchanged import check_position, check_table

if TYPE_CHECKING:
    from airflow_provider_fds.ledger.state import StreamState
    from airflow_provider_fds.ledger.values import SnapshotRef
    from airflow_provider_fds.sinks import Sink
    from airflow_provider_fds.stream.connected_stream import ConnectedStream


def forked(connected: ConnectedStream, why: str | None = None) -> Forked:
    """Return the entry that creates a fork at the committed position of the stream that it continues.

    Copies the frozen snapshot if the position is inside it. Writes nothing else.

    Raises:
        ConfigurationError: The other stream has no position that can be continued.
        LostPositionError: The table no longer has that position.
    """
    stream = connected.stream
    state, position = origin_of(connected)
    snapshot = None
    if position.is_initial_snapshot and state.snapshot is not None:
        snapshot = _copied(connected, state.name, state.snapshot)
    return Forked(
        uuid=str(uuid4()),
        name=stream.name,
        table=connected.table.uri,
        deployment=connected.context.deployment,
        origin=Origin(
            stream=state.name,
            uuid=state.uuid,
            epoch=state.epoch,
            offset=position.to_json(),
            snapshot=snapshot,
            meaning_digest=state.meaning_digest,
            last_commit_sha256=state.last_commit_sha256,
            range_options=state.range_options,
            acknowledged=state.acknowledged,
        ),
        why=UNSET if why is None else why,
    )


def origin_of(connected: ConnectedStream) -> tuple[StreamState, Offset]:
    """Return the stream that a fork continues, and the position where it does. Writes nothing.

    Raises:
        ConfigurationError: The other stream has no position that can be continued.
        LostPositionError: The table no longer has that position.
    """
    assert connected.stream.fork_of is not None  # noqa: S101  # the caller has checked it
    state = Ledger(connected.staging, connected.stream.fork_of).find()
    position = _position_of(connected, state)
    check_position(connected.log, state)
    check_table(connected.log, position)
    return state, position


def _position_of(connected: ConnectedStream, state: StreamState) -> Offset:
    """Return the committed position of the stream to continue.

    Raises:
        ConfigurationError: It has none, or the fork cannot continue from there.
    """
    name, of = connected.stream.name, connected.stream.fork_of
    problem = None
    if state.phase == "empty":
        problem = f"which has no ledger in {connected.staging.uri}. Check the name and the staging folder, or run "
        problem += f"{of!r} first"
    elif state.table != connected.table.uri:
        problem = f"which reads {state.table}, not {connected.table.uri}. A fork reads the same table"
    elif state.reads_by_interval:
        problem = "which reads data intervals and has no position"
    elif state.phase == "requested":
        problem = f"whose epoch {state.epoch} was requested and has not begun, so it has no position. Run {of!r} first"
    elif state.quarantined is not None:
        problem = f"which is in quarantine: {state.quarantined.why}\nResolve that first (`fds status {of}`)"
    if problem is None:
        assert state.position is not None  # noqa: S101  # an open epoch has a position
        return Offset.from_json(state.position)
    raise ConfigurationError(
        f"Stream {name!r} is a fork of stream {of!r}, {problem}.",
        table=connected.table.uri,
        reason=Reason.FORK_NOT_AVAILABLE,
    )


def _copied(connected: ConnectedStream, source: str, snapshot: SnapshotRef) -> SnapshotRef:
    """Copy a frozen snapshot into the folder of the fork, where it has the same key."""
    theirs, own = StreamFolder(source).below(snapshot.key), connected.folder.below(snapshot.key)
    try:
        with connected.staging.open(theirs) as file:
            connected.staging.put_file(own, file)
    except FileNotFoundError as error:
        raise LostPositionError(
            f"stream {source!r} is inside its initial snapshot, but {connected.staging.uri}/{theirs}, the frozen "
            f"snapshot of version {snapshot.version}, is missing from staging. Restore it from a copy of the staging "
            "folder",
            table=connected.table.uri,
            version=snapshot.version,
            reason=Reason.SNAPSHOT_LOST,
        ) from error
    return snapshot


def refuse_other_stream(connected: ConnectedStream, state: StreamState) -> None:
    """Refuse a fork whose name a stream has that began otherwise.

    A ledger that was rebuilt from the sink (epoch 2 or later) no longer says what its stream was forked from.

    Raises:
        ConfigurationError: Names where that stream began.
    """
    of = connected.stream.fork_of
    if of is None or (state.origin is None and state.epoch > 1):
        return
    if state.origin is not None and state.origin.stream == of:
        return
    began = (
        f"began at {describe_position(state.epoch_start)}"
        if state.origin is None
        else f"is a fork of {state.origin.stream!r}"
    )
    raise ConfigurationError(
        f"stream {state.name!r} exists and is not a fork of {of!r}: it {began}. A stream can only be forked under a "
        "new name: choose another name, or declare the stream as it was",
        table=connected.table.uri,
        reason=Reason.STREAM_ALREADY_BEGUN,
    )


def refuse_sink_of_origin(connected: ConnectedStream, sink: Sink | None) -> None:
    """Refuse a fork into a sink that a stream it continues, directly or through other forks, still loads into.

    A retired stream loads nothing more, so its fork may take its place in the sink.

    Raises:
        ConfigurationError: The sinks are the same; the message names both ways out.
    """
    origin = connected.state.origin
    of = connected.stream.fork_of or (None if origin is None else origin.stream)
    if of is None or sink is None or sink.table_uri is None or connected.stream.allow_overlap:
        return
    target = connected.sink_target(sink.table_uri)
    seen = {connected.stream.name}
    while of is not None and of not in seen:
        seen.add(of)
        theirs = Ledger(connected.staging, of).find()
        if theirs.sink is not None and theirs.sink.target == target:
            _refuse_shared(connected, theirs, target)
        of = None if theirs.origin is None else theirs.origin.stream


def _refuse_shared(connected: ConnectedStream, theirs: StreamState, target: str) -> None:
    if theirs.exported_to is not None:
        raise ConfigurationError(
            f"Stream {connected.stream.name!r} is a fork of stream {theirs.name!r}, whose position was exported to "
            f"{theirs.exported_to}: a query that continues there loads the same rows into the sink {target}. Use "
            "another sink; or, if no query is started with that checkpoint, set allow_overlap=True on the fork (`fds`: "
            "--allow-overlap).",
            table=connected.table.uri,
            reason=Reason.RANGES_OVERLAP,
        )
    if theirs.retired is not None:
        return
    of, origin = theirs.name, connected.state.origin
    replaces = f"if the fork replaces {of!r}, run `fds retire {of} --why …`"
    if origin is not None and (theirs.planned or theirs.position != origin.offset):
        replaces = (
            f"{of!r} has gone on since it was forked, so this fork cannot replace it: for that, run `fds retire {of} "
            f"--why …`, then fork {of!r} once more"
        )
    raise ConfigurationError(
        f"Stream {connected.stream.name!r} is a fork of stream {of!r}, which itself loads the same versions into the "
        f"sink {target}. Use another sink; or, {replaces}.",
        table=connected.table.uri,
        reason=Reason.RANGES_OVERLAP,
    )
