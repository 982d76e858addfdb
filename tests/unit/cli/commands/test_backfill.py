"""``fds backfill``: what it refuses before Spark starts. It loads in tests/interop/test_fds_moves.py."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_fds.cli.arguments import stream_of
from airflow_provider_fds.cli.main import main, parser

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def backfill(log_builder: Any, tmp_path: Path, capsys: Any) -> Callable[..., tuple[int, str]]:
    """Runs the command for a stream that has begun at version 1 and is not bound to a sink."""
    log_builder.create()
    log_builder.append(1)
    staging = ("--staging", str(tmp_path / "staging"))
    begun = ("plan", str(log_builder.root), "--stream", "orders", "--option", "starting_version=1")
    assert main([*begun, *staging]) == 0
    capsys.readouterr()

    def run(*arguments: str, stream: str = "orders") -> tuple[int, str]:
        code = main(["backfill", stream, *staging, *arguments])
        out = capsys.readouterr()
        return code, out.out + out.err

    return run


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "is not bound to a sink. Set --sink"),
        (("--sink", "{sink}", "--start", "20260131"), "write a date as '2026-01-31'"),
        (("--sink", "{sink}", "--start", "3", "--end", "2"), "end 2 is before start 3"),
        (
            ("--sink", "{sink}", "--start", "1", "--end", "live_start"),
            "began at version 1, which is not after",
        ),
    ],
    ids=str,
)
def test_invalid_arguments_exit_with_2_before_spark_starts(backfill, tmp_path, arguments, says):
    code, text = backfill(*(argument.replace("{sink}", str(tmp_path / "sink")) for argument in arguments))
    assert (code, says in text) == (2, True), text


def test_a_stream_that_does_not_exist_needs_a_table(backfill, tmp_path):
    code, text = backfill("--sink", str(tmp_path / "sink"), stream="other")
    assert code == 2
    assert "there is no stream 'other'" in text
    assert "--table" in text


def test_both_commands_that_load_may_allow_an_overlap(tmp_path):
    places = ("--staging", "s", "--sink", "t", "--checkpoint", "c", "--allow-overlap")
    run = parser().parse_args(["run", str(tmp_path), "--stream", "orders", *places])
    assert stream_of(run).allow_overlap
    backfill = parser().parse_args(["backfill", "orders", "--table", str(tmp_path), *places])
    assert stream_of(backfill).backfill(start=0, end=1).allow_overlap
