"""What a person can do to a stream on the page."""

from __future__ import annotations

import re

import pytest
from msgspec import UNSET

from airflow_provider_fds.errors import ConfigurationError, LedgerError
from airflow_provider_fds.ledger.entries.commit_entries import Blocked
from airflow_provider_fds.ledger.entries.operator_entries import Held, Quarantined, Retired
from airflow_provider_fds.ledger.entries.refusals import StreamMovedError
from airflow_provider_fds.ledger.owner import Actor
from airflow_provider_fds.ledger.staging.log import Ledger
from airflow_provider_fds.sinks import DeltaAppendSink
from airflow_provider_fds.stream.actions.operator_actions import ACTIONS
from airflow_provider_fds.stream.monitoring.status import status_of
from airflow_provider_fds.stream.monitoring.status_file import update_status_file, write_status_file
from airflow_provider_fds.stream.monitoring.status_row import read_status_file
from airflow_provider_fds.ui.actions import PAGE_ACTIONS, StreamActions, describe_actions

ANNA = Actor(deployment="test", user="anna", host="airflow-ui")


@pytest.fixture
def connected(bench, log_builder, tmp_path):
    """A stream that has loaded versions 0 to 2."""
    log_builder.create()
    log_builder.append(2)
    log_builder.append(1)
    return bench.run_once(DeltaAppendSink(str(tmp_path / "sink")))[0].connected


def actions_on(connected, *, deployment="test", running=True):
    return StreamActions(connected.staging, "orders", deployment=deployment, owner_runs=lambda _: running)


def act(connected, name, arguments=None, *, request_id="r1", expected=None, why="because"):
    actions = actions_on(connected)
    expected = expected or actions.preview(ACTIONS[name], arguments or {}).expected
    return actions.perform(
        ACTIONS[name], arguments or {}, why=why, actor=ANNA, request_id=request_id, expected=expected
    )


def last(connected):
    return [*Ledger(connected.staging, "orders").entries()][-1]


def offered(connected):
    """Return the actions that apply now, by name."""
    return {one["name"]: one for one in describe_actions(read_ledger(connected).state, "test")}


def test_each_action_of_the_registry_is_on_the_page_unless_it_needs_a_machine_or_the_sink():
    assert set(ACTIONS) - set(PAGE_ACTIONS) == {"transfer", "recover"}
    assert all(action.needs_ledger and not action.is_cli_only for action in PAGE_ACTIONS.values())


def test_only_actions_that_apply_are_offered_the_harmless_first(connected):
    described = offered(connected)
    assert [*described] == ["hold", "replan", "rewind", "retire"]
    assert {name for name, one in described.items() if one["changes_the_sink"]} == {"rewind", "replan"}
    arguments = {one["name"]: one for one in described["rewind"]["arguments"]}
    assert (arguments["to"]["type"], arguments["to"]["required"]) == ("text", True)
    assert (arguments["sink_rows"]["type"], arguments["sink_rows"]["choices"]) == (
        "choice",
        ["keep", "delete", "empty"],
    )
    assert arguments["force_sink"]["type"] == "boolean"
    connected.execute(Held(why="x"))
    assert [*offered(connected)] == ["resume", "replan", "rewind", "retire"]
    # another installation's stream is only viewed
    assert describe_actions(connected.state, "copy") == []
    connected.execute(Retired(why="x"))
    assert offered(connected) == {}


@pytest.mark.parametrize(
    ("way", "names"), [("accept", ["accept"]), ("skip", ["skip"]), (UNSET, ["accept", "skip"]), (None, [])]
)
def test_a_quarantine_offers_the_decisions_that_pass_its_version(connected, way, names):
    fields = {"can_be_acknowledged": False} if way is None else {"way_on": way}
    connected.execute(Quarantined(why="x", version=5, **fields))
    described = offered(connected)
    assert [*described] == ["hold", "resume", *names, "replan", "rewind", "retire"]
    for name in names:
        # only the version is asked for, and it is filled in
        assert [(one["name"], one["value"]) for one in described[name]["arguments"]] == [("version", 5)]


