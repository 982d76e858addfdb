"""Batches in the sink that a requested epoch would read again although no person knows of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_fds.errors import LedgerError
from airflow_provider_fds.ledger.values import SeenBatch
from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.source.offset import Offset
from airflow_provider_fds.source.planning.start import SnapshotStart

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Final

    from airflow_provider_fds.batch.report import LandedBatch
    from airflow_provider_fds.ledger.state import StreamState

#: Lower than the version of any batch in a sink.
_BEFORE_ALL: Final = -1


def unseen_batches(
    state: StreamState, landed: Sequence[LandedBatch], start: Offset | SnapshotStart
) -> tuple[LandedBatch, ...]:
    """Return the batches whose rows would be read again although they are in the sink, unknown to any person.

    A person who requests an epoch sees the batches committed by then. These batches landed later, or failed
    verification. Only batches that an earlier run showed (entry ``shown``), and that the request refers to, may be read
    again.
    """
    seen = () if state.request is None else state.request.seen
    known = _recovered_from(state, landed, start)
    first = start.offset if isinstance(start, SnapshotStart) else start
    again = (batch for batch in landed if first.reads_rows_up_to(Offset.from_json(batch.end)))
    return tuple(batch for batch in again if batch.sink_version > known and as_seen(batch) not in seen)


def _recovered_from(state: StreamState, landed: Sequence[LandedBatch], start: Offset | SnapshotStart) -> int:
    """Return the version of the batch that a recovered stream continues after, else a version before all others.

    What is in the sink before it, and reads further, is of an epoch before a rewind, which has decided about its rows.
    """
    if state.request is None or state.request.reason != "recover":
        return _BEFORE_ALL
    return max((batch.sink_version for batch in landed if Offset.from_json(batch.end) == start), default=_BEFORE_ALL)


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
    has_log = sink is None or sink.has_log
    twice = " (with scd=2 they would be in the sink twice)" if has_log else ""
    lead += f"merge them again{twice}. " if merges else "load them twice. "
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
        ways = f"To merge them again: {merge}."
        if sink is not None and sink.can_remove_rows:
            ways = f"To merge them again: {merge}; to empty the sink first and load everything, {empty}."
    elif sink is not None and not sink.can_remove_rows:
        to = "N" if reason == "rewind" else "start"
        ways = (
            f"To load them again: remove them yourself, then `fds rewind {name} --replace --to {to} --sink-rows keep "
            "--why …`."
        )
    else:
        if reason == "rewind":
            empty = f"`fds rewind {name} --replace --to N --sink-rows delete --why …` (with provenance), or {empty}"
        version = again[0].sink_version
        is_kept = version > 0 and has_log
        known = f" The last version of the sink without them is {version - 1}." if is_kept else ""
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
