"""``fds explain``: the cause, what shows it, and commands that fit."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, get_args

import pytest

from airflow_provider_fds.batch.report import AttemptReport, report_name
from airflow_provider_fds.cli.main import main
from airflow_provider_fds.delta.storage.open import open_storage
from airflow_provider_fds.ledger.entries.commit_entries import Blocked
from airflow_provider_fds.ledger.entries.operator_entries import Held
from airflow_provider_fds.ledger.entries.plan_entries import Claimed
from airflow_provider_fds.ledger.owner import Actor, Owner
from airflow_provider_fds.ledger.staging.log import Ledger
from airflow_provider_fds.stream.monitoring.condition import _RULES, Condition

if TYPE_CHECKING:
    from collections.abc import Callable


def fds(capsys: Any, *arguments: object) -> tuple[int, str]:
    code = main([str(a) for a in arguments])
    return code, capsys.readouterr().out


@pytest.fixture
def staging(log_builder, tmp_path, capsys):
    log_builder.create()
    log_builder.append(2)
    return tmp_path / "staging"


@pytest.fixture
def plan(log_builder, staging, capsys) -> Callable[..., int]:
    def run(*options: str) -> int:
        arguments = [argument for option in options for argument in ("--option", option)]
        return fds(capsys, "plan", log_builder.root, "--staging", staging, "--stream", "orders", *arguments)[0]

    return run


@pytest.fixture
def explain(staging, capsys) -> Callable[[], dict[str, Any]]:
    def run() -> dict[str, Any]:
        code, out = fds(capsys, "explain", "orders", "--staging", staging, "--output", "json")
        found: dict[str, Any] = json.loads(out)
        assert code == found["exit_code"]
        return found

    return run


def commands(found: dict[str, Any]) -> list[str]:
    return [one["command"] for one in found["commands"]]


def propose(staging: object, *actions: Any) -> None:
    ledger = Ledger(open_storage(str(staging)), "orders")
    state = ledger.find()
    for action in actions:
        ledger.execute(action(ledger.state), Actor(deployment=state.deployment))


def claimed_by(owner: Owner) -> Callable[[Any], Claimed]:
    return lambda state: Claimed(epoch=1, owner=owner, previous=state.owner, why="test")


def test_a_stream_that_is_up_to_date_needs_nobody(plan, explain):
    assert plan("starting_version=latest") == 0
    found = explain()
    assert (found["condition"], found["commands"], found["exit_code"]) == ("up_to_date", [], 0)
    assert found["evidence"][0].endswith("newest version 1")


def test_a_stream_whose_newest_versions_no_run_planned_names_the_way_to_see_what_stops_it(
    plan, explain, log_builder, capsys
):
    plan("starting_version=latest")
    log_builder.append(1)
    found = explain()
    assert found["condition"] == "behind"
    assert any(re.match(r"1 version not committed, the oldest for ", line) for line in found["evidence"])
    (command,) = commands(found)
    code, out = fds(capsys, *command.split()[1:])
    assert code == 0, out
    assert "version 2, 1 files" in out


@pytest.mark.parametrize(
    ("owner", "cause", "command"),
    [
        (None, "not taken by a run yet", None),
        (Owner(kind="cli", deployment="cli", run_id="HERE:1:1"), "is no longer running", None),
        (
            Owner(kind="cli", deployment="cli", run_id="elsewhere:1:1"),
            "cannot be seen from here. Look for that process",
            "fds unlock orders",
        ),
        (
            Owner(kind="airflow", deployment="cli", dag_id="d", run_id="r", task_id="t"),
            "if the owner has ended, that run takes over",
            None,
        ),
    ],
)
def test_planned_batches_are_explained_by_their_owner(plan, explain, staging, owner, cause, command):
    import socket

    plan("starting_version=0")
    if owner is not None:
        run_id = (owner.run_id or "").replace("HERE", socket.gethostname())
        propose(
            staging, claimed_by(Owner(**{**{f: getattr(owner, f) for f in owner.__struct_fields__}, "run_id": run_id}))
        )
    found = explain()
    assert found["condition"] == "loading"
    assert cause in found["cause"]
    assert [one.removesuffix(" --why …") for one in commands(found)] == ([] if command is None else [command])


@pytest.mark.parametrize(("runs", "says"), [(True, ", which is running."), (False, " is no longer running: it was ")])
def test_with_airflow_it_has_the_word_of_airflow_on_the_owner(plan, staging, capsys, runs, says):
    plan("starting_version=0")
    owner = Owner(kind="airflow", deployment="here", dag_id="d", run_id="r", task_id="t")
    propose(staging, claimed_by(owner))
    words = ["explain", "orders", "--staging", str(staging), "--deployment", "here"]
    assert main(words, airflow_owner_is_running=lambda asked: runs if asked == owner else None) == 0
    assert says in capsys.readouterr().out


@pytest.mark.parametrize(("deployment", "is_there"), [("cli", False), ("cli", True), ("elsewhere", False)])
def test_a_dag_that_airflow_no_longer_has_is_evidence_with_the_ways_on(plan, staging, capsys, deployment, is_there):
    plan("starting_version=0")
    ledger = Ledger(open_storage(str(staging)), "orders")
    ledger.find()
    task = Actor(deployment="cli", dag_id="old_name", run_id="r", task_id="t", try_number=1)
    ledger.execute(Held(why="a test"), task)
    words = ["explain", "orders", "--staging", str(staging), "--deployment", deployment]
    main(words, airflow_has_dag=lambda dag_id: is_there or dag_id != "old_name")
    said = capsys.readouterr().out
    assert ("Airflow no longer has the DAG 'old_name'" in said) == (deployment == "cli" and not is_there)
    assert ("`fds fork orders NEW_NAME`" in said) == (deployment == "cli" and not is_there)


def test_the_failure_of_the_last_attempt_is_evidence(plan, explain, staging):
    plan("starting_version=0")
    ledger = Ledger(open_storage(str(staging)), "orders")
    state = ledger.find()
    batch = state.planned[0]
    blank = AttemptReport(state.uuid, 1, batch.batch_id, batch.digest, "", "failed", error_class="SINK_SCHEMA_MISMATCH")
    for attempt, uuid, text in (
        ("20260102T000000-b", state.uuid, "column b"),
        ("20260101T000000-a", state.uuid, "column a"),
        ("20260103T000000-c", "of another stream", "column c"),
    ):
        report = replace(blank, attempt_id=attempt, uuid=uuid, error_message=text)
        name = f"{ledger.folder.attempts}/{report_name(1, batch.batch_id, attempt)}"
        ledger.storage.put(name, report.to_json())
    assert f"the last attempt on batch {batch.batch_id} failed: SINK_SCHEMA_MISMATCH: column b" in explain()["evidence"]


def test_a_blocked_batch_is_compared_then_accepted_or_planned_again(plan, explain, staging):
    plan("starting_version=0")
    owner = Owner(kind="cli", deployment="cli", run_id="elsewhere:1:1")

    def blocked(_: Any) -> Blocked:
        return Blocked(
            epoch=1, batch_id=0, owner=owner, attempt_id="a", reason="20 rows planned, 19 in the sink", rows_planned=20
        )

    propose(staging, claimed_by(owner), blocked)
    found = explain()
    assert found["condition"] == "blocked"
    assert "20 rows planned, 19 in the sink" in found["cause"]
    assert commands(found) == ["fds accept orders --batch 0 --why …", "fds replan orders --why …"]


@pytest.mark.parametrize("chosen", [0, 1])
def test_a_quarantine_names_the_version_and_the_ways_past_it(plan, explain, log_builder, staging, capsys, chosen):
    log_builder.commit({"remove": {"path": "a", "dataChange": True, "deletionTimestamp": 0}}, operation="DELETE")
    assert plan("starting_version=2", "on_violation=quarantine") == 3
    found = explain()
    assert found["condition"] == "quarantined"
    assert "version 2" in found["cause"]
    assert [one.split()[1] for one in commands(found)] == ["skip", "resume"]
    command = commands(found)[chosen].replace("…", "tested")
    confirmed = ("--yes",) if "skip" in command else ()
    assert fds(capsys, *command.split()[1:], "--staging", staging, *confirmed)[0] == 0
    assert explain()["condition"] == "behind"


def test_a_held_stream_a_retired_one_and_one_with_a_request(plan, explain, staging, capsys):
    plan("starting_version=latest")
    fds(capsys, "hold", "orders", "--staging", staging, "--why", "moving house")
    assert (explain()["condition"], commands(explain())) == ("held", ["fds resume orders --why …"])
    fds(capsys, "resume", "orders", "--staging", staging, "--why", "moved")
    fds(capsys, "rewind", "orders", "--staging", staging, "--to", "0", "--why", "again", "--yes")
    assert "rewind: again" in explain()["cause"]
    assert explain()["condition"] == "not_begun"
    fds(capsys, "retire", "orders", "--staging", staging, "--why", "replaced", "--yes")
    assert (explain()["condition"], commands(explain())) == ("retired", [])
    _, out = fds(capsys, "status", "--staging", staging, "--output", "prometheus")
    assert re.findall(r"^fds_lag_versions{[^}]*} (\d+)$", out, re.MULTILINE) in ([], ["0"])


def test_a_retired_stream_needs_its_table_no_more(plan, explain, log_builder, staging, capsys):
    import shutil

    plan("starting_version=latest")
    fds(capsys, "retire", "orders", "--staging", staging, "--why", "replaced", "--yes")
    shutil.rmtree(log_builder.root)
    assert explain()["condition"] == "retired"
    assert fds(capsys, "status", "orders", "--staging", staging)[0] == 0
    assert fds(capsys, "status", "--staging", staging)[0] == 0


@pytest.mark.parametrize("way", ["--dry-run", "--estimate"])
def test_a_retired_stream_has_nothing_planned(plan, log_builder, staging, capsys, way):
    plan("starting_version=latest")
    assert fds(capsys, "retire", "orders", "--staging", staging, "--why", "replaced", "--yes")[0] == 0
    code = main(["plan", str(log_builder.root), "--stream", "orders", "--staging", str(staging), way])
    assert code == 2
    assert "[STREAM_RETIRED]" in capsys.readouterr().err


def test_a_table_that_was_created_again_is_explained_by_the_problem(plan, explain, log_builder):
    import shutil

    plan("starting_version=0")
    shutil.rmtree(log_builder.root)
    anew = type(log_builder)(log_builder.root)
    anew.table_id = "22222222-2222-3333-4444-555555555555"
    anew.create()
    anew.append(2)
    found = explain()
    assert (found["condition"], found["exit_code"]) == ("lost_position", 4)
    assert "id 22222222-" in found["cause"]


def test_the_text_has_cause_evidence_and_commands(plan, staging, capsys):
    plan("starting_version=latest")
    fds(capsys, "hold", "orders", "--staging", staging, "--why", "moving house")
    code, out = fds(capsys, "explain", "orders", "--staging", staging)
    assert code == 0
    cause, evidence, run = out.split("\n\n")
    assert cause == "orders: held. The stream is on hold: moving house"
    assert evidence.startswith("Evidence:\n  table file://")
    assert re.search(r"\n  last entry of the ledger: held at \S+Z \(\d\S* s ago\) by \S+@\S+$", evidence)
    assert run.splitlines() == ["Run:", f"  fds resume orders --why … --staging {staging}  # continues it"]


def test_every_condition_has_an_explanation():
    assert set(_RULES) == set(get_args(Condition))


def test_an_unknown_stream_is_named(plan, staging, capsys):
    plan("starting_version=latest")
    assert main(["explain", "order", "--staging", str(staging)]) == 2
    assert "no stream 'order'" in capsys.readouterr().err
