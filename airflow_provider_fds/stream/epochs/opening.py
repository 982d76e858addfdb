"""The first steps of a stream: create it, open it at its start, bind it to its sink; also its result and status."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from msgspec import UNSET

from airflow_provider_fds.batch.transactions import txn_app_id
from airflow_provider_fds.delta.reader.log import DeltaLog
from airflow_provider_fds.delta.reader.timestamps import CommitTimestamps
from airflow_provider_fds.errors import ConfigurationError, LostPositionError, SinkError, TableNotFoundError
from airflow_provider_fds.fault_points import reach
from airflow_provider_fds.ledger.entries import refusals
from airflow_provider_fds.ledger.entries.epoch_entries import Bound, Created, Opened
from airflow_provider_fds.ledger.entries.request_entries import Shown
from airflow_provider_fds.ledger.staging.log import Ledger
from airflow_provider_fds.ledger.values import Fence, SinkBinding, SnapshotRef
from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.source.changes.change_recording import check_start
from airflow_provider_fds.source.offset import Offset, describe_position
from airflow_provider_fds.source.planning.start import SnapshotStart, resolve_start
from airflow_provider_fds.stream.connected_stream import lie_inside_each_other
from airflow_provider_fds.stream.epochs.epoch_start import Facts, decide, needs_history, options_to_resolve
from airflow_provider_fds.stream.epochs.fork import forked, refuse_other_stream, refuse_sink_of_origin
from airflow_provider_fds.stream.epochs.skipped_versions import refuse_skipped
from airflow_provider_fds.stream.epochs.tables_before import tables_now
from airflow_provider_fds.stream.position.changed_start import end_options, keep_start, range_options, start_options
from airflow_provider_fds.stream.position.source_unchanged import check_table
from airflow_provider_fds.stream.sink_record.overlap import refuse_overlap_of_new
from airflow_provider_fds.stream.sink_record.sink_traces import refuse_lost_ledger

if TYPE_CHECKING:
    from msgspec import UnsetType

    from airflow_provider_fds.batch.report import FenceReport
    from airflow_provider_fds.ledger.state import StreamState
    from airflow_provider_fds.ledger.values import Acknowledgement
    from airflow_provider_fds.places import Place
    from airflow_provider_fds.sinks import Sink
    from airflow_provider_fds.stream.connected_stream import ConnectedStream
    from airflow_provider_fds.stream.epochs.epoch_start import Opening


def ensure_open(connected: ConnectedStream, sink: Sink | None, *, start: Offset | None = None) -> StreamState:
    """Create the stream and open its epoch at the resolved start, unless that is already done.

    Args:
        connected: The stream.
        sink: The intended sink, searched for traces of an earlier stream of the same name.
        start: Where a new stream starts, instead of its start options; an open stream must have this start.
    """
    state = ensure_created(connected, sink, start=start)
    if state.retired is not None:
        raise refusals.retired(state, "start a run")
    _refuse_other_start(state, start)
    if state.phase == "requested":
        # if Spark must first close the earlier epochs, the caller that has Spark opens the epoch
        return state if state.needs_fence else open_epoch(connected, state)
    refuse_other_stream(connected, state)
    _refuse_another_bounded_read(connected, state)
    return keep_start(connected, state)


def _refuse_other_start(state: StreamState, start: Offset | None) -> None:
    """Refuse a start for a stream that was created without it."""
    if start is None or start.to_json() in (state.given_start, state.epoch_start):
        return
    began = "has not begun" if state.epoch_start is None else f"started at {describe_position(state.epoch_start)}"
    raise ConfigurationError(
        f"stream {state.name!r} {began} and is at {describe_position(state.position)}. A start can only be given to a "
        f"new stream, got {start.to_json()}. Omit the start, or choose another name",
        reason=Reason.STREAM_ALREADY_BEGUN,
    )


def ensure_created(
    connected: ConnectedStream, sink: Sink | None, *, start: Offset | None = None, why: str | None = None
) -> StreamState:
    """Create the stream, if it does not exist yet, and record the name by which it has found its table.

    Args:
        connected: The stream.
        sink: The intended sink, or ``None``.
        start: Where a new stream starts, instead of its start options.
        why: For a fork: the reason that a person gave.
    """
    if connected.load_to_work().phase == "empty":
        _create(connected, sink, start, why)
    return connected.record_name()


def _create(connected: ConnectedStream, sink: Sink | None, start: Offset | None, why: str | None) -> None:
    connected.log.latest()  # no stream for a missing table
    if start is not None:
        _check_start(connected, start)
    if sink is not None:
        refuse_lost_ledger(connected, sink)
        refuse_overlap_of_new(connected, sink, start)
    if connected.stream.fork_of is not None:
        refuse_sink_of_origin(connected, sink)
        connected.execute(forked(connected, why))
        return
    connected.execute(
        Created(
            uuid=str(uuid4()),
            name=connected.stream.name,
            table=connected.table.uri,
            deployment=connected.context.deployment,
            start=UNSET if start is None else start.to_json(),
            acknowledged=_decisions_of_live(connected) or UNSET,
        )
    )


def _decisions_of_live(connected: ConnectedStream) -> tuple[Acknowledgement, ...]:
    """Return what people have decided on versions for the stream that this one backfills: they hold for the table."""
    backfill = connected.stream.backfill_range
    return () if backfill is None else Ledger(connected.staging, backfill.of).find().acknowledged


def ensure_bound(connected: ConnectedStream, sink: Sink | None, *, user_job: bool) -> StreamState:
    """Bind the stream to its sink, or check that it is the sink the stream is bound to.

    Raises:
        SinkError: The stream is bound to another sink, or the sink overlaps with the source or staging.
        LedgerError: The sink has traces of the stream from before its ledger, so an earlier ledger was lost.
    """
    state = connected.state
    if user_job:
        binding = SinkBinding(kind="user_job")
    elif sink is None:
        return state
    else:
        binding = _binding(connected, sink, state.uuid)
    if state.sink == binding:
        return state
    if state.sink is None and sink is not None:
        # a stream may be created without its sink, for example by `fds plan`
        refuse_lost_ledger(connected, sink)
    table_id = _table_id(connected, binding)
    return connected.execute(Bound(epoch=state.epoch, sink=binding, table_id=table_id))


def check_binding(connected: ConnectedStream, sink: Sink) -> None:
    """Refuse a run whose sink is not the one that the stream is bound to.

    Raises:
        SinkError: The sink has another kind or another location.
    """
    state = connected.state
    wanted = _binding(connected, sink, state.uuid)
    if state.sink is not None and state.sink != wanted:
        raise refusals.other_sink(state, state.sink, wanted)


def _binding(connected: ConnectedStream, sink: Sink, uuid: str) -> SinkBinding:
    if sink.table_uri is not None:
        target = _refuse_own_folders(connected, sink.table_uri)
        place, state = connected.sink_place(sink.table_uri), connected.state
        if place.name and state.sink is not None and state.sink.kind == sink.kind and state.sink.target != target:
            raise _sink_of_another_name(state, sink.describe(), place)
        return SinkBinding(kind=sink.kind, target=target, app_ids=(txn_app_id(uuid),))
    if sink.target == "database_table":
        return SinkBinding(kind=sink.kind, target=sink.identity()["target"], app_ids=(txn_app_id(uuid),))
    app_ids = tuple(txn_app_id(uuid, write=name) for name in sink.names)
    tables = {name: _refuse_own_folders(connected, uri) for name, uri in sink.tables.items()}
    return SinkBinding(kind=sink.kind, target=sink.identity()["target"], app_ids=app_ids, tables=tables)


def _table_id(connected: ConnectedStream, sink: SinkBinding) -> str | None:
    """Return ``metaData.id`` of an existing Delta sink, or ``None`` if the first batch must create it."""
    if not sink.has_log:
        return None
    log = DeltaLog(connected.open_sink(sink.target))
    try:
        return log.state_at(log.latest()).metadata.id
    except TableNotFoundError:
        return None


def open_epoch(
    connected: ConnectedStream,
    state: StreamState,
    *,
    fence: Fence | None = None,
    report: FenceReport | None = None,
) -> StreamState:
    """Resolve the start of the requested epoch and open it there.

    Args:
        connected: The stream.
        state: Its state; an epoch is requested.
        fence: How the earlier epochs were closed in the sink, or ``None`` if that is not needed.
        report: The fence's report, with what the sink has of the earlier epochs.

    Returns:
        The state; not opened while the start is in the future.

    Raises:
        LostPositionError: The log no longer reaches back to the start.
        LedgerError: The landed batches were not planned or not verified.
    """
    log = connected.log
    facts = gather(connected, state, fence, report)
    opening = decide(facts)
    if opening.refusal is not None and opening.refusal.shown:
        connected.execute(Shown(epoch=state.epoch, batches=opening.refusal.shown))
    offset = _checked_start(connected, state, opening)
    if offset is None:
        return state
    snapshot = opening.snapshot
    if offset.is_initial_snapshot and snapshot is None:
        snapshot = _freeze(connected, offset.version)
    return connected.execute(
        Opened(
            epoch=state.epoch,
            start=offset.to_json(),
            table_id=offset.table_id,
            snapshot=snapshot,
            fence=facts.fence,
            landed=max((batch.batch_id for batch in facts.landed), default=None),
            last_commit_sha256=_digest_of(connected, opening, offset),
            meaning_digest=opening.meaning_digest,
            continues=opening.continues,
            range_options=_range_of(connected, opening),
            columns=_columns(log, state),
        )
    )


def start_before_fence(connected: ConnectedStream, state: StreamState) -> Offset | None:
    """Return where the requested epoch will begin, as far as the source and the ledger tell, before Spark is asked.

    ``None`` if that is in the future.

    Raises:
        FdsError: It cannot begin: nothing may be removed from the sink for it.
    """
    return _checked_start(connected, state, decide(gather(connected, state)))


def _checked_start(connected: ConnectedStream, state: StreamState, opening: Opening) -> Offset | None:
    """Return where an epoch begins, after checks that it can be read from there on."""
    if opening.refusal is not None:
        raise opening.refusal.error
    if opening.start is None:
        return None
    offset = opening.start.offset if isinstance(opening.start, SnapshotStart) else opening.start
    if opening.is_kept:
        _check_start(connected, offset)
    if connected.stream.options.read_change_feed:
        check_start(connected.log, offset)
    if offset.is_initial_snapshot and opening.snapshot is None:
        refuse_skipped(state, offset.version, offset.table_id)
    return offset


def _columns(log: DeltaLog, state: StreamState) -> dict[str, str] | UnsetType:
    if state.sink_names is None:
        return UNSET
    # only after a recovery
    from airflow_provider_fds.stream.epochs.recovered_columns import recovered_columns

    return recovered_columns(log, state.sink_names)


def gather(
    connected: ConnectedStream, state: StreamState, fence: Fence | None = None, report: FenceReport | None = None
) -> Facts:
    """Read what :func:`decide` needs of the log, of a function's tables and of the ledger's history.

    Args:
        connected: The stream.
        state: Its state; an epoch is requested.
        fence: As in :func:`open_epoch`.
        report: As in :func:`open_epoch`.
    """
    resolved, options = None, options_to_resolve(state, connected.stream.options)
    if options is not None:
        to = (None if state.request is None else state.request.to) or {}
        if to.get("starting_version") == connected.log.latest() + 1:
            # the table was restored to a version before the position: read what comes next
            options = replace(options, starting_version="latest")
        resolved = resolve_start(connected.log, options)
    tables = {} if report is None else tables_now(connected, state, report)
    facts = Facts(state=state, fence=fence or Fence(), report=report, tables=tables, resolved=resolved)
    return replace(facts, history=tuple(connected.ledger.entries())) if needs_history(facts) else facts


def _check_start(connected: ConnectedStream, start: Offset) -> None:
    """Refuse a position of another table, or one that the log no longer reaches back to."""
    log = connected.log
    check_table(log, start)
    if not start.is_initial_snapshot:
        log.verify_position(start.version)


def _freeze(connected: ConnectedStream, version: int) -> SnapshotRef:
    from airflow_provider_fds.delta.reader.snapshot import freeze_snapshot

    reach("snapshot.before")
    stats = connected.stream.options.keeps_statistics
    frozen = freeze_snapshot(connected.log, version, connected.staging, connected.folder.snapshots, stats=stats)
    reach("snapshot.after")
    return SnapshotRef(
        version=frozen.version,
        digest=frozen.digest,
        key=frozen.key.removeprefix(f"{connected.stream.name}/"),
        num_files=frozen.num_files,
        num_bytes=frozen.num_bytes,
        timestamp_ms=commit_time(connected.log, version),
    )


def _refuse_another_bounded_read(connected: ConnectedStream, state: StreamState) -> None:
    """Refuse a bounded read of a stream that began otherwise, so that it does not count as finished."""
    options = connected.stream.options
    if not options.is_bounded or state.epoch_start is None:
        return
    start = Offset.from_json(state.epoch_start)
    if start.is_initial_snapshot and options.version_as_of in (None, start.version):
        return
    asked = "timestamp_as_of" if options.version_as_of is None else f"version_as_of={options.version_as_of}"
    raise ConfigurationError(
        f"stream {state.name!r} started at {start.describe()} and is at {describe_position(state.position)}; {asked} "
        "can only be given to a new stream. Omit it, or choose another name",
        table=connected.table.uri,
        reason=Reason.STREAM_ALREADY_BEGUN,
    )


def _range_of(connected: ConnectedStream, opening: Opening) -> dict[str, Any] | None:
    """Return the options of start and end to record; a fork has the start of the stream that it continues."""
    given = range_options(connected.stream.options)
    if opening.origin is not None and opening.origin.range_options is not None:
        return start_options(opening.origin.range_options) | end_options(given)
    return given if opening.follows_options or opening.origin is not None else None


def _digest_of(connected: ConnectedStream, opening: Opening, start: Offset) -> str | None:
    if opening.origin is not None:
        return opening.origin.last_commit_sha256
    return None if start.is_initial_snapshot else _digest_before(connected.log, start)


def commit_time(log: DeltaLog, version: int) -> int | None:
    """Return the commit time of a version in milliseconds, or ``None`` if log cleanup removed its commit."""
    try:
        return CommitTimestamps(log).of(log.commit(version), log.state_at(version).metadata)
    except LostPositionError:
        return None


def _digest_before(log: DeltaLog, start: Offset) -> str | None:
    """Return the digest of the last commit before the start, or ``None`` if the log does not have it."""
    last = start.version if start.next_index > 0 else start.version - 1
    if last < 0 or not log.probe(last):
        return None
    try:
        return log.commit(last).sha256
    except LostPositionError:
        return None


def _refuse_own_folders(connected: ConnectedStream, uri: str) -> str:
    """Return the URI of the sink. Raises ``SinkError`` if it overlaps with the source table or staging."""
    target = connected.sink_target(uri)
    for what, own in (("the source table", connected.table.uri), ("the staging folder", connected.staging.uri)):
        if lie_inside_each_other(target, own):
            raise SinkError(
                f"stream {connected.stream.name!r}: the sink {target} overlaps {what} {own}. Use a separate "
                "folder for the sink",
                table=target,
                reason=Reason.SINK_OVERLAPS,
            )
    return target


def _sink_of_another_name(state: StreamState, sink: str, place: Place) -> SinkError:
    """Return the error about a sink whose name means another table than the one that the stream has written to."""
    target = "" if state.sink is None else state.sink.target
    return SinkError(
        f"stream {state.name!r} has written to {target}, but its sink {sink} is now the table at {place.uri}: the "
        "table was moved, or it was dropped or renamed and its name given away. Nothing was written to it. Give the "
        f"sink the name or the URI of the table at {target}, or move that table back; to load the other table from "
        "the start, use a stream with another name",
        table=place.uri,
        reason=Reason.SINK_MISMATCH,
    )
