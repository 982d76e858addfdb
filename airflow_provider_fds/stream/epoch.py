"""Where a requested epoch starts, and the Spark job that closes the earlier epochs in the sink."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import msgspec

from airflow_provider_fds.batch.location import sql_name
from airflow_provider_fds.batch.report import FENCE_OUTCOMES, FenceReport, fence_report_name
from airflow_provider_fds.batch.spec import FenceSpec, JobSpec, txn_app_id
from airflow_provider_fds.delta.damage import DAMAGE
from airflow_provider_fds.delta.timestamps import CommitTimestamps
from airflow_provider_fds.errors import BatchFailedError, BatchRejectedError, LedgerError, LostPositionError
from airflow_provider_fds.ledger.plan_entries import Planned
from airflow_provider_fds.ledger.values import Fence, SeenBatch
from airflow_provider_fds.source.offset import Offset
from airflow_provider_fds.source.start import SnapshotStart, resolve_start
from airflow_provider_fds.stream.attempts import refused
from airflow_provider_fds.stream.evidence import SinkLog
from airflow_provider_fds.stream.function_writes import fence_problem
from airflow_provider_fds.stream.sink_before import lacks_committed, refuse_older_sink

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from airflow_provider_fds.batch.report import FenceEvidence, LandedBatch
    from airflow_provider_fds.delta.log import DeltaLog
    from airflow_provider_fds.ledger.state import ClosedEpoch, StreamState
    from airflow_provider_fds.ledger.values import PlannedBatch, SnapshotRef
    from airflow_provider_fds.sinks import Sink
    from airflow_provider_fds.stream.connect import ConnectedStream


#: Start options that a person's request replaces.
_NO_START: Final = {"starting_version": None, "starting_timestamp": None}

#: Requests after which a stream continues at its position.
_KEEPING: Final = ("replan", "rebind", "sink_appeared")


class LandedBatchError(LedgerError):
    """A batch in the sink prevents an epoch from being opened.

    Attributes:
        batch: The batch, which the message names.
    """

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
    """

    start: Offset | SnapshotStart | None
    is_kept: bool = False
    snapshot: SnapshotRef | None = None
    meaning_digest: str | None = None
    continues: bool = False


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
    if to is None or "start" in to:
        return EpochStart(resolve_start(connected.log, options))
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
    reason = "rewind" if state.request is None else state.request.reason
    which = "epoch" if reason == "sink_appeared" else reason
    merges = sink is not None and sink.merges
    lead = (
        f"stream {name!r}: the sink has {', '.join(_describe(run) for run in _runs(again))}, written before epoch "
        f"{state.epoch} closed the epochs before it and never committed; the {which} would read "
        f"{'its' if len(again) == 1 else 'their'} rows again, and "
    )
    lead += "merge them again (with scd=2 they would be there twice). " if merges else "they would be there twice. "
    if reason == "recover":
        return LedgerError(f"{lead}To keep them, go on after them: `fds recover {name} --why …`.", table=state.table)
    keep = f"To keep them, go on after them: `fds replan {name} --replace --why …`."
    if merges:
        merge = f"`fds reset {name} --replace --sink keep --why …`"
        if reason == "rewind":
            merge = f"`fds rewind {name} --replace --to-version N --sink keep --why …`"
        return LedgerError(
            f"{lead}{keep} To merge them again: {merge}; to empty the sink first and load everything, "
            f"`fds reset {name} --replace --sink empty --why …`.",
            table=state.table,
        )
    table = "…" if sink is None else sql_name(sink.target)
    version = again[0].sink_version
    remove = f"RESTORE TABLE {table} TO VERSION AS OF {version - 1}" if version else f"DELETE FROM {table}"
    ask = f"`fds reset {name} --replace --why …`"
    if reason == "rewind":
        ask = f"`fds rewind {name} --replace --to-version N --why …`"
    return LedgerError(
        f"{lead}Take them out: {remove}, if nothing else writes to it, or a DELETE; then ask again, {ask}. {keep}",
        table=state.table,
    )


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
                f"last epoch began with another snapshot. Start with a new snapshot: `fds reset {state.name} "
                "--replace --why …`",
                table=state.table,
            )
    is_within = start.next_index > 0 and not start.is_initial_snapshot
    return EpochStart(
        start, is_kept=True, snapshot=snapshot, meaning_digest=to.get("meaning_digest") if is_within else None
    )


