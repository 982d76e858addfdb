"""A stream: the value declared in DAG files, the session of one run, what people do to it, and what is told of it.

Each folder has a first page that says what is inside; ``run`` has the session of a run.
Importing this package loads nothing; the public names are loaded on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_fds.lazy import loads, located

if TYPE_CHECKING:
    from airflow_provider_fds.stream.declaration.delta_stream import DeltaStream as DeltaStream

_LAZY = located(
    __name__,
    {
        "attempt.result": ("Collected", "IntervalResult", "RunResult", "RunWork"),
        "connected_stream": ("StreamContext",),
        "declaration.delta_stream": ("DeltaStream",),
        "monitoring.status": ("StreamStatus",),
        "polling.poll": ("PollResult", "TablePoller"),
        "position.data_interval": ("DataInterval",),
        "run.session": ("StreamSession",),
    },
)

__all__ = [*sorted(_LAZY)]  # noqa: PLE0604  # the names are strings, built from one table

__getattr__ = loads(__name__, _LAZY)