def test_a_blocked_batch_can_be_accepted_or_planned_again(bench, log_builder, tmp_path):
    log_builder.create()
    log_builder.append(1)
    session = bench.session()
    session.begin(DeltaAppendSink(str(tmp_path / "sink")))
    planned = offered(session.connected)
    assert [*planned] == ["hold", "unlock", "replan", "rewind", "retire"]
    owner = session.connected.state.owner
    session.connected.execute(
        Blocked(epoch=1, batch_id=0, attempt_id="a", reason="rows differ", rows_planned=10, rows_written=9, owner=owner)
    )
    blocked = offered(session.connected)
    assert [*blocked] == ["hold", "accept", "unlock", "replan", "rewind", "retire"]
    assert [(one["name"], one["value"]) for one in blocked["accept"]["arguments"]] == [("batch", 0)]
    preview = actions_on(session.connected).preview(ACTIONS["accept"], {"batch": 0})
    assert preview.lines[-1] == "  rows differ. Planned rows: 10, written: 9."


def test_a_preview_says_what_the_command_says_and_writes_nothing(connected):
    before = last(connected).n
    preview = actions_on(connected).preview(ACTIONS["rewind"], {"to": 1, "sink_rows": "keep", "force_sink": False})
    assert (preview.refusal, preview.lines[0]) == (None, "stream orders")
    assert "epoch 2, reads from version 1 on" in preview.lines[2]
    assert last(connected).n == before
    assert preview.to_dict()["allowed"] is True


def test_an_action_is_one_entry_with_the_person_and_the_reason(connected):
    said = act(connected, "hold", why="moving house")
    entry = last(connected)
    assert said == f"stream orders: hold is recorded as ledger entry {entry.n}."
    assert (entry.action.kind, entry.action.why, entry.actor.describe()) == (
        "held",
        "moving house",
        "anna@airflow-ui",
    )


def test_a_repeated_request_is_answered_as_the_first_time_and_does_nothing(connected):
    preview = actions_on(connected).preview(ACTIONS["rewind"], {"to": 1, "sink_rows": "keep"})
    first = act(connected, "rewind", {"to": 1, "sink_rows": "keep"}, expected=preview.expected)
    entry = last(connected)
    assert act(connected, "rewind", {"to": 1, "sink_rows": "keep"}, expected=preview.expected) == first
    # other entries do not matter
    act(connected, "hold", request_id="r2")
    assert act(connected, "rewind", {"to": 1, "sink_rows": "keep"}, expected=preview.expected) == first
    assert first.endswith("The next run of the stream begins the epoch.")
    assert last(connected).n == entry.n + 1


def test_the_version_of_a_quarantine_is_skipped(connected):
    connected.execute(Quarantined(why="x", version=5, way_on="skip"))
    said = act(connected, "skip", {"version": "5"})
    entry = last(connected)
    assert (entry.action.version, said) == (5, f"stream orders: skip is recorded as ledger entry {entry.n}.")
    assert act(connected, "skip", {"version": "5"}) == said
    assert last(connected).n == entry.n


def test_the_page_does_not_decide_on_a_version_that_it_knows_nothing_of(connected):
    for name, version in (("skip", "5"), ("skip", "5-7")):
        assert "cannot be read from here" in actions_on(connected).preview(ACTIONS[name], {"version": version}).refusal


def test_a_ledger_that_changed_since_the_preview_refuses_the_action(connected):
    expected = actions_on(connected).preview(ACTIONS["hold"], {}).expected
    connected.execute(Quarantined(why="x", version=3))
    with pytest.raises(StreamMovedError, match="has changed since the preview, so nothing was done"):
        act(connected, "hold", expected=expected)
    assert last(connected).action.kind == "quarantined"


def test_an_entry_that_is_written_between_the_check_and_the_action_refuses_it_too(connected):
    actions = actions_on(connected)
    expected = actions.preview(ACTIONS["hold"], {}).expected
    connected.execute(Quarantined(why="x", version=3))
    # this reader still has the ledger of the preview
    with pytest.raises(
        StreamMovedError, match=r"the ledger has entries after entry \d+, on which the request was based"
    ):
        actions.perform(ACTIONS["hold"], {}, why="w", actor=ANNA, request_id="r", expected=expected)
    assert last(connected).action.kind == "quarantined"


def test_what_the_ledger_refuses_is_refused_by_the_preview(connected):
    preview = actions_on(connected).preview(ACTIONS["accept"], {"batch": 7})
    assert "7" in preview.refusal
    assert preview.lines == []
    assert "can only move backwards" in actions_on(connected).preview(ACTIONS["rewind"], {"to": 9}).refusal
    with pytest.raises(ConfigurationError, match="to is needed for rewind"):
        actions_on(connected).preview(ACTIONS["rewind"], {})
    assert "accept" in actions_on(connected).preview(ACTIONS["accept"], {"batch": 0}).refusal
    assert "-1 is not a version" in actions_on(connected).preview(ACTIONS["rewind"], {"to": -1}).refusal
    assert "not <start>/<end>" in actions_on(connected).preview(ACTIONS["accept"], {"interval": "x"}).refusal


