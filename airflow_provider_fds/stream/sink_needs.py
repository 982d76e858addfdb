"""What a sink needs of the stream that it gets rows from; known from both values, while a DAG file is parsed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_fds.batch.added_columns import CHANGE_TYPE, COMMIT_TIMESTAMP, COMMIT_VERSION

if TYPE_CHECKING:
    from airflow_provider_fds.sinks import Sink
    from airflow_provider_fds.stream.value import DeltaStream


def missing_columns_problem(stream: DeltaStream, sink: Sink) -> str | None:
    """Return why the stream's ``columns`` do not fit this sink, or ``None`` if they do."""
    columns = stream.options.columns
    if not columns:
        return None
    # every batch has these columns, or each one of the change data feed
    there = {name.lower() for name in (*columns, COMMIT_VERSION, COMMIT_TIMESTAMP, CHANGE_TYPE)}
    missing = dict.fromkeys(name for name in sink.needed_columns if name.lower() not in there)
    if not missing:
        return _added_twice(stream, sink)
    return (
        f"stream {stream.name!r} reads only the columns {', '.join(columns)}, but its {type(sink).__name__} needs "
        f"{', '.join(missing)}. Add {'it' if len(missing) == 1 else 'them'} to the stream's columns."
    )


def whole_commits_problem(stream: DeltaStream, sink: Sink) -> str | None:
    """Return why the stream's ``whole_commits`` does not fit this sink, or ``None`` if it fits."""
    options = stream.options
    # sinks of FDS are known to need whole commits; a user's function may not need them
    is_known = sink.needs_whole_commits and sink.target != "function"
    if not is_known or not options.read_change_feed or options.whole_commits is not False:
        return None
    return (
        f"stream {stream.name!r} has read_change_feed and whole_commits=False, but {type(sink).__name__} decides "
        "per key: half of a commit that replaces rows can make it delete keys that still exist. Omit "
        "whole_commits."
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


__all__ = ["missing_columns_problem", "whole_commits_problem"]
