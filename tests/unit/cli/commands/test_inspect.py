from __future__ import annotations

import json
import shutil
from typing import Any

import pytest

from airflow_provider_fds import __version__
from airflow_provider_fds.cli.main import main
from airflow_provider_fds.delta.storage.open import open_storage
from airflow_provider_fds.ledger.entries.epoch_entries import Bound
from airflow_provider_fds.ledger.owner import Actor
from airflow_provider_fds.ledger.staging.log import Ledger
from airflow_provider_fds.ledger.values import SinkBinding


def fds(capsys: Any, *arguments: object) -> tuple[int, str]:
    code = main([str(a) for a in arguments])
    captured = capsys.readouterr()
    return code, captured.out + captured.err


@pytest.fixture
def planned(log_builder, tmp_path, capsys):
    log_builder.create()
    log_builder.append(2)
    staging = tmp_path / "s"
    code, text = fds(
        capsys, "plan", log_builder.root, "--staging", staging, "--stream", "x", "--option", "starting_version=0"
    )
    assert code == 0, text
    return staging


def test_status_says_what_is_planned_and_how_far_behind_the_stream_is(planned, capsys):
    code, text = fds(capsys, "status", "x", "--staging", planned, "--output", "json")
    found = json.loads(text)

    assert code == 0
    assert (found["planned_batches"], found["lag_versions"], found["epoch"], found["phase"]) == (1, 2, 1, "open")
    assert "\nplanned          1 batch\n" in fds(capsys, "status", "x", "--staging", planned)[1]


@pytest.mark.parametrize(
    ("kind", "target", "delivery"),
    [
        ("delta_append", "s3://lake/b", {"delivery": "transaction"}),
        ("foreach_batch", "jobs:load", {"delivery": "at_least_once"}),
        ("user_job", "", {}),
    ],
)
def test_status_says_what_the_sink_promises_of_a_repeated_batch(planned, capsys, kind, target, delivery):
    ledger = Ledger(open_storage(str(planned)), "x")
    state = ledger.find()
    ledger.execute(Bound(epoch=1, sink=SinkBinding(kind=kind, target=target)), Actor(deployment=state.deployment))
    found = json.loads(fds(capsys, "status", "x", "--staging", planned, "--output", "json")[1])
    assert found["sink"] == {"kind": kind, "target": target, **delivery}


@pytest.fixture
def recreated(planned, log_builder):
    """The table of the planned stream was deleted and made anew."""
    shutil.rmtree(log_builder.root)
    anew = type(log_builder)(log_builder.root)
    anew.table_id = "22222222-2222-3333-4444-555555555555"
    anew.create()
    anew.append(2)
    anew.append(2)
    return planned


def test_status_of_a_lost_position_begins_with_the_problem_knows_no_lag_and_exits_with_4(recreated, capsys):
    code, text = fds(capsys, "status", "x", "--staging", recreated)
    assert code == 4
    assert text.startswith("problem          ")
    assert "id 22222222-" in text.splitlines()[0]
    assert "\nlag              unknown\n" in text

    code, text = fds(capsys, "status", "x", "--staging", recreated, "--output", "json")
    found = json.loads(text)
    assert (code, found["lag_versions"], next(iter(found))) == (4, None, "problem")
    assert "id 22222222-" in found["problem"]


def test_plan_does_not_show_batches_of_a_table_that_is_gone(recreated, log_builder, capsys):
    code, text = fds(
        capsys, "plan", log_builder.root, "--staging", recreated, "--stream", "x", "--option", "starting_version=0"
    )
    assert code == 4
    assert "id 22222222-" in text
    assert "up to date" not in text
    assert "batch 0:" not in text


def test_status_of_a_table_that_cannot_be_read_exits_with_the_code_of_the_problem(planned, log_builder, capsys):
    shutil.rmtree(log_builder.root)
    code, text = fds(capsys, "status", "x", "--staging", planned)
    assert (code, text.partition(" ")[0]) == (2, "problem")


def test_a_full_status_prints_the_whole_state(planned, capsys):
    code, text = fds(capsys, "status", "x", "--full", "--staging", planned)

    assert code == 0
    assert json.loads(text)["planned"][0]["num_files"] == 2


