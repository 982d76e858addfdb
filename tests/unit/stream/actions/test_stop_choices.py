"""What a person may choose for a stream in quarantine, and which choice the ledger has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_fds.ledger.entries.operator_entries import Quarantined, Resumed
from airflow_provider_fds.ledger.entries.refusals import StreamMovedError
from airflow_provider_fds.ledger.owner import Actor
from airflow_provider_fds.stream.actions.action_builder import ActionBuilder
from airflow_provider_fds.stream.actions.prepared_action import perform
from airflow_provider_fds.stream.actions.stop_choices import asked_about, choices_of, decision_on, prepare_choice

if TYPE_CHECKING:
    from airflow_provider_fds.sinks import DeltaAppendSink
    from airflow_provider_fds.stream.connected_stream import ConnectedStream
    from tests.unit.stream.conftest import Bench

ALICE = Actor(deployment="test", user="alice", host="airflow-ui")


def stopped(bench: Bench, sink: DeltaAppendSink) -> ConnectedStream:
    """Run the stream into quarantine at version 2, and return it as its next run sees it."""
    for name in ("run-1", "run-2"):
        work = bench.load_once(sink, name, bench.stream(on_violation="ask"))
    assert work.status == "paused"
    connected = bench.session("looker", stream=bench.stream(on_violation="ask")).connected
    connected.load()
    return connected


@pytest.fixture
def updated(bench: Bench, log_builder: Any, sink: DeltaAppendSink) -> ConnectedStream:
    """Version 2 changes rows."""
    log_builder.create()
    log_builder.append()
    log_builder.commit(log_builder.add("c"), log_builder.remove("part-00001-00000.parquet"), operation="UPDATE")
    return stopped(bench, sink)


@pytest.fixture
def renamed(bench: Bench, log_builder: Any, sink: DeltaAppendSink) -> ConnectedStream:
    """Version 2 has another schema."""
    field = log_builder.field
    log_builder.create([field("id"), field("name", "string")])
    log_builder.append()
    log_builder.commit(log_builder.metadata([field("id"), field("label", "string")]), operation="RENAME COLUMN")
    return stopped(bench, sink)


def builder(connected: ConnectedStream) -> ActionBuilder:
    return ActionBuilder(connected.ledger, "looked at it", log=connected.log)


@pytest.mark.parametrize(("stream", "way_on"), [("updated", "skip"), ("renamed", "accept")])
def test_the_first_choice_is_the_decision_that_passes_the_version(request, stream, way_on):
    connected = request.getfixturevalue(stream)
    choices = choices_of(builder(connected))
    assert [choice.name for choice in choices] == [way_on, "resume", "hold", "stop"]
    assert "version 2" in choices[0].effect


def test_a_choice_says_which_rows_it_is_about(updated):
    skip = choices_of(builder(updated))[0].effect
    assert "No row of version 2 is loaded" in skip
    assert "file" in skip


@pytest.mark.parametrize("name", ["skip", "resume", "hold"])
def test_a_choice_is_the_action_of_that_name_with_the_person_and_the_reason(updated, name):
    assert decision_on(updated.ledger.state, 2) is None
    perform(updated.ledger, prepare_choice(builder(updated), name), ALICE, "hitl/1")
    assert decision_on(updated.ledger.state, 2) == name
    entry = list(updated.ledger.entries())[-1]
    assert (entry.actor, entry.action.why) == (ALICE, "looked at it")


def test_nobody_is_asked_about_a_stream_that_has_ended(updated):
    perform(updated.ledger, builder(updated).retire(), ALICE)
    assert decision_on(updated.ledger.state, 2) == "stop"


def test_an_accepted_schema_is_a_decision(renamed):
    perform(renamed.ledger, prepare_choice(builder(renamed), "accept"), ALICE)
    assert decision_on(renamed.ledger.state, 2) == "accept"


def test_a_question_about_an_earlier_version_is_decided(updated):
    """A person who answers late must not decide about a version that they have not seen."""
    assert decision_on(updated.ledger.state, 1) == "resume"


def stops_again(connected: ConnectedStream, **changes: Any) -> None:
    """Let somebody resume the stream, and a run stop it at the same version."""
    connected.execute(Resumed(why="try again"))
    connected.execute(Quarantined(why="other", version=2, **changes))


@pytest.mark.parametrize("way_on", ["accept", "skip"])
def test_a_question_is_not_about_a_later_stop_at_the_same_version(updated, way_on):
    asked = asked_about(updated.ledger.state)
    stops_again(updated, way_on=way_on)
    assert decision_on(updated.ledger.state, 2, asked) == "resume"
    assert decision_on(updated.ledger.state, 2, asked_about(updated.ledger.state)) is None


def test_a_decision_that_was_prepared_at_one_stop_is_refused_at_another(renamed):
    late = prepare_choice(builder(renamed), "accept")
    stops_again(renamed, way_on="accept")
    with pytest.raises(StreamMovedError, match="another stop than the one at version 2 now"):
        perform(renamed.ledger, late, ALICE)
    assert renamed.ledger.state.quarantined.why == "other"
    perform(renamed.ledger, prepare_choice(builder(renamed), "accept"), ALICE)
    assert renamed.ledger.state.quarantined is None


def test_a_decision_does_not_end_a_stop_that_it_cannot_pass(updated):
    stops_again(updated, can_be_acknowledged=False, lost="TABLE_REPLACED")
    perform(updated.ledger, builder(updated).skip(version=(2, 2)), ALICE)
    assert updated.ledger.state.quarantined is not None


def test_a_decision_is_about_the_table_that_the_person_saw(updated):
    """A table that is created again while a person thinks has other rows in this version."""
    (command,) = builder(updated).skip(version=(2, 2)).commands
    assert command.table_id == updated.state.table_id
