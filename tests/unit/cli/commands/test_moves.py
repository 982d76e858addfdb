"""``fds rewind`` and the like: what is shown, asked and written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_fds.cli.arguments import process_owner
from airflow_provider_fds.cli.main import main
from airflow_provider_fds.delta.storage.open import open_storage
from airflow_provider_fds.ledger.entries.plan_entries import Claimed
from airflow_provider_fds.ledger.owner import Actor, Owner
from airflow_provider_fds.ledger.staging.log import Ledger

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def fds(log_builder: Any, tmp_path: Path, capsys: Any) -> Callable[..., tuple[int, str]]:
    """Runs a command on a stream with one planned batch of two versions."""
    log_builder.create()
    log_builder.append(1)
    log_builder.append(1)

    def run(name: str, *arguments: str, stream: str = "orders") -> tuple[int, str]:
        code = main([name, stream, "--staging", str(tmp_path / "staging"), *arguments])
        out = capsys.readouterr()
        return code, out.out + out.err

    table = ("plan", str(log_builder.root), "--stream", "orders", "--option", "starting_version=0")
    assert main([*table, "--staging", str(tmp_path / "staging")]) == 0
    capsys.readouterr()
    return run


@pytest.fixture
def ledger(tmp_path: Path) -> Callable[[], Ledger]:
    def read() -> Ledger:
        ledger = Ledger(open_storage(str(tmp_path / "staging")), "orders")
        ledger.find()
        return ledger

    return read


WHY = ("--why", "wrong rows")


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (("rewind", "--to", "0"), "epoch 2, reads from version 0 on"),
        (("rewind", "--to", "start"), "epoch 2, begins at its start options (starting_version=0)"),
        (("replan",), "Discards 1 planned batch"),
        (("replan", "--new-sink"), "its next run binds it to that run's sink"),
    ],
)
def test_a_move_is_shown_made_and_written_with_who_and_why(fds, ledger, command, says):
    code, text = fds(*command, *WHY, "--yes")

    assert code == 0
    assert "before: epoch 1, the beginning of version 0" in text
    assert says in text
    last = list(ledger().entries())[-1]
    assert (last.action.why, last.actor.dag_id) == ("wrong rows", None)
    assert last.actor.user


def test_without_a_person_to_confirm_it_is_an_error_that_names_the_option_and_writes_nothing(fds, ledger):
    before = ledger().n
    code, text = fds("rewind", "--to", "start", *WHY)

    assert code == 2
    assert "before: epoch 1, the beginning of version 0" in text
    assert "nothing was done: there is no terminal to ask for confirmation. Add --yes\n" in text
    assert ledger().n == before
    code, text = fds("rewind", "--to", "start")
    assert (code, "Add --yes and --why\n" in text) == (2, True)
    assert ledger().n == before


@pytest.mark.parametrize(("answer", "epoch"), [("y", 2), ("no", 1), ("", 1)])
def test_a_command_asks_for_confirmation(fds, ledger, monkeypatch, answer, epoch):
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("builtins.input", lambda _prompt: answer)

    assert fds("rewind", "--to", "start", *WHY)[0] == 0
    assert ledger().state.epoch == epoch


def test_a_request_with_a_name_is_made_once(fds, ledger):
    for _ in range(2):
        code, text = fds("rewind", "--to", "start", *WHY, "--yes", "--request-id", "ticket 7")
        assert code == 0, text

    assert ledger().state.epoch == 2


def test_a_request_with_a_known_id_is_not_made_again(fds, ledger):
    asked = ("rewind", "--to", "0", *WHY, "--yes", "--request-id", "ticket 8")
    assert fds(*asked)[0] == 0
    code, text = fds(*asked)

    assert code == 0
    assert "request 'ticket 8' was already made; nothing is done again" in text
    assert ledger().state.epoch == 2


@pytest.mark.parametrize("option", [("--sink-rows", "delete"), ("--sink-rows", "empty")])
def test_rows_of_a_stream_without_a_sink_cannot_be_removed(fds, ledger, option):
    before = ledger().n
    code, text = fds("rewind", "--to", "0", *WHY, "--yes", *option)

    assert code == 2
    assert f"is not bound to a sink, so {' '.join(option)} is not available" in text
    assert ledger().n == before


def test_a_second_request_is_refused_and_the_error_shows_the_pending_one(fds):
    fds("rewind", "--to", "start", *WHY, "--yes")
    code, text = fds("rewind", "--to", "0", *WHY, "--yes")

    assert code == 2
    assert "epoch 2 was requested (rewind to start: wrong rows) and is not opened yet" in text
    assert fds("rewind", "--to", "0", *WHY, "--yes", "--replace")[0] == 0


def test_a_reason_is_required(fds, ledger):
    before = ledger().n
    code, text = fds("rewind", "--to", "start", "--yes")

    assert (code, "--yes needs a reason. Add --why TEXT" in text) == (2, True)
    assert fds("rewind", "--to", "start", "--yes", "--why", " ")[0] == 2
    assert fds("hold")[0] == 2
    assert ledger().n == before


@pytest.mark.parametrize(
    "command",
    [
        ("rewind", "--to", "start"),
        ("rewind", "--to", "0"),
        ("rewind", "--to", "batch:0"),
        ("replan",),
        ("replan", "--new-sink"),
        ("skip", "--version", "3"),
        ("unlock",),
        ("transfer", "--deployment", "new"),
        ("recover", "--checkpoint", "{tmp}/checkpoint"),
        ("fork", "audit"),
    ],
    ids=" ".join,
)
def test_a_dry_run_shows_the_change_needs_no_reason_and_changes_nothing(fds, log_builder, tmp_path, command):
    log_builder.append(1)
    staging = tmp_path / "staging"
    files = {path: path.read_bytes() for path in staging.rglob("*") if path.is_file()}
    name, *more = (word.format(tmp=tmp_path) for word in command)
    code, text = fds(name, *more, "--dry-run")

    assert code == 0, text
    assert "before: " in text or "is written again from the ledger" in text
    assert {path: path.read_bytes() for path in staging.rglob("*") if path.is_file()} == files
    assert not (tmp_path / "checkpoint").exists()
    # the same without a terminal is not an answer
    code, text = fds(name, *more)
    assert (code, "nothing was done: there is no terminal" in text) == (2, True), text
    assert {path: path.read_bytes() for path in staging.rglob("*") if path.is_file()} == files


def test_a_person_at_a_terminal_is_also_asked_for_the_reason(fds, ledger, monkeypatch):
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    answers = iter(["y", "", "y", "wrong rows"])
    monkeypatch.setattr("builtins.input", lambda _prompt: next(answers))
    before = ledger().n

    code, text = fds("rewind", "--to", "0")
    assert (code, "nothing was done: a reason is needed" in text, ledger().n) == (0, True, before)
    assert fds("rewind", "--to", "0")[0] == 0
    assert ledger().state.request.why == "wrong rows"


def test_the_end_of_the_input_is_no_agreement(fds, ledger, monkeypatch):
    def ended(_prompt: str) -> str:
        raise EOFError

    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("builtins.input", ended)
    code, text = fds("replan", *WHY)
    assert (code, "nothing was done" in text, ledger().state.epoch) == (0, True, 1)


@pytest.mark.parametrize(
    ("target", "says"),
    [
        (
            "soon",
            "a time (2026-01-31T06:00:00Z), a batch (batch:7) or start: timestamp 'soon' cannot",
        ),
        ("batch:x", "or start: timestamp 'batch:x' cannot"),
        ("2026-10-25 02:30 Europe/Berlin", "the clocks are set back"),
        ("-1", "-1 is not a version"),
        ("99", "a rewind can only move backwards"),
        ("batch:9", "has no batch 9"),
    ],
)
def test_a_target_that_cannot_be_is_an_error_that_names_the_forms(fds, ledger, target, says):
    before = ledger().n
    code, text = fds("rewind", "--to", target, *WHY, "--yes")

    assert (code, says in text) == (2, True), text
    assert ledger().n == before


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--to", "0", "--load-skipped"), "--load-skipped is for --to start, not for --to 0"),
        (
            ("--to", "start", "--sink-rows", "delete"),
            "Use --sink-rows empty, which removes all rows, or --sink-rows keep",
        ),
    ],
)
def test_options_that_contradict_the_target_are_named(fds, words, says):
    code, text = fds("rewind", *words, *WHY, "--yes")
    assert (code, says in text) == (2, True), text


def test_the_start_of_a_stream_without_start_options_is_a_new_snapshot(log_builder, tmp_path, capsys):
    log_builder.create()
    log_builder.append(1)
    place = ("--staging", str(tmp_path / "staging"))
    assert main(["plan", str(log_builder.root), "--stream", "orders", *place]) == 0
    assert main(["rewind", "orders", "--to", "start", "--dry-run", *place]) == 0
    assert "begins with a new snapshot of the table, not its history" in capsys.readouterr().out


def test_an_unknown_stream_is_named(fds):
    code, text = fds("rewind", "--to", "start", *WHY, "--yes", stream="nothing")

    assert code == 2
    assert "there is no stream 'nothing'" in text


def test_a_held_stream_is_resumed_by_its_command(fds, ledger):
    assert "is held until `fds resume`" in fds("hold", *WHY)[1]
    assert "was held already" in fds("hold", *WHY)[1]
    assert ledger().state.held is not None
    fds("resume", *WHY)
    assert ledger().state.held is None


def test_planned_batches_without_a_run_are_unlocked(fds):
    code, text = fds("unlock", *WHY, "--yes")

    assert code == 0
    assert "lets its next run take over 1 planned batch (20 rows)" in text
    assert "The planned batches belong to no run: a command planned or released them." in text


def claimed_by(read: Ledger, run_id: str) -> Owner:
    """Let a process have the planned batches."""
    owner = Owner(kind="cli", deployment=read.state.deployment, run_id=run_id)
    claim = Claimed(epoch=1, owner=owner, previous=read.state.owner, why="test")
    read.execute(claim, Actor(deployment=read.state.deployment, user="ann", host="desk"))
    return owner


def test_planned_batches_of_another_machine_are_unlocked_after_a_preview_of_what_is_known(fds, ledger):
    other = claimed_by(ledger(), "other-host:1:2")
    entry = ledger().n
    code, text = fds("unlock", *WHY)

    assert code == 2
    assert f"The planned batches belong to {other.describe()}, which took them at 20" in text
    assert f"its last sign of life is ledger entry {entry} (claimed) at 20" in text
    assert "Whether it is running cannot be seen from here: make sure that it is not." in text
    assert ledger().state.owner == other
    assert fds("unlock", *WHY, "--yes")[0] == 0
    assert ledger().state.owner != other
    assert [*ledger().entries()][-1].action.previous == other


def test_planned_batches_of_a_run_that_is_known_to_run_are_unlocked_by_force_only(fds, ledger):
    alive = claimed_by(ledger(), process_owner("cli").run_id)
    code, text = fds("unlock", *WHY, "--yes")

    assert code == 2
    assert f"belong to {alive.describe()}, which is running. Stop it, or wait for it to end. With --force," in text
    assert ledger().state.owner == alive
    code, text = fds("unlock", *WHY, "--yes", "--force")
    assert (code, "It is running." in text) == (0, True)
    assert ledger().state.owner != alive


def test_nothing_planned_is_nothing_to_unlock(fds):
    fds("replan", *WHY, "--yes")

    assert "has no planned batches" in fds("unlock", *WHY)[1]


def test_an_answer_by_write_is_read_and_an_invalid_one_is_explained(capsys):
    from airflow_provider_fds.cli.main import parser

    arguments = ["replan", "x", "--why", "a test", "--staging", "s", "--landed"]
    assert parser().parse_args([*arguments, "kept=yes,gone=no"]).landed == {"kept": True, "gone": False}
    assert main([*arguments, "perhaps"]) == 2
    assert "expected yes, no, or WRITE=yes|no for each write once, got 'perhaps'" in capsys.readouterr().err


def test_a_stream_with_a_planned_batch_is_not_retired_before_it_is_decided(fds, ledger):
    before = ledger().n
    code, text = fds("retire", *WHY, "--yes")
    assert code == 2, text
    assert "is planned and may be on its way into the sink" in text
    assert ledger().n == before
