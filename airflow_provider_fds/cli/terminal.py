"""Output for terminals: wrapped lines, and what rich draws."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import textwrap
import threading
import time
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Self

from airflow_provider_fds.durations import format_duration

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: A terminal narrower than this breaks lines by itself.
_NARROWEST: Final = 40

#: Control characters other than tab and newline, by their codes.
_CONTROLS: Final = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0)) if code not in (0x09, 0x0A)}

#: Seconds between two lines about work that takes long.
_TELL_SECONDS: Final = 30.0

#: After this many seconds without output a terminal has a spinner.
_SPIN_SECONDS: Final = 1.0
_LOOK_SECONDS: Final = 0.2


def is_terminal() -> bool:
    """Whether stdout is a terminal."""
    return sys.stdout.isatty()


@contextmanager
def leaving_on_sigterm() -> Iterator[None]:
    """Turn SIGTERM into an exception while the body runs, so that it tidies up as on Ctrl-C."""
    with calling_on_sigterm(lambda: sys.exit(128 + signal.SIGTERM)):
        yield


@contextmanager
def calling_on_sigterm(act: Callable[[], object] | None) -> Iterator[None]:
    """Let SIGTERM call a function while the body runs; ``None``: leave it as it is."""
    if act is None or threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, lambda _number, _frame: act())
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def fitted(text: str, indent: int) -> str:
    """Return a text whose lines are at most as wide as the terminal; a pipe gets them whole.

    Characters that command a terminal are shown by their codes: people and other programs wrote parts of the text.

    Args:
        text: May have several lines.
        indent: Number of blanks before every line but the first.
    """
    width = shutil.get_terminal_size().columns if is_terminal() else 0
    first, *rest = text.translate(_CONTROLS).splitlines() or [""]
    lines = [first, *(" " * indent + line for line in rest)]
    if width >= _NARROWEST:
        blanks = " " * min(indent, width // 2)
        lines = [
            part
            for line in lines
            for part in textwrap.wrap(line, width, subsequent_indent=blanks, break_on_hyphens=False) or [""]
        ]
    return "\n".join(lines)


def rich_console(*, on_stdout: bool = False) -> Any:
    """Return a console of rich on stderr, or on stdout, ``None`` if that is not a terminal or rich is missing."""
    stream = sys.stdout if on_stdout else sys.stderr
    if not stream.isatty() or os.environ.get("TERM") == "dumb":
        return None
    try:
        from rich.console import Console
    except ImportError:
        return None
    return Console(stderr=not on_stdout)


class Waiting:
    """Shows on stderr that work is in progress while the context is open: a spinner on a terminal, lines otherwise.

    Args:
        what: The work, such as ``planning``.
        is_shown: Whether anything is shown.
        tell_seconds: Seconds between two lines.
    """

    def __init__(self, what: str, *, is_shown: bool = True, tell_seconds: float = _TELL_SECONDS) -> None:
        self._what = what
        self._is_shown = is_shown
        self._tell_seconds = tell_seconds
        self._console = rich_console() if is_shown else None
        self._bar: Any = None
        self._began = self._said = time.monotonic()
        self._done = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        if self._is_shown:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        if self._is_shown:
            self._thread.join()
        self.pause()

    def pause(self) -> None:
        """Make room for a line on stdout, and wait again before anything is shown."""
        with self._lock:
            self._said = time.monotonic()
            if self._bar is not None:
                self._bar.stop()
                self._bar = None

    def _run(self) -> None:
        while not self._done.wait(self._tell_seconds if self._console is None else _LOOK_SECONDS):
            with self._lock:
                now = time.monotonic()
                if self._console is None:
                    if now - self._said >= self._tell_seconds:
                        took = format_duration(timedelta(seconds=now - self._began))
                        print(f"fds: {self._what}, {took} so far", file=sys.stderr, flush=True)
                elif self._bar is None and now - self._said >= _SPIN_SECONDS and not self._done.is_set():
                    self._bar = self._spinner()

    def _spinner(self) -> Any:
        from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
        bar = Progress(*columns, console=self._console, transient=True, redirect_stdout=False, redirect_stderr=False)
        bar.add_task(self._what, total=None)
        bar.start()
        return bar
