"""A data interval replaces rows of its own stream, and none that another stream has loaded into the sink."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_fds.batch.sink.replaced_rows import ReplacedRows, describe_replaced
from airflow_provider_fds.batch.version_ranges import describe_range
from airflow_provider_fds.delta.reader.log import DeltaLog
from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.sinks import DeltaReplaceSink
from airflow_provider_fds.stream.sink_record.sink_traces import loaded_by_others

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow_provider_fds.sinks import Sink
    from airflow_provider_fds.stream.connected_stream import ConnectedStream


def refuse_replacement(connected: ConnectedStream, sink: Sink | None, first: int, last: int, table_id: str) -> None:
    """Refuse a data interval that may replace rows of another stream, where this worker can read the sink.

    The driver asks the same again, because the sink can change in between.

    Args:
        connected: The stream.
        sink: The sink.
        first: First version of the interval.
        last: Last version of the interval; before ``first`` if the interval has no versions.
        table_id: Id of the source table.

    Raises:
        ConfigurationError: Names the other stream, what it has loaded, and what to do.
    """
    if not isinstance(sink, DeltaReplaceSink) or connected.stream.allow_overlap:
        return
    others = [one for one in loaded_by_others(connected, sink) if one.pieces]
    if not others:
        return
    partitions: Sequence[str] = ()
    if sink.dynamic_partition_overwrite:
        log = DeltaLog(connected.open_sink(sink.table_uri))
        partitions = log.state_at(log.latest()).metadata.partitionColumns
    of_interval = sink.for_versions(first, last)
    rows = ReplacedRows(table_id, of_interval.replaced_values(partitions), of_interval.replaced_versions)
    found = rows.of_others(others)
    if found is not None:
        what = describe_replaced(of_interval.replaced_rows, sink.describe(), found)
        raise ConfigurationError(
            f"stream {connected.stream.name!r}, {describe_range(first, last)}, {what}.",
            table=connected.log.table_uri,
            reason=Reason.RANGES_OVERLAP,
        )
