"""Where a requested epoch starts, and the Spark job that closes the epochs before it in the sink."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import msgspec

from airflow_provider_fds.batch.spec import (
    FENCE_OUTCOMES,
    FenceReport,
    FenceSpec,
    JobSpec,
    fence_report_name,
    txn_app_id,
)
from airflow_provider_fds.errors import BatchFailedError, BatchRejectedError, LedgerError
from airflow_provider_fds.ledger.entries import Fence
from airflow_provider_fds.source.offset import Offset
from airflow_provider_fds.source.start import SnapshotStart, resolve_start
from airflow_provider_fds.stream.evidence import SinkLog
from airflow_provider_fds.stream.function_writes import fence_problem
from airflow_provider_fds.stream.tries import refused

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from airflow_provider_fds.batch.spec import LandedBatch
    from airflow_provider_fds.ledger.entries import SnapshotRef
    from airflow_provider_fds.ledger.state import ClosedEpoch, StreamState
    from airflow_provider_fds.sinks import Sink
    from airflow_provider_fds.stream.connect import ConnectedStream


#: Start options that a person's request takes the place of.
_NO_START: Final = {"starting_version": None, "starting_timestamp": None}


@dataclass(frozen=True, slots=True)
class EpochStart:
    """A resolved start.

    Attributes:
        start: The position, or a snapshot to be frozen; ``None`` while it lies in the future.
        is_kept: Whether it is a position of an earlier epoch, which the log may not reach back to any more.
        snapshot: The frozen snapshot that the position lies in.
        meaning_digest: Digest of the options by which a position within a version was counted.
        continues: Whether the epoch goes on where the one before it was.
    """

    start: Offset | SnapshotStart | None
    is_kept: bool = False
    snapshot: SnapshotRef | None = None
    meaning_digest: str | None = None
    continues: bool = False


def epoch_start(
    connected: ConnectedStream, state: StreamState, landed: Sequence[LandedBatch], fence: Fence
) -> EpochStart:
    """Resolve where the requested epoch starts.

    Args:
        connected: The stream.
        state: Its state: an epoch is requested.
        landed: What the sink has of the epoch before, though it was never committed.
        fence: How the epochs before were closed.

    Raises:
        LedgerError: The sink has a batch that was not planned, or that a failed verification holds back; or it lacks
            batches that were committed.
    """
    options = connected.stream.options
    to = None if state.request is None else state.request.to
    closed = state.closed
    if closed is not None and to is None and closed.position is not None:
        _refuse_older_sink(state, closed, fence)
        return _after(state, closed, Offset.from_json(_end_of_landed(connected, closed, landed) or closed.position))
    if to is None or "start" in to:
        return EpochStart(resolve_start(connected.log, options))
    if "offset" in to:
        return _kept(state, Offset.from_json(to["offset"]), to)
    if to.get("starting_version") == connected.log.latest() + 1:
        # a table that was restored to before the position: what comes next is read
        to = {"starting_version": "latest"}
    return EpochStart(resolve_start(connected.log, replace(options, **{**_NO_START, **to})))


def refuse_unseen(state: StreamState, landed: Sequence[LandedBatch], start: Offset | SnapshotStart) -> None:
    """Refuse to begin where rows would be read again that came into the sink without being committed.

    Whoever asked for the epoch was shown the batches that were committed by then; these came later, or their
    verification failed. A second request (``--replace``) is made by somebody who has read this.

    Raises:
        LedgerError: Names the batches, and both ways on.
    """
    closed = state.closed
    if closed is None or state.epoch - closed.epoch > 1:
        return
    again = [batch for batch in landed if isinstance(start, SnapshotStart) or _is_behind(batch, start)]
    if not again:
        return
    which = ", ".join(f"batch {b.batch_id} of epoch {b.epoch} (version {b.sink_version})" for b in again)
    table = "…" if state.fence_sink is None else f"delta.`{state.fence_sink.target}`"
    version = again[0].sink_version
    restore = f"RESTORE TABLE {table} TO VERSION AS OF {version - 1}" if version else f"DROP TABLE {table}"
    reason = "rewind" if state.request is None else state.request.reason
    target = " --to-version N" if reason == "rewind" else ""
    raise LedgerError(
        f"stream {state.name!r}: the sink has {which}, which {'was' if len(again) == 1 else 'were'} written while the "
        f"{reason} was asked for, and not committed; read again, the rows would be there twice. Take them out: "
        f"{restore}, if nothing else writes to it, or a DELETE; then ask again, `fds {reason} {state.name} "
        f"--replace{target} --why …`. Or keep them: `fds replan {state.name} --replace --why …` goes on behind them",
        table=state.table,
    )


def _is_behind(batch: LandedBatch, start: Offset) -> bool:
    end = Offset.from_json(batch.end)
    return end.table_id == start.table_id and end > start


def _refuse_older_sink(state: StreamState, closed: ClosedEpoch, fence: Fence) -> None:
    is_same_sink = state.sink is not None
    known, found = closed.sink_version, fence.sink_version
    if is_same_sink and known is not None and (fence.status == "sink_missing" or (found or 0) <= known):
        now = "is gone" if fence.status == "sink_missing" else f"was at version {(found or 1) - 1} before the fence"
        raise LedgerError(
            f"stream {state.name!r}: its last commit in the sink is version {known}, and the sink {now}: it was "
            "removed, or put back from a copy, and lacks rows that were committed. Load them again: `fds rewind "
            f"{state.name} --replace --to-batch N --why …`, or `fds reset {state.name} --replace --why …`",
            table=state.table,
        )


def _after(state: StreamState, closed: ClosedEpoch, start: Offset) -> EpochStart:
    kept = _kept(state, start, {"meaning_digest": closed.meaning_digest})
    return replace(kept, continues=closed.continues or start.to_json() != closed.epoch_start)


def _kept(state: StreamState, start: Offset, to: Mapping[str, Any]) -> EpochStart:
    snapshot = None
    if start.is_initial_snapshot:
        snapshot = None if state.closed is None else state.closed.snapshot
        if snapshot is None or snapshot.version != start.version:
            raise LedgerError(
                f"stream {state.name!r}: {start.to_json()} lies in the snapshot of version {start.version}, which is "
                f"not the one the last epoch began with. Begin with one of now: `fds reset {state.name} "
                "--replace --why …`",
                table=state.table,
            )
    is_within = start.next_index > 0 and not start.is_initial_snapshot
    return EpochStart(
        start, is_kept=True, snapshot=snapshot, meaning_digest=to.get("meaning_digest") if is_within else None
    )


def _end_of_landed(connected: ConnectedStream, closed: ClosedEpoch, landed: Sequence[LandedBatch]) -> str | None:
    """Return the end of the last planned batch that the sink has, ``None`` if it has none of them.

    They are in order, since a batch refuses to be written before the one in front of it.
    """
    planned = {batch.digest: batch for batch in closed.planned}
    end = None
    for batch in landed:
        found = planned.get(batch.digest)
        where = f"stream {connected.stream.name!r}: batch {batch.batch_id} of epoch {batch.epoch} is in the sink as "
        if found is None or found.batch_id != batch.batch_id:
            raise LedgerError(
                f"{where}version {batch.sink_version}, and the ledger does not know its manifest {batch.digest}. Was "
                "the ledger restored from a copy? Restore the sink to the version before, or say where to go on: "
                f"`fds rewind {connected.stream.name} --replace --to-version N --why …`",
                table=connected.table.uri,
            )
        if closed.blocked is not None and closed.blocked.batch_id == batch.batch_id:
            raise LedgerError(
                f"{where}version {batch.sink_version}, and its verification failed: {closed.blocked.reason}. Planned "
                "anew it would be there twice. Take it out of the sink first (RESTORE TABLE … TO VERSION AS OF "
                f"{batch.sink_version - 1}), then ask again, `fds replan {connected.stream.name} --replace --why …`, "
                "and the next run loads it again",
                table=connected.table.uri,
            )
        end = found.end
    return end


def fence_job(connected: ConnectedStream, state: StreamState, sink: Sink, try_id: str) -> JobSpec:
    """Return the job that closes the epochs before the requested one, in the sink they were written to.

    Args:
        connected: The stream.
        state: Its state: an epoch is requested, and needs a fence.
        sink: The sink of the run; its settings hold for the fence, its place need not be the same.
        try_id: Name of the try.
    """
    assert state.closed is not None  # noqa: S101  # epoch 1 needs no fence
    return JobSpec(
        batches=(),
        sink=sink.to_dict(),
        sink_table_id=state.closed.sink_table_id,
        sink_version=state.closed.sink_version,
        reports=connected.staging_location(connected.folder.tries),
        try_id=try_id,
        fence=FenceSpec(stream=state.name, uuid=state.uuid, epoch=state.epoch),
    )


def fence_report(connected: ConnectedStream, epoch: int, try_id: str) -> FenceReport | BatchFailedError:
    """Read what a try said of a fence; an error where it said nothing or did not come through."""
    table = connected.stream.table
    what = f"stream {connected.stream.name!r}: closing the epochs before {epoch} in the sink"
    try:
        data, _ = connected.staging.get(f"{connected.folder.tries}/{fence_report_name(epoch, try_id)}")
    except FileNotFoundError:
        return BatchFailedError(f"{what} was not finished: Spark ended without a report. A retry does it", table=table)
    name = fence_report_name(epoch, try_id)
    try:
        report = _decoded(connected, name, data)
        if (report.uuid, report.epoch, report.try_id) != (connected.state.uuid, epoch, try_id):
            raise refused(connected, name, "it is of another stream, epoch or try")
        sink = connected.state.fence_sink
        if sink is not None and sink.kind == "foreach_batch":
            problem = fence_problem(connected, connected.state, report.writes) if report.outcome != "failed" else None
            if problem is not None:
                raise refused(connected, name, problem)
        elif report.outcome == "fenced" and sink is not None:
            log = SinkLog(connected, sink.target)
            log.check_fence(connected.state.uuid, epoch, report.sink_version, report.landed)
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
    except (ValueError, TypeError, AttributeError) as error:
        raise refused(connected, name, f"it is not a report ({error})") from error
    if report.outcome not in FENCE_OUTCOMES:
        raise refused(connected, name, f"its outcome is {report.outcome!r}")
    return report


def fence_of(report: FenceReport, state: StreamState) -> Fence:
    """Return the report as the ledger records it."""
    if report.outcome == "sink_missing":
        return Fence(status="sink_missing")
    app_ids = state.fence_sink.app_ids if state.fence_sink is not None else ()
    if state.fence_sink is not None and state.fence_sink.kind == "foreach_batch":
        app_ids = tuple(txn_app_id(state.uuid, write=name) for name in report.writes)
    fence = FenceSpec(stream=state.name, uuid=state.uuid, epoch=state.epoch)
    return Fence(
        status="done",
        versions=dict.fromkeys(app_ids, fence.txn_version),
        sink_version=report.sink_version,
        sink_table_id=report.sink_table_id,
    )


__all__ = ["EpochStart", "epoch_start", "fence_job", "fence_of", "fence_report", "refuse_unseen"]
