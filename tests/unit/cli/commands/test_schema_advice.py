"""The commands in the message about a changed schema, performed in the order in which it names them."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_fds.cli.main import main

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

FEED = {"delta.enableChangeDataFeed": "true"}


@pytest.fixture
def fds(tmp_path: Path, capsys: Any) -> Callable[..., tuple[int, str]]:
    def run(*arguments: str) -> tuple[int, str]:
        code = main([*arguments, "--staging", str(tmp_path / "staging")])
        out = capsys.readouterr()
        return code, out.out + out.err

    return run


def perform(fds: Callable[..., tuple[int, str]], message: str, *names: str) -> None:
    """Perform the commands of a message with these names, in its order; each has to succeed."""
    found = [shlex.split(command) for command in re.findall(r"`fds ([^`]+) --why …`", message)]
    chosen = [words for words in found if words[0] in names]
    assert sorted(words[0] for words in chosen) == sorted(names)
    for words in chosen:
        code, out = fds(*words, "--why", "test", "--yes")
        assert code == 0, out


def test_a_stream_passes_another_type_into_another_sink(fds, log_builder):
    log_builder.create()
    plan = ("plan", str(log_builder.root), "--stream", "orders", "--option", "starting_version=latest")
    assert fds(*plan)[0] == 0
    log_builder.commit(log_builder.metadata(configuration={"owner": "sales"}))
    assert fds(*plan)[0] == 0
    log_builder.commit(log_builder.metadata([log_builder.field("id", "string")]), operation="ALTER TABLE")
    log_builder.append()
    code, message = fds(*plan)
    assert (code, "version 2 changes the schema" in message) == (3, True), message
    perform(fds, message, "accept", "replan")
    code, out = fds(*plan)
    assert (code, "batch 0: versions 2 to 3" in out) == (0, True), out


def test_a_change_feed_that_changes_types_begins_anew_in_another_sink(fds, log_builder):
    log_builder.create(configuration=FEED)
    plan = ("plan", str(log_builder.root), "--stream", "orders", "--option", "read_change_feed=true")
    latest = ("--option", "starting_version=latest")
    log_builder.append()
    assert fds(*plan, *latest)[0] == 0
    log_builder.commit(log_builder.metadata(configuration={**FEED, "owner": "sales"}))
    assert fds(*plan, *latest)[0] == 0
    log_builder.commit(
        log_builder.metadata([log_builder.field("id", "string")], configuration=FEED),
        log_builder.remove("part-00001-00000.parquet"),
        log_builder.add("part-00003-00000.parquet"),
    )
    code, message = fds(*plan, *latest)
    assert (code, "version 3 overwrites the table with other types" in message) == (3, True), message
    perform(fds, message, "replan", "rewind")
    code, out = fds(*plan)
    assert (code, "initial snapshot of version 3" in out) == (0, True), out
