"""A stream: the value declared in DAG files, and the session of one run.

Importing this package loads only the source options; the session is loaded on first use.
"""

from __future__ import annotations

from airflow_provider_fds.lazy import loads, located
from airflow_provider_fds.stream.value import DeltaStream

_LAZY = located(
    __name__,
    {
        "connect": ("StreamContext",),
        "data_interval": ("DataInterval",),
        "poll": ("PollResult", "TablePoller"),
        "result": ("Collected", "IntervalResult", "RunResult", "RunWork"),
        "session": ("StreamSession",),
        "status": ("StreamStatus",),
    },
)

__all__ = ["DeltaStream", *sorted(_LAZY)]  # noqa: PLE0604  # the names are strings, built from one table

__getattr__ = loads(__name__, _LAZY)
