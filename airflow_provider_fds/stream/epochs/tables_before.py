"""The tables of a function before the fence of a requested epoch, as ``sink_before`` for a sink that is one table.

The fence is in the tables, so nothing of an older epoch can follow. What they have decides whether an epoch that begins
at the requested position would omit rows that they lack, or load rows again that no person was told of.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from airflow_provider_fds.batch.sink.sink_account import NEWEST
from airflow_provider_fds.batch.table_writes import NO_TABLE
from airflow_provider_fds.batch.transactions import fence_version, txn_version
from airflow_provider_fds.errors import LedgerError
from airflow_provider_fds.ledger.rewind_options import target_from
from airflow_provider_fds.ledger.values import SeenBatch
from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.source.offset import Offset
from airflow_provider_fds.stream.epochs.sink_before import UNKNOWN_VERSION, Refusal, lost_batches
from airflow_provider_fds.stream.sink_record.function_tables import gone_tables, read_tables, tables_in_order

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow_provider_fds.batch.report import FenceReport
    from airflow_provider_fds.batch.table_writes import TableWrite, TableWrites
    from airflow_provider_fds.ledger.entries.entry import Entry
    from airflow_provider_fds.ledger.state import StreamState
    from airflow_provider_fds.ledger.values import PlannedBatch, SinkBinding
    from airflow_provider_fds.source.planning.start import SnapshotStart
    from airflow_provider_fds.stream.connected_stream import ConnectedStream

#: What became of a table that is not the one the stream has written to.
_GONE: Final = (
    "was removed, restored from a copy, or created again after the stream had written to it, or its folder is not "
    "mounted here"
)


def tables_now(connected: ConnectedStream, state: StreamState, report: FenceReport) -> dict[str, TableWrites]:
    """Return what the tables of a function have; what the driver's report says of those that cannot be read from here.

    None for any other sink, and for an epoch that no person has requested.
    """
    sink = state.fence_sink
    if sink is None or not sink.is_function or state.request is None:
        return {}
    reported = {name: report.tables.get(name, NO_TABLE) for name in tables_in_order(sink)}
    return reported | read_tables(state, connected.open_sink)


def refused_by_tables(
    state: StreamState, tables: Mapping[str, TableWrites], start: Offset | SnapshotStart, history: Sequence[Entry]
) -> Refusal | None:
    """Return why an epoch would omit rows, or load rows again without the knowledge of a person; ``None`` if neither.

    A request records the writes that the person was told of. Those that were not told are shown, so that a later
    request may have their rows loaded again.

    Args:
        state: With a requested epoch.
        tables: The result of :func:`tables_now`.
        start: Where the epoch begins.
        history: The entries of the ledger, needed if a table is gone or was restored.
    """
    sink = state.fence_sink
    if sink is None or not tables:
        return None
    if (lost := lost_writes(state, tables, sink.tables, start)) is not None:
        return Refusal(lost)
    gone = gone_tables(state, tables)
    for name, found in tables.items():
        # the ledger does not record which version of a table has the fence
        known = None if found.committed is None else found.committed.version
        if name not in gone:
            problem = lost_batches(state, found, start, history, write=name, known=known)
        else:
            # an older copy has what was committed up to then
            left = replace(found, restored_to=-1 if known is None else known)
            became = f"the table {sink.tables[name]} of write {name!r} {_GONE}"
            problem = lost_batches(state, left, start, history, write=name, known=NEWEST, became=became)
        if problem is not None:
            return Refusal(problem)
    late = late_writes(state, tables, start)
    if not late:
        return None
    planned = () if state.closed is None else state.closed.planned
    epoch = 0 if state.closed is None else state.closed.epoch
    shown = tuple(as_seen(name, write, epoch, planned) for name, write in late)
    return Refusal(_late_error(state, sink, late), shown)


def lost_writes(
    state: StreamState, found: Mapping[str, TableWrites], uris: Mapping[str, str], start: Offset | SnapshotStart
) -> LedgerError | None:
    """Return the error of continuing at the position if a table lacks, or may lack, what counts as loaded.

    It names the table and the next step.

    Args:
        state: With a requested epoch.
        found: What the tables have after the last commit, by the write's name.
        uris: The tables, by the write's name.
        start: Where the epoch begins.
    """
    request = state.request
    if request is None or request.reason not in ("replan", "rebind"):
        return None
    name = state.name
    for write in gone_tables(state, found) if request.reason == "replan" else ():
        return LedgerError(
            f"stream {name!r}: the table {uris[write]} of write {write!r} {_GONE}. Mount or restore it. Only if it is "
            "gone for good, remove the rows from the other tables and load everything again: `fds "
            f"rewind {name} --replace --to start --sink-rows keep --why …`",
            table=state.table,
            reason=Reason.SINK_ROWS_UNDECIDED,
        )
    for write, of in found.items():
        last = of.committed
        if last is not None and last.place != "there":
            what = f"epoch {last.epoch} began" if last.is_fence else f"batch {last.batch_id} was committed"
            return LedgerError(
                f"stream {name!r}: {what}, but the table {uris[write]} of write {write!r} was later restored or "
                f"replaced in version {last.undone_at}, so it may lack rows. Load them again: `fds rewind {name} "
                "--replace --to batch:N --sink-rows keep --why …`",
                table=state.table,
                reason=Reason.SINK_ROWS_UNDECIDED,
            )
    new_sink = " with --new-sink" if request.reason == "rebind" else ""
    for write, batch, what in _lost_since(state, found, start):
        return LedgerError(
            f"stream {name!r}: the request for epoch {state.epoch} counts batch {batch.batch_id} as loaded, but the "
            f"table {uris[write]} of write {write!r} {what}, so it may lack rows. Repeat the request, which "
            f"asks what the tables have: `fds replan {name} --replace --why …`{new_sink}. Or remove the rows of the "
            f"batch from all tables and load it again: `fds rewind {name} --replace --to "
            f"{target_from(Offset.from_json(batch.start), state.fence_sink, batch.batch_id)} --why …`",
            table=state.table,
            reason=Reason.SINK_ROWS_UNDECIDED,
        )
    return None


def _lost_since(
    state: StreamState, found: Mapping[str, TableWrites], start: Offset | SnapshotStart
) -> list[tuple[str, PlannedBatch, str]]:
    """Return what a request has counted as loaded and a table does not have: write, batch and what became of the table.

    A person has answered for a write that was undone before the request.
    """
    closed, request = state.closed, state.request
    lost: list[tuple[str, PlannedBatch, str]] = []
    if closed is None or request is None:
        return lost
    told = {(seen.write, seen.epoch, seen.batch_id) for seen in request.seen}
    for batch in closed.planned:
        if is_read_again(batch.end, start):
            continue
        for name, of in found.items():
            write = next((w for w in of.writes if w.transaction == txn_version(closed.epoch, batch.batch_id)), None)
            if write is None:
                if (name, closed.epoch, batch.batch_id) in told:
                    lost.append((name, batch, "was removed or created again since then"))
            elif write.digest not in (None, batch.digest):
                lost.append((name, batch, "has another batch of this number"))
            elif write.undone_at is not None and write.undone_at > request.table_versions.get(name, -1):
                lost.append((name, batch, f"was restored or replaced in version {write.undone_at} since then"))
    return lost


def late_writes(
    state: StreamState, found: Mapping[str, TableWrites], start: Offset | SnapshotStart
) -> list[tuple[str, TableWrite]]:
    """Return the writes of closed epochs that a requested epoch would load again and that no person was told of.

    Args:
        state: With a requested epoch.
        found: What the tables have after the last commit, by the write's name.
        start: Where the epoch begins.
    """
    request, closed = state.request, state.closed
    if request is None or closed is None:
        return []
    late = []
    ends = {txn_version(closed.epoch, batch.batch_id): batch.end for batch in closed.planned}
    for name, of in found.items():
        told = [batch for batch in request.seen if batch.write == name]
        if of.version < max((batch.sink_version for batch in told), default=-1):
            # the table was deleted and recreated
            told = []
        for write in of.writes:
            if write.is_fence or write.place == "gone" or write.transaction >= fence_version(state.epoch):
                continue
            is_told = as_seen(name, write, closed.epoch, closed.planned) in told
            if not is_told and is_read_again(ends.get(write.transaction), start):
                late.append((name, write))
    return late


def is_read_again(end: str | None, start: Offset | SnapshotStart | None) -> bool:
    """Return whether an epoch loads a batch again; always true for a batch that the ledger does not know."""
    if end is None or start is None:
        return True
    offset = start if isinstance(start, Offset) else start.offset
    return offset.reads_rows_up_to(Offset.from_json(end))


def _late_error(state: StreamState, sink: SinkBinding, late: Sequence[tuple[str, TableWrite]]) -> LedgerError:
    wrote = " and ".join(
        f"{name!r} of batch {write.batch_id} (version {write.version} of {sink.tables[name]})" for name, write in late
    )
    firsts: dict[str, int] = {}
    for name, write in late:
        if write.version is not None:
            firsts[name] = min(write.version, firsts.get(name, write.version))
    known = " and ".join(f"{version - 1} of {name!r}" for name, version in firsts.items() if version)
    last = f"; the last version without them is {known}" if known else ""
    reason = "rewind" if state.request is None else state.request.reason
    command = "rewind" if reason in ("rewind", "reset") else "replan"
    targets = {"rewind": " --to N --sink-rows keep", "reset": " --to start --sink-rows keep", "rebind": " --new-sink"}
    target = targets.get(reason, "")
    answer = "" if command == "rewind" else ", with --landed according to your tables"
    keep = f"; to keep a batch that is in all its tables, use `fds replan {state.name} --replace --why …`"
    return LedgerError(
        f"stream {state.name!r}: a driver of the previous epoch wrote {wrote}, which the request for epoch "
        f"{state.epoch} did not report. Remove these rows{last}. Then repeat the request: `fds "
        f"{command} {state.name} --replace{target} --why …`{answer}{keep if target else ''}",
        table=state.table,
        reason=Reason.SINK_ROWS_UNDECIDED,
    )


def as_seen(name: str, write: TableWrite, epoch: int, planned: Sequence[PlannedBatch]) -> SeenBatch:
    """Return a write as the ledger records it; ``planned`` are the batches of ``epoch``."""
    known = next((b.digest for b in planned if (epoch, b.batch_id) == (write.epoch, write.batch_id)), "")
    version = UNKNOWN_VERSION if write.version is None else write.version
    return SeenBatch(epoch=write.epoch, batch_id=write.batch_id, digest=known, sink_version=version, write=name)
