"""What a terminal gets, and a pipe does not: lines that fit, and what rich draws."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
import threading
import time
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from airflow_provider_fds.durations import format_duration

if TYPE_CHECKING:
    from collections.abc import Iterator

#: A terminal narrower than this breaks lines by itself.
_NARROWEST: Final = 40

#: Seconds between two lines about work that takes long.
_TELL_SECONDS: Final = 30.0


def is_terminal() -> bool:
    """Whether stdout is a terminal."""
    return sys.stdout.isatty()


def fitted(text: str, indent: int) -> str:
    """Return a text whose lines are at most as wide as the terminal; a pipe gets it as it is.

    Args:
        text: May have several lines.
        indent: Number of blanks before every line but the first.
    """
    width = shutil.get_terminal_size().columns if is_terminal() else 0
    first, *rest = text.splitlines() or [""]
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


@contextmanager
def waiting(what: str, *, is_shown: bool = True, tell_seconds: float = _TELL_SECONDS) -> Iterator[None]:
    """Show on stderr that ``what`` takes long while the body runs: a spinner on a terminal, lines otherwise.

    Args:
        what: What takes long, such as ``planning``.
        is_shown: Whether anything is shown.
        tell_seconds: Seconds between two lines.
    """
    console = rich_console() if is_shown else None
    if not is_shown:
        yield
    elif console is not None:
        from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
        with Progress(*columns, console=console, transient=True, redirect_stdout=False, redirect_stderr=False) as bar:
            bar.add_task(what, total=None)
            yield
    else:
        done = threading.Event()
        began = time.monotonic()

        def tell() -> None:
            while not done.wait(tell_seconds):
                took = format_duration(timedelta(seconds=time.monotonic() - began))
                print(f"fds: {what}, {took} so far", file=sys.stderr, flush=True)

        thread = threading.Thread(target=tell, daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()


__all__ = ["fitted", "is_terminal", "rich_console", "waiting"]
