"""The options of `fds rewind` in a message, so that the command loads what the message is about."""

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
