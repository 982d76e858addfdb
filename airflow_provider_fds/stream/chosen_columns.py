"""Which columns a stream must read because its sink needs them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_fds.batch.manifest_schema import CHANGE_TYPE, COMMIT_TIMESTAMP, COMMIT_VERSION

if TYPE_CHECKING:
    from airflow_provider_fds.sinks import Sink
    from airflow_provider_fds.stream.value import DeltaStream

#: Columns that every batch has, or a batch of the change data feed, whatever the stream reads.
_ADDED = (COMMIT_VERSION, COMMIT_TIMESTAMP, CHANGE_TYPE)


def missing_columns_problem(stream: DeltaStream, sink: Sink) -> str | None:
    """Return why the stream's ``columns`` do not fit this sink, or ``None`` if they do."""
    columns = stream.options.columns
    if not columns:
        return None
    there = {name.lower() for name in (*columns, *_ADDED)}
    missing = dict.fromkeys(name for name in sink.needed_columns if name.lower() not in there)
    if not missing:
        return _added_twice(stream, sink)
    return (
        f"stream {stream.name!r} reads only the columns {', '.join(columns)}, but its {type(sink).__name__} needs "
        f"{', '.join(missing)}. Add {'it' if len(missing) == 1 else 'them'} to the stream's columns."
    )


def _added_twice(stream: DeltaStream, sink: Sink) -> str | None:
    read = {name.lower() for name in stream.options.columns}
    twice = [name for name in sink.refused_columns if name.lower() in read]
    if not twice:
        return None
    return (
        f"stream {stream.name!r} reads the columns {', '.join(twice)}, which constant_columns of its "
        f"{type(sink).__name__} also adds. Remove them from the stream's columns, or use other names."
    )


__all__ = ["missing_columns_problem"]
