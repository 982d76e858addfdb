"""Where a requested epoch begins, or why it does not: decided from facts alone, without I/O."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from airflow_provider_fds.errors import LedgerError
from airflow_provider_fds.ledger.entries.plan_entries import Planned
from airflow_provider_fds.ledger.rewind_options import rewind_problem, sink_rows_option
from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.source.offset import Offset
from airflow_provider_fds.stream.epochs.sink_before import (
    Refusal,
    hidden_batch,
    hidden_error,
    left_out,
    left_out_error,
    lost_batches,
    older_sink,
    removals_to_repeat,
    requests_between,
)
from airflow_provider_fds.stream.epochs.tables_before import refused_by_tables
from airflow_provider_fds.stream.epochs.unseen_batches import as_seen, unseen_batches, unseen_error
from airflow_provider_fds.stream.sink_record.function_tables import gone_tables

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any, Literal

    from airflow_provider_fds.batch.report import FenceReport, LandedBatch
    from airflow_provider_fds.batch.table_writes import TableWrites
    from airflow_provider_fds.ledger.entries.entry import Entry
    from airflow_provider_fds.ledger.records import ClosedEpoch
    from airflow_provider_fds.ledger.state import StreamState
    from airflow_provider_fds.ledger.values import Fence, Origin, PlannedBatch, SnapshotRef
    from airflow_provider_fds.source.options.options import SourceOptions
    from airflow_provider_fds.source.planning.start import SnapshotStart

    #: What says where an epoch begins: the end of the one before, the stream that is forked, the start given to a new
    #: stream, its start options, a position that a person names, or a version or time.
    _Source = Literal["closed", "fork", "given", "options", "offset", "version"]

#: Start options that a person's request replaces.
_NO_START: Final[dict[str, Any]] = {"starting_version": None, "starting_timestamp": None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What decides where a requested epoch begins.

    Attributes:
        state: The stream's state; an epoch is requested.
        fence: How the earlier epochs were closed in the sink.
        report: The fence's report, with what the sink's log shows; ``None`` without a fence.
        tables: What the tables of a function have, by the write's name; empty for other sinks.
        resolved: Where :func:`options_to_resolve` begin in the log; ``None`` while that is in the future.
        history: The entries of the ledger, if :func:`needs_history`.
    """

    state: StreamState
    fence: Fence
    report: FenceReport | None = None
    tables: Mapping[str, TableWrites]
    resolved: Offset | SnapshotStart | None = None
    history: Sequence[Entry] = ()

    @property
    def landed(self) -> tuple[LandedBatch, ...]:
        """Batches of earlier epochs that are in the sink but were never committed."""
        return () if self.report is None else self.report.landed


@dataclass(frozen=True, slots=True)
class Opening:
    """Where an epoch begins.

    Attributes:
        start: The position, or a snapshot to be frozen; ``None`` while the start is in the future, or if refused.
        is_kept: Whether it is a position of an earlier epoch, which the log may no longer reach back to.
        snapshot: The frozen snapshot that contains the position.
        meaning_digest: Digest of the options by which a position within a version was counted.
        continues: Whether the epoch continues where the previous one ended.
        follows_options: Whether the stream's own start options decided it, or a start given in their place.
        origin: The stream that was at this position, if this is a fork of it.
        refusal: Why the epoch does not begin, until a person decides.
    """

    start: Offset | SnapshotStart | None = None
    is_kept: bool = False
    snapshot: SnapshotRef | None = None
    meaning_digest: str | None = None
    continues: bool = False
    follows_options: bool = False
    origin: Origin | None = None
    refusal: Refusal | None = None


def decide(facts: Facts) -> Opening:
    """Return where the requested epoch begins, or why it does not.

    It does not if the sink lacks rows that would not be read again, or has rows, unknown to the person who requested
    the epoch, that would be.
    """
    opening = _opening(facts)
    if opening.start is None:
        return opening
    refusal = _refusal(facts, opening.start) or _left_unread(facts, opening.start)
    return opening if refusal is None else Opening(refusal=refusal)


