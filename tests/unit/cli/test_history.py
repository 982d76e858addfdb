"""The text of ``fds history`` and ``fds status``: words, ranges and units, no JSON, and no wider than the terminal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_fds.cli import terminal
from airflow_provider_fds.cli.history import EntryWords
from airflow_provider_fds.cli.main import main
from airflow_provider_fds.cli.status_text import describe_status
from airflow_provider_fds.ledger.entries import Entry
from airflow_provider_fds.stream.status import StreamStatus

GOLDEN = Path(__file__).parents[2] / "golden" / "ledger"


def words(*kinds: str) -> list[str]:
    describer = EntryWords()
    return [
        describer.describe(Entry.from_json((GOLDEN / f"{kind}.json").read_bytes(), where=kind)).splitlines()[0]
        for kind in kinds
    ]


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.json")), ids=lambda path: path.stem)
def test_no_entry_is_shown_as_json(path: Path) -> None:
    (line,) = words(path.stem)
    assert line.split()[:3] == ["3", "2026-11-20T12:30:15Z", path.stem]
    assert line.endswith("[task ingest of DAG orders, run r1 (try 1)]")
    for sign in "{}\"'":
        assert sign not in line


def test_a_committed_batch_has_the_versions_of_its_plan_and_its_measures_with_units() -> None:
    planned, committed = words("planned", "committed")
    assert "epoch 1, batch 0: version 0, 20 rows in 2 files of 2 KiB; newest version 9" in planned
    assert (
        "epoch 1, batch 0: version 0; 25 rows in; 20 rows out in 2 files of 4 KiB; sink version 18; "
        "2.2 s (check 0.2, load 0.5, write 1.5)" in committed
    )


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        ("planned", ("batches", 0, "start")),
        ("opened", ("start",)),
        ("requested", ("position",)),
        ("forked", ("origin", "offset")),
    ],
)
@pytest.mark.parametrize("damaged", ["x", "{}", "[]"])
def test_an_entry_with_a_damaged_offset_does_not_hide_the_rest_of_the_ledger(
    kind: str, path: tuple[Any, ...], damaged: str
) -> None:
    entry = json.loads((GOLDEN / f"{kind}.json").read_bytes())
    *way, last = path
    place = entry["action"]
    for step in way:
        place = place[step]
    place[last] = damaged
    said = EntryWords().describe(Entry.from_json(json.dumps(entry).encode(), where=kind))
    assert kind in said
    assert kind == "planned" or f"unreadable offset {damaged!r}" in said


def test_what_a_fence_removed_is_in_words() -> None:
    (opened,) = words("opened")
    assert "from the beginning of version 0; removes rows of version 1 and later from the sink: 20 rows" in opened


@pytest.mark.parametrize("command", ["history", "status"])
def test_lines_are_at_most_as_wide_as_the_terminal_and_nothing_is_lost(
    staging: Path, capsys: Any, monkeypatch: Any, command: str
) -> None:
    arguments = [command, "planned", "--staging", str(staging)]
    main(arguments)
    piped = capsys.readouterr().out
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setattr(terminal, "is_terminal", lambda: True)
    main(arguments)
    shown = capsys.readouterr().out
    assert max(map(len, piped.splitlines())) > 60
    assert max(map(len, shown.splitlines())) <= 60
    assert "".join(shown.split()) == "".join(piped.split())


def test_a_status_has_units_and_no_names_of_fields() -> None:
    last = {"epoch": 1, "batch_id": 4, "rows": 900, "rows_read": 1000, "files_written": 1, "bytes_written": 2048}
    found = dict(
        describe_status(
            StreamStatus(
                name="orders",
                table="s3://lake/orders",
                phase="open",
                condition="up_to_date",
                epoch=1,
                newest_version=7,
                lag_versions=2,
                lag_seconds=185.0,
                pending_files=3,
                pending_bytes=5 << 20,
                retention_left_seconds=6 * 86400.0,
                planned_batches=1,
                last_commit={**last, "seconds": {"check": 0.5, "write": 1.6}},
                sink={"kind": "delta_append", "target": "s3://lake/b", "delivery": "transaction"},
                extra={"warnings": ["one", "two"]},
                entries=5,
            )
        )
    )
    assert found == {
        "stream": "orders",
        "state": "up to date",
        "table": "s3://lake/orders",
        "sink": "delta_append s3://lake/b; a repeated batch lands once (transaction)",
        "newest version": "7",
        "lag": "2 versions, the oldest 3 min 5 s old",
        "to read": "3 files of 5 MiB",
        "retention left": "6 days",
        "planned": "1 batch",
        "last batch": "batch 4 of epoch 1, 1,000 rows in, 900 rows out in 1 file of 2 KiB, 2.1 s",
        "warnings": "one\ntwo",
        "epoch": "1",
        "ledger": "5 entries",
    }


def test_what_a_person_typed_cannot_command_the_terminal(monkeypatch: Any) -> None:
    for is_terminal in (True, False):
        monkeypatch.setattr(terminal, "is_terminal", lambda is_terminal=is_terminal: is_terminal)
        said = terminal.fitted("why: \x1b]0;owned\x07\x1b[2Jgone\r\x9bm\nnext: ü", 2)
        assert said == "why: \\x1b]0;owned\\x07\\x1b[2Jgone\\x0d\\x9bm\n  next: ü"
