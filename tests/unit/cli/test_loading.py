"""What `fds run` shows while it loads: bars on a terminal, plain lines otherwise, nothing with JSON."""

from __future__ import annotations

import io
import threading
from typing import Any

import pytest
from rich.console import Console

from airflow_provider_fds.cli import loading, terminal
from airflow_provider_fds.cli.loading import Loading
from airflow_provider_fds.cli.terminal import Waiting

LONG = "FDS batch 3 (2 of 5, version 7, 10 rows in 1 file of 4 KiB): 30 s, stage 4: 1 of 8 tasks done"


def test_into_a_pipe_go_the_plan_and_the_lines_about_long_batches(capsys: Any) -> None:
    shown = Loading(is_shown=True)
    with shown.application("loading a into b: version 7", 5):
        shown.line(LONG)
        shown.line("FDS Spark UI: http://127.0.0.1:4040")
        shown.line("Spark is fetching https://repo/hadoop-aws-3.5.0.jar")
        # these are for the log
        shown.line("FDS batch 3 written: 10 rows, sink version 4, 31.0 s")
        shown.line("26/11/23 WARN TaskSetManager: Stage 4 contains a task of very large size")
        assert shown.batch("batch 3: 10 rows, sink version 4")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines() == [
        "loading a into b: version 7",
        LONG.removeprefix("FDS "),
        "Spark UI: http://127.0.0.1:4040",
        "Spark is fetching https://repo/hadoop-aws-3.5.0.jar",
    ]


def test_with_json_nothing_is_shown(capsys: Any) -> None:
    shown = Loading(is_shown=False)
    with shown.application("loading", 5):
        shown.line(LONG)
        assert shown.batch("batch 3")
    assert capsys.readouterr().err == ""


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """What a terminal of 100 columns gets."""
    text = io.StringIO()
    console = Console(file=text, force_terminal=True, width=100, color_system=None)
    for module in (loading, terminal):
        monkeypatch.setattr(module, "rich_console", lambda **_: console)
    return text


def test_a_terminal_has_a_bar_that_counts_batches_below_the_lines(screen: io.StringIO, capsys: Any) -> None:
    shown = Loading(is_shown=True)
    with shown.application("loading a into b: version 7", 2):
        shown.line(LONG)
        # stdout is a pipe here, so the batch goes there
        assert shown.batch("batch 3: 10 rows")
        shown._bar.refresh()
    text = screen.getvalue()
    assert "loading a into b: version 7" in text
    # whole, whatever the width
    assert LONG.removeprefix("FDS ") in text
    assert "1/2" in text
    assert capsys.readouterr().err == ""


def test_a_terminal_gets_the_batches_above_the_bar(
    screen: io.StringIO, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    shown = Loading(is_shown=True)
    with shown.application("loading", 1):
        assert not shown.batch("batch 3: 10 rows [red]")
    assert "batch 3: 10 rows [red]" in screen.getvalue()


def test_long_work_without_a_terminal_is_told_in_lines(capsys: Any) -> None:
    with Waiting("planning", tell_seconds=0.02):
        threading.Event().wait(0.2)
    lines = capsys.readouterr().err.splitlines()
    assert lines
    assert lines[0].startswith("fds: planning, 0")
    with Waiting("planning") as waiting:
        waiting.pause()
    with Waiting("planning", is_shown=False, tell_seconds=0.0):
        pass
    assert capsys.readouterr().err == ""


def test_long_work_on_a_terminal_has_a_spinner_that_makes_room_for_lines(
    screen: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(terminal, "_SPIN_SECONDS", 0.0)
    monkeypatch.setattr(terminal, "_LOOK_SECONDS", 0.01)
    with Waiting("planning") as waiting:
        threading.Event().wait(0.3)
        waiting.pause()
    assert "planning" in screen.getvalue()


def test_without_rich_or_a_terminal_there_is_no_console(monkeypatch: pytest.MonkeyPatch) -> None:
    assert terminal.rich_console() is None
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    assert terminal.rich_console() is not None
    monkeypatch.setenv("TERM", "dumb")
    assert terminal.rich_console() is None
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setitem(__import__("sys").modules, "rich.console", None)
    assert terminal.rich_console() is None
