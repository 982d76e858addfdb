"""What feeds the columns of a sink, for a stream whose ledger was lost together with the record of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from airflow_provider_fds.batch.column_meaning import column_ids
from airflow_provider_fds.delta.schema import is_mapped
from airflow_provider_fds.errors import LostPositionError
from airflow_provider_fds.source.offset import Offset

if TYPE_CHECKING:
    from airflow_provider_fds.delta.reader.log import DeltaLog
    from airflow_provider_fds.ledger.values import SinkNames


def recovered_columns(log: DeltaLog, names: SinkNames) -> dict[str, str]:
    """Return what has fed each column of the sink when its newest batch was written.

    That batch was not refused, so the columns that the source had then have fed the sink's columns of the same names.
    What fed its other columns is not known (``""``), so a later batch with a column of such a name is refused.

    Args:
        log: The source.
        names: The columns of the sink.
    """
    end = Offset.from_json(names.end)
    is_before = not end.is_initial_snapshot and end.next_index == 0
    try:
        metadata = log.state_at(max(end.version - is_before, 0)).metadata
        is_known = True
    except LostPositionError:
        metadata = log.state_at(log.latest()).metadata
        # without column mapping, a column of a name is the column of that name
        is_known = not is_mapped(metadata)
    source = column_ids(msgspec.json.decode(metadata.schemaString)) if is_known and metadata.schemaString else {}
    if is_mapped(metadata):
        return {path: source.get(path, "") for path in names.paths}
    return {path: "" for path in names.paths if path not in source}
