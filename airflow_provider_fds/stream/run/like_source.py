"""A sink that the first batch creates like the source: with its partition columns, with its table properties."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from airflow_provider_fds.errors import ConfigurationError, FdsError
from airflow_provider_fds.sinks import DeltaSink

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow_provider_fds.batch.spec import BatchSpec
    from airflow_provider_fds.delta.actions import Metadata
    from airflow_provider_fds.sinks import Sink
    from airflow_provider_fds.stream.connected_stream import ConnectedStream
    from airflow_provider_fds.stream.declaration.delta_stream import DeltaStream

_CHANGE_FEED: Final = "delta.enableChangeDataFeed"
_MAPPING: Final = "delta.columnMapping.mode"

#: Table properties that a sink may take from its source. Others belong to the source's own data, log or catalog, or
#: would keep the sink from being loaded (docs/sinks.md#tables-like-the-source).
COPIED: Final = (
    "delta.autoOptimize.autoCompact",
    "delta.autoOptimize.optimizeWrite",
    "delta.checkpoint.writeStatsAsJson",
    "delta.checkpoint.writeStatsAsStruct",
    "delta.checkpointInterval",
    _MAPPING,
    "delta.dataSkippingNumIndexedCols",
    "delta.deletedFileRetentionDuration",
    _CHANGE_FEED,
    "delta.enableDeletionVectors",
    "delta.enableExpiredLogCleanup",
    "delta.enableTypeWidening",
    "delta.logRetentionDuration",
    "delta.randomPrefixLength",
    "delta.randomizeFilePrefixes",
)


def sink_for_job(connected: ConnectedStream, sink: Sink, batches: Sequence[BatchSpec]) -> Sink:
    """Return the sink of a job with what it takes from the source filled in, if the job may create its table.

    The source is read as of the last version of the first batch, or as of its newest version if log cleanup has removed
    what is needed for that.

    Raises:
        ConfigurationError: See :func:`like_source`.
    """
    if not isinstance(sink, DeltaSink) or not sink.like_source:
        return sink
    if connected.state.sink_table_id is not None or not batches:
        return replace(sink, like_source=())
    log = connected.log
    try:
        state = log.state_at(batches[0].last_version)
    except FdsError:
        state = log.newest_readable()[0]
    return like_source(sink, state.metadata, connected.stream)


def like_source(sink: DeltaSink, metadata: Metadata, stream: DeltaStream) -> DeltaSink:
    """Return the sink with the partition columns and properties of a source, as ``sink.like_source`` asks.

    Raises:
        ConfigurationError: A partition column of the source is not among the columns that are read or written.
    """
    partition_by, properties = sink.partition_by, dict(sink.properties)
    if "partition_by" in sink.like_source:
        partition_by = tuple(metadata.partitionColumns)
        for columns, what in ((stream.options.columns, "columns of the stream"), (sink.columns, "columns of the sink")):
            chosen = {name.lower() for name in columns}
            missing = [name for name in partition_by if columns and name.lower() not in chosen]
            if missing and sink.transform is None:
                raise ConfigurationError(
                    f"the {type(sink).__name__} of stream {stream.name!r} is to be partitioned like the source, by "
                    f"{', '.join(partition_by)}, but {what} leaves out {', '.join(missing)}. Add the column there, or "
                    "set partition_by instead of like_source.",
                    table=stream.table,
                )
    if "properties" in sink.like_source:
        properties = {**_copied(sink, metadata, stream), **properties}
    return replace(sink, partition_by=partition_by, properties=properties, like_source=())


def _copied(sink: DeltaSink, metadata: Metadata, stream: DeltaStream) -> dict[str, str]:
    """Return the properties to copy, without those that the sink sets itself."""
    own = {name.lower(): value for name, value in sink.properties.items()}
    known = {name.lower(): name for name in COPIED}
    there = {
        known[name.lower()]: text for name, text in (metadata.configuration or {}).items() if name.lower() in known
    }
    is_mapped = own.get(_MAPPING.lower(), there.get(_MAPPING, "none")).lower() != "none"
    if is_mapped or (stream.options.read_change_feed and not sink.needs_keys):
        # Delta refuses it on a table with a column _change_type, and beside column mapping in the commit that creates a
        # table with rows
        there.pop(_CHANGE_FEED, None)
    return {name: text for name, text in there.items() if name.lower() not in own}