def test_history_prints_every_entry(planned, capsys):
    code, text = fds(capsys, "history", "x", "--staging", planned)
    assert code == 0
    assert [line.split()[2] for line in text.splitlines()] == ["created", "opened", "planned"]
    entries = fds(capsys, "history", "x", "--staging", planned, "--output", "json")[1]
    assert [json.loads(line)["n"] for line in entries.splitlines()] == [0, 1, 2]


def test_history_reports_missing_entries(planned, capsys):
    ledger = Ledger(open_storage(str(planned)), "x")
    ledger.find()
    ledger.save_fold()
    first = min((planned / "x" / "ledger").glob("*.json"))
    first.unlink()
    text = fds(capsys, "history", "x", "--staging", planned)[1]
    assert "WARNING entry 0 is missing" in text


def test_history_and_status_show_what_was_skipped_and_what_stops_the_stream(log_builder, tmp_path, capsys):
    log_builder.create()
    path = log_builder.append(1)
    log_builder.commit({"remove": {"path": "a", "dataChange": True, "deletionTimestamp": 0}}, operation="DELETE")
    log_builder.append(1)
    log_builder.commit({"remove": {"path": "b", "dataChange": True, "deletionTimestamp": 0}}, operation="DELETE")
    arguments = ("--staging", tmp_path / "s", "--stream", "x", "--option", "starting_version=2")
    quarantine = ("--option", "skip_versions=2", "--option", "on_violation=quarantine")
    code, text = fds(capsys, "plan", log_builder.root, *arguments, *quarantine)
    assert (code, path) == (3, 1), text

    history = fds(capsys, "history", "x", "--staging", tmp_path / "s")[1]

    assert "skips version 2: skip_versions lists version 2" in history
    fds(capsys, "hold", "x", "--staging", tmp_path / "s", "--why", "first line\nsecond line")
    status = fds(capsys, "status", "x", "--staging", tmp_path / "s")[1]
    assert "\nheld             first line\n                 second line\n" in status
    assert "second line" not in fds(capsys, "history", "x", "--staging", tmp_path / "s")[1]


def test_latest_prints_the_newest_version(log_builder, capsys):
    log_builder.create()
    log_builder.append(1)

    assert fds(capsys, "latest", log_builder.root) == (0, "1\n")


def test_a_missing_stream_is_named(planned, capsys):
    for command in ("status", "explain", "history"):
        code, text = fds(capsys, command, "y", "--staging", planned)
        assert code == 2
        assert "no stream 'y'" in text


def test_a_stream_can_be_transferred_to_another_installation(planned, capsys):
    code, text = fds(capsys, "transfer", "x", "--staging", planned, "--deployment", "new", "--why", "moved", "--yes")

    assert code == 0
    assert "belonged to deployment 'cli' and now belongs to 'new'" in text


def test_accepting_what_is_not_blocked_is_refused(planned, capsys):
    code, text = fds(capsys, "accept", "x", "--staging", planned, "--batch", "0", "--why", "looked")

    assert code == 2
    assert "no batch is" in text


def test_version_and_help(capsys):
    assert fds(capsys, "--version") == (0, f"fds {__version__}\n")
    assert "exit codes" in fds(capsys, "--help")[1]
    assert fds(capsys)[0] == 2


def test_every_command_that_the_code_names_in_a_message_is_known(capsys):
    import re
    from pathlib import Path

    import airflow_provider_fds

    code = "".join(path.read_text() for path in Path(airflow_provider_fds.__file__).parent.rglob("*.py"))
    for command in sorted(set(re.findall(r"[`']fds ([a-z]+)[ `]", code))):
        text = fds(capsys, command, "--help")[1]
        assert "invalid choice" not in text, command


def test_history_and_status_show_a_start_option_that_has_no_effect(planned, log_builder, capsys):
    again = ("plan", log_builder.root, "--staging", planned, "--stream", "x", "--option", "starting_version=1")
    code, text = fds(capsys, *again)
    assert code == 0, text
    (warning,) = json.loads(fds(capsys, *again, "--output", "json")[1].splitlines()[-1])["warnings"]
    for part in ("starting_version=1 has no effect", "began at version 0", "fds rewind x", "fds backfill x"):
        assert part in warning

    assert (
        "starting_version=1 has no effect: stream 'x' began at version 0"
        in fds(capsys, "status", "x", "--staging", planned)[1]
    )
    (line,) = [
        line for line in fds(capsys, "history", "x", "--staging", planned)[1].splitlines() if "start_kept" in line
    ]
    assert "options starting_version=1" in line
