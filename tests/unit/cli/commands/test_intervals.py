"""Streams that read data intervals, as the commands show them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from airflow_provider_fds.cli.main import main
from airflow_provider_fds.ledger.owner import Actor, Owner
from airflow_provider_fds.sinks import DeltaAppendSink
from airflow_provider_fds.stream import DataInterval, DeltaStream, StreamContext, StreamSession


@pytest.fixture
def staging(log_builder, tmp_path):
    log_builder.create()
    log_builder.append(2)
    context = StreamContext(
        staging_uri=str(tmp_path / "staging"),
        deployment="cli",
        actor=Actor(deployment="cli", user="me", host="here"),
        owner=Owner(kind="cli", deployment="cli", run_id="r"),
        owner_is_running=lambda _owner: False,
    )
    start = datetime(2024, 1, 1, tzinfo=UTC)
    stream = DeltaStream("days", table=str(log_builder.root), read="data_interval")
    session = StreamSession(stream, context, DataInterval(start, start + timedelta(hours=1)))
    session.begin(DeltaAppendSink(str(tmp_path / "sink")))
    return str(tmp_path / "staging")


def fds(capsys, *arguments):
    try:
        code = main(list(arguments))
    except SystemExit as leave:
        code = leave.code
    printed = capsys.readouterr()
    return code, printed.out + printed.err


NAME = "2024-01-01T00:00:00.000Z/2024-01-01T01:00:00.000Z"


@pytest.mark.parametrize("command", [["status"], ["history"], ["status", "--full"]])
def test_a_stream_of_intervals_has_a_status(staging, capsys, command):
    code, text = fds(capsys, *command, "days", "--staging", staging)
    assert code == 0, text
    assert NAME in text or "--full" in command


def test_an_interval_that_is_not_blocked_cannot_be_accepted(staging, capsys):
    code, text = fds(capsys, "accept", "days", "--staging", staging, "--interval", NAME, "--why", "looked", "--yes")
    assert code == 2
    assert "is not blocked" in text


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ("2024-01-01T00:00/2024-01-01T01:00", f"interval {NAME!r} is not blocked"),
        ("2024-01-01 01:00 Europe/Berlin/2024-01-01T02:00+01:00", f"interval {NAME!r} is not blocked"),
        ("2024-01-01T01:00+01:00/2024-01-01T02:00+01:00", f"interval {NAME!r} is not blocked"),
        ("2024-10-27 02:00 CET/2024-10-27 03:00 CET", "either 2024-10-27T00:00:00Z or 2024-10-27T01:00:00Z"),
        ("2024-01-01T01:00", "is not <start>/<end>"),
    ],
)
def test_an_interval_can_be_asked_for_in_any_zone_but_not_by_a_time_that_is_there_twice(staging, capsys, asked, says):
    code, text = fds(capsys, "accept", "days", "--staging", staging, "--interval", asked, "--why", "looked", "--yes")
    assert (code, says in text) == (2, True), text


def test_a_run_by_offset_is_refused(staging, log_builder, tmp_path, capsys):
    arguments = ("--stream", "days", "--staging", staging, "--checkpoint", str(tmp_path / "c.json"))
    code, text = fds(capsys, "run", str(log_builder.root), "--sink", str(tmp_path / "sink"), *arguments)
    assert code == 2
    assert "reads data intervals" in text
