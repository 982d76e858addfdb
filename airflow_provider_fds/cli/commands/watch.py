"""``fds status --watch``: all streams of a staging folder, live on the terminal."""

from __future__ import annotations

import os
import select
import sys
import time
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, Final

from airflow_provider_fds.cli import arguments as common
from airflow_provider_fds.cli.commands.monitor import ChangedLines
from airflow_provider_fds.cli.stream_table import by_urgency, rich_table
from airflow_provider_fds.cli.terminal import leaving_on_sigterm, rich_console
from airflow_provider_fds.durations import format_duration
from airflow_provider_fds.errors import EXIT_OK, FdsError
from airflow_provider_fds.sizes import format_count

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator

    from airflow_provider_fds.stream.monitoring.status import StreamStatus

#: Seconds between two checks of the keyboard.
_KEY_SECONDS: Final = 0.2
_MOST_KEYS: Final = 1024
#: Lines of the terminal that are not rows of the table: title, header, what is left out.
_OTHER_LINES: Final = 4


def watch(arguments: argparse.Namespace) -> int:
    """Perform ``fds status --watch``: first the streams that need attention, then those that lag most."""
    from airflow_provider_fds.ledger.owner import Owner
    from airflow_provider_fds.stream.monitoring.monitor import StreamMonitor

    interval = common.interval_seconds(arguments)
    context = common.context_of(arguments, owner=Owner.of_plan(arguments.deployment))
    rounds = Rounds(StreamMonitor(lambda: context, places_for=partial(common.places_for, arguments)).poll, interval)
    console = rich_console(on_stdout=True)
    try:
        if console is None:
            _print_changes(rounds)
        else:
            _draw(console, rounds, arguments.staging)
    except KeyboardInterrupt:
        pass
    return EXIT_OK


class Rounds:
    """Polls all streams again and again in a thread, so that keys work while a store is slow.

    Args:
        poll: Returns the statuses.
        interval_seconds: From the beginning of a round to that of the next one.
    """

    def __init__(self, poll: Callable[[], list[StreamStatus]], interval_seconds: float) -> None:
        self._poll = poll
        self._interval = interval_seconds
        self._stopped = Event()
        self.statuses: list[StreamStatus] | None = None
        self.number = 0
        self.took = 0.0
        self.failed: FdsError | None = None
        self.fatal: BaseException | None = None

    def start(self) -> None:
        """Begin to poll."""
        Thread(target=self._run, name="fds-top", daemon=True).start()

    def stop(self) -> None:
        """Poll no more."""
        self._stopped.set()

    def _run(self) -> None:
        while not self._stopped.is_set():
            began = time.monotonic()
            try:
                self.statuses, self.failed = self._poll(), None
            except FdsError as problem:
                if not problem.retryable:
                    self.fatal = problem
                    return
                self.failed = problem
            except BaseException as error:  # noqa: BLE001 - the thread of the terminal raises it
                self.fatal = error
                return
            self.took = time.monotonic() - began
            self.number += 1
            self._stopped.wait(max(0.0, self._interval - self.took))


def _print_changes(rounds: Rounds) -> None:
    lines, seen = ChangedLines("text"), 0
    rounds.start()
    try:
        while rounds.fatal is None:
            if rounds.number > seen:
                seen = rounds.number
                if rounds.failed is not None:
                    print(f"fds status: this round failed: {rounds.failed}", file=sys.stderr, flush=True)
                elif rounds.statuses is not None:
                    lines.statuses(rounds.statuses)
            time.sleep(_KEY_SECONDS)
        raise rounds.fatal
    finally:
        rounds.stop()


def _draw(console: Any, rounds: Rounds, staging: str) -> None:
    from rich.live import Live

    with leaving_on_sigterm(), _keys() as pressed, Live(console=console, screen=True, auto_refresh=False) as live:
        rounds.start()
        shown = None
        try:
            while rounds.fatal is None:
                state = (rounds.number, console.size)
                if state != shown:
                    shown = state
                    live.update(_screen(rounds, staging, console.size), refresh=True)
                if "q" in pressed().lower():
                    return
            raise rounds.fatal
        finally:
            rounds.stop()


def _screen(rounds: Rounds, staging: str, size: tuple[int, int]) -> Any:
    """Return the screen: a title, as many streams as fit, and the number of those that do not fit.

    Args:
        rounds: What was read.
        staging: The staging folder.
        size: Columns and lines of the terminal.
    """
    from rich.console import Group
    from rich.text import Text

    if rounds.statuses is None:
        failed = "" if rounds.failed is None else f": {rounds.failed}"
        return Text(f"the first round {'failed' if failed else 'is running'}{failed}")
    width, height = size
    streams = by_urgency(rounds.statuses)
    num_stuck = sum(one.needs_attention for one in streams)
    title = Text(no_wrap=True, overflow="ellipsis")
    title.append(format_count(len(streams), "stream"), style="bold")
    title.append(
        f", {num_stuck} {'needs' if num_stuck == 1 else 'need'} attention" if num_stuck else ", none needs attention",
        style="bold red" if num_stuck else "green",
    )
    took = format_duration(timedelta(seconds=rounds.took))
    title.append(f"; read in {took}, q quits; {staging}", style="dim")
    room = max(1, height - _OTHER_LINES)
    parts: list[Any] = [title, Text(), rich_table(streams[:room], width, with_pending=True)]
    if len(streams) > room:
        parts.append(Text(f"{format_count(len(streams) - room, 'more stream')}", style="dim"))
    if rounds.failed is not None:
        parts.insert(1, Text(f"the last round failed: {rounds.failed}", style="red"))
    return Group(*parts)


@contextmanager
def _keys() -> Iterator[Callable[[], str]]:
    """Yield a function that waits a moment for keys and returns all that were pressed, or ``""``."""
    if not sys.stdin.isatty():
        yield _no_key
        return
    import termios
    import tty

    before = termios.tcgetattr(sys.stdin)
    tty.setcbreak(sys.stdin)

    def pressed() -> str:
        ready, _, _ = select.select([sys.stdin], [], [], _KEY_SECONDS)
        if not ready:
            return ""
        # past the buffer of stdin, in which select does not see what is left of an arrow or a paste
        keys = os.read(sys.stdin.fileno(), _MOST_KEYS).decode(errors="replace")
        # at the end of stdin, select returns at once
        return keys or _no_key()

    try:
        yield pressed
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def _no_key() -> str:
    time.sleep(_KEY_SECONDS)
    return ""
