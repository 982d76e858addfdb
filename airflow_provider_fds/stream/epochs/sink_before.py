"""The sink before the fence of a requested epoch: whether an epoch that begins there gets all rows, exactly once.

The fence's report contains what the sink's log shows. The request decides where the epoch begins; these checks find out
whether such an epoch would omit rows that the sink lacks, or read rows again that it has.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from airflow_provider_fds.batch.report import LandedBatch, RemovedRows
from airflow_provider_fds.batch.transactions import fence_version, txn_batch_id, txn_epoch, txn_version
from airflow_provider_fds.errors import LedgerError
from airflow_provider_fds.ledger.entries.commit_entries import Committed
from airflow_provider_fds.ledger.entries.plan_entries import Planned
from airflow_provider_fds.ledger.entries.request_entries import Requested
from airflow_provider_fds.ledger.rewind_options import sink_rows_option, target_from
from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.source.offset import Offset
from airflow_provider_fds.source.planning.start import SnapshotStart

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from airflow_provider_fds.batch.report import FenceEvidence, FenceReport
    from airflow_provider_fds.batch.table_writes import TableWrites
    from airflow_provider_fds.ledger.entries.entry import Entry
    from airflow_provider_fds.ledger.records import ClosedEpoch
    from airflow_provider_fds.ledger.state import StreamState
    from airflow_provider_fds.ledger.values import Fence, SeenBatch


#: Version of a batch whose commit is no longer in the sink's log.
UNKNOWN_VERSION: Final = -1


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a requested epoch does not begin.

    Attributes:
        error: Names what a person has to decide.
        shown: The batches that the message names, to be recorded so that a later request can refer to them.
    """

    error: LedgerError
    shown: tuple[SeenBatch, ...] = ()


def lacks_committed(closed: ClosedEpoch | None, evidence: FenceEvidence | None) -> bool:
    """Return whether the sink lacks, or may lack, what the stream had committed to it before the fence."""
    if closed is None or evidence is None or closed.prev_txn_version is None:
        return False
    is_behind = evidence.newest is None or evidence.newest < closed.prev_txn_version
    return is_behind or evidence.broken_at is not None


def older_sink(
    state: StreamState, closed: ClosedEpoch, fence: Fence, evidence: FenceEvidence | None
) -> LedgerError | None:
    """Return the error of continuing at the position if the sink lacks, or may lack, batches that were committed."""
    known, found = closed.sink_version, fence.sink_version
    if state.sink is None or known is None:
        return None
    now = None
    if fence.status == "sink_missing":
        now = "the sink was removed"
    elif (found or 0) <= known:
        now = f"the sink was at version {(found or 1) - 1} before the fence: it was removed, or restored from a copy"
    elif evidence is not None and lacks_committed(closed, evidence):
        now = f"the newest transaction of the stream in the sink is {evidence.newest}: it was restored from a copy"
        if evidence.broken_at is not None:
            now = (
                f"version {evidence.broken_at} of the sink restored it to an earlier version or to a time, or "
                "replaced it"
            )
    if now is None:
        return None
    name = state.name
    rows, all_rows = sink_rows_option(state.sink), sink_rows_option(state.sink, to_start=True)
    again = (
        f"`fds rewind {name}{rows} --replace --to batch:N --why …`, or `fds rewind {name}{all_rows} --to start "
        "--replace --why …`"
    )
    return LedgerError(
        f"stream {state.name!r}: its last commit in the sink is version {known}, but {now}, so committed rows "
        f"may be missing. Load them again from the first missing batch on, or load everything: {again}",
        table=state.table,
        reason=Reason.SINK_ROWS_UNDECIDED,
    )