def options_to_resolve(state: StreamState, options: SourceOptions) -> SourceOptions | None:
    """Return the options whose start must be looked up in the log; ``None`` if the ledger has the position.

    Args:
        state: With a requested epoch.
        options: Those of the stream.
    """
    source, to = _source(state), _asked(state)
    if source == "version":
        return replace(options, **{**_NO_START, **(to or {})})
    return options if source == "options" else None


def needs_history(facts: Facts) -> bool:
    """Return whether :func:`decide` needs the entries of the ledger, each of which costs a request."""
    state, evidence = facts.state, None if facts.report is None else facts.report.evidence
    if state.closed is None:
        return False
    planned = {batch.digest for batch in state.closed.planned}
    return (
        any(batch.digest not in planned for batch in facts.landed)
        or (evidence is not None and evidence.restored_to is not None)
        or bool(removals_to_repeat(state, evidence))
        or any(table.restored_to is not None for table in facts.tables.values())
        or bool(gone_tables(state, facts.tables))
    )


def _asked(state: StreamState) -> Mapping[str, Any] | None:
    return None if state.request is None else state.request.to


def _source(state: StreamState) -> _Source:
    to = _asked(state)
    if to is None and state.closed is not None and state.closed.position is not None:
        return "closed"
    if state.request is None and state.origin is not None:
        return "fork"
    if state.request is None and state.given_start is not None:
        return "given"
    if to is None or "start" in to:
        return "options"
    return "offset" if "offset" in to else "version"


def _opening(facts: Facts) -> Opening:
    state, source, to = facts.state, _source(facts.state), _asked(facts.state) or {}
    closed, request = state.closed, state.request
    if source == "closed" and closed is not None and closed.position is not None:
        evidence = None if facts.report is None else facts.report.evidence
        if (error := older_sink(state, closed, facts.fence, evidence)) is not None:
            return Opening(refusal=Refusal(error))
        end = _end_of_landed(facts, closed)
        return Opening(refusal=end) if isinstance(end, Refusal) else _after(state, closed, end or closed.position)
    if source == "fork" and state.origin is not None:
        return _forked(state.origin)
    if source == "given" and state.given_start is not None:
        return Opening(Offset.from_json(state.given_start), is_kept=True, follows_options=True)
    if source == "offset":
        kept = _kept(state, Offset.from_json(to["offset"]), to)
        is_same_epoch = request is not None and request.reason == "sink_appeared"
        return replace(kept, continues=is_same_epoch and closed is not None and closed.continues)
    return Opening(facts.resolved, follows_options=source == "options")


def _refusal(facts: Facts, start: Offset | SnapshotStart) -> Refusal | None:
    """Return why an epoch cannot begin at ``start``: it would omit lost rows, or read others again unnoticed."""
    state, report, history = facts.state, facts.report, facts.history
    if report is None:
        return None
    if (refusal := refused_by_tables(state, facts.tables, start, history)) is not None:
        return refusal
    if (error := lost_batches(state, report.evidence, start, history)) is not None:
        return Refusal(error)
    requests = requests_between(history, state)
    if (removed := left_out(state, report.evidence, start, requests)) is not None:
        return Refusal(left_out_error(state, removed, requests.get(removed.epoch)))
    hidden, request = hidden_batch(state.closed, report), state.request
    if hidden is not None and request is not None and request.removal is None:
        seen = as_seen(hidden)
        if request.to is None or seen not in request.seen:
            return Refusal(hidden_error(state, hidden), (seen,))
    if unseen := unseen_batches(state, report.landed, start):
        return Refusal(unseen_error(state, unseen), tuple(map(as_seen, unseen)))
    return None


def _left_unread(facts: Facts, start: Offset | SnapshotStart) -> Refusal | None:
    """Return why a rewind cannot begin at the commit of a time that was given where the log could not be read."""
    state, closed = facts.state, facts.state.closed
    if _source(state) != "version" or closed is None or closed.position is None or not isinstance(start, Offset):
        return None
    position = Offset.from_json(closed.position)
    if position.table_id != start.table_id or (problem := rewind_problem(state.name, position, start)) is None:
        return None
    return Refusal(LedgerError(problem, table=state.table, reason=Reason.ACTION_REFUSED))


