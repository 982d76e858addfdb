"""One file of a checkpoint, Parquet or JSON, read by column and in small batches.

Row groups without the requested action are not fetched at all.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol
from urllib.parse import unquote

import msgspec

from airflow_provider_fds.delta.actions import Action, decode_actions
from airflow_provider_fds.delta.damage import DAMAGE, describe
from airflow_provider_fds.delta.log_checkpoint.add_rows import parquet_columns, rows_from_adds, rows_from_struct
from airflow_provider_fds.delta.names import LOG_FOLDER
from airflow_provider_fds.errors import FdsError, LogTruncatedError, TornFileError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from airflow_provider_fds.delta.log_checkpoint.parquet_file import ParquetReader
    from airflow_provider_fds.delta.storage.storage import Storage

#: Rows are read in batches of about this size; with statistics, a row of ``add`` has from one to a hundred kilobytes.
_BATCH_BYTES: Final = 4 << 20
_BATCH_ROWS: Final = 16_384

_ActionName = Literal["protocol", "metaData", "txn", "sidecar"]

#: The columns to read for each action; the first one is never null if the action is set.
_COLUMNS: Final[dict[str, tuple[str, ...]]] = {
    "protocol": ("minReaderVersion", "minWriterVersion", "readerFeatures", "writerFeatures"),
    "metaData": (
        *("id", "schemaString", "partitionColumns", "configuration"),
        *("name", "description", "createdTime"),
    ),
    "txn": ("appId", "version", "lastUpdated"),
    "sidecar": ("path", "sizeInBytes", "modificationTime"),
}


class OpenLog(Protocol):
    """What reading checkpoints needs of a table's log; see :class:`~airflow_provider_fds.delta.reader.log.DeltaLog`."""

    @property
    def storage(self) -> Storage:
        """Storage of the table."""

    @property
    def table_uri(self) -> str:
        """URI of the table."""


def small_actions(log: OpenLog, key: str, version: int, names: Sequence[_ActionName]) -> Iterator[Action]:
    """Yield the actions called ``names`` of the checkpoint file ``key``, each with one field set."""
    if key.endswith(".json"):
        yield from (action for action in _json_actions(log, key, version) if any(getattr(action, n) for n in names))
        return
    with _open_parquet(log, key, version) as reader:
        for name in names:
            yield from _parquet_actions(reader, name)


def add_rows(log: OpenLog, key: str, version: int, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield the ``add`` actions of a top-level or sidecar file as rows of :mod:`.add_rows`."""
    if key.endswith(".json"):
        adds = [action.add for action in _json_actions(log, key, version) if action.add is not None]
        if adds:
            yield rows_from_adds(adds, columns)
        return
    with _open_parquet(log, key, version) as reader:
        schema = reader.file.schema_arrow
        if (at := schema.get_field_index("add")) < 0:
            return
        for struct in _structs(reader, "add", parquet_columns(schema.field(at).type, columns), marker="path"):
            yield rows_from_struct(struct, columns)


def sidecar_keys(log: OpenLog, key: str, version: int) -> tuple[str, ...]:
    """Return the keys of the sidecars that a top-level file names, empty if it is not v2.

    The protocol allows a path to be a name or a full URI, but the file is always in the table's own ``_sidecars``.
    """
    found = [action.sidecar for action in small_actions(log, key, version, ("sidecar",))]
    names = [unquote(sidecar.path.rpartition("/")[2]) for sidecar in found if sidecar is not None]
    return tuple(f"{LOG_FOLDER}/_sidecars/{name}" for name in names)


def _json_actions(log: OpenLog, key: str, version: int) -> list[Action]:
    try:
        data, _ = log.storage.get(key)
        return decode_actions(data)
    except FileNotFoundError as error:
        raise _vanished(log, key, version) from error
    except DAMAGE as error:
        raise _torn(log, key, version, error) from error


def _parquet_actions(reader: ParquetReader, name: _ActionName) -> Iterator[Action]:
    schema = reader.file.schema_arrow
    at = schema.get_field_index(name)
    if at < 0:
        return
    present = {field.name for field in schema.field(at).type}
    marker, *_ = wanted = _COLUMNS[name]
    for struct in _structs(reader, name, [f"{name}.{column}" for column in wanted if column in present], marker=marker):
        for value in struct.drop_null().to_pylist():
            if value[marker] is not None:
                yield msgspec.convert({name: _without_nulls(value)}, Action)


def _without_nulls(value: dict[str, Any]) -> dict[str, Any]:
    plain = {name: field for name, field in value.items() if field is not None}
    if "configuration" in plain:
        # Arrow returns a map as a list of pairs
        plain["configuration"] = {key: text for key, text in plain["configuration"] if text is not None}
    return plain


def _structs(reader: ParquetReader, name: str, columns: list[str], *, marker: str) -> Iterator[pa.StructArray]:
    groups = [
        index
        for index, group in enumerate(reader.groups)
        if group.num_rows and group.null_counts.get(f"{name}.{marker}") != group.num_rows
    ]
    if groups:
        for batch in reader.batches(groups, columns, max_rows=_BATCH_ROWS, max_bytes=_BATCH_BYTES):
            yield batch.column(name)


@contextmanager
def _open_parquet(log: OpenLog, key: str, version: int) -> Iterator[ParquetReader]:
    import pyarrow as pa

    from airflow_provider_fds.delta.log_checkpoint.parquet_file import parquet_reader

    try:
        with log.storage.open(key) as source, parquet_reader(source) as reader:
            yield reader
    except FileNotFoundError as error:
        raise _vanished(log, key, version) from error
    except FdsError:
        raise
    except (pa.ArrowException, OSError, *DAMAGE) as error:
        # Arrow raises any of these for a damaged Parquet file
        raise _torn(log, key, version, error) from error


def _vanished(log: OpenLog, key: str, version: int) -> LogTruncatedError:
    return LogTruncatedError(
        f"{log.table_uri}: {key} of the checkpoint of version {version} is missing, so the table's state at that "
        "version cannot be read. Log cleanup or VACUUM removed it; read a newer version",
        table=log.table_uri,
        version=version,
    )


def _torn(log: OpenLog, key: str, version: int, error: Exception) -> TornFileError:
    return TornFileError(
        f"{log.table_uri}: {key} of the checkpoint of version {version} cannot be read ({describe(error)}): it is "
        "still being written, or damaged. Try again; if the error persists, delete that file, provided that all "
        "commits since the previous checkpoint still exist",
        table=log.table_uri,
        version=version,
    )
