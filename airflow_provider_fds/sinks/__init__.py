"""Sinks as values: declared in a DAG file, performed on the Spark driver. Standard library only, Python 3.9 syntax."""

from __future__ import annotations

from typing import Any

from airflow_provider_fds.sinks.base import Sink
from airflow_provider_fds.sinks.delta import DeltaReplaceSink, DeltaSink, DeltaTableSink
from airflow_provider_fds.sinks.foreach import ForeachBatchSink
from airflow_provider_fds.sinks.merge import DeltaMergeSink

_CLASSES: tuple[type[Sink], ...] = (DeltaTableSink, DeltaReplaceSink, DeltaMergeSink, ForeachBatchSink)
_KINDS: dict[str, type[Sink]] = {sink.kind: sink for sink in _CLASSES}


def sink_from_dict(value: dict[str, Any]) -> Sink:
    """Build a sink from :meth:`Sink.to_dict`, whose templates are rendered.

    Raises:
        ValueError: A kind that it does not know, or a predicate that is more than an expression of columns.
    """
    fields = dict(value)
    kind = fields.pop("kind", None)
    if kind not in _KINDS:
        known = ", ".join(map(repr, _KINDS))
        raise ValueError(f"sink kind {kind!r} is not known to this version of FDS, it knows {known}")
    sink = _KINDS[kind](**fields)
    if isinstance(sink, DeltaSink):
        sink.check_predicates()
    return sink


def needs_whole_commits(kind: str) -> bool:
    """Whether a sink of this kind has to see commits whole; one that is not known to this version of FDS may."""
    return kind not in _KINDS or _KINDS[kind].needs_whole_commits


__all__ = [
    "DeltaMergeSink",
    "DeltaReplaceSink",
    "DeltaSink",
    "DeltaTableSink",
    "ForeachBatchSink",
    "Sink",
    "needs_whole_commits",
    "sink_from_dict",
]
