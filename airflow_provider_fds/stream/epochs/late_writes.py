"""Writes of a closed epoch into a function's tables that came after the request for the next epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_fds.batch.spec import fence_version, txn_version
from airflow_provider_fds.errors import LedgerError
from airflow_provider_fds.ledger.request_entries import Shown
from airflow_provider_fds.ledger.values import SeenBatch
from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.source.offset import Offset
from airflow_provider_fds.stream.epochs.sink_before import UNKNOWN_VERSION
from airflow_provider_fds.stream.sink_record.function_tables import gone_tables, read_tables, written_before

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow_provider_fds.batch.report import FenceReport
    from airflow_provider_fds.batch.table_writes import TableWrite
    from airflow_provider_fds.ledger.state import StreamState
    from airflow_provider_fds.ledger.values import PlannedBatch, SinkBinding
    from airflow_provider_fds.stream.connected_stream import ConnectedStream
    from airflow_provider_fds.stream.sink_record.function_tables import TableWrites


def refuse_late_writes(connected: ConnectedStream, state: StreamState, report: FenceReport) -> None:
    """Refuse to begin an epoch that would load rows again without the knowledge of the person who requested it.

    A request records the writes that the person was told of. The fence is in the tables now, so no other can follow.
    Those that were not told are recorded (entry ``shown``), so that a later request may have their rows loaded again.
    The driver's report counts for tables that cannot be read from here.

    Raises:
        LedgerError: Names the writes, their versions and the possible next steps; or a table lacks committed rows, and
            the epoch would continue after them.
    """
    sink, request = state.fence_sink, state.request
    if sink is None or not sink.is_function or request is None:
        return
    table_writes = read_tables(state, connected.open_sink)
    if request.reason == "replan":
        refuse_gone(state, table_writes, sink.tables)
    if request.reason in ("replan", "rebind"):
        # the tables may have been restored since the request
        refuse_lost(state, table_writes, sink.tables)
    for name, found in written_before(report).items():
        table_writes.setdefault(name, found)
    late = late_writes(state, table_writes)
    if not late:
        return
    planned = () if state.closed is None else state.closed.planned
    epoch = 0 if state.closed is None else state.closed.epoch
    connected.execute(
        Shown(epoch=state.epoch, batches=tuple(as_seen(name, write, epoch, planned) for name, write in late))
    )
    raise _late_error(state, sink, late)


def refuse_lost(state: StreamState, table_writes: Mapping[str, TableWrites], tables: Mapping[str, str]) -> None:
    """Refuse to continue at the position if a table lacks, or may lack, batches that were committed.

    Raises:
        LedgerError: Names the table and the next step.
    """
    for name, found in table_writes.items():
        write = found.committed
        if write is None or write.place == "there":
            continue
        replaced = " --replace" if state.phase == "requested" else ""
        raise LedgerError(
            f"stream {state.name!r}: batch {write.batch_id} was committed, but the table {tables[name]} of write "
            f"{name!r} was later restored or replaced in version {write.undone_at}, so it may lack rows. Load "
            f"them again: `fds rewind {state.name}{replaced} --to batch:N --sink-rows keep --why …`",
            table=state.table,
            reason=Reason.SINK_ROWS_UNDECIDED,
        )


def refuse_gone(state: StreamState, table_writes: Mapping[str, TableWrites], tables: Mapping[str, str]) -> None:
    """Refuse to continue at the position, into the same tables, if one that was written no longer exists.

    Raises:
        LedgerError: Names the table and the possible next steps.
    """
    replaced = " --replace" if state.phase == "requested" else ""
    for name in gone_tables(state, table_writes):
        raise LedgerError(
            f"stream {state.name!r}: the table {tables[name]} of write {name!r} was removed, restored from a copy, or "
            "created again after the stream had written to it, or its folder is not mounted here. Mount or restore "
            "it. Only if it is gone for good, remove the rows from the other tables and load everything again: `fds "
            f"rewind {state.name}{replaced} --to start --sink-rows keep --why …`",
            table=state.table,
            reason=Reason.SINK_ROWS_UNDECIDED,
        )


def late_writes(state: StreamState, table_writes: Mapping[str, TableWrites]) -> list[tuple[str, TableWrite]]:
    """Return the writes of closed epochs that a requested epoch would load again and that no person was told of.

    Args:
        state: With a requested epoch.
        table_writes: What the tables have after the last commit, by the write's name.
    """
    request = state.request
    if request is None or state.closed is None:
        return []
    closed, late = state.closed, []
    ends = {txn_version(closed.epoch, batch.batch_id): batch.end for batch in closed.planned}
    for name, found in table_writes.items():
        told = [batch for batch in request.seen if batch.write == name]
        if found.version < max((batch.sink_version for batch in told), default=-1):
            # the table was deleted and recreated
            told = []
        for write in found.writes:
            if write.is_fence or write.place == "gone" or write.transaction >= fence_version(state.epoch):
                continue
            if as_seen(name, write, closed.epoch, closed.planned) in told:
                continue
            if is_read_again(ends.get(write.transaction), request.to, closed.position):
                late.append((name, write))
    return late


def is_read_again(end: str | None, to: Mapping[str, object] | None, position: str | None) -> bool:
    """Return whether a request loads a batch again; always true for a batch that the ledger does not know."""
    start = position if to is None else to.get("offset")
    if end is None or not isinstance(start, str):
        # a rewind to a version starts before all uncommitted batches
        return True
    last, begins = Offset.from_json(end), Offset.from_json(start)
    return last.table_id != begins.table_id or last > begins


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


__all__ = ["as_seen", "is_read_again", "late_writes", "refuse_gone", "refuse_late_writes", "refuse_lost"]
