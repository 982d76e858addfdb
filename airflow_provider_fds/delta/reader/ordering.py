"""Sorts more rows than fit in memory: sorted runs on disk, merged a few thousand rows at a time.

The order is that of Delta's streaming source for an initial snapshot (``DeltaSourceSnapshot``): modification time, then
path by its UTF-8 bytes. The deletion vector id comes last; it only matters in a table that lists a path twice. No step
handles single rows in Python.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from airflow_provider_fds.delta.reader.scratch import ScratchFile, scratch_errors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import pyarrow as pa

#: Columns to sort by, ascending. None of them may contain a null.
ORDER: Final = ("modificationTime", "path", "vectorId")

#: Bytes (in Arrow's representation) held for one sorted run; sorting briefly needs about twice as much. Short runs are
#: sorted faster, because their memory is used again. But a merge holds a block of each run and handles a part of each
#: in every step, so the runs get longer if there are many.
RUN_BYTES: Final = 12 << 20
LONGEST_RUN_BYTES: Final = 40 << 20
_RUNS_BEFORE_LONGER: Final = 64

#: Size of the blocks of a run that the merge holds in memory, one per run; those of longer runs, of which there are
#: many, are smaller.
BLOCK_BYTES: Final = 256 << 10
_SMALL_BLOCK_BYTES: Final = 128 << 10

#: Number of blocks merged in one step, and the number of runs for each of them if there are more.
_BLOCKS_PER_STEP: Final = 32
_RUNS_PER_BLOCK: Final = 3

#: Sorted rows are put together in batches of about this size, so that there is no second copy of all of them.
_TAKEN_BYTES: Final = 8 << 20

_Key: TypeAlias = tuple[int, str, str]


def in_order(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of ``batches`` by :data:`ORDER`, in batches of another size.

    Memory stays at about twice :data:`LONGEST_RUN_BYTES` plus one block per run, whatever the input. The rest is in a
    temporary file, as large as the rows, until the iterator is exhausted or closed.

    Args:
        batches: The rows, in any order, with the columns of :data:`ORDER`; all with one schema.

    Raises:
        StorageError: The temporary folder is full or cannot be written to.
    """
    import pyarrow as pa

    run: list[pa.RecordBatch] = []
    size = sorted_bytes = 0
    spill: _Spill | None = None
    try:
        for batch in batches:
            run.append(batch)
            size += batch.nbytes
            if size >= _run_bytes(sorted_bytes):
                spill = spill or _Spill(batch.schema)
                spill.write(_sorted(run, _order_by_time_first), _block_bytes(sorted_bytes))
                sorted_bytes += size
                size = 0
        if spill is None:
            # everything fits in memory
            if any(batch.num_rows for batch in run):
                yield from _sorted(run, _order_by_time_first)
            return
        if run:
            spill.write(_sorted(run, _order_by_time_first), _block_bytes(sorted_bytes))
        # the allocator keeps what the runs needed, which is more than the merge needs at first
        pa.default_memory_pool().release_unused()
        yield from spill.merged()
    finally:
        if spill is not None:
            spill.close()


