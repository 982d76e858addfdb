"""A batch that would leave out too many rows: the stream goes into quarantine until a person decides on that batch."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_fds.batch.report import AttemptReport, decode
from airflow_provider_fds.batch.spec import JobSpec
from airflow_provider_fds.cli.main import main
from airflow_provider_fds.delta.storage.open import open_storage
from airflow_provider_fds.errors import StreamBusyError
from airflow_provider_fds.ledger.entries.operator_entries import Quarantined
from airflow_provider_fds.ledger.owner import Actor
from airflow_provider_fds.ledger.staging.log import Ledger
from airflow_provider_fds.stream.actions.action_builder import ActionBuilder
from airflow_provider_fds.stream.actions.prepared_action import perform
from airflow_provider_fds.stream.actions.stop_choices import asked_about, choices_of, decision_on, prepare_choice
from airflow_provider_fds.ui.actions import describe_actions

if TYPE_CHECKING:
    from airflow_provider_fds.sinks import DeltaAppendSink
    from airflow_provider_fds.stream import RunWork, StreamSession
    from tests.unit.stream.conftest import Bench

EXPECT = {"id > 0": "reject", "id <> 7": "drop", "id < 99": "warn"}
FAILED = {"id > 0": 3, "id <> 7": 1, "id < 99": 0}
PERSON = Actor(deployment="test", user="alice", host="airflow-ui")
#: What the driver reports of a batch that leaves out 4 of 10 rows.
REFUSED: dict[str, Any] = {
    "outcome": "failed",
    "sink_version": None,
    "rows_written": None,
    "reason": "TOO_MANY_REJECTED",
    "error_class": "TOO_MANY_REJECTED",
    "error_message": "too many, such as (id=-4)",
    "retryable": False,
    "rows_tested": 10,
    "rows_rejected": 4,
    "failed_rows": FAILED,
}


def declared(bench: Bench, **options: Any) -> Any:
    given = {"expect": EXPECT, "max_rejected": 0.1, "rejects": str(bench.staging.parent / "rejects")}
    return bench.stream(**{**given, "on_violation": "ask", "max_versions_per_batch": 1, **options})


def refused(bench: Bench, sink: DeltaAppendSink, run: str, *, most: int = 1, **changes: Any) -> StreamSession:
    """Let a run try ``most`` batches, all of which its driver refuses; return it."""
    session, work = begun(bench, sink, run, most)
    bench.report(session, work, session.job(work, sink), **{**REFUSED, **changes})
    session.collect(work)
    return session


def begun(bench: Bench, sink: DeltaAppendSink, run: str, most: int = 1) -> tuple[StreamSession, RunWork]:
    session = bench.session(run, stream=declared(bench))
    work = session.begin(sink, max_batches=most)
    assert work.status == "work"
    return session, work


def ledger_of(bench: Bench) -> Ledger:
    ledger = Ledger(open_storage(str(bench.staging)), "orders")
    ledger.find()
    return ledger


def job_of(bench: Bench, session: StreamSession, work: RunWork, sink: DeltaAppendSink) -> JobSpec:
    storage = open_storage(str(bench.staging))
    return JobSpec.from_json(storage.get(session.job(work, sink).removeprefix(storage.uri + "/"))[0])


def fds(bench: Bench, *words: str) -> int:
    return main([*words, "--staging", str(bench.staging), "--deployment", "test", "--why", "known outage"])


@pytest.fixture
def stopped(bench: Bench, two_appends: int, sink: DeltaAppendSink) -> Ledger:
    """The ledger of a stream that stops at its batch 0."""
    refused(bench, sink, "run-1")
    return ledger_of(bench)


@pytest.mark.usefixtures("stopped")
def test_the_run_pauses_and_says_the_share_the_counts_and_where_rejected_rows_would_go(bench, sink):
    state = ledger_of(bench).state
    stop = state.quarantined
    assert (stop.version, stop.batch.batch_id, stop.batch.rejected, stop.batch.rows) == (0, 0, 4, 10)
    for text in (
        "keep 4 of 10 rows (40.00%) out of the sink, more than max_rejected=0.1 allows",
        "3 fail 'id > 0' (reject); 1 fail 'id <> 7' (drop)",
        "would go to",
    ):
        assert text in stop.why
    # a ledger is kept for ever
    assert "id=-4" not in stop.why

    entries = ledger_of(bench).n
    later = bench.session("run-2", stream=declared(bench)).begin(sink)
    assert later.status == "paused"
    assert "`fds accept orders --batch 0 --why …`" in later.reason
    assert ledger_of(bench).n == entries


def test_batches_before_it_are_delivered_and_the_run_says_what_stops_it(bench, log_builder, sink):
    log_builder.create()
    log_builder.append()
    log_builder.append()
    session, work = begun(bench, sink, "run-1", 2)
    spec = session.job(work, sink)
    bench.report(session, work, spec)
    (second,) = (bench.staging / "orders/attempts/1/1").glob("*.json")
    second.write_bytes(replace(decode(AttemptReport, second.read_bytes()), **REFUSED).to_json())
    collected = session.collect(work)
    assert (len(collected.committed), collected.failure) == (1, None)
    assert session.stopped is not None
    assert session.result().batches == 1
    assert session.next_work(sink) is None


def test_an_accepted_batch_is_loaded_by_the_next_run_with_that_many_rows_left_out(bench, stopped, sink, capsys):
    assert fds(bench, "accept", "orders", "--batch", "0", "--yes") == 0
    assert "without the 4 of 10 rows" in capsys.readouterr().out
    found = []
    for run in ("run-2", "run-3"):
        session, work = begun(bench, sink, run)
        found.append(job_of(bench, session, work, sink).batches[0].may_reject)
        bench.report(session, work, session.job(work, sink))
        session.collect(work)
    # for this one batch
    assert found == [4, None]
    committed = [entry.action for entry in ledger_of(bench).entries() if entry.action.kind == "committed"]
    assert [one.was_accepted for one in committed] == [True, False]


@pytest.mark.usefixtures("stopped")
def test_an_accepted_batch_of_which_more_rows_fail_now_stops_the_stream_again(bench, sink):
    assert fds(bench, "accept", "orders", "--batch", "0", "--yes") == 0
    refused(bench, sink, "run-2", rows_rejected=9)
    state = ledger_of(bench).state
    assert state.quarantined.batch.rejected == 9


@pytest.mark.usefixtures("stopped")
def test_a_resumed_stream_tests_the_batch_again(bench, sink):
    assert fds(bench, "resume", "orders") == 0
    session, work = begun(bench, sink, "run-2")
    assert job_of(bench, session, work, sink).batches[0].may_reject is None


@pytest.mark.usefixtures("stopped")
def test_discarded_batches_end_the_quarantine(bench):
    assert fds(bench, "replan", "orders", "--yes") == 0
    assert ledger_of(bench).state.quarantined is None
    assert fds(bench, "accept", "orders", "--batch", "0", "--yes") != 0


def test_the_choices_are_those_of_the_page_and_the_command_line(bench, stopped):
    builder = ActionBuilder(stopped, "seen")
    choices = choices_of(builder)
    assert [choice.name for choice in choices] == ["accept", "resume", "hold", "stop"]
    assert "loads batch 0 without the 4 of 10 rows" in choices[0].effect
    assert str(bench.staging.parent / "rejects") in choices[0].effect
    assert "tests the batch again" in choices[1].effect
    (accept,) = (one for one in describe_actions(stopped.state, "test") if one["name"] == "accept")
    assert [(one["name"], one["value"]) for one in accept["arguments"]] == [("batch", 0)]


def test_a_decision_is_about_the_batch_and_the_number_that_the_question_named(stopped):
    asked = asked_about(stopped.state)
    assert decision_on(stopped.state, 0, asked) is None
    assert decision_on(stopped.state, 0, asked.replace("/4", "/3")) == "resume"
    perform(stopped, prepare_choice(ActionBuilder(stopped, "seen"), "accept"), PERSON)
    assert decision_on(stopped.state, 0, asked) == "accept"
    entry = list(stopped.entries())[-1]
    assert (entry.format, entry.actor, entry.action.rejected, entry.action.why) == (2, PERSON, 4, "seen")


def test_a_batch_that_is_resumed_at_a_later_question_is_not_called_accepted(bench, sink, stopped):
    perform(stopped, prepare_choice(ActionBuilder(stopped, "seen"), "accept"), PERSON)
    refused(bench, sink, "run-2", rows_rejected=5)
    asked = asked_about(ledger_of(bench).state)
    assert asked.endswith("/5")
    assert decision_on(ledger_of(bench).state, 0, asked) is None
    assert fds(bench, "resume", "orders") == 0
    assert decision_on(ledger_of(bench).state, 0, asked) == "resume"


def test_after_the_commit_each_question_still_has_its_own_answer(bench, sink, stopped):
    first = asked_about(stopped.state)
    perform(stopped, prepare_choice(ActionBuilder(stopped, "seen"), "accept"), PERSON)
    refused(bench, sink, "run-2", rows_rejected=5)
    second = asked_about(ledger_of(bench).state)
    assert fds(bench, "resume", "orders") == 0
    for run in ("run-3", "run-4"):
        session, work = begun(bench, sink, run)
        bench.report(session, work, session.job(work, sink))
        session.collect(work)
        assert session.connected.state.last_committed.batch_id == int(run[-1]) - 3
        assert [decision_on(ledger_of(bench).state, 0, one) for one in (first, second)] == ["accept", "resume"]


@pytest.mark.usefixtures("stopped")
def test_only_the_owner_of_a_batch_puts_the_stream_into_quarantine_for_it(bench, sink):
    before = ledger_of(bench).state.quarantined
    assert fds(bench, "resume", "orders") == 0
    session, work = begun(bench, sink, "run-2")
    late = Quarantined(why="late", version=0, can_be_acknowledged=False, batch=before.batch)
    with pytest.raises(StreamBusyError):
        session.connected.execute(late)
    bench.report(session, work, session.job(work, sink))
    session.collect(work)
    assert ledger_of(bench).state.quarantined is None


@pytest.mark.usefixtures("two_appends")
@pytest.mark.parametrize(("on_violation", "rows_tested"), [("fail", 10), ("ask", 0)])
def test_the_batch_fails_without_quarantine_or_without_counts(bench, sink, on_violation, rows_tested):
    session = bench.session("run-1", stream=declared(bench, on_violation=on_violation))
    work = session.begin(sink, max_batches=1)
    bench.report(session, work, session.job(work, sink), **{**REFUSED, "rows_tested": rows_tested})
    assert session.collect(work).failure.reason_code == "TOO_MANY_REJECTED"
    assert ledger_of(bench).state.quarantined is None
