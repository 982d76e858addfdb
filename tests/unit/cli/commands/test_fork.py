"""``fds fork``: what it creates, says and refuses."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_fds.cli.main import main
from airflow_provider_fds.delta.storage.open import open_storage
from airflow_provider_fds.ledger.staging.log import Ledger

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def fds(log_builder: Any, tmp_path: Path, capsys: Any) -> Callable[..., tuple[int, str]]:
    """Runs a command beside the stream ``orders`` of deployment ``prod``, which is at version 1 of 2."""
    log_builder.create()
    log_builder.append(1)
    log_builder.append(1)
    staging = ("--staging", str(tmp_path / "staging"))
    begun = ("plan", str(log_builder.root), "--stream", "orders", "--option", "starting_version=1")
    assert main([*begun, *staging, "--deployment", "prod"]) == 0
    capsys.readouterr()

    def run(*arguments: str) -> tuple[int, str]:
        code = main([*arguments, *staging])
        out = capsys.readouterr()
        return code, out.out + out.err

    return run


def test_a_clone_starts_at_the_position_and_the_same_command_again_does_nothing(fds, tmp_path):
    code, text = fds("fork", "orders", "audit", "--sink", str(tmp_path / "audit sink"), "--why", "an audit", "--yes")
    assert "after:  a fork of orders, which starts at " in text
    assert code == 0, text
    assert "stream 'audit' is a fork of 'orders' and starts at the beginning of version 1" in text
    assert "it is bound to" in text
    ledger = Ledger(open_storage(str(tmp_path / "staging")), "audit")
    state = ledger.find()
    assert (state.deployment, state.origin.stream, state.range_options) == ("prod", "orders", {"starting_version": 1})

    code, text = fds("fork", "orders", "audit", "--sink", str(tmp_path / "audit sink"))
    assert (code, "is already a fork of 'orders'" in text) == (0, True), text
    assert ledger.refresh() == state

    code, text = fds("status", "audit")
    assert (code, "fork of" in text) == (0, True), text
    first = json.loads(fds("history", "audit", "--output", "json")[1].splitlines()[0])
    assert first["action"]["kind"] == "forked"
    assert first["action"]["why"] == "an audit"
    text = fds("history", "audit")[1]
    assert "continues stream orders (uuid " in text
    assert "why: an audit" in text


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("nothing", "audit"), "there is no stream 'nothing'"),
        (("orders", "orders"), "cannot be a fork of itself"),
        (("orders", "a/b"), "name 'a/b' must have"),
    ],
)
def test_what_cannot_work_is_refused(fds, arguments, says):
    code, text = fds("fork", *arguments)
    assert (code, says in text) == (2, True), text


def test_a_stream_that_exists_is_refused(fds, log_builder):
    assert fds("plan", str(log_builder.root), "--stream", "audit", "--option", "starting_version=0")[0] == 0
    code, text = fds("fork", "orders", "audit", "--deployment", "cli")
    assert (code, "exists and is not a fork of 'orders'" in text) == (2, True), text


def test_a_stream_of_another_table_is_refused(fds, tmp_path):
    from deltalake import write_deltalake
    from pyarrow import table

    write_deltalake(tmp_path / "customers", table({"id": [1]}))
    assert fds("plan", str(tmp_path / "customers"), "--stream", "audit", "--option", "starting_version=0")[0] == 0
    code, text = fds("fork", "orders", "audit", "--deployment", "cli")
    assert (code, "customers since it was created, but its table is now" in text) == (2, True), text
