"""Files in the local temporary folder: those without a name disappear however this process ends."""

from __future__ import annotations

import os
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Self

from airflow_provider_fds.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Iterator


class ScratchFile:
    """A file for Arrow to write, and for this process to read back.

    Args:
        prefix: What its name begins with, during the moment in which it has one.

    Attributes:
        sink: Arrow's own file, opened for writing: a file object of Python costs a call for each of many small writes.
        file: The same file, opened for reading.
    """

    def __init__(self, prefix: str) -> None:
        import pyarrow as pa

        self._sources: list[Any] = []
        with scratch_errors():
            number, name = tempfile.mkstemp(prefix=prefix)
            self.file = os.fdopen(number, "rb")
            try:
                self.sink: Any = pa.OSFile(name, "wb")
            except BaseException:
                self.file.close()
                raise
            finally:
                Path(name).unlink()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def write(self, data: bytearray) -> None:
        """Write all of ``data``."""
        with scratch_errors():
            self.sink.write(data)

    def source(self) -> Any:
        """Return Arrow's own file to read what was written so far: its blocks are in Arrow's memory pool, too."""
        import pyarrow as pa

        self._sources.append(pa.OSFile(f"/dev/fd/{self.file.fileno()}", "rb"))
        return self._sources[-1]

    def read(self, rest: bytearray) -> bytearray:
        """Return everything that was written, and ``rest``."""
        size = self.sink.tell()
        found = bytearray(size + len(rest))
        self.file.readinto(memoryview(found)[:size])
        found[size:] = rest
        return found

    def close(self) -> None:
        """Remove the file."""
        self.file.close()
        self.sink.close()
        # a thread of Arrow may have one for a moment after the last read
        for source in self._sources:
            source.close()


@contextmanager
def scratch_errors(file: IO[bytes] | None = None) -> Iterator[None]:
    """Raise ``StorageError``, which says what to do, if the temporary folder is full or cannot be written to.

    Args:
        file: Closed then, because closing it later would try to write the rest of its buffer.
    """
    try:
        yield
    except OSError as error:
        if file is not None:
            with suppress(OSError):
                file.close()
        # without any folder that can be written to, Python names those that it has tried
        folder = "" if tempfile.tempdir is None else f" {tempfile.tempdir}"
        # Arrow's own text is long
        why = os.strerror(error.errno) if error.errno and folder else error
        raise StorageError(
            f"cannot write to the temporary folder{folder}: {why}. The files of an initial snapshot "
            "or of a large batch are listed there, with about 1.2 kB each. Free space there, or set TMPDIR to a folder "
            "with more"
        ) from error


@contextmanager
def scratch_folder(prefix: str) -> Iterator[str]:
    """Yield the path of a new folder in the temporary folder, and remove it afterwards.

    Raises:
        StorageError: It cannot be created.
    """
    with scratch_errors():
        folder = tempfile.TemporaryDirectory(prefix=prefix)
    with folder as path:
        yield path
