"""A version that the stream cannot pass: fail each run, or write it down once and wait for a person."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_fds.cli.main import main
from airflow_provider_fds.errors import SchemaChangedError, ViolationError
from airflow_provider_fds.ledger.entries.refusals import EpochClosedError, StreamMovedError
from airflow_provider_fds.stream.monitoring.condition import Evidence, advice_on

if TYPE_CHECKING:
    from airflow_provider_fds.sinks import DeltaAppendSink
    from tests.unit.stream.conftest import Bench


@pytest.fixture
def table(log_builder: Any) -> Any:
    """Version 1 appends, version 2 changes, version 3 appends."""
    log_builder.create()
    log_builder.append()
    log_builder.commit(log_builder.add("c"), log_builder.remove("part-00001-00000.parquet"), operation="UPDATE")
    log_builder.append()
    return log_builder


@pytest.fixture
def renamed(log_builder: Any) -> Any:
    """Version 1 appends, version 2 has another schema, version 3 appends under it."""
    field = log_builder.field
    log_builder.create([field("id"), field("name", "string")])
    log_builder.append()
    log_builder.commit(log_builder.metadata([field("id"), field("label", "string")]), operation="RENAME COLUMN")
    log_builder.append()
    return log_builder


def run(bench: Bench, sink: DeltaAppendSink, name: str, **options: Any) -> Any:
    """Work one run of the stream to its end and return the work it found first."""
    return bench.load_once(sink, name, bench.stream(**options))


def fds(bench: Bench, *words: str) -> int:
    return main([*words, "--staging", str(bench.staging), "--deployment", "test", "--why", "looked at it"])


def state_of(bench: Bench, **options: Any) -> Any:
    return bench.session("looker", stream=bench.stream(**options)).connected.load()


def test_the_good_prefix_is_loaded_and_the_run_that_meets_the_version_first_enters_quarantine(bench, table, sink):
    options = {"on_violation": "quarantine"}
    first = run(bench, sink, "run-1", **options)
    assert (first.status, first.batches[-1].last_version) == ("work", 1)
    assert isinstance(first.warning, ViolationError)

    second = run(bench, sink, "run-2", **options)

    assert second.status == "paused"
    for text in (
        "'orders' is in quarantine",
        "version 2",
        "UPDATE",
        "fds skip orders --version 2",
        "fds resume",
    ):
        assert text in second.reason
    assert state_of(bench, **options).quarantined.version == 2


def test_later_runs_end_at_once_and_read_only_the_ledger(bench, table, sink):
    options = {"on_violation": "quarantine"}
    for name in ("run-1", "run-2"):
        run(bench, sink, name, **options)
    session = bench.session("run-3", stream=bench.stream(**options))
    session.connected.load()
    entries = session.connected.ledger.n
    for path in (table.root / "_delta_log").iterdir():
        path.unlink()

    work = session.begin(sink)

    assert work.status == "paused"
    assert session.connected.ledger.n == entries


def test_a_skipped_violation_is_skipped_whole_and_recorded_with_who_and_why(bench, table, sink):
    options = {"on_violation": "quarantine"}
    for name in ("run-1", "run-2"):
        run(bench, sink, name, **options)

    assert fds(bench, "skip", "orders", "--version", "2", "--yes") == 0
    third = run(bench, sink, "run-3", **options)

    assert third.status == "work"
    (batch,) = third.batches
    assert (batch.first_version, batch.last_version, batch.num_files) == (2, 3, 1)
    (skipped,) = batch.skipped
    assert skipped.version == 2
    assert "looked at it" in skipped.reason
    assert "skipped by " in skipped.reason
    assert "it adds 1 data file and removes 1 data file" in skipped.reason


def test_a_resumed_stream_tries_again_with_its_current_options(bench, table, sink):
    for name in ("run-1", "run-2"):
        run(bench, sink, name, on_violation="quarantine")

    assert fds(bench, "resume", "orders") == 0
    assert run(bench, sink, "run-3", on_violation="quarantine").status == "paused"
    assert fds(bench, "resume", "orders") == 0
    work = run(bench, sink, "run-4", on_violation="quarantine", ignore_changes=True)

    assert work.status == "work"
    assert [batch.num_files for batch in work.batches] == [2]


def test_without_quarantine_each_run_fails_until_a_person_skips_the_version(bench, table, sink):
    run(bench, sink, "run-1")
    for name in ("run-2", "run-3"):
        with pytest.raises(ViolationError):
            run(bench, sink, name)

    assert fds(bench, "skip", "orders", "--version", "2", "--yes") == 0
    assert run(bench, sink, "run-4").status == "work"


def test_a_version_that_the_stream_has_passed_cannot_be_accepted(bench, table, sink, capsys):
    run(bench, sink, "run-1")
    assert fds(bench, "accept", "orders", "--version", "1") == 2
    assert "already past version 1" in capsys.readouterr().err


def test_the_same_request_twice_is_one_entry(bench, table, sink):
    run(bench, sink, "run-1")
    for _ in range(2):
        assert fds(bench, "skip", "orders", "--version", "2", "--yes") == 0
    (word,) = state_of(bench).acknowledged
    assert (word.version, word.why) == (2, "looked at it")


# D18
@pytest.mark.parametrize("way", ["option", "word"])
def test_65_an_accepted_schema_version_is_a_barrier_that_batches_end_at(bench, renamed, sink, way):
    """Conformance case 65."""
    first = run(bench, sink, "run-1")
    assert [batch.last_version for batch in first.batches] == [1]
    with pytest.raises(SchemaChangedError, match="- name: ") as stopped:
        run(bench, sink, "run-2")
    assert "accepted_schema_version=2" in str(stopped.value)
    assert "fds accept STREAM --version 2" in str(stopped.value)

    options = {}
    if way == "option":
        options = {"accepted_schema_version": 2}
    else:
        # it asks, and there is nobody to ask
        assert fds(bench, "accept", "orders", "--version", "2") == 2
        assert fds(bench, "accept", "orders", "--version", "2", "--dry-run") == 0
        with pytest.raises(SchemaChangedError):
            run(bench, sink, "run-2")
        assert fds(bench, "accept", "orders", "--version", "2", "--yes") == 0
    work = run(bench, sink, "run-3", **options)

    assert [(batch.first_version, batch.last_version) for batch in work.batches] == [(2, 3)]
    assert work.batches[0].skipped == ()
    manifest = next((bench.staging / "orders" / work.batches[0].manifest / "_delta_log").glob("*.json")).read_text()
    assert "label" in manifest
    assert '\\"name\\":\\"name\\"' not in manifest


def test_a_range_that_is_planned_over_an_acknowledged_barrier_is_cut_at_it(bench, renamed, sink):
    # the sink that the first batch creates lacks the new name
    work = run(bench, replace(sink, merge_schema=True), "run-1", accepted_schema_version=2)
    assert [(batch.first_version, batch.last_version) for batch in work.batches] == [(0, 1), (2, 3)]


def test_a_schema_can_be_put_in_quarantine_and_accepted(bench, renamed, sink):
    options = {"on_violation": "quarantine"}
    run(bench, sink, "run-1", **options)
    assert run(bench, sink, "run-2", **options).status == "paused"
    assert fds(bench, "accept", "orders", "--version", "2", "--yes") == 0
    assert run(bench, sink, "run-3", **options).status == "work"


def test_a_commit_whose_changes_cannot_be_read_is_not_advised_to_be_skipped_which_would_not_help(
    bench, log_builder, sink
):
    log_builder.create(configuration={"delta.enableChangeDataFeed": "true"})
    log_builder.append()
    log_builder.commit(log_builder.remove("part-00001-00000.parquet", size=None), operation="DELETE")
    options = {"on_violation": "quarantine", "read_change_feed": True}
    assert run(bench, sink, "run-1", **options).status == "work"

    paused = run(bench, sink, "run-2", **options)

    assert (paused.status, paused.warning.version) == ("paused", 2)
    assert "without its size" in paused.reason
    assert "fds resume orders" in paused.reason
    assert "fds skip" not in paused.reason


def test_a_commit_that_names_one_file_twice_is_advised_to_be_skipped_which_helps(bench, log_builder, sink):
    log_builder.create()
    log_builder.append()
    log_builder.commit(log_builder.add("c"), log_builder.add("c"))
    log_builder.append()
    options = {"on_violation": "quarantine"}
    run(bench, sink, "run-1", **options)
    assert "`fds skip orders --version 2" in run(bench, sink, "run-2", **options).reason
    assert fds(bench, "skip", "orders", "--version", "2", "--yes") == 0
    assert run(bench, sink, "run-3", **options).status == "work"


def found_late(bench: Bench, sink: DeltaAppendSink, monkeypatch: Any, meanwhile: Any) -> Any:
    """Let a run find a stop, and ``meanwhile`` happen before it writes the entry."""
    session = bench.session("slow", stream=bench.stream(on_violation="quarantine"))
    session.connected.load()
    execute = session.connected.execute

    def slow(action: Any) -> Any:
        if action.kind == "quarantined":
            meanwhile()
        return execute(action)

    monkeypatch.setattr(session.connected, "execute", slow)
    return session.begin(sink)


def test_a_stop_that_was_found_before_a_rewind_does_not_stop_the_new_epoch(bench, table, sink, monkeypatch):
    run(bench, sink, "run-1", on_violation="quarantine")
    with pytest.raises(EpochClosedError, match="closed by a rewind") as late:
        found_late(
            bench,
            sink,
            monkeypatch,
            lambda: fds(bench, "rewind", "orders", "--to", "0", "--sink-rows", "keep", "--yes"),
        )
    assert late.value.retryable
    assert state_of(bench).quarantined is None


def test_a_stop_that_a_person_lets_the_stream_pass_meanwhile_is_not_written(bench, table, sink, monkeypatch):
    run(bench, sink, "run-1", on_violation="quarantine")
    with pytest.raises(StreamMovedError, match="a person has let it pass version 2"):
        found_late(bench, sink, monkeypatch, lambda: fds(bench, "skip", "orders", "--version", "2", "--yes"))
    assert run(bench, sink, "run-3", on_violation="quarantine").status == "work"


def test_a_stop_is_not_written_once_another_run_has_passed_it(bench, table, sink, monkeypatch):
    run(bench, sink, "run-1", on_violation="quarantine")
    with pytest.raises(StreamMovedError, match="was found at"):
        found_late(bench, sink, monkeypatch, lambda: run(bench, sink, "run-2", ignore_changes=True))
    assert state_of(bench).quarantined is None


def test_a_lost_position_that_was_found_before_a_rewind_does_not_stop_the_new_epoch(bench, table, sink, monkeypatch):
    run(bench, sink, "run-1", on_violation="quarantine")
    for version in range(3):
        (table.root / "_delta_log" / f"{version:020}.json").unlink()
    with pytest.raises(EpochClosedError):
        found_late(
            bench,
            sink,
            monkeypatch,
            lambda: fds(bench, "rewind", "orders", "--to", "start", "--sink-rows", "keep", "--yes"),
        )
    assert state_of(bench).quarantined is None


@pytest.mark.parametrize("is_held", [False, True])
def test_a_run_and_fds_explain_say_the_same_of_a_stream_that_waits_for_a_person(bench, table, sink, is_held):
    if is_held:
        bench.load_once(sink)
        assert fds(bench, "hold", "orders") == 0
    paused = run(bench, sink, "run-1", on_violation="quarantine")
    while paused.status == "work":
        paused = run(bench, sink, "run-2", on_violation="quarantine")
    assert paused.status == "paused"
    state = bench.session("run-3").connected.load()
    cause, commands = advice_on("held" if is_held else "quarantined", Evidence(state))
    assert cause.removeprefix("The stream") in paused.reason
    for command, effect in commands:
        assert f"`{command}` {effect}" in paused.reason
