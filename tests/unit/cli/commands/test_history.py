"""The text of ``fds history`` and ``fds status``: words, ranges and units, no JSON, and no wider than the terminal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_fds.cli import terminal
from airflow_provider_fds.cli.commands.history import EntryWords
from airflow_provider_fds.cli.main import main
from airflow_provider_fds.cli.status_text import describe_status
from airflow_provider_fds.delta.storage.local import LocalStorage
from airflow_provider_fds.ledger.entries.entry import Entry
from airflow_provider_fds.ledger.entries.epoch_entries import Created
from airflow_provider_fds.ledger.entries.operator_entries import Held, Resumed
from airflow_provider_fds.ledger.owner import Actor
from airflow_provider_fds.ledger.staging.log import Ledger
from airflow_provider_fds.stream.monitoring.status import StreamStatus

GOLDEN = Path(__file__).parents[3] / "golden" / "ledger"


def words(*kinds: str) -> list[str]:
    describer = EntryWords()
    return [
        describer.describe(Entry.from_json((GOLDEN / f"{kind}.json").read_bytes(), where=kind)).splitlines()[0]
        for kind in kinds
    ]


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.json")), ids=lambda path: path.stem)
def test_no_entry_is_shown_as_json(path: Path) -> None:
    (line,) = words(path.stem)
    # in the words of the commands: skipped and accepted are two decisions
    kind = {"acknowledged": "skipped"}.get(path.stem, path.stem.partition(".")[0])
    assert line.split()[:3] == ["3", "2026-11-20T12:30:15Z", kind]
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


@pytest.fixture
def long(tmp_path: Path) -> Path:
    """A staging folder with the ledger of a stream of 29 entries: two about its begin, the others say why."""
    ledger = Ledger(LocalStorage(str(tmp_path)), "long")
    person = Actor(deployment="cli", user="ann", host="desk")
    ledger.execute(Created(uuid="u", name="long", table="file:///t", deployment="cli"), person)
    for number in range(28):
        ledger.execute(Held(why=f"reason {number}") if number % 2 == 0 else Resumed(why="go"), person)
    return tmp_path


def shown(capsys: Any, staging: Path, *arguments: str) -> tuple[list[int], str]:
    assert main(["history", "long", "--staging", str(staging), *arguments, "--output", "json"]) == 0
    captured = capsys.readouterr()
    return [json.loads(line)["n"] for line in captured.out.splitlines()], captured.err


def test_a_history_is_shown_by_pages(long: Path, capsys: Any) -> None:
    assert shown(capsys, long) == (list(range(29)), "")
    newest, told = shown(capsys, long, "--limit", "10")
    assert newest == list(range(19, 29))
    assert told == "There are older entries (entries 0 to 18): add --before 19 or --all\n"
    assert shown(capsys, long, "--limit", "10", "--before", "19")[0] == list(range(9, 19))
    assert shown(capsys, long, "--limit", "10", "--before", "9") == (list(range(9)), "")
    assert shown(capsys, long, "--before", "1000")[0] == list(range(29))
    assert shown(capsys, long, "--all")[0] == list(range(29))


@pytest.mark.parametrize(
    "arguments", [("--limit", "0"), ("--before", "-1"), ("--limit", "x"), ("--all", "--limit", "3")]
)
def test_a_page_that_cannot_be_is_refused(long: Path, capsys: Any, arguments: tuple[str, ...]) -> None:
    assert main(["history", "long", "--staging", str(long), *arguments]) == 2
    assert "error" in capsys.readouterr().err


def test_a_page_that_begins_with_a_commit_has_its_versions(monkeypatch: Any, capsys: Any, tmp_path: Path) -> None:
    from tests.bench.history import World

    world = World(40)
    storage = world.staging
    monkeypatch.setattr("airflow_provider_fds.delta.storage.open.open_storage", lambda *_: storage)
    storage.requests.clear()
    assert main(["history", "bench", "--staging", str(tmp_path), "--limit", "1"]) == 0
    said = capsys.readouterr().out
    assert "batch 17: version 1017; 10 rows out" in said
    assert sum(storage.requests.values()) <= 7


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
