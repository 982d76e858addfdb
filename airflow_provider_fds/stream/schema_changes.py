"""Which changes of the schema a stream must not follow by itself, because of its sink."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_fds.sinks import DeltaMergeSink
from airflow_provider_fds.source.schema_policy import OPTION, SchemaPolicy

if TYPE_CHECKING:
    from airflow_provider_fds.sinks import Sink
    from airflow_provider_fds.source.schema_policy import Rules
    from airflow_provider_fds.stream.value import DeltaStream


def followed_renames_problem(stream: DeltaStream, sink: Sink, installation: Rules) -> str | None:
    """Return why the stream must not follow renames into this sink, ``None`` if it may or does not.

    A merge that adds the new name as another column updates only that one: the row keeps an outdated value under the
    old name, and which of the two counts is not known if the newer is NULL.

    Args:
        stream: The stream.
        sink: Its sink.
        installation: Rules of ``[fds] allow_schema_changes``.
    """
    applied = SchemaPolicy(stream.options.allow_schema_changes, installation).rule_of("rename")
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


__all__ = ["followed_renames_problem"]
