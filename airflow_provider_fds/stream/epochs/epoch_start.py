"""Where a requested epoch starts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from airflow_provider_fds.delta.reader.timestamps import CommitTimestamps
from airflow_provider_fds.errors import LedgerError, LostPositionError
from airflow_provider_fds.ledger.plan_entries import Planned
from airflow_provider_fds.ledger.values import Fence, SeenBatch
from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.source.offset import Offset
from airflow_provider_fds.source.planning.start import SnapshotStart, resolve_start
from airflow_provider_fds.stream.epochs.sink_before import refuse_older_sink

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from airflow_provider_fds.batch.report import FenceEvidence, LandedBatch
    from airflow_provider_fds.delta.reader.log import DeltaLog
    from airflow_provider_fds.ledger.state import ClosedEpoch, StreamState
    from airflow_provider_fds.ledger.values import Origin, PlannedBatch, SnapshotRef
    from airflow_provider_fds.stream.connected_stream import ConnectedStream


#: Start options that a person's request replaces.
_NO_START: Final = {"starting_version": None, "starting_timestamp": None}


class LandedBatchError(LedgerError):
    """A batch in the sink prevents an epoch from being opened.

    Attributes:
        batch: The batch, which the message names.
    """

    reason = Reason.SINK_ROWS_UNDECIDED

    def __init__(self, message: str, *, batch: LandedBatch, table: str) -> None:
        super().__init__(message, table=table)
        self.batch = batch


@dataclass(frozen=True, slots=True)
class EpochStart:
    """A resolved start.

    Attributes:
        start: The position, or a snapshot to be frozen; ``None`` while the start is in the future.
        is_kept: Whether it is a position of an earlier epoch, which the log may no longer reach back to.
        snapshot: The frozen snapshot that contains the position.
        meaning_digest: Digest of the options by which a position within a version was counted.
        continues: Whether the epoch continues where the previous one ended.
        follows_options: Whether the stream's own start options decided it, or a start given in their place.
        origin: The stream that was at this position, if this is a fork of it.
    """

    start: Offset | SnapshotStart | None
    is_kept: bool = False
    snapshot: SnapshotRef | None = None
    meaning_digest: str | None = None
    continues: bool = False
    follows_options: bool = False
    origin: Origin | None = None


def epoch_start(
    connected: ConnectedStream,
    state: StreamState,
    landed: Sequence[LandedBatch],
    fence: Fence,
    evidence: FenceEvidence | None = None,
) -> EpochStart:
    """Resolve where the requested epoch starts.

    Args:
        connected: The stream.
        state: Its state; an epoch is requested.
        landed: Batches of the previous epoch that are in the sink but were never committed.
        fence: How the earlier epochs were closed.
        evidence: What the sink's log shows about the time before the fence.

    Raises:
        LedgerError: The sink has a batch that was not planned or that failed verification, or it lacks batches that
            were committed.
    """
    options = connected.stream.options
    to = None if state.request is None else state.request.to
    closed = state.closed
    if closed is not None and to is None and closed.position is not None:
        refuse_older_sink(state, closed, fence, evidence)
        return _after(state, closed, Offset.from_json(_end_of_landed(connected, closed, landed) or closed.position))
    if state.request is None and state.origin is not None:
        return _forked(state.origin)
    if state.request is None and state.given_start is not None:
        return EpochStart(Offset.from_json(state.given_start), is_kept=True, follows_options=True)
    if to is None or "start" in to:
        return EpochStart(resolve_start(connected.log, options), follows_options=True)
    if "offset" in to:
        kept = _kept(state, Offset.from_json(to["offset"]), to)
        is_same_epoch = state.request is not None and state.request.reason == "sink_appeared"
        return replace(kept, continues=is_same_epoch and closed is not None and closed.continues)
    if to.get("starting_version") == connected.log.latest() + 1:
        # the table was restored to a version before the position: read what comes next
        to = {"starting_version": "latest"}
    return EpochStart(resolve_start(connected.log, replace(options, **{**_NO_START, **to})))


def unseen_batches(
    state: StreamState, landed: Sequence[LandedBatch], start: Offset | SnapshotStart
) -> tuple[LandedBatch, ...]:
    """Return the batches whose rows would be read again although they are in the sink, unknown to any person.

    A person who requests an epoch sees the batches committed by then. These batches landed later, or failed
    verification. Only batches that an earlier run showed (entry ``shown``), and that the request refers to, may be read
    again.
    """
    seen = () if state.request is None else state.request.seen
    again = (b for b in landed if isinstance(start, SnapshotStart) or _is_after(b, start))
    return tuple(batch for batch in again if as_seen(batch) not in seen)


def as_seen(batch: LandedBatch) -> SeenBatch:
    """Return a landed batch as the ledger records it."""
    return SeenBatch(epoch=batch.epoch, batch_id=batch.batch_id, digest=batch.digest, sink_version=batch.sink_version)


def unseen_error(state: StreamState, again: Sequence[LandedBatch]) -> LedgerError:
    """Return the error that names the batches of :func:`unseen_batches` and the possible next steps."""
    name, sink = state.name, state.fence_sink
    reason = "rewind" if state.request is None else state.request.asked
    which = "epoch" if reason == "sink_appeared" else reason
    merges = sink is not None and sink.merges
    lead = (
        f"stream {name!r}: the sink has {', '.join(_describe(run) for run in _runs(again))}, which were written "
        f"before epoch {state.epoch} closed the earlier epochs but were never committed. The {which} would read "
        f"{'its' if len(again) == 1 else 'their'} rows again and "
    )
    lead += "merge them again (with scd=2 they would be in the sink twice). " if merges else "load them twice. "
    if reason == "recover":
        return LedgerError(
            f"{lead}To keep them, continue after them: `fds recover {name} --why …`.",
            table=state.table,
            reason=Reason.SINK_ROWS_UNDECIDED,
        )
    keep = f"To keep them, continue after them: `fds replan {name} --replace --why …`."
    empty = f"`fds rewind {name} --to start --replace --sink-rows empty --why …`"
    if merges:
        merge = f"`fds rewind {name} --to start --replace --sink-rows keep --why …`"
        if reason == "rewind":
            merge = f"`fds rewind {name} --replace --to N --sink-rows keep --why …`"
        ways = f"To merge them again: {merge}; to empty the sink first and load everything, {empty}."
    else:
        if reason == "rewind":
            empty = f"`fds rewind {name} --replace --to N --sink-rows delete --why …` (with provenance), or {empty}"
        version = again[0].sink_version
        known = f" The last version of the sink without them is {version - 1}." if version > 0 else ""
        ways = f"To have them removed and load them again: {empty}.{known}"
    return LedgerError(f"{lead}{keep} {ways}", table=state.table, reason=Reason.SINK_ROWS_UNDECIDED)


def _runs(batches: Sequence[LandedBatch]) -> list[list[LandedBatch]]:
    """Return the batches in groups of consecutive ids of one epoch."""
    runs: list[list[LandedBatch]] = []
    for batch in batches:
        last = runs[-1][-1] if runs else None
        if last is not None and (last.epoch, last.batch_id + 1) == (batch.epoch, batch.batch_id):
            runs[-1].append(batch)
        else:
            runs.append([batch])
    return runs


def _describe(run: Sequence[LandedBatch]) -> str:
    first, last = run[0], run[-1]
    if len(run) == 1:
        return f"batch {first.batch_id} of epoch {first.epoch} (version {first.sink_version})"
    versions = f"versions {first.sink_version} to {last.sink_version}"
    return f"batches {first.batch_id} to {last.batch_id} of epoch {first.epoch} ({versions})"


def _is_after(batch: LandedBatch, start: Offset) -> bool:
    end = Offset.from_json(batch.end)
    return end.table_id == start.table_id and end > start


def _after(state: StreamState, closed: ClosedEpoch, start: Offset) -> EpochStart:
    kept = _kept(state, start, {"meaning_digest": closed.meaning_digest})
    return replace(kept, continues=closed.continues or start.to_json() != closed.epoch_start)


def _kept(state: StreamState, start: Offset, to: Mapping[str, Any]) -> EpochStart:
    snapshot = None
    if start.is_initial_snapshot:
        snapshot = None if state.closed is None else state.closed.snapshot
        if snapshot is None or snapshot.version != start.version:
            raise LedgerError(
                f"stream {state.name!r}: {start.to_json()} is in the snapshot of version {start.version}, but the "
                f"last epoch began with another snapshot. Start with a new snapshot: `fds rewind {state.name} --to "
                "start --replace --sink-rows keep|empty --why …`",
                table=state.table,
            )
    is_within = start.next_index > 0 and not start.is_initial_snapshot
    return EpochStart(
        start, is_kept=True, snapshot=snapshot, meaning_digest=to.get("meaning_digest") if is_within else None
    )


def _forked(origin: Origin) -> EpochStart:
    """Return the start of a new fork: what the other stream has read decides about the versions that follow."""
    return EpochStart(
        Offset.from_json(origin.offset),
        is_kept=True,
        snapshot=origin.snapshot,
        meaning_digest=origin.meaning_digest,
        continues=True,
        origin=origin,
    )


def _end_of_landed(connected: ConnectedStream, closed: ClosedEpoch, landed: Sequence[LandedBatch]) -> str | None:
    """Return the end of the last planned batch that is in the sink, or ``None`` if none is.

    The batches are in order, because a batch is not written before its predecessor.
    """
    planned = {batch.digest: batch for batch in closed.planned}
    if any(batch.digest not in planned for batch in landed):
        planned |= _planned_before(connected, closed, landed)
    end = None
    for batch in landed:
        found = planned.get(batch.digest)
        where = f"stream {connected.stream.name!r}: batch {batch.batch_id} of epoch {batch.epoch} is in the sink as "
        if found is None or found.batch_id != batch.batch_id:
            raise LandedBatchError(
                f"{where}version {batch.sink_version}, but the ledger does not know its manifest {batch.digest}: "
                "it may have been restored from a copy. Restore the sink to the previous version, or say where to "
                f"continue: `fds rewind {connected.stream.name} --replace --to N --sink-rows "
                "keep|delete|empty --why …`",
                batch=batch,
                table=connected.table.uri,
            )
        blocked = closed.blocked
        if blocked is not None and (blocked.epoch, blocked.batch_id) == (batch.epoch, batch.batch_id):
            name, version = connected.stream.name, batch.sink_version
            restore = (
                f"restore version {version - 1} of the sink, the last without it, and repeat the request with `fds "
                f"replan {name} --replace --why …`, or "
            )
            raise LandedBatchError(
                f"{where}version {version}, but its verification failed: {blocked.reason}. Planned again, its rows "
                f"would be in the sink twice. To load it again, {restore if version > 0 else ''}load everything: `fds "
                f"rewind {name} --to start --replace --sink-rows empty --why …`",
                batch=batch,
                table=connected.table.uri,
            )
        end = found.end
    return end


def _planned_before(
    connected: ConnectedStream, closed: ClosedEpoch, landed: Sequence[LandedBatch]
) -> dict[str, PlannedBatch]:
    """Return the batches of earlier epochs that continue the position without a gap, by digest.

    If an epoch was closed while its sink did not exist, a batch of it may still land in the next epoch. The batch was
    planned in the earlier epoch, and counts as loaded if it begins at the position.
    """
    wanted = {(batch.epoch, batch.batch_id, batch.digest) for batch in landed}
    known = {
        (entry.action.epoch, batch.batch_id): batch
        for entry in connected.ledger.entries()
        if isinstance(entry.action, Planned)
        for batch in entry.action.batches
        if (entry.action.epoch, batch.batch_id, batch.digest) in wanted
    }
    found: dict[str, PlannedBatch] = {}
    position = closed.position
    for batch in landed:
        planned = known.get((batch.epoch, batch.batch_id))
        if planned is None or planned.digest != batch.digest or planned.start != position:
            break
        found[batch.digest] = planned
        position = planned.end
    return found


def commit_time(log: DeltaLog, version: int) -> int | None:
    """Return the commit time of a version in milliseconds, or ``None`` if log cleanup removed its commit."""
    try:
        return CommitTimestamps(log).of(log.commit(version), log.state_at(version).metadata)
    except LostPositionError:
        return None


__all__ = [
    "EpochStart",
    "LandedBatchError",
    "as_seen",
    "commit_time",
    "epoch_start",
    "unseen_batches",
    "unseen_error",
]
