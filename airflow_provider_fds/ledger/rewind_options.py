"""Where `fds rewind` may lead, and its options in a message, so that the command loads what the message is about."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow_provider_fds.ledger.values import SinkBinding
    from airflow_provider_fds.source.offset import Offset


def sink_rows_option(sink: SinkBinding | None, *, to_start: bool = False) -> str:
    """Return, with a space before it, the option of `fds rewind` in a message: what becomes of the sink's rows.

    A sink that merges needs none of them removed, FDS removes none from a function's tables or from a database, and the
    start is no version from which to delete.
    """
    if sink is not None and (sink.merges or not sink.can_remove_rows):
        return " --sink-rows keep"
    return " --sink-rows keep|empty" if to_start else " --sink-rows keep|delete|empty"


def rewind_problem(name: str, position: Offset | None, start: Offset) -> str | None:
    """Return why a rewind would leave out rows that the stream has not read, or ``None`` if it reads them all.

    Args:
        name: The stream.
        position: Where it is.
        start: Where it would continue (exclusive).
    """
    if position is None or start.reads_all_of(position):
        return None
    lead = f"stream {name!r} is at {position.describe()}"
    if start.table_id != position.table_id:
        return (
            f"{lead} of the table with the id {position.table_id}, but {start.describe()} is of the table with the id "
            f"{start.table_id}, whose versions are others. Use --to start, or --to N for a version of the stream's"
        )
    if position.is_initial_snapshot and not start.is_initial_snapshot and start.version <= position.version:
        return (
            f"{lead}, and has not read the rest of that snapshot, which version {start.version} does not contain. Use "
            "--to start, --to 0 if the log has all commits, or --to batch:N with a batch of the snapshot"
        )
    return (
        f"{lead}, and {start.describe()} is later; a rewind can only move backwards. To skip a version: `fds skip "
        f"{name} --version N --why …`"
    )


def target_from(start: Offset | None, sink: SinkBinding | None, batch_id: int | None = None) -> str:
    """Return the target of `fds rewind --to` that loads everything from a position on, and the option that follows it.

    Within a snapshot no version does: its commit has only the rows that were added in it.

    Args:
        start: The position (exclusive); ``None``: the very beginning.
        sink: The sink.
        batch_id: The batch that begins there, if no later epoch has one of this id.
    """
    if start is not None and not start.is_initial_snapshot:
        return f"{start.version}{sink_rows_option(sink)}"
    if start is None or batch_id is None:
        return f"start{sink_rows_option(sink, to_start=True)}"
    return f"batch:{batch_id} --sink-rows keep"