def _after(state: StreamState, closed: ClosedEpoch, position: str) -> Opening:
    start = Offset.from_json(position)
    kept = _kept(state, start, {"meaning_digest": closed.meaning_digest})
    return replace(kept, continues=closed.continues or start.to_json() != closed.epoch_start)


def _kept(state: StreamState, start: Offset, to: Mapping[str, Any]) -> Opening:
    snapshot = None
    if start.is_initial_snapshot:
        snapshot = None if state.closed is None else state.closed.snapshot
        if snapshot is None or snapshot.version != start.version:
            error = LedgerError(
                f"stream {state.name!r}: {start.to_json()} is in the snapshot of version {start.version}, but the "
                f"last epoch began with another snapshot. Start with a new snapshot: `fds rewind "
                f"{state.name}{sink_rows_option(state.sink, to_start=True)} --to start --replace --why …`",
                table=state.table,
            )
            return Opening(refusal=Refusal(error))
    is_within = start.next_index > 0 and not start.is_initial_snapshot
    return Opening(
        start, is_kept=True, snapshot=snapshot, meaning_digest=to.get("meaning_digest") if is_within else None
    )


def _forked(origin: Origin) -> Opening:
    """Return the start of a new fork: what the other stream has read decides about the versions that follow."""
    return Opening(
        Offset.from_json(origin.offset),
        is_kept=True,
        snapshot=origin.snapshot,
        meaning_digest=origin.meaning_digest,
        continues=True,
        origin=origin,
    )


def _end_of_landed(facts: Facts, closed: ClosedEpoch) -> str | Refusal | None:
    """Return the end of the last planned batch that is in the sink; ``None`` if none is.

    The batches are in order, because a batch is not written before its predecessor. One that was not planned, or that
    failed verification, is refused.
    """
    name, landed = facts.state.name, facts.landed
    planned = {batch.digest: batch for batch in closed.planned}
    if any(batch.digest not in planned for batch in landed):
        planned |= _planned_before(facts.history, closed, landed)
    end = None
    for batch in landed:
        found, version, blocked = planned.get(batch.digest), batch.sink_version, closed.blocked
        if found is None or found.batch_id != batch.batch_id:
            problem = (
                f"but the ledger does not know its manifest {batch.digest}: it may have been restored from a copy. "
                f"Restore the sink to the previous version, or say where to continue: `fds rewind "
                f"{name}{sink_rows_option(facts.state.sink)} --replace --to N --why …`"
            )
        elif blocked is not None and (blocked.epoch, blocked.batch_id) == (batch.epoch, batch.batch_id):
            restore = (
                f"restore version {version - 1} of the sink, the last without it, and repeat the request with `fds "
                f"replan {name} --replace --why …`, or "
            )
            sink = facts.state.sink
            has_log = sink is None or sink.has_log
            rows = " --sink-rows empty" if sink is None else sink.all_rows_option
            problem = (
                f"but its verification failed: {blocked.reason}. Planned again, its rows would be in the sink "
                f"twice. To load it again, {restore if version > 0 and has_log else ''}load everything: `fds rewind "
                f"{name}{rows} --to start --replace --why …`"
            )
        else:
            end = found.end
            continue
        where = f"batch {batch.batch_id} of epoch {batch.epoch} is in the sink as version {version}"
        message = f"stream {name!r}: {where}, {problem}"
        error = LedgerError(message, table=facts.state.table, reason=Reason.SINK_ROWS_UNDECIDED)
        return Refusal(error, (as_seen(batch),))
    return end


def _planned_before(
    history: Sequence[Entry], closed: ClosedEpoch, landed: Sequence[LandedBatch]
) -> dict[str, PlannedBatch]:
    """Return the batches of earlier epochs that continue the position without a gap, by digest.

    If an epoch was closed while its sink did not exist, a batch of it may still land in the next epoch. The batch was
    planned in the earlier epoch, and counts as loaded if it begins at the position.
    """
    wanted = {(batch.epoch, batch.batch_id, batch.digest) for batch in landed}
    known = {
        (entry.action.epoch, batch.batch_id): batch
        for entry in history
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
