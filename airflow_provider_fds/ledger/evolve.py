"""``evolve``: the state after one more entry. Pure, and total: an entry that was written is a fact."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from msgspec.structs import replace

from airflow_provider_fds.batch.spec import fence_version, txn_version
from airflow_provider_fds.ledger.actions import (
    Accepted,
    Acknowledged,
    Advanced,
    Blocked,
    Bound,
    Boundary,
    Claimed,
    Committed,
    Created,
    Ended,
    Held,
    IntervalCommitted,
    IntervalOpened,
    IntervalPlanned,
    Opened,
    Planned,
    Quarantined,
    Requested,
    Resumed,
    Retired,
    Shown,
    Transferred,
)
from airflow_provider_fds.ledger.evolve_interval import evolve_interval
from airflow_provider_fds.ledger.state import (
    KEPT_ACKNOWLEDGEMENTS,
    KEPT_REQUESTS,
    KEPT_RUNS,
    Acknowledgement,
    AnsweredRequest,
    ClosedEpoch,
    RunRecord,
    StreamState,
)
from airflow_provider_fds.ledger.values import LeftSink

if TYPE_CHECKING:
    from airflow_provider_fds.ledger.entries import Entry
    from airflow_provider_fds.ledger.values import PlannedBatch

_T = TypeVar("_T")


def evolve(state: StreamState, entry: Entry) -> StreamState:
    """Return the state after ``entry``. Entries of data intervals do not move the position of an offset stream."""
    state = _after(state, entry)
    if entry.request_id is None:
        return state
    answered = AnsweredRequest(request_id=entry.request_id, n=entry.n, kind=entry.action.kind)
    return replace(state, answered=(*state.answered, answered)[-KEPT_REQUESTS:])


def _after(state: StreamState, entry: Entry) -> StreamState:  # noqa: C901, PLR0911, PLR0912  # one line per action
    match entry.action:
        case Created() as created:
            return _created(created)
        case Opened() as opened:
            return _opened(state, opened)
        case Bound() as bound:
            return _bound(state, bound)
        case Planned() as planned:
            return _planned(state, planned)
        case Claimed() as claimed:
            return replace(state, runs=_with_run(state.runs, RunRecord(owner=claimed.owner, epoch=claimed.epoch)))
        case Committed() as committed:
            return _committed(state, committed)
        case Advanced() as advanced:
            runs = state.runs
            if state.run_of(advanced.owner) is None:
                runs = _with_run(runs, RunRecord(owner=advanced.owner, epoch=advanced.epoch))
            return replace(state, position=advanced.end, last_commit_sha256=advanced.last_commit_sha256, runs=runs)
        case Ended() as ended:
            return replace(state, ended=ended)
        case (Blocked() | Accepted()) as word if word.interval is not None:
            return evolve_interval(state, word)
        case Blocked() as blocked:
            return replace(state, blocked=blocked)
        case Accepted():
            return replace(state, blocked=None, accepted=state.blocked)
        case Requested() as requested:
            return _requested(state, requested)
        case Shown() as shown:
            new = tuple(batch for batch in shown.batches if batch not in state.shown)
            return replace(state, shown=(*state.shown, *new))
        case Quarantined() as quarantined:
            return replace(state, quarantined=quarantined)
        case Held() as held:
            return replace(state, held=held)
        case Resumed():
            return replace(state, held=None, quarantined=None)
        case Acknowledged() as acknowledged:
            return _acknowledged(state, acknowledged, entry.actor.words())
        case Transferred() as transferred:
            return replace(state, deployment=transferred.deployment)
        case Retired() as retired:
            return replace(state, retired=retired)
        case (Boundary() | IntervalOpened() | IntervalPlanned() | IntervalCommitted()) as of_interval:
            return evolve_interval(state, of_interval)


def _created(created: Created) -> StreamState:
    state = StreamState(
        name=created.name,
        phase="requested",
        uuid=created.uuid,
        table=created.table,
        deployment=created.deployment,
        epoch=1,
    )
    found = created.recovered
    if found is None:
        return state
    request = Requested(
        epoch=found.epoch + 1,
        reason="recover",
        why="the ledger was lost",
        position=found.position,
        to={"offset": found.position},
    )
    # as if the epoch that the sink knows of had been closed just now
    return _requested(replace(state, epoch=found.epoch, position=found.position, sink=found.sink), request)


def _bound(state: StreamState, bound: Bound) -> StreamState:
    left = state.left
    state = replace(state, sink=bound.sink, sink_table_id=bound.table_id, left=None)
    if left is None or (left.sink.target, left.sink.app_ids) != (bound.sink.target, bound.sink.app_ids):
        return state
    # the sink of before: the fence of this epoch is in it
    return replace(
        state,
        prev_txn_version=left.txn_version,
        sink_version=left.version,
        sink_table_id=bound.table_id or left.table_id,
    )


def _left(state: StreamState, opened: Opened) -> LeftSink | None:
    """Return the sink that the epoch was fenced in, if it is bound to none and that sink has all that it should."""
    fence, sink = opened.fence, state.fence_sink
    if state.sink is not None or sink is None or fence.status != "done" or fence.lacks_committed:
        return None
    return LeftSink(
        sink=sink, version=fence.sink_version, table_id=fence.sink_table_id, txn_version=fence_version(opened.epoch)
    )


def _opened(state: StreamState, opened: Opened) -> StreamState:
    state = replace(
        state,
        left=_left(state, opened),
        phase="open",
        request=None,
        fence_sink=None,
        closed=None,
        shown=(),
        epoch_start=opened.start,
        continues=opened.continues,
        position=opened.start,
        last_txn_end=opened.start,
        table_id=opened.table_id,
        snapshot=opened.snapshot,
        last_commit_sha256=opened.last_commit_sha256,
        next_batch_id=0,
        prev_txn_version=None,
        meaning_digest=opened.meaning_digest,
    )
    if opened.fence.status == "done" and state.sink is not None:
        return replace(
            state,
            prev_txn_version=fence_version(opened.epoch),
            sink_version=opened.fence.sink_version,
            sink_table_id=opened.fence.sink_table_id or state.sink_table_id,
        )
    if opened.fence.status == "sink_missing":
        return replace(state, sink_table_id=None, sink_version=None)
    return state


def _planned(state: StreamState, planned: Planned) -> StreamState:
    run = state.run
    if run is None or run.owner != planned.owner or run.epoch != planned.epoch:
        run = RunRecord(owner=planned.owner, epoch=planned.epoch, target=planned.target)
        runs = _with_run(state.runs, run)
    else:
        target = planned.target if run.target is None else run.target
        runs = (*state.runs[:-1], replace(run, target=target))
    return replace(
        state,
        planned=planned.batches,
        next_batch_id=planned.batches[-1].batch_id + 1,
        runs=runs,
        options_digest=planned.options_digest,
        meaning_digest=planned.meaning_digest,
    )


def _committed(state: StreamState, committed: Committed) -> StreamState:
    batch, *rest = state.planned
    run = _with_batch(state.runs[-1], batch, committed)
    is_users_own = state.sink is not None and state.sink.is_users_own
    return replace(
        state,
        planned=tuple(rest),
        position=batch.end,
        last_txn_end=batch.end,
        last_committed=committed,
        last_commit_sha256=committed.last_commit_sha256,
        prev_txn_version=txn_version(committed.epoch, committed.batch_id),
        sink_version=state.sink_version if is_users_own and committed.sink_version is None else committed.sink_version,
        sink_table_id=state.sink_table_id if committed.sink_table_id is None else committed.sink_table_id,
        accepted=None,
        runs=(*state.runs[:-1], run),
    )


def _requested(state: StreamState, requested: Requested) -> StreamState:
    is_rebind = requested.reason == "rebind"
    return replace(
        state,
        phase="requested",
        epoch=requested.epoch,
        request=requested,
        # an epoch that was requested and never opened leaves the sink of the one before it to be fenced
        fence_sink=state.sink or state.fence_sink or (None if state.left is None else state.left.sink),
        # one that was requested and never opened leaves what it was to follow
        closed=state.closed or _closed(state),
        left=None,
        sink=None if is_rebind else state.sink,
        sink_table_id=None if is_rebind else state.sink_table_id,
        sink_version=None if is_rebind else state.sink_version,
        epoch_start=None,
        position=None,
        ended=None,
        last_txn_end=None,
        snapshot=None,
        next_batch_id=0,
        planned=(),
        prev_txn_version=None,
        last_commit_sha256=None,
        blocked=None,
        accepted=None,
        quarantined=None,
    )


def _closed(state: StreamState) -> ClosedEpoch:
    if state.left is not None:
        state = replace(
            state,
            sink_version=state.left.version,
            sink_table_id=state.left.table_id,
            prev_txn_version=state.left.txn_version,
        )
    return ClosedEpoch(
        epoch=state.epoch,
        epoch_start=state.epoch_start,
        position=state.position,
        continues=state.continues,
        planned=state.planned,
        blocked=state.blocked,
        snapshot=state.snapshot,
        last_commit_sha256=state.last_commit_sha256,
        meaning_digest=state.meaning_digest,
        sink_table_id=state.sink_table_id,
        sink_version=state.sink_version,
        prev_txn_version=state.prev_txn_version,
    )


def _acknowledged(state: StreamState, acknowledged: Acknowledged, who: str) -> StreamState:
    quarantined = state.quarantined
    if quarantined is not None and quarantined.version == acknowledged.version:
        quarantined = None
    word = Acknowledgement(version=acknowledged.version, who=who, why=acknowledged.why, skip=acknowledged.skip)
    words = (*(w for w in state.acknowledged if w.version != word.version), word)
    return replace(state, acknowledged=words[-KEPT_ACKNOWLEDGEMENTS:], quarantined=quarantined)


def _with_run(runs: tuple[RunRecord, ...], run: RunRecord) -> tuple[RunRecord, ...]:
    return (*runs, run)[-KEPT_RUNS:]


def _with_batch(run: RunRecord, batch: PlannedBatch, committed: Committed) -> RunRecord:
    return replace(
        run,
        batches=run.batches + 1,
        first_batch_id=_or(run.first_batch_id, batch.batch_id),
        last_batch_id=batch.batch_id,
        start=_or(run.start, batch.start),
        end=batch.end,
        first_version=_or(run.first_version, batch.first_version),
        last_version=batch.last_version,
        num_files=run.num_files + batch.num_files,
        num_bytes=run.num_bytes + batch.num_bytes,
        rows=None if run.rows is None or committed.rows is None else run.rows + committed.rows,
        measures=run.measures.plus(committed.measures),
        sink_version=committed.sink_version,
    )


def _or(value: _T | None, default: _T) -> _T:
    return default if value is None else value


__all__ = ["evolve"]
