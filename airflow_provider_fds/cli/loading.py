"""What ``fds run`` shows while it loads: bars on a terminal, plain lines otherwise. All of it is on stderr."""

from __future__ import annotations

import io
import logging
import re
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from airflow_provider_fds.cli.terminal import rich_console

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

logger = logging.getLogger(__name__)

#: Lines of the driver that are shown at once: the progress of a long batch, and the address of its UI.
_WORTH_SHOWING: Final = re.compile(
    r"FDS (stream \S+: )?batch \d+ \(\d+ of \d+, |FDS fleet: |FDS Spark UI: |Spark is fetching "
)


def is_worth_showing(text: str) -> bool:
    """Whether a line of the driver is shown at once."""
    return _WORTH_SHOWING.match(text) is not None


class Loading:
    """Shows the progress of a run's applications.

    Args:
        is_shown: Whether anything is shown; not with ``--output json``.
    """

    def __init__(self, *, is_shown: bool) -> None:
        self._is_shown = is_shown
        self._bar: Any = None
        self._task: Any = None

    @contextmanager
    def application(self, plan: str, num_batches: int) -> Iterator[None]:
        """Show one Spark application while the body runs.

        Args:
            plan: What it loads, in words.
            num_batches: Number of its batches; 0 for one that closes earlier epochs.
        """
        console = rich_console() if self._is_shown else None
        if self._is_shown:
            self._say(console, plan)
        if console is None:
            yield
            return
        from rich import progress

        columns = (
            progress.SpinnerColumn(),
            progress.TextColumn("{task.description}"),
            progress.BarColumn(),
            progress.MofNCompleteColumn(),
            progress.TimeElapsedColumn(),
            progress.TextColumn("left"),
            progress.TimeRemainingColumn(),
        )
        # stdout belongs to the batches, and may be redirected
        bar = progress.Progress(*columns, console=console, transient=True, redirect_stdout=False, redirect_stderr=False)
        with bar:
            self._bar = bar
            self._task = bar.add_task("batches" if num_batches else "closing earlier epochs", total=num_batches or None)
            try:
                yield
            finally:
                self._bar = None

    def line(self, text: str) -> None:
        """Show a line of the Spark driver, if it is one of those."""
        if self._is_shown and is_worth_showing(text):
            self._say(None if self._bar is None else self._bar.console, text.removeprefix("FDS "))

    def batch(self, text: str) -> bool:
        """Show a committed batch; returns whether it still has to be printed."""
        if self._bar is None:
            return True
        self._bar.advance(self._task)
        if not sys.stdout.isatty():
            return True
        self._say(self._bar.console, text)
        return False

    def _say(self, console: Any, text: str) -> None:
        if console is None:
            print(text, file=sys.stderr, flush=True)
        else:
            console.print(text, markup=False, highlight=False, soft_wrap=True)


class LogOfJob(io.TextIOBase):
    """Redirects what a job prints for people to the log, as when the job runs in a separate process.

    Args:
        line: Called with each text.
    """

    def __init__(self, line: Callable[[str], object]) -> None:
        self._line = line

    def write(self, text: str) -> int:
        """Take a text; blank ones are left out."""
        if text.strip():
            self._line(text.rstrip())
            logger.info("%s", text.rstrip())
        return len(text)
