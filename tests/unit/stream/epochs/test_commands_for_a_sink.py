"""The commands in messages about a stream, for each kind of sink: fds takes them there, and they lose no rows."""

from __future__ import annotations

import re
import shlex
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_fds.batch.report import FenceEvidence, FenceReport, RemovedRows
from airflow_provider_fds.batch.transactions import fence_version, txn_version
from airflow_provider_fds.cli.main import parser
from airflow_provider_fds.errors import ConfigurationError, FdsError, LedgerError
from airflow_provider_fds.ledger.entries.commit_entries import Blocked
from airflow_provider_fds.ledger.entries.operator_entries import Acknowledged
from airflow_provider_fds.ledger.staging.log import Ledger
from airflow_provider_fds.ledger.values import Fence, Removal, SinkBinding
from airflow_provider_fds.sinks import DeltaAppendSink, DeltaMergeSink, PostgresSink
from airflow_provider_fds.source.offset import Offset
from airflow_provider_fds.spark.sink_log.advice import Advice
from airflow_provider_fds.spark.sink_log.history import History
from airflow_provider_fds.stream.actions.rewind_target import Destination
from airflow_provider_fds.stream.actions.sink_removal import removal_of
from airflow_provider_fds.stream.epochs.epoch_start import Facts, decide
from airflow_provider_fds.stream.epochs.fencing import fence_of
from airflow_provider_fds.stream.epochs.rows_read_again import repeated_notes
from airflow_provider_fds.stream.epochs.skipped_versions import refuse_skipped
from airflow_provider_fds.stream.position.changed_start import describe_changed_start
from tests.unit.spark.batches import batch
from tests.unit.stream.epochs.test_decide import LOADED, MAKE, REPLAN, REWIND, TO_1, WITHIN, asked, at, facts, landed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_provider_fds.ledger.state import StreamState

SINKS = {
    "append to Delta": DeltaAppendSink("s3://lake/bronze"),
    "merge into Delta": DeltaMergeSink("s3://lake/silver", keys=["id"]),
    "append to PostgreSQL": PostgresSink("public.orders", conn_id="pg"),
    "merge into PostgreSQL": PostgresSink("public.orders", conn_id="pg", mode="merge", keys=["id"]),
}
START = Destination("reset", {"start": "options"}, "", None)
VERSION = Destination("rewind", {"starting_version": 0}, "", Offset(MAKE.table_id, 0))
PLACEHOLDERS = {"N": "1", "batch:N": "batch:1", "TIME": "2026-01-01"}
REWINDS = re.compile(r"`(fds rewind orders[^`]+)`")


def bound(sink: Any) -> SinkBinding:
    return SinkBinding(**sink.identity(), app_ids=("fds:u1",))


def loaded(sink: Any) -> tuple[Any, ...]:
    return (*LOADED[:2], MAKE.bind(sink=bound(sink)), *LOADED[3:])


def ledger_of(sink: Any) -> Ledger:
    storage = MAKE.Storage()
    for action in loaded(sink):
        ledger = Ledger(storage, "orders", clock=lambda: MAKE.now)
        ledger.find()
        ledger.execute(action, MAKE.actor)
    ledger = Ledger(storage, "orders", clock=lambda: MAKE.now)
    ledger.find()
    return ledger


def refusals(sink: Any) -> Iterator[str]:
    """What is said if a requested epoch does not begin."""
    done = loaded(sink)
    blocked = Blocked(epoch=1, batch_id=1, owner=MAKE.owner(), attempt_id="t1", reason="49 rows")
    restored = FenceEvidence(newest=txn_version(1, 0), broken_at=3, restored_to=0)
    cases: list[Facts] = [
        facts(*done, REPLAN, fence=Fence(status="sink_missing")),
        facts(*done, REPLAN, found=[landed(7, digest="another", version=4)]),
        facts(*done, blocked, REPLAN, found=[landed(1)]),
        facts(*done, REWIND, start=at(0), found=[landed(1), landed(2, version=3)]),
        facts(*done, asked("reset", {"start": "options"}), start=at(0), found=[landed(1)]),
        facts(*done, asked("rewind", {"offset": MAKE.offset(3, 1, snapshot=True)})),
        facts(*done, asked("rewind", {"starting_version": 1}), start=at(1), evidence=restored),
    ]
    if bound(sink).can_remove_rows:
        what = "all" if bound(sink).merges else "rows"
        from_version = 0 if what == "rows" else None
        removal = Removal(what=what, from_version=from_version)
        removed = FenceEvidence(newest=fence_version(2), removed=(RemovedRows(2, 3, what, from_version),))
        cases.append(facts(*done, asked("rewind", {"starting_version": 0}, removal=removal), TO_1, start=at(1),
                           evidence=removed))  # fmt: skip
    for case in cases:
        opening = decide(case)
        assert opening.refusal is not None
        yield str(opening.refusal.error)


def skipped(state: StreamState) -> str:
    with pytest.raises(LedgerError) as refused:
        refuse_skipped(state, 9, None)
    return str(refused.value)


