"""A stream: the value declared in DAG files, and the sessions that runs use.

Importing this package loads only the source options; sessions are loaded on first use.
"""

from __future__ import annotations

from airflow_provider_fds.lazy import loads, located
from airflow_provider_fds.stream.value import DeltaStream

_LAZY = located(
    __name__,
    {
        "connect": ("StreamContext",),
        "data_interval": ("DataInterval",),
        "interval_session": ("IntervalSession",),
        "poll": ("PollResult", "TablePoller", "position_of"),
        "result": ("Collected", "IntervalResult", "RunResult", "RunWork", "StreamStatus"),
        "session": ("StreamSession",),
    },
)

__all__ = ["DeltaStream", *sorted(_LAZY)]  # noqa: PLE0604  # the names are strings, built from one table

__getattr__ = loads(__name__, _LAZY)