def lost_batches(
    state: StreamState,
    evidence: FenceEvidence | TableWrites | None,
    start: Offset | SnapshotStart,
    history: Sequence[Entry],
    *,
    write: str | None = None,
    known: int | None = None,
    became: str | None = None,
) -> LedgerError | None:
    """Return the error of a rewind to a position after batches that the sink has lost, by a RESTORE or as a whole.

    It names the batch that the rewind must go back to.

    Args:
        state: With a requested epoch.
        evidence: What the sink's log shows.
        start: Where the epoch begins.
        history: The entries of the ledger.
        write: The write of a function whose table it is about.
        known: Version of the last known commit of the stream; that in the ledger by default.
        became: What became of the whole table; ``None`` if it was restored to a version.
    """
    closed, request = state.closed, state.request
    if evidence is None or evidence.restored_to is None or closed is None:
        return None
    known = known or closed.sink_version
    if known is None:
        return None
    if request is None or request.reason != "rewind" or not isinstance(start, Offset):
        return None
    planned = [entry.action for entry in history if isinstance(entry.action, Planned)]
    starts = {(one.epoch, batch.batch_id): Offset.from_json(batch.start) for one in planned for batch in one.batches}
    lost: list[tuple[Offset, Committed]] = []
    for action in (entry.action for entry in history):
        if isinstance(action, Committed) and (first := starts.get((action.epoch, action.batch_id))) is not None:
            version = action.sink_version if write is None else action.tables.get(write)
            is_lost = version is not None and evidence.restored_to < version <= known
            if is_lost and first.table_id == start.table_id and not start.reads_all_of(first):
                lost.append((first, action))
    if not lost:
        return None
    # the one from which all others are read, too
    first, batch = next((one for one in lost if all(one[0].reads_all_of(other) for other, _ in lost)), lost[0])
    name, sink = state.name, state.sink or state.fence_sink
    # a later epoch may have another batch of this id
    again = target_from(first, sink, batch.batch_id if batch.epoch == planned[-1].epoch else None)
    table = "the sink" if write is None or sink is None else sink.tables[write]
    way = "Load" if became is None else "Mount or restore it; only if it is gone for good, load"
    became = became or f"version {evidence.broken_at} of {table} restored it to version {evidence.restored_to}"
    return LedgerError(
        f"stream {name!r}: {became}, so it lacks batch {batch.batch_id} of epoch {batch.epoch}, which starts at "
        f"{first.describe()}. The requested epoch {state.epoch} would not read all of it. {way} everything from there "
        f"on again: `fds rewind {name} --replace --to {again} --why …`; to omit versions, also use `fds skip`",
        table=state.table,
        reason=Reason.SINK_ROWS_UNDECIDED,
    )


def hidden_batch(
    closed: ClosedEpoch | None, report: FenceReport, *, landed: Sequence[LandedBatch] | None = None
) -> LandedBatch | None:
    """Return the newest batch that may have landed without a commit in the sink's log, or ``None``.

    Log cleanup removes commits but keeps the newest transaction.
    """
    evidence, landed = report.evidence, report.landed if landed is None else landed
    if closed is None or evidence is None or not evidence.is_cut or evidence.newest is None:
        return None
    if evidence.newest <= (closed.prev_txn_version or 0):
        return None
    epoch = txn_epoch(evidence.newest)
    if evidence.newest == fence_version(epoch) or any(
        txn_version(batch.epoch, batch.batch_id) == evidence.newest for batch in landed
    ):
        # planned batches may have landed before that fence, or before the batch that was found
        known = {batch.digest for batch in landed}
        hidden = [batch for batch in closed.planned if batch.digest not in known]
        if not hidden:
            return None
        newest = txn_version(closed.epoch, hidden[-1].batch_id)
    else:
        newest = evidence.newest
    epoch, batch_id = txn_epoch(newest), txn_batch_id(newest)
    planned = [one for one in closed.planned if (closed.epoch, one.batch_id) == (epoch, batch_id)]
    return LandedBatch(
        epoch=epoch,
        batch_id=batch_id,
        end=planned[0].end if planned else "",
        digest=planned[0].digest if planned else "",
        sink_version=UNKNOWN_VERSION,
    )


def hidden_error(state: StreamState, batch: LandedBatch) -> LedgerError:
    """Return the error that names the batch of :func:`hidden_batch` and the possible next steps."""
    sink = state.sink or state.fence_sink
    name = state.name
    empty = f"`fds rewind {name} --to start --replace --sink-rows empty --force-sink --why …`"
    if sink is not None and sink.merges:
        ways = f"{empty}; to merge them again, `fds rewind {name} --to start --replace --sink-rows keep --why …`"
    else:
        ways = (
            f"`fds rewind {name} --replace --to N --sink-rows delete --force-sink --why …`, or {empty}; "
            "after you have removed them yourself, the same with --sink-rows keep and without --force-sink"
        )
    return LedgerError(
        f"stream {name!r}: batch {batch.batch_id} of epoch {batch.epoch} and possibly earlier batches are in the "
        "sink, although it was never committed, and log cleanup removed its commit from the sink's log. It is "
        "unknown which rows it has, so the epoch does not begin. Compare the sink with the source, then have the "
        f"rows removed and read again: {ways}",
        table=state.table,
        reason=Reason.SINK_ROWS_UNDECIDED,
    )


def requests_between(entries: Iterable[Entry], state: StreamState) -> dict[int, Requested]:
    """Return the requests of epochs that were not opened, up to the one requested now."""
    first = 0 if state.closed is None else state.closed.epoch
    actions = (entry.action for entry in entries)
    return {
        action.epoch: action
        for action in actions
        if isinstance(action, Requested) and first < action.epoch <= state.epoch
    }


def removals_to_repeat(state: StreamState, evidence: FenceEvidence | None) -> tuple[int, ...]:
    """Return the epochs that removed rows and were not opened; if the log was cut, those that may have."""
    if evidence is None or state.closed is None:
        return ()
    known = {one.epoch for one in evidence.removed}
    if evidence.is_cut and evidence.newest is not None:
        known |= set(range(state.closed.epoch + 1, txn_epoch(evidence.newest) + 1))
    return tuple(sorted(epoch for epoch in known if state.closed.epoch < epoch <= state.epoch))


