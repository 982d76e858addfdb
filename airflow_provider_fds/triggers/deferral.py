"""Deferral for sensor and operator: the trigger of a waiting task, and polls on the worker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_provider_fds.hooks.data_interval import run_interval
from airflow_provider_fds.hooks.settings import deployment, staging_uri
from airflow_provider_fds.hooks.stream_context import reading_context
from airflow_provider_fds.stream.connected_stream import ConnectedStream
from airflow_provider_fds.stream.polling.interval_poll import IntervalPoller
from airflow_provider_fds.stream.polling.watermark import WatermarkPoller
from airflow_provider_fds.triggers.delta_interval import DeltaIntervalTrigger
from airflow_provider_fds.triggers.delta_table_version import DeltaTableVersionTrigger
from airflow_provider_fds.triggers.delta_watermark import DeltaWatermarkTrigger

if TYPE_CHECKING:
    from datetime import timedelta

    from airflow_provider_fds.stream import DeltaStream
    from airflow_provider_fds.stream.polling.poll import PollResult


def waiting_trigger(
    context: Any, stream: DeltaStream, *, grace: timedelta | None = None, at: str | None = None, **poll_options: Any
) -> DeltaTableVersionTrigger:
    """Return the trigger that fires when a run of the stream has something to do, or when its interval is complete.

    Args:
        context: The task's context.
        stream: The stream, rendered.
        grace: For a stream that reads data intervals, see :class:`DeltaIntervalTrigger`.
        at: The time that the stream's watermark must reach, if the trigger waits for that; see
            :class:`DeltaWatermarkTrigger`.
        poll_options: How to poll, see :class:`DeltaTableVersionTrigger`.

    Raises:
        ConfigurationError: There is no staging folder, or the run has no data interval that the stream can read.
    """
    arguments = {
        "stream": stream.to_dict(),
        "staging": staging_uri(stream.staging, stream.name),
        "deployment": deployment(),
        **poll_options,
    }
    if at is not None:
        return DeltaWatermarkTrigger(at=at, **arguments)
    if not stream.reads_by_interval:
        return DeltaTableVersionTrigger(**arguments)
    return DeltaIntervalTrigger(
        interval_end=run_interval(context, stream).end.isoformat(),
        grace=None if grace is None else grace.total_seconds(),
        **arguments,
    )


def poll_data_interval(context: Any, stream: DeltaStream, grace: timedelta | None) -> PollResult | None:
    """Poll, on the worker, whether the run's data interval is complete; ``None`` if it may still get commits.

    Raises:
        ConfigurationError: The run has no data interval that the stream can read.
        TableNotFoundError: There is no table.
    """
    storage = reading_context(stream).open_table(stream.table)
    return IntervalPoller(storage, run_interval(context, stream).end, grace).check()


def poll_watermark(stream: DeltaStream, at: str) -> tuple[PollResult | None, str | None]:
    """Poll, on the worker, whether a stream's watermark has reached a time; also return the watermark.

    Raises:
        ConfigurationError: There is no staging folder.
        FdsError: As :meth:`WatermarkPoller.check`.
    """
    poller = WatermarkPoller(ConnectedStream(stream, reading_context(stream)), at)
    return poller.check(), poller.watermark
