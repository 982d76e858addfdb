"""Sorts more rows than fit in memory: sorted runs on disk, merged a few thousand rows at a time.

The order is that of Delta's streaming source for an initial snapshot (``DeltaSourceSnapshot``): modification time, then
path by its UTF-8 bytes. The deletion vector id comes last; it only matters in a table that lists a path twice. No step
handles single rows in Python.
"""

from __future__ import annotations

import tempfile
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import pyarrow as pa

#: Columns to sort by, ascending. None of them may contain a null.
ORDER: Final = ("modificationTime", "path", "vectorId")

#: Bytes (in Arrow's representation) held for one sorted run; sorting briefly needs about three times as much.
RUN_BYTES: Final = 12 << 20

#: Size of the blocks of a run that the merge holds in memory, one per run.
BLOCK_BYTES: Final = 256 << 10

#: Number of blocks merged in one step.
_BLOCKS_PER_STEP: Final = 32

_Key: TypeAlias = tuple[int, str, str]


def in_order(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of ``batches`` by :data:`ORDER`, in batches of another size.

    Memory stays at a few times :data:`RUN_BYTES` plus one block per run, whatever the input. The rest is in a temporary
    folder, as large as the rows, until the iterator is exhausted or closed.

    Args:
        batches: The rows, in any order, with the columns of :data:`ORDER`; all with one schema.
    """
    with tempfile.TemporaryDirectory(prefix="fds-order-") as folder:
        spill = _Spill(Path(folder) / "runs.arrow")
        run: list[pa.RecordBatch] = []
        size = 0
        for batch in batches:
            run.append(batch)
            size += batch.nbytes
            if size >= RUN_BYTES:
                spill.write(_sorted(run, _order_by_time_first))
                run, size = [], 0
        if spill.is_empty:
            # everything fits in memory
            if any(batch.num_rows for batch in run):
                yield _sorted(run, _order_by_time_first)
            return
        if run:
            spill.write(_sorted(run, _order_by_time_first))
            run = []
        yield from spill.merged()


def _sorted(batches: list[pa.RecordBatch], order: Callable[[pa.RecordBatch], pa.Array]) -> pa.RecordBatch:
    import pyarrow as pa

    schema = batches[0].schema
    whole = pa.record_batch([_joined([b.column(name) for b in batches]) for name in schema.names], schema=schema)
    batches.clear()
    rows = order(pa.record_batch([whole.column(name) for name in ORDER], names=list(ORDER)))
    return pa.record_batch([c if c.null_count == len(c) else c.take(rows) for c in whole.columns], schema=schema)


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


def _joined(arrays: list[pa.Array]) -> pa.Array:
    """Return ``arrays`` as one; if all values are null, as in a table without deletion vectors, nothing is copied."""
    import pyarrow as pa

    rows = sum(len(array) for array in arrays)
    if sum(array.null_count for array in arrays) == rows:
        return pa.nulls(rows, arrays[0].type)
    return pa.concat_arrays(arrays)


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

    def __init__(self, path: Path) -> None:
        self._path = path
        self._blocks: list[_Block] = []
        self._runs = 0
        self._writer: pa.RecordBatchFileWriter | None = None

    @property
    def is_empty(self) -> bool:
        return not self._blocks

    def write(self, run: pa.RecordBatch) -> None:
        import pyarrow as pa

        if not run.num_rows:
            return
        if self._writer is None:
            options = pa.ipc.IpcWriteOptions(use_threads=False)
            self._writer = pa.ipc.new_file(str(self._path), run.schema, options=options)
        rows = max(1, run.num_rows * BLOCK_BYTES // max(run.nbytes, 1))
        for first in range(0, run.num_rows, rows):
            block = run.slice(first, rows)
            self._writer.write_batch(block)
            self._blocks.append(_Block(len(self._blocks), self._runs, _key(block, block.num_rows - 1)))
        self._runs += 1

    def merged(self) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        if self._writer is None:
            return
        self._writer.close()
        with pa.OSFile(str(self._path), "rb") as source:
            reader = pa.ipc.open_file(source, options=pa.ipc.IpcReadOptions(use_threads=False))
            runs = [_Run(reader, [b for b in self._blocks if b.run == run]) for run in range(self._runs)]
            # the last keys of all blocks divide the key space into steps of a known number of rows
            bounds = sorted(block.last for block in self._blocks)
            steps = bounds[_BLOCKS_PER_STEP - 1 :: _BLOCKS_PER_STEP]
            if not steps or steps[-1] != bounds[-1]:
                steps.append(bounds[-1])
            for bound in steps:
                parts = [part for run in runs for part in run.take_through(bound)]
                if parts:
                    yield _sorted(parts, _order)


class _Run:
    """Reads one sorted run forward."""

    def __init__(self, reader: pa.RecordBatchFileReader, blocks: list[_Block]) -> None:
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