def _end_of_landed(connected: ConnectedStream, closed: ClosedEpoch, landed: Sequence[LandedBatch]) -> str | None:
    """Return the end of the last planned batch that is in the sink, ``None`` if none is.

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
                f"{where}version {batch.sink_version}, and the ledger does not know its manifest {batch.digest}. Was "
                "the ledger restored from a copy? Restore the sink to the version before, or say where to go on: "
                f"`fds rewind {connected.stream.name} --replace --to-version N --why …`",
                batch=batch,
                table=connected.table.uri,
            )
        blocked = closed.blocked
        if blocked is not None and (blocked.epoch, blocked.batch_id) == (batch.epoch, batch.batch_id):
            raise LandedBatchError(
                f"{where}version {batch.sink_version}, and its verification failed: {blocked.reason}. Planned "
                "anew it would be there twice. Take it out of the sink first (RESTORE TABLE … TO VERSION AS OF "
                f"{batch.sink_version - 1}), then ask again, `fds replan {connected.stream.name} --replace --why …`, "
                "and the next run loads it again",
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


def fence_job(
    connected: ConnectedStream, state: StreamState, sink: Sink, attempt_id: str, *, stays: bool = False
) -> JobSpec:
    """Return the job that closes the epochs before the requested one, in the sink they were written to.

    Args:
        connected: The stream.
        state: Its state; an epoch is requested and needs a fence.
        sink: The sink of the run. Its settings apply to the fence; its location may differ.
        attempt_id: Name of the attempt.
        stays: Whether the new epoch uses the same sink.

    Raises:
        LedgerError: Rows are to be removed by their version, and the source is now another table.
    """
    assert state.closed is not None  # noqa: S101  # epoch 1 needs no fence
    return JobSpec(
        batches=(),
        sink=sink.to_dict(),
        sink_table_id=state.closed.sink_table_id,
        sink_version=state.closed.sink_version,
        reports=connected.staging_location(connected.folder.attempts),
        attempt_id=attempt_id,
        fence=_fence_spec(connected, state, stays=stays),
    )


def _fence_spec(connected: ConnectedStream, state: StreamState, *, stays: bool) -> FenceSpec:
    is_kept = state.request is not None and state.request.reason in _KEEPING
    fence = FenceSpec(stream=state.name, uuid=state.uuid, epoch=state.epoch, keeps_position=is_kept and stays)
    removal = None if state.request is None else state.request.removal
    if removal is None:
        return fence
    newest = connected.log.latest()
    metadata = connected.log.state_at(newest).metadata
    if removal.what == "rows" and state.table_id is not None and metadata.id != state.table_id:
        raise LedgerError(
            f"stream {state.name!r}: the rewind removes rows by the version of the source that they came from, and "
            f"{state.table} is another table now (id {metadata.id}, the stream read {state.table_id}). Nothing was "
            f"removed: `fds reset {state.name} --replace --sink empty --why …` empties the sink and loads the table of "
            "now.",
            table=state.table,
        )
    return replace(
        fence,
        removes=removal.what,
        from_version=removal.from_version,
        is_forced=removal.is_forced,
        closed_at_ms=commit_time(connected.log, newest) if removal.what == "all" else None,
    )


def fence_report(connected: ConnectedStream, epoch: int, attempt_id: str) -> FenceReport | BatchFailedError:
    """Read an attempt's report about a fence; return an error if there is none or the fence failed."""
    table = connected.stream.table
    what = f"stream {connected.stream.name!r}: closing the epochs before {epoch} in the sink"
    try:
        data, _ = connected.staging.get(f"{connected.folder.attempts}/{fence_report_name(epoch, attempt_id)}")
    except FileNotFoundError:
        return BatchFailedError(f"{what} was not finished: Spark ended without a report. A retry does it", table=table)
    name = fence_report_name(epoch, attempt_id)
    try:
        report = _decoded(connected, name, data)
        if (report.uuid, report.epoch, report.attempt_id) != (connected.state.uuid, epoch, attempt_id):
            raise refused(connected, name, "it is of another stream, epoch or attempt")
        sink = connected.state.fence_sink
        if sink is not None and sink.is_function:
            problem = fence_problem(connected, connected.state, report.writes) if report.outcome != "failed" else None
            if problem is not None:
                raise refused(connected, name, problem)
        elif report.outcome == "fenced" and sink is not None:
            log = SinkLog(connected, sink.target)
            request = connected.state.request
            asked = None if request is None or not report.has_removed else request.removal
            removal = None if asked is None else {"what": asked.what, "from_version": asked.from_version}
            log.check_fence(connected.state.uuid, epoch, report.sink_version, report.landed, removal)
            closed = connected.state.closed
            known = None if closed is None else closed.sink_version
            log.check_before_fence(report, known, is_removing=removal is not None)
        elif report.outcome == "sink_missing" and sink is not None:
            SinkLog(connected, sink.target).check_missing(epoch)
    except BatchFailedError as error:
        return error
    if report.outcome != "failed":
        return report
    kind = BatchFailedError if report.retryable else BatchRejectedError
    return kind(
        f"{what} failed with {report.error_class}: {report.error_message}", error_class=report.error_class, table=table
    )


