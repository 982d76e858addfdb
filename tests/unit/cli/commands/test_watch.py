"""``fds status --watch``: a live table on a terminal, lines otherwise; `fds status` has colours on a terminal."""

from __future__ import annotations

import io
import os
import pty
import select
import subprocess
import sys
import termios
import time
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console

from airflow_provider_fds.cli.commands import watch
from airflow_provider_fds.cli.commands.watch import Rounds, _screen
from airflow_provider_fds.cli.main import main
from airflow_provider_fds.cli.stream_table import by_urgency, plain_table, rich_table
from airflow_provider_fds.errors import ConfigurationError, StorageError
from airflow_provider_fds.stream.monitoring.status import StreamStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def stream(name: str, **fields: Any) -> StreamStatus:
    given = {"table": f"s3://lake/{name}", "condition": "up_to_date", **fields}
    return StreamStatus(name=name, phase="open", **given)


STREAMS = [
    stream("calm", lag_versions=0, lag_seconds=0.0),
    stream("late", condition="waiting", lag_versions=12, lag_seconds=700.0, pending_files=3, pending_bytes=5 << 20),
    stream("later", condition="loading", lag_versions=1200, lag_seconds=7000.0),
    stream("stuck", condition="quarantined", lag_versions=1, lag_seconds=1.0),
]


def drawn(what: Any, width: int = 120) -> str:
    text = io.StringIO()
    Console(file=text, force_terminal=True, width=width, color_system="standard").print(what)
    return text.getvalue()


def test_streams_that_need_a_person_come_first_then_those_that_lag_most() -> None:
    assert [one.name for one in by_urgency(STREAMS)] == ["stuck", "later", "late", "calm"]


def test_a_table_on_a_terminal_has_colours_units_and_numbers_on_the_right() -> None:
    header, *rows = drawn(rich_table(STREAMS, 120, with_pending=True)).splitlines()
    assert "TO READ" in header
    assert "\x1b[1;31mquarantined" in rows[3]
    assert "\x1b[32mup to date" in rows[0]
    assert "5 MiB" in rows[1]
    assert rows[2].index("1,200") + 5 == rows[1].index("12 ") + 2
    # the text of a pipe has neither
    assert "\x1b" not in plain_table(STREAMS)
    assert "TO READ" not in plain_table(STREAMS)


def test_a_narrow_terminal_cuts_the_places_and_never_a_row() -> None:
    long = [stream("orders", table="s3://lake/" + "very/" * 40, condition="blocked")]
    lines = drawn(rich_table(long, 80), 80).splitlines()
    assert len(lines) == 2
    assert "…" in lines[1]
    assert lines[1].rstrip().endswith("very/")
    assert "orders" in lines[1]
    assert "blocked" in lines[1]


def rounds_of(*found: Any) -> Rounds:
    left = list(found)

    def poll() -> list[StreamStatus]:
        one = left.pop(0)
        if isinstance(one, Exception):
            raise one
        return one

    return Rounds(poll, 0.0)


def wait_for(rounds: Rounds) -> None:
    rounds.start()
    ends = time.monotonic() + 5
    while rounds.fatal is None and time.monotonic() < ends:
        time.sleep(0.01)


def test_the_screen_has_as_many_streams_as_there_is_room_for() -> None:
    rounds = rounds_of(STREAMS)
    assert "the first round is running" in drawn(_screen(rounds, "staging", (120, 10)))
    rounds.statuses = STREAMS
    text = drawn(_screen(rounds, "staging", (120, 6)))
    assert "4 streams" in text
    assert "1 needs attention" in text
    assert "2 more streams" in text
    assert "stuck" in text
    assert "calm" not in text
    rounds.failed = StorageError("no answer")
    assert "the last round failed: no answer" in drawn(_screen(rounds, "staging", (120, 20)))


def test_a_round_that_fails_for_a_moment_is_shown_and_another_error_ends_it() -> None:
    rounds = rounds_of(STREAMS, StorageError("no answer"), ConfigurationError("gone"))
    wait_for(rounds)
    assert (rounds.statuses, str(rounds.failed), str(rounds.fatal)) == (STREAMS, "no answer", "gone")
    rounds = rounds_of(KeyError("a bug"))
    wait_for(rounds)
    assert isinstance(rounds.fatal, KeyError)


def test_a_short_interval_and_a_staging_that_does_not_exist_are_refused(tmp_path: Any, capsys: Any) -> None:
    assert main(["status", "--watch", "--staging", str(tmp_path), "--poll-interval", "0.1s"]) == 2
    assert "--poll-interval must be at least 1s" in capsys.readouterr().err


def command(staging: Any) -> list[str]:
    return [
        sys.executable,
        "-m",
        "airflow_provider_fds.cli.main",
        "status",
        "--watch",
        "--staging",
        str(staging),
        "--poll-interval",
        "1s",
    ]


