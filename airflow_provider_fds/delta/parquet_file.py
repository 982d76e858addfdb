"""Parquet files of a log or of staging, opened so that a damaged one raises, and never ends the process.

A file is read through a seekable file of the storage, so it works the same on a disk and in an object store: column
chunks are fetched in pieces of a megabyte. Checksums of pages are verified where the writer wrote them.
"""

from __future__ import annotations

import io
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO, Final

from airflow_provider_fds.delta.parquet_footer import RowGroup, row_groups

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    import pyarrow.parquet as pq

_BUFFER_BYTES: Final = 1 << 20
#: Read from the end of a file; a longer footer takes a second read.
_TAIL_BYTES: Final = 64 << 10
#: Length of the footer and the magic number after it.
_END_BYTES: Final = 8
_MAGIC: Final = b"PAR1"

#: A dictionary may give each row a value of many kilobytes: so few rows are decoded at once.
_DECODED_ROWS: Final = 2_048

#: How much larger than the file its rows may be, beyond :data:`_ALWAYS_BYTES`. Those of a log name other files, each of
#: which costs some bytes; more than this is no log, but a file that says one thing a million times.
_EXPANSION: Final = 1_000
_ALWAYS_BYTES: Final = 64 << 20


@dataclass(frozen=True, slots=True)
class ParquetReader:
    """An open Parquet file.

    Attributes:
        file: pyarrow's reader. Ask it for no metadata of a column.
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
            ValueError: The rows are out of all proportion to the file.
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
                raise ValueError(f"its {self.size_bytes} bytes hold rows of more than {limit} bytes")
            if rows >= max_rows or size >= max_bytes:
                yield kept[0] if len(kept) == 1 else pa.concat_batches(kept)
                kept, rows, size = [], 0, 0
        if kept:
            yield kept[0] if len(kept) == 1 else pa.concat_batches(kept)

    def _decoded(self, groups: Sequence[int], columns: list[str] | None, rows: int) -> Iterator[pa.RecordBatch]:
        for group in groups:
            # one by one: pyarrow cannot make a batch of nested columns that lies in two row groups
            found = 0
            for batch in self.file.iter_batches(rows, row_groups=[group], columns=columns, use_threads=False):
                found += batch.num_rows
                yield batch
            if found != self.groups[group].num_rows:
                # what a damaged header of a page can come to
                raise ValueError(f"row group {group} has {found} rows, expected {self.groups[group].num_rows}")


@contextmanager
def parquet_reader(source: BinaryIO) -> Iterator[ParquetReader]:
    """Open the Parquet file that ``source`` reads.

    Raises:
        ValueError: It is damaged; also any error of pyarrow or of ``source``, then and while it is read.
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
            raise ValueError("it does not end as a Parquet file does")
        length = int.from_bytes(tail[-_END_BYTES : -len(_MAGIC)], "little") + _END_BYTES
        if length <= wanted:
            return tail, size
        if length > size:
            break
        wanted = length
    raise ValueError("its footer is longer than the file")


__all__ = ["ParquetReader", "parquet_reader"]
