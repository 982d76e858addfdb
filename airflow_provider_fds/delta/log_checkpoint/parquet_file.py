"""Parquet files of a log or of staging, opened so that a damaged one raises and never crashes the process.

A file is read through a seekable file of the storage, so that it works the same on a disk and in an object store:
column chunks are fetched in pieces of a megabyte. Page checksums are verified if the writer wrote them.
"""

from __future__ import annotations

import io
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO, Final

from airflow_provider_fds.delta.log_checkpoint.parquet_footer import RowGroup, row_groups

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    import pyarrow.parquet as pq

_BUFFER_BYTES: Final = 1 << 20
#: Number of bytes read from the end of a file; a longer footer takes a second read.
_TAIL_BYTES: Final = 64 << 10
#: Bytes of the footer's length and the magic number after it.
_END_BYTES: Final = 8
_MAGIC: Final = b"PAR1"

#: A dictionary may give each row a value of many kilobytes, so only this many rows are decoded at once.
_DECODED_ROWS: Final = 2_048

#: How much larger than the file its rows may be, beyond :data:`_ALWAYS_BYTES`. The rows of a log name distinct files,
#: each of which costs some bytes; a file above this ratio is not a log, but one that repeats a value a million times.
_EXPANSION: Final = 1_000
_ALWAYS_BYTES: Final = 64 << 20


@dataclass(frozen=True, slots=True)
class ParquetReader:
    """An open Parquet file.

    Attributes:
        file: pyarrow's reader. Do not ask it for the metadata of a column.
        groups: The row groups.
        size_bytes: Size of the file.
    """

    file: pq.ParquetFile
    groups: list[RowGroup]
    size_bytes: int

    def batches(
        self, groups: Sequence[int], columns: list[str] | None, *, max_rows: int, max_bytes: int
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of some row groups in batches of about ``max_rows`` or ``max_bytes``, whichever is less.

        Raises:
            ValueError: The rows are far too large for the size of the file.
        """
        import pyarrow as pa

        limit = _ALWAYS_BYTES + _EXPANSION * self.size_bytes
        kept: list[pa.RecordBatch] = []
        rows = size = total = 0
        for batch in self._decoded(groups, columns, min(max_rows, _DECODED_ROWS)):
            kept.append(batch)
            rows += batch.num_rows
            size += batch.nbytes
            total += batch.nbytes
            if total > limit:
                raise ValueError(f"its {self.size_bytes} bytes contain rows of more than {limit} bytes")
            if rows >= max_rows or size >= max_bytes:
                yield kept[0] if len(kept) == 1 else pa.concat_batches(kept)
                kept, rows, size = [], 0, 0
        if kept:
            yield kept[0] if len(kept) == 1 else pa.concat_batches(kept)

    def _decoded(self, groups: Sequence[int], columns: list[str] | None, rows: int) -> Iterator[pa.RecordBatch]:
        for group in groups:
            # one by one: pyarrow cannot build a batch of nested columns that spans two row groups
            found = 0
            for batch in self.file.iter_batches(rows, row_groups=[group], columns=columns, use_threads=False):
                found += batch.num_rows
                yield batch
            if found != self.groups[group].num_rows:
                # a possible effect of a damaged page header
                raise ValueError(f"row group {group} has {found} rows, expected {self.groups[group].num_rows}")


@contextmanager
def parquet_reader(source: BinaryIO) -> Iterator[ParquetReader]:
    """Open the Parquet file that ``source`` reads.

    Raises:
        ValueError: It is damaged. Any error of pyarrow or of ``source`` may also be raised, on opening and while
            reading.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    tail, size_bytes = _tail(source)
    with pq.ParquetFile(
        source,
        metadata=pq.read_metadata(pa.BufferReader(tail)),
        pre_buffer=False,
        buffer_size=_BUFFER_BYTES,
        page_checksum_verification=True,
    ) as file:
        length = int.from_bytes(tail[-_END_BYTES : -len(_MAGIC)], "little")
        groups = row_groups(tail[-_END_BYTES - length : -_END_BYTES])
        if len(groups) != file.num_row_groups:
            raise ValueError("the footer is damaged")
        yield ParquetReader(file, groups, size_bytes)


def _tail(source: BinaryIO) -> tuple[bytes, int]:
    """Return the end of a file, with all of its footer, and the file's size."""
    size = source.seek(0, io.SEEK_END)
    wanted = min(size, _TAIL_BYTES)
    for _ in range(2):
        source.seek(size - wanted)
        tail = source.read(wanted)
        if len(tail) < max(wanted, _END_BYTES) or tail[-len(_MAGIC) :] != _MAGIC:
            raise ValueError("it does not end like a Parquet file")
        length = int.from_bytes(tail[-_END_BYTES : -len(_MAGIC)], "little") + _END_BYTES
        if length <= wanted:
            return tail, size
        if length > size:
            break
        wanted = length
    raise ValueError("its footer is longer than the file")
