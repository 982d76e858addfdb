"""Options that were changed while batches were planned: they take effect after those batches, and every run says so."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow_provider_fds.ledger.records import IntervalRecord
    from airflow_provider_fds.ledger.state import StreamState
    from airflow_provider_fds.source.options.options import SourceOptions
    from airflow_provider_fds.stream.connected_stream import ConnectedStream

logger = logging.getLogger(__name__)


def describe_changed_options(
    state: StreamState, options: SourceOptions, interval: IntervalRecord | None = None
) -> str | None:
    """Return a sentence if the planned batches were planned with other options, else ``None``.

    Args:
        state: The stream's state.
        options: The options that it now has.
        interval: The data interval that the batches belong to, for a stream that reads data intervals.
    """
    record = state if interval is None else interval
    known, planned = record.options_digest, record.planned
    if not planned or known is None or options.digest() == known or _differs_in_start_only(state, options, known):
        return None
    first, last = planned[0].batch_id, planned[-1].batch_id
    what = f"batch {first} was" if first == last else f"batches {first} to {last} were"
    changed = f"the options of stream {state.name!r} have changed since {what} planned"
    text = f"{changed}. They take effect after batch {last}"
    if interval is not None:
        return f"{text} of this interval"
    return f"{text}; to plan again with them, run `fds replan {state.name} --why …`"


def warn_about_changed_options(connected: ConnectedStream, interval: IntervalRecord | None = None) -> None:
    """Log the sentence of :func:`describe_changed_options` once in a session, and keep it for the run's result."""
    note = describe_changed_options(connected.state, connected.stream.options, interval)
    if note is not None and note != connected.options_note:
        logger.warning("%s", note)
        connected.options_note = note


def _differs_in_start_only(state: StreamState, options: SourceOptions, known: str) -> bool:
    """Whether only start options differ, which never take effect again; ``changed_start`` reports them."""
    if state.range_options is None:
        return False
    began = state.range_options
    version, timestamp = began.get("starting_version"), began.get("starting_timestamp")
    return replace(options, starting_version=version, starting_timestamp=timestamp).digest() == known