def left_out(
    state: StreamState,
    evidence: FenceEvidence | None,
    start: Offset | SnapshotStart,
    requests: Mapping[int, Requested],
) -> RemovedRows | None:
    """Return a removal by an unopened epoch of rows that are not read again from ``start``, or ``None``.

    Args:
        state: With a requested epoch.
        evidence: What the sink's log shows.
        start: Where the epoch begins.
        requests: The result of :func:`requests_between`.
    """
    told = {} if evidence is None else {one.epoch: one for one in evidence.removed}
    for epoch in removals_to_repeat(state, evidence):
        request = requests.get(epoch)
        removed = told.get(epoch)
        if removed is None:
            if request is None or request.reason not in ("rewind", "reset"):
                continue
            asked = request.removal
            removed = RemovedRows(epoch, UNKNOWN_VERSION, *((asked.what, asked.from_version) if asked else ("rows",)))
        if not _is_read_again(state, removed, start, request):
            return removed
    return None


def left_out_error(state: StreamState, removed: RemovedRows, request: Requested | None) -> LedgerError:
    """Return the error that names the removal of :func:`left_out` and the next step."""
    if removed.what is None:
        return foreign_fence_error(state, removed.epoch, removed.sink_version)
    limit = _limit(state, removed, request)
    name, sink = state.name, state.sink or state.fence_sink
    where = "" if removed.sink_version == UNKNOWN_VERSION else f" in version {removed.sink_version}"
    return LedgerError(
        f"stream {state.name!r}: the fence of epoch {removed.epoch} removed rows from the sink{where}, or may "
        f"have, and no epoch has read them again. The requested epoch {state.epoch} would not read them either. "
        f"To read them again, use `fds rewind {name} --replace --to {target_from(limit, sink)} --why …`",
        table=state.table,
        reason=Reason.SINK_ROWS_UNDECIDED,
    )


def foreign_fence_error(state: StreamState, epoch: int, version: int) -> LedgerError:
    """Return the error for an epoch whose fence is, or may be, another statement, and the possible next steps."""
    sink = state.sink or state.fence_sink
    rows = " --sink-rows empty" if sink is None else sink.all_rows_option
    again = f"everything again: `fds rewind {state.name}{rows} --to start --replace"
    unknown = "It is unknown which rows it removed, so the epoch does not begin."
    if sink is not None and not sink.has_log:
        what = f"another ledger of the stream closed the epochs before epoch {epoch}. {unknown} Load {again} --why …`"
    elif version:
        what = (
            f"another statement closed the epochs before epoch {epoch} under the transaction of their fence, in "
            f"version {version} of the sink. {unknown} Restore version {version - 1} of the sink, the last before it, "
            f"and repeat the request with --replace; or load {again} --why …`"
        )
    else:
        gone = f"log cleanup removed the commit that closed the epochs before epoch {epoch} from the sink's log"
        what = f"{gone}. {unknown} Load {again} --force-sink --why …`"
    return LedgerError(
        f"stream {state.name!r}: {what}",
        table=state.table,
        reason=Reason.SINK_ROWS_UNDECIDED,
    )


def describe_seen(batch: SeenBatch) -> str:
    """Return a batch that the sink was seen to have, such as ``batch 4 of epoch 2 (version 9)``."""
    where = f" (version {batch.sink_version})" if batch.sink_version != UNKNOWN_VERSION else ""
    return f"batch {batch.batch_id} of epoch {batch.epoch}{where}"


def _limit(state: StreamState, removed: RemovedRows, request: Requested | None) -> Offset | None:
    """Return the latest position where an epoch may begin, or ``None`` if only the start reads everything again."""
    table_id = state.known_table_id or ""
    if removed.what is None:
        return None
    if removed.from_version is not None:
        return Offset(table_id, removed.from_version)
    is_read_from = request is not None and request.reason in ("rewind", "reset")
    to = (request.to if request is not None and is_read_from else None) or {}
    if "offset" in to:
        return Offset.from_json(to["offset"])
    version = to.get("starting_version")
    return Offset(table_id, version) if isinstance(version, int) else None


def _is_read_again(
    state: StreamState, removed: RemovedRows, start: Offset | SnapshotStart, request: Requested | None
) -> bool:
    if isinstance(start, SnapshotStart):
        return True
    if start.table_id != state.table_id and state.table_id is not None:
        # another source table: only a rewind to the start begins with it
        return True
    if start.reads_all_of(Offset(start.table_id, 0)):
        return True
    limit = _limit(state, removed, request)
    if limit is None:
        now = state.request
        return now is not None and now.reason == "reset"
    return start.reads_all_of(limit)