def messages(sink: Any) -> Iterator[str]:
    """What is said about the stream on other occasions."""
    ledger = ledger_of(sink)
    yield describe_changed_start(ledger.state, {"starting_version": 0})
    yield describe_changed_start(ledger.state, {"starting_timestamp": "2026-01-01"})
    skip = Acknowledged(version=5, why="a test", skip=True, of="rows")
    yield skipped(MAKE.state(*loaded(sink), skip))
    for destination in (START, VERSION):
        to_start = destination is START
        yield " ".join(repeated_notes(ledger, destination.start, to_start=to_start))
        with pytest.raises(ConfigurationError) as refused:
            removal_of(ledger, None, destination, None, is_forced=False)
        yield str(refused.value)
    advice = Advice(sink, "orders")
    yield f"`{advice.rewind().removeprefix('running `')}"
    yield f"`{advice.from_start().removeprefix('running `')}"
    yield f"`{advice.after(txn_version(1, 0), 1).removeprefix('running `')}"


@pytest.mark.parametrize("name", SINKS)
def test_each_command_is_one_that_fds_takes_for_a_stream_with_this_sink(name, monkeypatch):
    monkeypatch.setenv("AIRFLOW__FDS__STAGING", "/staging")
    sink = SINKS[name]
    ledger = ledger_of(sink)
    found = [(text, command) for text in (*refusals(sink), *messages(sink)) for command in REWINDS.findall(text)]
    assert len(found) > 10
    for text, command in found:
        (choices,) = re.findall(r"--sink-rows ([a-z|]+)", command) or [None]
        assert choices is not None, text
        for choice in choices.split("|"):
            words = shlex.split(command.replace(choices, choice))[1:]
            given = parser().parse_args([PLACEHOLDERS.get(word, word) for word in words])
            destination = START if given.to == "start" else VERSION
            removal = removal_of(ledger, None, destination, choice, is_forced=given.force_sink)
            assert (removal is None) is (choice == "keep"), text


@pytest.mark.parametrize("name", SINKS)
def test_a_position_in_a_snapshot_is_never_named_by_its_version(name):
    sink = SINKS[name]
    within = (*WITHIN[:2], MAKE.bind(sink=bound(sink)), *WITHIN[3:])
    restored = FenceEvidence(newest=txn_version(1, 0), broken_at=3, restored_to=0)
    opening = decide(facts(*within, asked("rewind", {"starting_version": 5}), start=at(5), evidence=restored))
    assert opening.refusal is not None
    spec = replace(batch(number=1, uuid="u1"), start=MAKE.offset(5, 3, snapshot=True), first_version=5)
    said = [str(opening.refusal.error), Advice(sink, "orders").out_of_turn(History(9, ()), spec, txn_version(1, 1))]
    commands = REWINDS.findall(" ".join(said))
    assert commands
    assert not [command for command in commands if re.search(r"--to \d", command)]


@pytest.mark.parametrize("name", SINKS)
def test_a_choice_is_said_in_words_only_if_fds_takes_it(name):
    sink = SINKS[name]
    takes_empty, takes_delete = bound(sink).can_remove_rows, bound(sink).can_remove_rows and not bound(sink).merges
    for text in (*refusals(sink), *messages(sink)):
        assert takes_empty or "empty" not in text, text
        assert takes_delete or "--sink-rows delete" not in text, text


@pytest.mark.parametrize(
    ("choice", "destination"), [("delete", VERSION), ("delete", START), ("empty", VERSION), ("empty", START)]
)
def test_rows_are_not_removed_from_a_table_of_a_database_that_is_merged_into(choice, destination):
    with pytest.raises(ConfigurationError) as refused:
        removal_of(ledger_of(SINKS["merge into PostgreSQL"]), None, destination, choice, is_forced=False)
    said = str(refused.value)
    assert f"so --sink-rows {choice} is not available" in said
    assert "Use --sink-rows keep, which merges the rows again by their keys" in said
    assert "delete it yourself" in said
    assert said.count("--sink-rows") == 2


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("append to Delta", "`fds rewind orders --to 0 --sink-rows delete --why …`, then skip the version"),
        ("append to PostgreSQL", "`fds rewind orders --to 0 --sink-rows delete --why …`, then skip the version"),
        ("merge into Delta", "they cannot be taken back: correct them in the source"),
        ("merge into PostgreSQL", "they cannot be taken back: correct them in the source"),
    ],
)
def test_a_version_that_was_read_is_taken_out_only_of_a_sink_that_gives_its_rows_back(name, says):
    with pytest.raises(FdsError, match=re.escape(says)):
        MAKE.state(*loaded(SINKS[name]), Acknowledged(version=0, why="a test", skip=True, of="rows"))


@pytest.mark.parametrize(
    ("name", "restore"), [("append to Delta", True), ("append to PostgreSQL", False), ("merge into PostgreSQL", False)]
)
def test_only_of_a_sink_with_a_log_a_version_is_named_to_go_back_to(name, restore):
    said = " ".join((*refusals(SINKS[name]), *messages(SINKS[name])))
    assert ("restore version 1 of the sink" in said) is restore
    assert ("The last version of the sink without them is 1." in said) is restore


def test_a_fence_of_another_ledger_in_a_database_is_no_version_to_go_back_to():
    removal = Removal(what="rows", from_version=0)
    asks = asked("rewind", {"starting_version": 0}, removal=removal)
    state = facts(*loaded(SINKS["append to PostgreSQL"]), asks).state
    with pytest.raises(LedgerError) as refused:
        fence_of(FenceReport("u1", 2, "a", "fenced", sink_version=5, has_removed=False), state)
    assert "another ledger of the stream closed the epochs before epoch 2" in str(refused.value)
    assert "`fds rewind orders --sink-rows empty --to start --replace --why …`" in str(refused.value)
