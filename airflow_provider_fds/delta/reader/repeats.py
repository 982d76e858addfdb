"""Counts logical files that a log lists twice only once.

A checkpoint with a (path, deletion vector) in two rows or two sidecars is damaged, but Delta reads it: its replay keeps
one ``add`` for each pair (``InMemoryLogReplay`` of delta-spark). The rows of a snapshot are too many for a set of their
names, so only an eight-byte hash of each path is kept, on disk; only rows with equal hashes are compared.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final

from airflow_provider_fds.delta.log_checkpoint.add_rows import text_bounds
from airflow_provider_fds.delta.reader.scratch import ScratchFile

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa

_WORD: Final = 8
#: The words of a path that form its hash, by their distance from its end, where names differ. Names that differ only
#: elsewhere have equal hashes and are compared.
_FROM_END: Final = (12, 28, 44)
_FACTOR: Final = 0x9E3779B97F4A7C15
_SHIFT: Final = 29
#: Hashes kept in memory, as bytes; those of a table with more than a million files pass through a temporary file.
_KEPT_BYTES: Final = 8 << 20


class Repeats:
    """Finds rows with equal path and ``vectorId``: :meth:`watched` sees all rows, then :meth:`once` drops repeats."""

    def __init__(self) -> None:
        self._met: Any = ()
        self._seen: set[tuple[str, str]] = set()

    def watched(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield all rows unchanged."""
        kept = bytearray()
        with ExitStack() as stack:
            scratch: ScratchFile | None = None
            for batch in batches:
                kept += _numbers(batch.column("path")).data
                if len(kept) > _KEPT_BYTES:
                    scratch = scratch or stack.enter_context(ScratchFile("fds-repeats-"))
                    scratch.write(kept)
                    kept.clear()
                yield batch
            self._met = _met(kept if scratch is None else _all(scratch, kept))

    def once(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows without those that occurred before."""
        import pyarrow as pa

        if not len(self._met):
            return batch
        keep = [True] * batch.num_rows
        for row, number in enumerate(_numbers(batch.column("path"))):
            if number in self._met:
                key = (batch.column("path")[row].as_py(), batch.column("vectorId")[row].as_py())
                keep[row] = key not in self._seen
                self._seen.add(key)
        return batch if all(keep) else batch.filter(pa.array(keep))


def _all(scratch: ScratchFile, rest: bytearray) -> bytearray:
    """Return the hashes in a file, and the rest."""
    import pyarrow as pa

    # the allocator keeps what it took for rows in the meantime
    pa.default_memory_pool().release_unused()
    return scratch.read(rest)


def _met(found: bytearray) -> frozenset[int]:
    """Return the hashes that occur more than once; leaves ``found`` sorted."""
    import numpy as np

    numbers = np.frombuffer(found, np.uint64)
    numbers.sort()
    return frozenset(numbers[1:][numbers[1:] == numbers[:-1]].tolist())


def _numbers(paths: pa.StringArray) -> Any:
    """Return a hash for each path."""
    import numpy as np

    count = len(paths)
    bounds, data = text_bounds(paths)
    starts, ends = bounds[:-1], bounds[1:]
    lengths = ends - starts
    found = lengths.astype(np.uint64)
    num_words = (0 if data is None else len(data)) - _WORD + 1
    if num_words > 0:
        words = np.ndarray((num_words,), dtype=np.uint64, buffer=data, strides=(1,))
        is_short = count > 0 and int(lengths.min()) < _FROM_END[-1]
        for distance in _FROM_END:
            at = ends - distance
            if is_short:
                # for a shorter path, its first word; very short ones are overwritten below
                at = np.minimum(np.maximum(at, starts), num_words - 1)
            found ^= words[at]
            found *= np.uint64(_FACTOR)
            found ^= found >> np.uint64(_SHIFT)
    for row in np.flatnonzero(lengths < _WORD):
        path = paths[int(row)].as_py().encode()
        found[row] = int.from_bytes(path.ljust(_WORD, b"\xff"), "little")
    return found