def test_what_changes_nothing_says_so(connected):
    connected.execute(Held(why="x"))
    assert actions_on(connected).preview(ACTIONS["hold"], {}).lines == ["stream 'orders' was held already"]
    assert act(connected, "hold") == "stream 'orders' was held already"


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("hold", {"version": 3}, "hold has no argument version; it has none."),
        ("skip", {}, "version is needed for skip."),
        ("skip", {"version": "x"}, "must be a version or several"),
        ("rewind", {"sink_rows": "burn"}, "must be keep or delete or empty"),
        ("rewind", {"to": "soon"}, "to must be a version"),
    ],
)
def test_arguments_that_do_not_fit_are_an_error(connected, name, arguments, said):
    with pytest.raises(ConfigurationError, match=re.escape(said)):
        actions_on(connected).preview(ACTIONS[name], arguments)


@pytest.mark.parametrize(
    ("arguments", "command"),
    [
        ({"to": 1, "sink_rows": "delete"}, "`fds rewind orders --to 1 --sink-rows delete --why …`"),
        ({"to": 0, "sink_rows": "empty"}, "`fds rewind orders --to 0 --sink-rows empty --why …`"),
        ({"to": "2026-01-01 12:00"}, "`fds rewind orders --to '2026-01-01 12:00' --why …`"),
    ],
)
def test_an_action_that_needs_the_table_or_the_sink_names_the_command(connected, arguments, command):
    preview = actions_on(connected).preview(ACTIONS["rewind"], arguments)
    assert command in preview.refusal
    assert "fds_ops" in preview.refusal
    with pytest.raises(ConfigurationError, match="which this page does not read"):
        act(connected, "rewind", arguments)


def test_batches_of_an_owner_that_runs_are_not_taken_from_it(bench, log_builder, tmp_path):
    log_builder.create()
    log_builder.append(1)
    session = bench.session()
    session.begin(DeltaAppendSink(str(tmp_path / "sink")))
    assert "which is running" in actions_on(session.connected).preview(ACTIONS["unlock"], {}).refusal
    assert actions_on(session.connected, running=False).preview(ACTIONS["unlock"], {}).refusal is None
    assert actions_on(session.connected).preview(ACTIONS["unlock"], {"force": True}).refusal is None


def test_a_stream_of_another_installation_is_left_alone(connected):
    with pytest.raises(LedgerError, match="belongs to the Airflow installation 'test', but this one is 'copy'"):
        actions_on(connected, deployment="copy")


def read_ledger(connected):
    ledger = Ledger(connected.staging, "orders")
    ledger.find()
    return ledger


def test_the_list_shows_the_action_before_the_next_run_and_keeps_the_age_of_the_lag(connected):
    write_status_file(connected.staging, status_of(connected), connected.state, written_by="run")
    before = read_status_file(connected.staging, "orders")
    act(connected, "hold", why="moving house")
    update_status_file(connected.staging, read_ledger(connected))
    held = read_status_file(connected.staging, "orders")
    assert (held.condition, held.problem) == ("held", "The stream is on hold: moving house")
    assert (held.written_at, held.lag_versions, held.samples) == (before.written_at, 0, before.samples)
    act(connected, "resume", request_id="r2")
    update_status_file(connected.staging, read_ledger(connected))
    resumed = read_status_file(connected.staging, "orders")
    assert (resumed.condition, resumed.problem, resumed.what_to_do) == ("up_to_date", None, None)


def test_after_a_rewind_the_list_does_not_say_that_nothing_is_left(connected):
    write_status_file(connected.staging, status_of(connected), connected.state, written_by="run")
    before = read_status_file(connected.staging, "orders")
    assert (before.pending_files, before.pending_rows) == (0, 0)
    act(connected, "rewind", {"to": 1, "sink_rows": "keep"})
    update_status_file(connected.staging, read_ledger(connected))
    row = read_status_file(connected.staging, "orders")
    assert (row.lag_versions, row.pending_files, row.pending_bytes, row.pending_rows) == (None, None, None, None)
    assert row.retention_left_seconds is None


def test_without_a_status_file_an_action_writes_none(connected):
    update_status_file(connected.staging, connected.ledger)
    assert read_status_file(connected.staging, "orders") is None
