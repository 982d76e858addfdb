"""Which partitions of the source a load has touched. Reads the log; writes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from airflow_provider_fds.delta.actions import Add, Remove
from airflow_provider_fds.delta.replay import live_rows
from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.source.filter_column import table_columns
from airflow_provider_fds.source.filtering import TableFilter
from airflow_provider_fds.source.offset import Offset

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from airflow_provider_fds.delta.actions import Metadata
    from airflow_provider_fds.delta.log import DeltaLog
    from airflow_provider_fds.stream.value import DeltaStream

_COLUMNS: Final = ("path", "deletionVector", "partitionValues")


def changed_partitions(stream: DeltaStream, log: DeltaLog, column: str, result: Mapping[str, Any]) -> list[str]:
    """Return the values of a partition column in the files that the versions of a load add, sorted.

    With the change data feed the files that they remove count, too. The initial snapshot counts as all files of its
    version. Files that ``partition_filter`` and ``where`` leave out do not count, nor do ``skip_versions``. A version
    of which the load has only a part counts whole. Null is left out.

    Args:
        stream: The stream.
        log: Log of its table.
        column: Name of the column, in any case.
        result: The result of the load, as a dict: ``first_version``, ``last_version``, and ``start`` if it has one.

    Raises:
        ConfigurationError: The table is not partitioned by the column.
        StorageError: The store does not answer.
        LostPositionError: The log no longer has the versions.
    """
    last = int(result["last_version"])
    metadata = log.state_at(last).metadata
    key = _key_of(log, metadata, column)
    table_filter = TableFilter.of_options(stream.options, log.table_uri)
    keeps = None if table_filter is None else table_filter.of(metadata).keeps
    values = {
        (file.partitionValues or {}).get(key)
        for file in _files(log, stream, result, last)
        if keeps is None or isinstance(file, Remove) or keeps(file)
    }
    return sorted(value for value in values if value)


def check_partition_column(log: DeltaLog, column: str) -> None:
    """Refuse a column by which the table is not partitioned now.

    Raises:
        ConfigurationError: The table is not partitioned by it.
        TableNotFoundError: There is no table.
    """
    _key_of(log, log.state_at(log.latest()).metadata, column)


def _key_of(log: DeltaLog, metadata: Metadata, column: str) -> str:
    """Return the name of a partition column in ``partitionValues``.

    Raises:
        ConfigurationError: The table is not partitioned by it.
    """
    found = table_columns(metadata).get(column.lower())
    if found is None or not found.is_partition:
        names = ", ".join(metadata.partitionColumns) or "none"
        raise ConfigurationError(
            f"asset_partitions is {column!r}, but table {log.table_uri} is not partitioned by that column. Name one "
            f"of its partition columns: {names}.",
            table=log.table_uri,
        )
    return found.key


def _files(log: DeltaLog, stream: DeltaStream, result: Mapping[str, Any], last: int) -> Iterator[Add | Remove]:
    """Yield the files of a load, those of a snapshot without statistics."""
    first = int(result["first_version"])
    start = Offset.from_json(result["start"]) if result.get("start") else None
    if start is not None and start.is_initial_snapshot:
        first = start.version + 1
        for rows in live_rows(log, start.version, _COLUMNS):
            for values in rows.column("partitionValues").to_pylist():
                yield Add(path="", partitionValues=dict(values or ()))
    for commit in log.commits(first, last) if first <= last else ():
        if not stream.options.skips_version(commit.version):
            for action in commit.actions:
                if action.add is not None and action.add.changes_data:
                    yield action.add
                elif action.remove is not None and action.remove.changes_data and stream.options.read_change_feed:
                    yield action.remove


__all__ = ["changed_partitions", "check_partition_column"]
