"""The sink of a stream, from a value or an XCom, and what it needs of the stream; known while a DAG file is parsed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_fds.batch.manifest_columns import CHANGE_TYPE, COMMIT_TIMESTAMP, COMMIT_VERSION
from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.sinks import DeltaAppendSink, DeltaMergeSink, Sink, sink_from_dict
from airflow_provider_fds.source.options.schema_policy import OPTION, SchemaPolicy

if TYPE_CHECKING:
    from airflow_provider_fds.source.options.schema_policy import Rules
    from airflow_provider_fds.stream.declaration.delta_stream import DeltaStream


def coerce_sink(value: object) -> Sink:
    """Return ``value`` if it is a sink; build one from a dict: ``to_dict()``, or arguments of ``DeltaAppendSink``.

    A text with a scheme or a path is the URI of a ``DeltaAppendSink``.

    Raises:
        ConfigurationError: The value is anything else, or a dict that does not describe a sink.
    """
    if isinstance(value, Sink):
        return value
    if isinstance(value, str) and "/" in value:
        return DeltaAppendSink(value)
    if not isinstance(value, dict):
        raise ConfigurationError(
            "sink must be the URI of a Delta table, a DeltaAppendSink, DeltaMergeSink, DeltaReplaceSink or "
            f"ForeachBatchSink, or a dict of its arguments, got {type(value).__name__}: {value!r}.",
            reason=Reason.INVALID_OPTION,
        )
    try:
        return sink_from_dict({"kind": "delta_append", **value})
    except (TypeError, ValueError) as error:
        raise ConfigurationError(f"invalid sink {value!r}: {error}.", reason=Reason.INVALID_OPTION) from error


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


def followed_renames_problem(stream: DeltaStream, sink: Sink, installation: Rules) -> str | None:
    """Return why the stream must not follow renames into this sink, ``None`` if it may or does not.

    A merge that adds the new name as another column updates only that one: the row keeps an outdated value under the
    old name, and which of the two counts is not known if the newer is NULL.

    Args:
        stream: The stream.
        sink: Its sink.
        installation: Rules of ``[fds] on_schema_change``.
    """
    applied = SchemaPolicy(stream.options.on_schema_change, installation).rule_of("rename")
    if applied.rule != "follow" or not isinstance(sink, DeltaMergeSink):
        return None
    if not sink.merge_schema or sink.keeps_history:
        return None
    return (
        f"stream {stream.name!r} follows renamed columns ({applied.describe()}), but its DeltaMergeSink has "
        "merge_schema=True: the new name would be a new column, and updated rows would keep outdated values under the "
        f"old name. Set {OPTION}={ {'rename': 'ask'} } on the stream, or omit merge_schema: the batch after a rename "
        "is then refused until you rename the column in the sink."
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
