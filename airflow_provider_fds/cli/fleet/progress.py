"""What ``fds run --file`` shows while it loads, on stderr: a table on a terminal, plain lines otherwise."""

from __future__ import annotations

import sys
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, Self

from airflow_provider_fds.cli.loading import is_worth_showing
from airflow_provider_fds.cli.terminal import rich_console
from airflow_provider_fds.sizes import format_count

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from airflow_provider_fds.stream.run.session import StreamSession

#: Lines of the terminal that are not rows of the table.
_OTHER_LINES: Final = 4
_FEWEST_ROWS: Final = 3

#: The states by the order of the rows: what needs someone comes first, then what goes on.
_STATES: Final = ("stopped", "loading", "planning", "unread", "done")


class FleetProgress:
    """Shows how far the streams of a group are.

    Args:
        group: Name of the group.
        streams: Names of its streams.
        is_shown: Whether anything is shown; not with ``--output json``.
    """

    def __init__(self, group: str, streams: Sequence[str], *, is_shown: bool) -> None:
        self._group = group
        self._is_shown = is_shown
        self._console = rich_console() if is_shown else None
        self._live: Any = None
        self._lock = Lock()
        self._states = dict.fromkeys(streams, "unread")
        self._batches = dict.fromkeys(streams, 0)

    def __enter__(self) -> Self:
        if self._console is not None:
            from rich.live import Live

            # stdout belongs to the results, and may be redirected
            live = Live(console=self._console, transient=True, redirect_stdout=False, redirect_stderr=False)
            self._live = live.__enter__()
        return self

    def __exit__(self, *failure: object) -> None:
        if self._live is not None:
            self._live.__exit__(*failure)

    def watch(self, session: StreamSession) -> Callable[[Exception | None], None]:
        """Follow a stream whose run begins; returns the function to call when it is over."""
        name = session.stream.name

        def committed(_: object, batches: int) -> None:
            with self._lock:
                self._batches[name] += batches
                self._update()
                if self._live is None:
                    self._print(f"{name}: {self._done(name)}")

        session.commits.on_committed = committed
        self._set([name], "planning")
        return lambda error: self._set([name], "done" if error is None else "stopped")

    def loading(self, names: Iterable[str]) -> None:
        """Note that Spark works for these streams."""
        self._set(names, "loading")

    def line(self, text: str) -> None:
        """Show a line of the Spark driver, if it is for people."""
        if is_worth_showing(text):
            self.say(text.removeprefix("FDS "))

    def say(self, text: str) -> None:
        """Show a line."""
        with self._lock:
            self._print(text)

    def _print(self, text: str) -> None:
        if not self._is_shown:
            return
        if self._live is None:
            print(text, file=sys.stderr, flush=True)
        else:
            self._live.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def _set(self, names: Iterable[str], state: str) -> None:
        with self._lock:
            self._states.update(dict.fromkeys(names, state))
            self._update()

    def _update(self) -> None:
        if self._live is not None:
            self._live.update(self._table())

    def _table(self) -> Any:
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        over = sum(state in ("done", "stopped") for state in self._states.values())
        title = f"group {self._group}: {over:,} of {format_count(len(self._states), 'stream')} done"
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        for name in ("STREAM", "STATE", "DONE"):
            table.add_column(name, no_wrap=True)
        rows = sorted(self._states, key=lambda name: _STATES.index(self._states[name]))
        room = max(_FEWEST_ROWS, self._live.console.height - _OTHER_LINES)
        for name in rows[:room]:
            table.add_row(name, self._states[name], self._done(name))
        more = [f"and {format_count(len(rows) - room, 'stream')} more"] if len(rows) > room else []
        # a title of the table would be wrapped at the table's width
        return Group(Text(title), table, *more)

    def _done(self, name: str) -> str:
        count = self._batches[name]
        return format_count(count, "batch", "batches") if count else ""
