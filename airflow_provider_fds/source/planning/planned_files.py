"""The files of a batch, however many, in a bounded amount of memory."""

from __future__ import annotations

import os
import tempfile
import weakref
from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, overload

import msgspec

from airflow_provider_fds.delta.reader.scratch import scratch_errors
from airflow_provider_fds.source.planned import ChangedFile, PlannedFile

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Number of files kept in memory, with their statistics about 1.3 kB each; more go to a temporary file.
KEPT_FILES: Final = 10_000

_CHUNK_FILES: Final = 1_000


class _PlannedChange(PlannedFile, frozen=True, gc=False):
    """A file of the change data feed, as it is read back."""

    add: ChangedFile


_ENCODER: Final = msgspec.msgpack.Encoder()
_FILES: Final = msgspec.msgpack.Decoder(list[PlannedFile])
_CHANGES: Final = msgspec.msgpack.Decoder(list[_PlannedChange])


class FileCollector:
    """Collects the files of a batch in their order."""

    __slots__ = ("_kept", "_spill")

    def __init__(self) -> None:
        self._kept: list[PlannedFile] = []
        self._spill: _Spill | None = None

    def __bool__(self) -> bool:
        return bool(self._kept) or self._spill is not None

    def append(self, file: PlannedFile) -> None:
        """Add one file. A batch has either files of a table, or files of its change data feed."""
        self._kept.append(file)
        if len(self._kept) == KEPT_FILES:
            if self._spill is None:
                self._spill = _Spill(_CHANGES if isinstance(file.add, ChangedFile) else _FILES)
            self._spill.write(self._kept)
            self._kept.clear()

    def extend(self, files: list[PlannedFile]) -> None:
        """Add several files."""
        if len(self._kept) + len(files) < KEPT_FILES:
            self._kept += files
            return
        for file in files:
            self.append(file)

    def collected(self) -> Sequence[PlannedFile]:
        """Return the collected files. None may be added afterwards."""
        return tuple(self._kept) if self._spill is None else _SpilledFiles(self._spill, tuple(self._kept))


class _Spill:
    """Files in an unnamed temporary file, which disappears however this process ends."""

    def __init__(self, decoder: msgspec.msgpack.Decoder[list[Any]]) -> None:
        self.num_files = 0
        self._decoder = decoder
        self._chunks: list[tuple[int, int]] = []
        with scratch_errors():
            self._file = tempfile.TemporaryFile(prefix="fds-plan-")  # noqa: SIM115 - read as long as a batch has it
        weakref.finalize(self, self._file.close)

    def write(self, files: list[PlannedFile]) -> None:
        for start in range(0, len(files), _CHUNK_FILES):
            data = _ENCODER.encode(files[start : start + _CHUNK_FILES])
            self._chunks.append((self._file.tell(), len(data)))
            with scratch_errors(self._file):
                self._file.write(data)
                self._file.flush()
        self.num_files += len(files)

    def __iter__(self) -> Iterator[PlannedFile]:
        for offset, size in self._chunks:
            yield from self._decoder.decode(os.pread(self._file.fileno(), size, offset))


class _SpilledFiles(Sequence[PlannedFile]):
    """Files in a temporary file, except the last ones. Made for iteration; access by index is slow."""

    def __init__(self, spill: _Spill, rest: tuple[PlannedFile, ...]) -> None:
        self._spill = spill
        self._rest = rest

    def __len__(self) -> int:
        return self._spill.num_files + len(self._rest)

    def __iter__(self) -> Iterator[PlannedFile]:
        yield from self._spill
        yield from self._rest

    @overload
    def __getitem__(self, index: int) -> PlannedFile: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[PlannedFile, ...]: ...
    def __getitem__(self, index: int | slice) -> PlannedFile | tuple[PlannedFile, ...]:
        if isinstance(index, slice):
            return tuple(self)[index]
        place = range(len(self))[index]
        return next(islice(self, place, None))
