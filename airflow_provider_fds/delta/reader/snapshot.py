"""The live files of a version in the order of Delta's streaming source, and frozen as one Parquet file.

The order is (``add.modificationTime``, ``add.path`` by its UTF-8 bytes), both ascending; a file's position in it, from
0, is its index in the initial snapshot. It depends only on the version, not on the checkpoint it is read from. See
``DeltaSourceSnapshot`` in Delta for Spark.

A stream may read its initial snapshot for days, by index. Freezing keeps the indices valid for that long, although log
cleanup removes the checkpoint and the commits they came from.
"""

from __future__ import annotations

import hashlib
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

from airflow_provider_fds.delta.damage import DAMAGE, MAX_INT64, describe
from airflow_provider_fds.delta.log_checkpoint.add_rows import WHOLE_COLUMNS, adds_from_rows, row_schema
from airflow_provider_fds.delta.reader.replay import files_in_order
from airflow_provider_fds.delta.reader.scratch import ScratchFile, scratch_errors
from airflow_provider_fds.delta.statistics import count_only
from airflow_provider_fds.errors import FdsError, LostPositionError, TornFileError
from airflow_provider_fds.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from airflow_provider_fds.delta.actions import Add
    from airflow_provider_fds.delta.log_checkpoint.parquet_file import ParquetReader
    from airflow_provider_fds.delta.reader.log import DeltaLog
    from airflow_provider_fds.delta.storage.storage import Storage

#: Reading from an index skips whole row groups, so at most this many rows are read in vain.
ROW_GROUP_ROWS: Final = 10_000

_ROW_GROUP_BYTES: Final = 16 << 20
_READ_ROWS: Final = 1_000
_DIGEST_CHARS: Final = 32
_DIGEST_KEY: Final = "fds.snapshot.digest"


@dataclass(frozen=True, slots=True)
class FrozenSnapshot:
    r"""A frozen snapshot in staging. Its fields describe it completely; they are kept in the ledger.

    Attributes:
        version: The table's version.
        digest: First 32 hexadecimal digits of the SHA-256 over one line ``<size> <n> <path> <vector id>\n`` for each
            file in order, in UTF-8: size in bytes, ``n`` the length of the path in bytes, path as logged, deletion
            vector id or nothing. It does not depend on how the Parquet file was written.
        key: The file's key in staging, ``<folder>/<version>-<digest>.parquet``.
        num_files: Number of files; valid indices are ``0 … num_files - 1``.
        num_bytes: Sum of their sizes, at most 2^63 - 1.
    """

    version: int
    digest: str
    key: str
    num_files: int
    num_bytes: int

    def adds(self, storage: Storage, first_index: int = 0) -> Iterator[tuple[int, Add]]:
        """Yield ``(index, add)`` from ``first_index`` (inclusive) to the end, streamed.

        Args:
            storage: The staging root that :func:`freeze_snapshot` wrote to.
            first_index: First index to yield; ``num_files`` or above yields nothing.

        Raises:
            LostPositionError: The file is no longer in staging.
            TornFileError: The file is damaged, or belongs to another snapshot.
        """
        import pyarrow as pa

        from airflow_provider_fds.delta.log_checkpoint.parquet_file import parquet_reader

        try:
            with storage.open(self.key) as source, parquet_reader(source) as reader:
                self._verify(reader, storage)
                for index, batch in _rows_from(reader, first_index):
                    yield from enumerate(adds_from_rows(batch), index)
        except FileNotFoundError as error:
            raise LostPositionError(
                f"{storage.uri}/{self.key}, the frozen snapshot of version {self.version} with {self.num_files} "
                "files, is missing from staging. Restore it from a copy of the staging folder, or begin with a new "
                "snapshot: `fds rewind STREAM --to start --sink-rows keep|empty --why …` (empty if the sink allows it)",
                version=self.version,
                reason=Reason.SNAPSHOT_LOST,
            ) from error
        except FdsError:
            raise
        except (pa.ArrowException, OSError, *DAMAGE) as error:
            raise self._damaged(storage, describe(error)) from error

    def _verify(self, reader: ParquetReader, storage: Storage) -> None:
        metadata = reader.file.metadata
        rows = sum(group.num_rows for group in reader.groups)
        digest = (metadata.metadata or {}).get(_DIGEST_KEY.encode(), b"").decode(errors="replace")
        if (rows, digest) != (self.num_files, self.digest):
            raise self._damaged(storage, f"it has {rows} files with digest {digest or 'none'}")

    def _damaged(self, storage: Storage, found: str) -> TornFileError:
        return TornFileError(
            f"{storage.uri}/{self.key} is not the frozen snapshot of version {self.version}: {found}; expected "
            f"{self.num_files} files with digest {self.digest}. Restore it from a copy of the staging folder, or "
            "delete it and begin with a new snapshot: `fds rewind STREAM --to start --sink-rows keep|empty --why …` "
            "(empty if the sink allows it)",
            version=self.version,
        )