def _run_bytes(sorted_bytes: int) -> int:
    """Return the size of the next run."""
    return min(max(RUN_BYTES, sorted_bytes // _RUNS_BEFORE_LONGER), LONGEST_RUN_BYTES)


def _block_bytes(sorted_bytes: int) -> int:
    """Return the size of its blocks."""
    return BLOCK_BYTES if _run_bytes(sorted_bytes) == RUN_BYTES else _SMALL_BLOCK_BYTES


def _sorted(batches: list[pa.RecordBatch], order: Callable[[pa.RecordBatch], pa.Array]) -> Iterator[pa.RecordBatch]:
    """Yield the rows in order; ``batches`` is emptied."""
    import pyarrow as pa

    table = pa.Table.from_batches(batches)
    schema, num_rows, row_bytes = table.schema, table.num_rows, max(1, table.nbytes // max(1, table.num_rows))
    batches.clear()
    columns: list[Any] = table.columns
    del table
    for at, chunks in enumerate(columns):
        # one after the other, so that only one column exists twice
        columns[at] = _joined(chunks)
    rows = order(pa.record_batch([columns[schema.get_field_index(name)] for name in ORDER], names=list(ORDER)))
    step = max(1, _TAKEN_BYTES // row_bytes)
    for first in range(0, num_rows, step):
        some = rows.slice(first, step)
        yield pa.record_batch(
            [c.slice(0, len(some)) if c.null_count == num_rows else c.take(some) for c in columns], schema=schema
        )


def _order(keys: pa.RecordBatch) -> pa.Array:
    """Return the indices of the rows in order."""
    import pyarrow.compute as pc

    # a record batch is sorted by radix, column by column; a table would be compared row by row
    return pc.sort_indices(keys, sort_keys=[(name, "ascending") for name in ORDER])


def _order_by_time_first(keys: pa.RecordBatch) -> pa.Array:
    """Return the same as :func:`_order`, in less than half the time if most times are different."""
    import numpy as np
    import pyarrow as pa

    times = keys.column("modificationTime").to_numpy()
    rows = np.argsort(times)
    times = times[rows]
    is_next = times[1:] == times[:-1]
    is_tied = np.append(is_next, False) | np.append(False, is_next)
    if np.count_nonzero(is_tied) > len(rows) // 2:
        return _order(keys)
    tied = rows[is_tied]
    rows[is_tied] = tied[_order(keys.take(pa.array(tied))).to_numpy()]
    return pa.array(rows)


def _joined(column: pa.ChunkedArray) -> pa.Array:
    """Return ``column`` as one array; if all its values are null, as of deletion vectors, nothing is copied."""
    import pyarrow as pa

    if column.null_count == len(column):
        return pa.nulls(len(column), column.type)
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)


def _key(batch: pa.RecordBatch, row: int) -> _Key:
    # Python compares strings by code point, which is the order of their UTF-8 bytes
    time, path, vector = (batch.column(name)[row].as_py() for name in ORDER)
    return (time, path, vector)


def _rows_through(batch: pa.RecordBatch, bound: _Key) -> int:
    """Return how many rows of the sorted ``batch`` are not greater than ``bound``."""
    times = batch.column("modificationTime")
    # searching the buffer itself creates no Python object per row; only equal times need the other columns
    view = memoryview(times.buffers()[1]).cast("q")[times.offset : times.offset + len(times)]
    first = bisect_left(view, bound[0])
    after = bisect_right(view, bound[0], first)
    return bisect_right(range(after), bound, first, key=lambda row: _key(batch, row))


@dataclass(frozen=True, slots=True)
class _Block:
    index: int
    run: int
    last: _Key


class _Spill:
    """Sorted runs in one Arrow IPC file: a run is a sequence of consecutive blocks."""

    def __init__(self, schema: pa.Schema) -> None:
        import pyarrow as pa

        self._scratch = ScratchFile("fds-order-")
        self._blocks: list[_Block] = []
        self._runs = 0
        options = pa.ipc.IpcWriteOptions(use_threads=False)
        self._writer = pa.ipc.new_file(self._scratch.sink, schema, options=options)

    def write(self, run: Iterable[pa.RecordBatch], block_bytes: int) -> None:
        """Write the next run in blocks of about ``block_bytes``."""
        for rows in run:
            num_rows = max(1, rows.num_rows * block_bytes // max(rows.nbytes, 1))
            for first in range(0, rows.num_rows, num_rows):
                block = rows.slice(first, num_rows)
                with scratch_errors():
                    self._writer.write_batch(block)
                self._blocks.append(_Block(len(self._blocks), self._runs, _key(block, block.num_rows - 1)))
        self._runs += 1

    def merged(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows of all runs in order."""
        import pyarrow as pa

        with scratch_errors():
            self._writer.close()
        reader = pa.ipc.open_file(self._scratch.source(), options=pa.ipc.IpcReadOptions(use_threads=False))
        blocks: list[list[_Block]] = [[] for _ in range(self._runs)]
        for block in self._blocks:
            blocks[block.run].append(block)
        runs = [_Run(reader, some) for some in blocks]
        # the last keys of all blocks divide the key space into steps of a known number of rows
        bounds = sorted(block.last for block in self._blocks)
        per_step = max(_BLOCKS_PER_STEP, self._runs // _RUNS_PER_BLOCK)
        steps = bounds[per_step - 1 :: per_step]
        if bounds and (not steps or steps[-1] != bounds[-1]):
            steps.append(bounds[-1])
        for bound in steps:
            parts = [part for run in runs for part in run.take_through(bound)]
            if parts:
                yield from _sorted(parts, _order)

    def close(self) -> None:
        """Remove the runs."""
        self._scratch.close()


class _Run:
    """Reads one sorted run forward."""

    def __init__(self, reader: pa.RecordBatchFileReader, blocks: Sequence[_Block]) -> None:
        self._reader = reader
        self._blocks = blocks
        self._next = 0
        self._rest: pa.RecordBatch | None = None

    def take_through(self, bound: _Key) -> Iterator[pa.RecordBatch]:
        """Yield the rest of the run up to ``bound`` (inclusive)."""
        while self._next < len(self._blocks):
            block = self._blocks[self._next]
            batch = self._rest if self._rest is not None else self._reader.get_batch(block.index)
            if block.last <= bound:
                self._rest = None
                self._next += 1
                yield batch
                continue
            rows = _rows_through(batch, bound)
            self._rest = batch.slice(rows)
            if rows:
                yield batch.slice(0, rows)
            return
