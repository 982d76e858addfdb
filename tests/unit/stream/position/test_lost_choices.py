"""A lost position with ``on_violation="ask"``: the stream waits for a person, who may skip what is surely lost."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import deltalake
import pytest

from airflow_provider_fds.cli.main import main
from airflow_provider_fds.delta.reader.log import DeltaLog
from airflow_provider_fds.errors import LogTruncatedError
from airflow_provider_fds.sinks import DeltaMergeSink
from airflow_provider_fds.source.offset import Offset
from airflow_provider_fds.stream.actions.action_builder import ActionBuilder
from airflow_provider_fds.stream.actions.stop_choices import asked_about, choices_of, decision_on, needs_reason
from airflow_provider_fds.ui.actions import describe_actions

if TYPE_CHECKING:
    from airflow_provider_fds.sinks import DeltaAppendSink
    from airflow_provider_fds.stream.connected_stream import ConnectedStream
    from tests.unit.stream.conftest import Bench

ASK = {"on_violation": "ask"}


@pytest.fixture
def behind(bench: Bench, log_builder: Any, sink: DeltaAppendSink) -> Any:
    """A stream that has read version 1 of a table with versions up to 6."""
    log_builder.create()
    log_builder.append()
    run(bench, sink, "run-1")
    for _ in range(5):
        log_builder.append()
    return log_builder


@pytest.fixture
def cleaned_up(behind: Any) -> Any:
    """Its log was cleaned up before version 4."""
    clean_up(behind, 4)
    return behind


def clean_up(builder: Any, version: int) -> None:
    deltalake.DeltaTable(str(builder.root)).create_checkpoint()
    builder.clean_up_before(version)


def run(bench: Bench, sink: Any, name: str, **options: Any) -> Any:
    return bench.load_once(sink, name, bench.stream(**{**ASK, **options}))


def fds(bench: Bench, *words: str) -> int:
    return main([*words, "--staging", str(bench.staging), "--deployment", "test", "--why", "it was test data"])


def seen(bench: Bench) -> ConnectedStream:
    connected = bench.session("looker", stream=bench.stream(**ASK)).connected
    connected.load()
    return connected


def chosen(connected: ConnectedStream) -> dict[str, str]:
    builder = ActionBuilder(connected.ledger, "seen", log=connected.log)
    return {choice.name: choice.effect for choice in choices_of(builder)}


@pytest.mark.usefixtures("cleaned_up")
def test_versions_that_are_gone_may_be_skipped_and_the_choice_says_how_many_and_what_it_costs(bench, sink):
    work = run(bench, sink, "run-2")
    assert work.status == "paused"
    for text in ("version 2", "oldest remaining commit is version 4", "`fds skip orders --version 2-3 --why …`"):
        assert text in work.reason
    connected = seen(bench)
    stop = connected.state.quarantined
    assert (stop.version, stop.last, stop.lost) == (2, 3, "LOG_TRUNCATED")
    choices = chosen(connected)
    assert list(choices) == ["skip", "resume", "hold", "stop"]
    assert "2 versions (versions 2 to 3) were removed by log cleanup" in choices["skip"]
    assert "No row of versions 2 to 3 is loaded" in choices["skip"]
    assert choices["skip"].endswith("It needs a reason")
    assert [needs_reason(stop, name) for name in choices] == [True, False, False, False]
    (skip,) = (one for one in describe_actions(connected.state, "test") if one["name"] == "skip")
    assert skip["arguments"][0]["value"] == "2-3"


@pytest.mark.usefixtures("cleaned_up")
def test_of_a_range_that_is_gone_in_part_the_note_says_what_the_rest_adds(bench, sink):
    run(bench, sink, "run-2")
    connected = seen(bench)
    notes = ActionBuilder(connected.ledger, "seen", log=connected.log).skip(version=(2, 5)).notes
    assert "2 versions (versions 2 to 3) were removed by log cleanup" in notes[0]
    assert notes[0].endswith(" Versions 4 to 5 add 20 rows in 2 files.")


@pytest.mark.usefixtures("cleaned_up")
def test_once_a_person_skips_them_the_next_run_continues_and_the_ledger_says_who_and_why(bench, sink):
    run(bench, sink, "run-2")
    asked = asked_about(seen(bench).state)
    # earlier versions asked without the number of the entry
    questions = (asked, "lost/LOG_TRUNCATED/3", "lost/LOG_TRUNCATED/2")
    assert [decision_on(seen(bench).state, 2, one) for one in questions] == [None, None, "resume"]
    assert fds(bench, "skip", "orders", "--version", "2-3", "--yes") == 0
    assert decision_on(seen(bench).state, 2, asked) == "skip"
    work = run(bench, sink, "run-3")
    assert [(batch.first_version, batch.last_version) for batch in work.batches] == [(4, 6)]
    (moved,) = [entry.action for entry in seen(bench).ledger.entries() if entry.action.kind == "advanced"]
    (line,) = moved.skipped
    assert "skipped by" in line.reason
    assert "(it was test data): versions 2 to 3 were removed by log cleanup" in line.reason
    assert Offset.from_json(moved.end).version == 4


def test_more_versions_that_are_lost_after_the_decision_stop_the_stream_again(bench, cleaned_up, sink):
    run(bench, sink, "run-2")
    assert fds(bench, "skip", "orders", "--version", "2-3", "--yes") == 0
    clean_up(cleaned_up, 5)
    assert run(bench, sink, "run-3").status == "paused"
    assert seen(bench).state.quarantined.last == 4


def test_versions_that_are_lost_while_a_run_moves_over_skipped_ones_are_not_passed(
    bench, cleaned_up, sink, monkeypatch
):
    run(bench, sink, "run-2")
    assert fds(bench, "skip", "orders", "--version", "2-3", "--yes") == 0
    asked = DeltaLog.earliest

    def earliest(log: DeltaLog) -> int:
        found = asked(log)
        clean_up(cleaned_up, 5)
        return found

    monkeypatch.setattr(DeltaLog, "earliest", earliest)
    assert run(bench, sink, "run-3").status == "paused"
    monkeypatch.undo()
    connected = seen(bench)
    assert Offset.from_json(connected.state.position).version <= 4
    assert connected.state.quarantined.last == 4


@pytest.mark.usefixtures("cleaned_up")
def test_without_quarantine_a_run_fails_until_all_lost_versions_are_skipped(bench, sink):
    with pytest.raises(LogTruncatedError):
        run(bench, sink, "run-2", on_violation="fail")
    assert fds(bench, "skip", "orders", "--version", "2", "--yes") == 0
    with pytest.raises(LogTruncatedError):
        run(bench, sink, "run-3", on_violation="fail")
    assert fds(bench, "skip", "orders", "--version", "3", "--yes") == 0
    assert run(bench, sink, "run-4", on_violation="fail").status == "work"


def test_a_merge_lacks_the_deletes_of_lost_versions_so_nothing_lets_it_skip_them(bench, log_builder, tmp_path):
    sink = DeltaMergeSink(str(tmp_path / "merged"), keys=["id"])
    log_builder.create()
    log_builder.append()
    run(bench, sink, "run-1")
    for _ in range(5):
        log_builder.append()
    clean_up(log_builder, 4)
    assert run(bench, sink, "run-2").status == "paused"
    assert list(chosen(seen(bench))) == ["resume", "hold", "stop"]


def test_another_table_gives_nothing_to_skip(bench, behind, sink):
    shutil.rmtree(behind.root / "_delta_log")
    behind.table_id = "another"
    behind.version = -1
    behind.create()
    for _ in range(6):
        behind.append()
    work = run(bench, sink, "run-2")
    assert work.status == "paused"
    assert "fds skip" not in work.reason
    connected = seen(bench)
    assert connected.state.quarantined.lost == "TABLE_REPLACED"
    assert list(chosen(connected)) == ["resume", "hold", "stop"]


def test_another_table_while_batches_are_planned_stops_the_stream_too(bench, behind, sink):
    work = bench.session("run-2", stream=bench.stream(**ASK)).begin(sink)
    assert work.status == "work"
    shutil.rmtree(behind.root / "_delta_log")
    behind.table_id = "another"
    behind.version = -1
    behind.create()
    behind.append()
    for name in ("run-3", "run-4"):
        work = run(bench, sink, name)
        assert work.status == "paused"
        assert "batch 1 was planned from the table with id" in work.reason
    connected = seen(bench)
    stop = connected.state.quarantined
    assert (stop.lost, len(connected.state.planned)) == ("TABLE_REPLACED", 1)
    assert list(chosen(connected)) == ["resume", "hold", "stop"]
    assert fds(bench, "resume", "orders") == 0
    assert run(bench, sink, "run-5").status == "paused"


def test_a_restored_log_is_read_on_after_resume(bench, behind, sink, tmp_path):
    shutil.copytree(behind.root, tmp_path / "copy")
    clean_up(behind, 4)
    run(bench, sink, "run-2")
    shutil.rmtree(behind.root)
    shutil.copytree(tmp_path / "copy", behind.root)
    assert fds(bench, "resume", "orders") == 0
    assert [(one.first_version, one.last_version) for one in run(bench, sink, "run-3").batches] == [(2, 6)]


@pytest.mark.usefixtures("cleaned_up")
def test_the_sensor_wakes_a_run_that_stops_and_the_state_is_then_quarantine(bench, sink):
    assert bench.poller(bench.stream(**ASK)).check().reason == "position is lost"
    run(bench, sink, "run-2")
    status = bench.session("looker", stream=bench.stream(**ASK)).status()
    assert status.condition == "quarantined"
    assert status.attention["action"].startswith("fds skip orders --version 2-3")