def test_without_a_terminal_there_is_a_line_for_each_stream(staging: Any) -> None:
    with subprocess.Popen(command(staging), stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(2)]
        # not SIGINT: it is ignored in what a shell runs in the background
        process.terminate()
    assert " newest: up to date" in lines[0], process.returncode
    assert " planned: loading, 2 versions to read" in lines[1]


def test_ctrl_c_ends_it_without_an_error(staging: Any, monkeypatch: Any) -> None:
    def interrupted(_: Rounds) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(watch, "_print_changes", interrupted)
    assert main(["status", "--watch", "--staging", str(staging)]) == 0


class Terminal:
    """``fds status --watch`` on a terminal of 24 lines."""

    def __init__(self, staging: Any, columns: int = 100, **environment: str) -> None:
        self._ours, theirs = pty.openpty()
        self._theirs = theirs
        termios.tcsetwinsize(theirs, (24, columns))
        self._before = termios.tcgetattr(theirs)
        clean = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "LINES")}
        self.process = subprocess.Popen(
            command(staging),
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env={**clean, "TERM": "xterm", **environment},
        )
        self.shown = b""

    def read_until(self, text: bytes) -> None:
        ends = time.monotonic() + 30
        while text not in self.shown and self.process.poll() is None and time.monotonic() < ends:
            self._read()
        assert text in self.shown, self.shown

    def press(self, keys: bytes) -> None:
        os.write(self._ours, keys)

    def end(self) -> int:
        ends = time.monotonic() + 10
        while self.process.poll() is None and time.monotonic() < ends:
            self._read()
        self._read()
        self.process.kill()
        return self.process.wait()

    def _read(self) -> None:
        if select.select([self._ours], [], [], 0.1)[0]:
            self.shown += os.read(self._ours, 65536)

    @property
    def is_given_back(self) -> bool:
        """Whether it has its own screen, cursor and keys again."""
        left, cursor = (self.shown.rfind(code) for code in (b"\x1b[?1049l", b"\x1b[?25h"))
        is_left = left > self.shown.rfind(b"\x1b[?1049h") and cursor > self.shown.rfind(b"\x1b[?25l")
        return is_left and termios.tcgetattr(self._theirs) == self._before

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._ours)
        os.close(self._theirs)


@pytest.fixture
def terminal(staging: Any) -> Iterator[Callable[..., Terminal]]:
    made: list[Terminal] = []

    def make(**arguments: Any) -> Terminal:
        made.append(Terminal(staging, **arguments))
        return made[-1]

    yield make
    for one in made:
        one.close()


# an arrow, and keys that were pressed at once, leave nothing before the q
@pytest.mark.parametrize("keys", [b"q", b"\x1b[Aq", b"xyzQ"])
def test_q_ends_it_and_gives_the_terminal_back(terminal: Any, keys: bytes) -> None:
    shown = terminal()
    shown.read_until(b"planned")
    shown.press(keys)
    assert shown.end() == 0, shown.shown
    assert b"2 streams" in shown.shown
    assert b"none needs attention" in shown.shown
    assert shown.is_given_back


def test_a_kill_gives_the_terminal_back(terminal: Any) -> None:
    shown = terminal()
    shown.read_until(b"planned")
    shown.process.terminate()
    assert shown.end() == 143, shown.shown
    assert shown.is_given_back


@pytest.mark.parametrize("encoding", ["latin-1", "ascii"])
def test_a_terminal_that_does_not_know_every_character_is_no_error(terminal: Any, encoding: str) -> None:
    # the places are cut, with an ellipsis
    shown = terminal(columns=110, PYTHONIOENCODING=encoding)
    shown.read_until(b"planned")
    assert b" ?" in shown.shown
    shown.press(b"q")
    assert shown.end() == 0, shown.shown


def test_a_terminal_of_20_columns_is_no_error(terminal: Any) -> None:
    shown = terminal(columns=20)
    shown.read_until(b"2 streams")
    shown.press(b"q")
    assert shown.end() == 0, shown.shown


def test_status_of_all_streams_is_drawn_on_a_terminal(staging: Any, monkeypatch: Any) -> None:
    text = io.StringIO()
    console = Console(file=text, force_terminal=True, width=120, color_system="standard")
    monkeypatch.setattr("airflow_provider_fds.cli.terminal.rich_console", lambda **_: console)
    assert main(["status", "--staging", str(staging)]) == 0
    assert "\x1b[36mloading" in text.getvalue()


def test_no_command_imports_rich_before_it_draws() -> None:
    code = (
        "import sys; from airflow_provider_fds.cli.main import parser; parser();"
        "print([m for m in ('rich', 'pyspark', 'airflow', 'obstore', 'pyarrow') if m in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"
