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


def load_again_options(sink: SinkBinding | None, start: Offset, batch_id: int | None = None) -> str:
    """Return, with a space before it, the options that load everything from a position on.

    Within a snapshot no version does: its commit has only the rows that were added in it.

    Args:
        sink: The sink.
        start: The position (exclusive).
        batch_id: The batch that begins there, if no later epoch has one of this id.
    """
    if not start.is_initial_snapshot:
        return f" --to {start.version}{sink_rows_option(sink)}"
    if batch_id is None:
        return f" --to start{sink_rows_option(sink, to_start=True)}"
    return f" --to batch:{batch_id} --sink-rows keep"
