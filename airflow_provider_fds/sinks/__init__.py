"""Sinks as values that are declared in a DAG file and used by the writer on the Spark driver.

Standard library only, Python 3.9 syntax.

A module of this folder adds a sink by defining a class with a ``kind``. The name of the sink determines its writer, see
``spark/writers/writer.py``.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any

from airflow_provider_fds.sinks.base import Sink
from airflow_provider_fds.sinks.delta import DeltaAppendSink, DeltaReplaceSink, DeltaSink
from airflow_provider_fds.sinks.foreach import ForeachBatchSink
from airflow_provider_fds.sinks.merge import DeltaMergeSink

if TYPE_CHECKING:
    from airflow_provider_fds.sinks.postgres import PostgresSink


def __getattr__(name: str) -> Any:
    # most DAG files have no sink outside the lake
    if name == "PostgresSink":
        return import_module(f"{__name__}.postgres").PostgresSink
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


@cache
def _kinds() -> dict[str, type[Sink]]:
    """Return the sinks of this folder by their kinds."""
    found: dict[str, type[Sink]] = {}
    for name in sorted(module.name for module in iter_modules(__path__, f"{__name__}.")):
        for value in vars(import_module(name)).values():
            if not (isinstance(value, type) and issubclass(value, Sink) and value.__module__ == name):
                continue
            if "kind" in vars(value) and found.setdefault(value.kind, value) is not value:
                raise TypeError(f"{value.__name__} and {found[value.kind].__name__} have the same kind {value.kind!r}")
    return found


def sink_class(kind: str) -> type[Sink] | None:
    """Return the sink class of a kind, or ``None`` if this version of FDS does not know the kind."""
    return _kinds().get(kind)


def sink_from_dict(value: dict[str, Any]) -> Sink:
    """Build a sink from the result of :meth:`Sink.to_dict`, whose templates are rendered.

    Raises:
        ValueError: The kind is unknown, or a predicate is anything other than an expression over columns.
    """
    fields = dict(value)
    kind = fields.pop("kind", None)
    known = _kinds()
    if kind not in known:
        raise ValueError(f"unknown sink kind {kind!r}; this version of FDS knows {', '.join(map(repr, known))}")
    sink = known[kind](**fields)
    sink.check_predicates()
    return sink


def kind_of_target(target: str) -> str:
    """Return the kind of the sink with the ``target`` of an identity; a Delta table's is one that appends."""
    scheme = target.partition("://")[0]
    return next((kind for kind, sink in _kinds().items() if sink.scheme == scheme), "delta_append")


def needs_whole_commits(kind: str, target: str) -> bool:
    """Whether a bound sink needs whole commits; ``True`` for a kind that this version of FDS does not know."""
    sink = sink_class(kind)
    return sink is None or sink.needs_whole_commits or sink.merges_into(target)


__all__ = [
    "DeltaAppendSink",
    "DeltaMergeSink",
    "DeltaReplaceSink",
    "DeltaSink",
    "ForeachBatchSink",
    "PostgresSink",
    "Sink",
    "kind_of_target",
    "needs_whole_commits",
    "sink_class",
    "sink_from_dict",
]
