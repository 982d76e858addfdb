"""A data file that blocks its readers."""

from __future__ import annotations

import os
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


class StuckFile:
    """A pipe instead of the file's checksums, which Hadoop reads before anything else of the file."""

    def __init__(self, path: Path) -> None:
        self._path = path.with_name(f".{path.name}.crc")
        self._away, self._pipe = path.with_name(f"{path.name}.away"), path.with_name(f"{path.name}.pipe")
        if self._path.exists():
            self._path.rename(self._away)
        os.mkfifo(self._path)
        self._opened: list[int] = []

    def wait_for_reader(self, is_over: Callable[[], bool] = lambda: False) -> None:
        """Wait until someone reads the file; later readers find the file as it was.

        Fail if nobody has read it and ``is_over`` says that nobody will.
        """
        pause = threading.Event()
        while not self._opened:
            try:
                # refused while nobody has the other end open; the reader there then waits for data that is never
                # written
                self._opened.append(os.open(self._path, os.O_WRONLY | os.O_NONBLOCK))
            except OSError:
                assert not is_over(), f"nobody has read {self._path}"
                pause.wait(0.05)
        self._path.rename(self._pipe)
        if self._away.exists():
            self._away.rename(self._path)

    def release(self) -> None:
        """Let the reader continue: it reads the end of the pipe, and fails."""
        while self._opened:
            os.close(self._opened.pop())


@contextmanager
def stuck_file(path: Path) -> Iterator[StuckFile]:
    """Block readers that use Hadoop until released, at the latest at the end of the context."""
    stuck = StuckFile(path)
    try:
        yield stuck
    finally:
        stuck.release()