def freeze_snapshot(
    log: DeltaLog, version: int, staging: Storage, folder: str, *, stats: bool = True
) -> FrozenSnapshot:
    """Write the live files of ``version`` in order to ``folder`` of ``staging`` and return what was written.

    A version always gets the same name and content, no matter which process or checkpoint they come from; an
    existing file is not changed. Each ``add`` is kept with everything that a reader needs
    (:data:`~airflow_provider_fds.delta.log_checkpoint.add_rows.WHOLE_COLUMNS`), except that without ``stats`` the
    statistics only say how many rows a file has. Memory is bounded; the rows pass through files without a name in the
    local temporary folder, which disappear even if this process is killed.

    Raises:
        LogTruncatedError: Neither a checkpoint nor the commits reach back far enough.
        LogGapError: A commit between checkpoint and ``version`` is missing.
        TornFileError: A file of the checkpoint is not readable.
        StorageError: The temporary folder is full.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    digest = hashlib.sha256()
    num_files = num_bytes = 0
    with ScratchFile("fds-snapshot-") as local:
        with _Writer(local.sink) as writer:
            for batch in files_in_order(log, version, WHOLE_COLUMNS):
                digest.update(_lines(batch))
                num_files += batch.num_rows
                # as decimals, because the sum of 64-bit integers wraps around
                num_bytes += int(pc.sum(pc.cast(batch.column("size"), pa.decimal128(19))).as_py() or 0)
                writer.write(_written_columns(batch, stats=stats))
            name = digest.hexdigest()[:_DIGEST_CHARS]
            writer.finish({_DIGEST_KEY: name, "fds.snapshot.version": str(version)})
        key = f"{folder}/{version}-{name}.parquet"
        if staging.head(key) is None:
            staging.put_file(key, local.file)
    return FrozenSnapshot(version, name, key, num_files, min(num_bytes, MAX_INT64))


def _written_columns(batch: pa.RecordBatch, *, stats: bool) -> pa.RecordBatch:
    import pyarrow as pa

    batch = batch.select(list(WHOLE_COLUMNS))
    if stats:
        return batch
    counts = pa.array([count_only(text) for text in batch.column("stats").to_pylist()], pa.string())
    return batch.set_column(WHOLE_COLUMNS.index("stats"), "stats", counts)


def _rows_from(reader: ParquetReader, first_index: int) -> Iterator[tuple[int, pa.RecordBatch]]:
    index = 0
    groups: list[int] = []
    for group, (rows, _) in enumerate(reader.groups):
        if groups or index + rows > first_index:
            groups.append(group)
        else:
            index += rows
    for batch in reader.batches(groups, None, max_rows=_READ_ROWS, max_bytes=_ROW_GROUP_BYTES):
        skip = min(max(0, first_index - index), batch.num_rows)
        if skip < batch.num_rows:
            yield index + skip, batch.slice(skip)
        index += batch.num_rows


def _lines(batch: pa.RecordBatch) -> memoryview:
    import pyarrow as pa
    import pyarrow.compute as pc

    path = batch.column("path")
    size = pc.cast(batch.column("size"), pa.string())
    length = pc.cast(pc.binary_length(path), pa.string())
    lines = pc.binary_join_element_wise(
        size, length, path, pc.binary_join_element_wise(batch.column("vectorId"), "\n", ""), " "
    )
    _, _, data = lines.buffers()
    return memoryview(data if data is not None else b"")


class _Writer:
    """Cuts batches of any size into row groups of :data:`ROW_GROUP_ROWS`, or fewer if rows are very large."""

    def __init__(self, sink: pa.NativeFile) -> None:
        import pyarrow.parquet as pq

        self._pending: list[pa.RecordBatch] = []
        self._rows = 0
        self._file = pq.ParquetWriter(
            sink,
            row_schema(WHOLE_COLUMNS),
            compression="snappy",
            use_dictionary=["partitionValues.key_value.key", "partitionValues.key_value.value"],
            write_statistics=False,
            write_page_checksum=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # closed already, unless writing has failed: then the footer cannot be written either
        with suppress(OSError):
            self._file.close()

    def write(self, batch: pa.RecordBatch) -> None:
        row_bytes = batch.nbytes // max(1, batch.num_rows) + 1
        limit = max(1, min(ROW_GROUP_ROWS, _ROW_GROUP_BYTES // row_bytes))
        start = 0
        while start < batch.num_rows:
            part = batch.slice(start, max(1, limit - self._rows))
            start += part.num_rows
            self._pending.append(part)
            self._rows += part.num_rows
            if self._rows >= limit:
                self._flush()

    def finish(self, metadata: dict[str, str]) -> None:
        self._flush()
        with scratch_errors():
            self._file.add_key_value_metadata(metadata)
            self._file.close()

    def _flush(self) -> None:
        import pyarrow as pa

        if self._pending:
            with scratch_errors():
                self._file.write_table(pa.Table.from_batches(self._pending), row_group_size=self._rows)
        self._pending, self._rows = [], 0