def _decoded(connected: ConnectedStream, name: str, data: bytes) -> FenceReport:
    try:
        FenceReport.from_json(data)
        report = msgspec.json.decode(data, type=FenceReport)
    except DAMAGE as error:
        raise refused(connected, name, f"it is not a report ({error})") from error
    if report.outcome not in FENCE_OUTCOMES:
        raise refused(connected, name, f"its outcome is {report.outcome!r}")
    return report


def fence_of(report: FenceReport, state: StreamState) -> Fence:
    """Return the report as the ledger records it."""
    if report.outcome == "sink_missing":
        return Fence(status="sink_missing")
    app_ids = state.fence_sink.app_ids if state.fence_sink is not None else ()
    if state.fence_sink is not None and state.fence_sink.is_function:
        app_ids = tuple(txn_app_id(state.uuid, write=name) for name in report.writes)
    fence = FenceSpec(stream=state.name, uuid=state.uuid, epoch=state.epoch)
    removal = None if state.request is None else state.request.removal
    if removal is not None and not report.has_removed:
        raise LedgerError(
            f"stream {state.name!r}: epoch {state.epoch} asks for rows to be removed from the sink, and another "
            f"statement has closed it in version {report.sink_version}, under its transaction. What that removed is "
            "not known, so the epoch is not begun. Look at the sink, then make the request again with --replace.",
            table=state.table,
        )
    return Fence(
        status="done",
        versions=dict.fromkeys(app_ids, fence.txn_version),
        sink_version=report.sink_version,
        sink_table_id=report.sink_table_id,
        removal=removal,
        removed_rows=None if removal is None else report.removed_rows,
        lacks_committed=lacks_committed(state.closed, report.evidence),
        warnings=report.warnings,
    )


def commit_time(log: DeltaLog, version: int) -> int | None:
    """Return the commit time of a version in milliseconds, ``None`` if log cleanup removed its commit."""
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
    "fence_job",
    "fence_of",
    "fence_report",
    "unseen_batches",
    "unseen_error",
]
