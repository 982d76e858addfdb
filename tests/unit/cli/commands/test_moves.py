"""``fds rewind`` and the like: what is shown, asked and written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_fds.cli.main import main
from airflow_provider_fds.delta.storage.open import open_storage
from airflow_provider_fds.ledger.log import Ledger

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
        (("rewind", "--to-version", "0"), "epoch 2, reads from version 0 on"),
        (("reset",), "epoch 2, begins at its start options"),
        (("replan",), "Discards 1 planned batch"),
        (("rebind",), "its next run binds it to that run's sink"),
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
    code, text = fds("reset", *WHY)

    assert code == 2
    assert "without a terminal; nothing was done. Use --yes" in text
    assert ledger().n == before


@pytest.mark.parametrize(("answer", "epoch"), [("y", 2), ("no", 1), ("", 1)])
def test_a_command_asks_for_confirmation(fds, ledger, monkeypatch, answer, epoch):
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("builtins.input", lambda _prompt: answer)

    assert fds("reset", *WHY)[0] == 0
    assert ledger().state.epoch == epoch


def test_a_request_with_a_name_is_made_once(fds, ledger):
    for _ in range(2):
        code, text = fds("reset", *WHY, "--yes", "--request-id", "ticket 7")
        assert code == 0, text

    assert ledger().state.epoch == 2


def test_a_request_with_a_known_id_is_not_made_again(fds, ledger):
    asked = ("rewind", "--to-version", "0", *WHY, "--yes", "--request-id", "ticket 8")
    assert fds(*asked)[0] == 0
    code, text = fds(*asked)

    assert code == 0
    assert "request 'ticket 8' was already made; nothing is done again" in text
    assert ledger().state.epoch == 2


@pytest.mark.parametrize("option", [("--sink-rows", "delete"), ("--sink-rows", "empty")])
def test_rows_of_a_stream_without_a_sink_cannot_be_removed(fds, ledger, option):
    before = ledger().n
    code, text = fds("rewind", "--to-version", "0", *WHY, "--yes", *option)

    assert code == 2
    assert f"is not bound to a sink, so {' '.join(option)} is not available" in text
    assert ledger().n == before


def test_a_second_request_is_refused_and_the_error_shows_the_pending_one(fds):
    fds("reset", *WHY, "--yes")
    code, text = fds("rewind", "--to-version", "0", *WHY, "--yes")

    assert code == 2
    assert "epoch 2 was requested (reset: wrong rows) and is not opened yet" in text
    assert fds("rewind", "--to-version", "0", *WHY, "--yes", "--replace")[0] == 0


def test_a_reason_is_required(fds):
    assert fds("reset", "--yes")[0] == 2


def test_an_unknown_stream_is_named(fds):
    code, text = fds("reset", *WHY, "--yes", stream="nothing")

    assert code == 2
    assert "there is no stream 'nothing'" in text


def test_a_held_stream_is_resumed_by_its_command(fds, ledger):
    assert "is held until `fds resume`" in fds("hold", *WHY)[1]
    assert "was held already" in fds("hold", *WHY)[1]
    assert ledger().state.held is not None
    fds("resume", *WHY)
    assert ledger().state.held is None


def test_planned_batches_without_an_owner_are_adopted_without_force(fds):
    assert "lets its next run take over 1 planned batch" in fds("adopt", *WHY)[1]


def test_planned_batches_of_another_machine_are_adopted_by_force_only(fds, ledger):
    from airflow_provider_fds.ledger.owner import Actor, Owner
    from airflow_provider_fds.ledger.plan_entries import Claimed

    read = ledger()
    other = Owner(kind="cli", deployment=read.state.deployment, run_id="other-host:1:2")
    claim = Claimed(epoch=1, owner=other, previous=read.state.owner, why="test")
    read.execute(claim, Actor(deployment=read.state.deployment))
    code, text = fds("adopt", *WHY)
    assert code == 2
    assert "appears to be running. If you are sure that it is gone, use --force" in text
    assert fds("adopt", *WHY, "--force")[0] == 0
    assert ledger().state.owner != other


def test_nothing_planned_is_nothing_to_adopt(fds):
    fds("replan", *WHY, "--yes")

    assert "has no planned batches" in fds("adopt", *WHY)[1]


def test_an_answer_by_write_is_read_and_an_invalid_one_is_explained(capsys):
    from airflow_provider_fds.cli.main import main, parser

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
