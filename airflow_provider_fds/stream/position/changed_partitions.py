"""Which partitions of the source a load has touched. Reads the log; writes nothing."""

from __future__ import annotations

from itertools import repeat
from typing import TYPE_CHECKING, Any, Final

from airflow_provider_fds.delta.actions import Add
from airflow_provider_fds.delta.reader.replay import live_rows
from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.source.changes.classify import CommitContent, Skip, classify
from airflow_provider_fds.source.filters.filter_column import table_columns
from airflow_provider_fds.source.offset import Offset
from airflow_provider_fds.source.planning.files_read import FilesRead

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa

    from airflow_provider_fds.delta.actions import Cdc, Metadata, Remove
    from airflow_provider_fds.delta.reader.log import DeltaLog
    from airflow_provider_fds.stream.declaration.delta_stream import DeltaStream

_COLUMNS: Final = ("path", "deletionVector", "partitionValues")
#: Statistics are large, and only some filters need them.
_COLUMNS_WITH_STATISTICS: Final = (*_COLUMNS, "stats")


def changed_partitions(stream: DeltaStream, log: DeltaLog, column: str, result: Mapping[str, Any]) -> list[str]:
    """Return the values of a partition column in the files that the versions of a load read, sorted.

    With the change data feed the files that they remove count, too. The initial snapshot counts as all files of its
    version. Files and commits that the stream's options leave out do not count. A version of which the load has only a
    part counts whole. Null is left out.

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
    values = {(file.partitionValues or {}).get(key) for file in _files(log, stream, result, last)}
    return sorted(value for value in values if value)


def check_partition_column(log: DeltaLog, column: str) -> None:
    """Refuse a column by which the table is not partitioned now.

    Raises:
        ConfigurationError: The table is not partitioned by it.
        TableNotFoundError: There is no table.
    """
    _key_of(log, log.newest_readable()[0].metadata, column)


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


def _files(log: DeltaLog, stream: DeltaStream, result: Mapping[str, Any], last: int) -> Iterator[Add | Remove | Cdc]:
    """Yield the files that a load has read."""
    options = stream.options
    files_read = FilesRead(options, log.table_uri)
    first = int(result["first_version"])
    start = Offset.from_json(result["start"]) if result.get("start") else None
    is_snapshot = start is not None and start.is_initial_snapshot
    if start is not None and is_snapshot:
        first = start.version
    metadata = log.state_at(min(first, last)).metadata if files_read.has_filter else None
    if is_snapshot:
        bound = None if metadata is None else files_read.under(metadata)
        columns = _COLUMNS_WITH_STATISTICS if bound is not None and bound.needs_statistics else _COLUMNS
        for rows in live_rows(log, first, columns):
            adds = enumerate(_adds(rows))
            found = adds if bound is None else bound.passing(adds)
            yield from (add for _, add in found if files_read.excluded is None or not files_read.excluded(add.path))
        first += 1
    for commit in log.commits(first, last) if first <= last else ():
        content = CommitContent.of(commit.version, commit.actions, table=log.table_uri)
        if files_read.has_filter:
            metadata = content.metadata or metadata
        # a commit that would stop the stream was acknowledged
        if not isinstance(classify(content, options, table=log.table_uri), Skip):
            yield from (file for _, file in files_read.of_commit(commit, content, metadata))


def _adds(rows: pa.RecordBatch) -> Iterator[Add]:
    stats = rows.column("stats").to_pylist() if "stats" in rows.schema.names else repeat(None)
    columns = (rows.column(name).to_pylist() for name in ("path", "partitionValues"))
    for path, values, text in zip(*columns, stats, strict=False):
        yield Add(path=path, partitionValues=dict(values or ()), stats=text)
