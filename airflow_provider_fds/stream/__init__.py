"""A stream: the value declared in DAG files, and the sessions that runs use.

Importing this package loads only the source options; sessions are loaded on first use.
"""

from __future__ import annotations

from importlib import import_module

from airflow_provider_fds.stream.value import DeltaStream

_LAZY = {
    "Collected": "result",
    "DataInterval": "data_interval",
    "IntervalResult": "result",
    "IntervalSession": "interval_session",
    "RunResult": "result",
    "RunWork": "result",
    "PollResult": "poll",
    "StreamSession": "session",
    "StreamStatus": "result",
    "StreamContext": "connect",
    "TablePoller": "poll",
    "position_of": "poll",
}

__all__ = ["DeltaStream", *sorted(_LAZY)]  # noqa: PLE0604  # the names are strings, built from one table


def __getattr__(name: str) -> object:
    """Load a name of the package on first use."""
    module = _LAZY.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{module}"), name)
