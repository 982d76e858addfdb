"""Sort more rows than fit in memory: sorted runs on disk, merged a few thousand rows at a time.

The order is that of Delta's streaming source for an initial snapshot (``DeltaSourceSnapshot``): modification time,
then path by its UTF-8 bytes. The deletion vector id comes last; it decides only in a table that lists a path twice.
No step touches single rows in Python.
"""

from __future__ import annotations

import tempfile
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa

#: Columns to sort by, ascending. None of them may hold a null.
ORDER: Final = ("modificationTime", "path", "vectorId")

#: Rows held for one sorted run, in bytes as Arrow has them; sorting needs about three times that for a moment.
RUN_BYTES: Final = 16 << 20

#: Size of the pieces of a run that the merge holds in memory, one of every run.
BLOCK_BYTES: Final = 256 << 10

#: Pieces merged in one go.
_BLOCKS_PER_STEP: Final = 32

_Key: TypeAlias = tuple[int, str, str]


def in_order(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of ``batches`` by :data:`ORDER`, in batches of another size.

    Memory stays at a few times :data:`RUN_BYTES` plus one block for every run, whatever comes in; the rest lies in a
    temporary folder, as large as the rows, until the iterator is exhausted or closed.

    Args:
        batches: The rows, in any order, with the columns of :data:`ORDER`; all of one schema.
    """
    with tempfile.TemporaryDirectory(prefix="fds-order-") as folder:
        spill = _Spill(Path(folder) / "runs.arrow")
        run: list[pa.RecordBatch] = []
        size = 0
        for batch in batches:
            run.append(batch)
            size += batch.nbytes
            if size >= RUN_BYTES:
                spill.write(_sorted(run))
                run, size = [], 0
        if spill.is_empty:
            # all of it fits: no need for the disk
            if any(batch.num_rows for batch in run):
                yield _sorted(run)
            return
        if run:
            spill.write(_sorted(run))
            run = []
        yield from spill.merged()


def _sorted(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    import pyarrow as pa
    import pyarrow.compute as pc

    whole = pa.concat_batches(batches)
    batches.clear()
    # a record batch is sorted by radix, column after column; a table would be compared row by row
    keys = pa.record_batch([whole.column(name) for name in ORDER], names=list(ORDER))
    return whole.take(pc.sort_indices(keys, sort_keys=[(name, "ascending") for name in ORDER]))


def _key(batch: pa.RecordBatch, row: int) -> _Key:
    # Python compares strings by code point, which is the order of their UTF-8 bytes
    time, path, vector = (batch.column(name)[row].as_py() for name in ORDER)
    return (time, path, vector)


def _rows_through(batch: pa.RecordBatch, bound: _Key) -> int:
    """Return how many rows of the sorted ``batch`` are not above ``bound``."""
    times = batch.column("modificationTime")
    # searching the buffer itself makes no Python object per row; only ties of the time need the other columns
    view = memoryview(times.buffers()[1]).cast("q")[times.offset : times.offset + len(times)]
    first = bisect_left(view, bound[0])
    behind = bisect_right(view, bound[0], first)
    return bisect_right(range(behind), bound, first, key=lambda row: _key(batch, row))


@dataclass(frozen=True, slots=True)
class _Block:
    index: int
    run: int
    last: _Key


class _Spill:
    """Sorted runs in one Arrow IPC file: a run is a stretch of consecutive blocks."""

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
            # the last keys of all blocks cut the key space into steps of a known number of rows
            bounds = sorted(block.last for block in self._blocks)
            steps = bounds[_BLOCKS_PER_STEP - 1 :: _BLOCKS_PER_STEP]
            if not steps or steps[-1] != bounds[-1]:
                steps.append(bounds[-1])
            for bound in steps:
                parts = [part for run in runs for part in run.take_through(bound)]
                if parts:
                    yield _sorted(parts)


class _Run:
    """Reads one sorted run forward."""

    def __init__(self, reader: pa.RecordBatchFileReader, blocks: list[_Block]) -> None:
        self._reader = reader
        self._blocks = blocks
        self._next = 0
        self._rest: pa.RecordBatch | None = None

    def take_through(self, bound: _Key) -> Iterator[pa.RecordBatch]:
        """Yield what is left of the run up to ``bound`` (inclusive)."""
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
