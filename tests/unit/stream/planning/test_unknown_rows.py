"""Batch sizes that are estimated, and plans of too many batches."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from airflow_provider_fds.cli.main import main


@pytest.fixture
def warnings(caplog: pytest.LogCaptureFixture) -> Any:
    caplog.set_level(logging.WARNING)
    return lambda: [record.getMessage() for record in caplog.records if record.name.endswith("unknown_rows")]


def unknown_rows(log_builder: Any) -> None:
    log_builder.create()
    log_builder.append(2, rows=10)
    for _ in range(3):
        log_builder.append(2, stats=None)


def test_a_plan_with_files_of_unknown_rows_warns_once(bench, log_builder, sink, warnings):
    unknown_rows(log_builder)

    work = bench.session(stream=bench.stream(max_rows_per_batch=20)).begin(sink)

    assert [batch.num_files for batch in work.batches] == [2, 2, 2, 2]
    (warning,) = warnings()
    assert "3 of 4 planned batches" in warning
    assert "the first in version 2." in warning
    assert "Use max_bytes_per_batch" in warning


def test_files_of_unknown_rows_matter_only_to_a_limit_of_rows(bench, log_builder, sink, warnings):
    unknown_rows(log_builder)
    assert bench.session().begin(sink).status == "work"
    assert warnings() == []


def test_known_rows_are_not_warned_of(bench, two_appends, sink, warnings):
    assert bench.session(stream=bench.stream(max_rows_per_batch=5)).begin(sink).status == "work"
    assert warnings() == []


def test_a_dry_run_warns_too(log_builder, warnings, capsys):
    unknown_rows(log_builder)
    options = ("--option", "starting_version=0", "--option", "max_rows_per_batch=20")
    assert main(["plan", str(log_builder.root), "--dry-run", *options]) == 0
    assert len(warnings()) == 1
    assert "rows unknown" in capsys.readouterr().out
