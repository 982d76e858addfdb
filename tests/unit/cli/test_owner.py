from __future__ import annotations

import argparse
import os
import subprocess
import sys

from airflow_provider_fds.cli import arguments
from airflow_provider_fds.ledger.owner import Owner


def test_this_process_runs():
    assert arguments.owner_is_running(arguments.process_owner("cli"))


def test_a_user_without_a_name_is_named_by_its_number(monkeypatch):
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 1000670000)
    assert arguments.person("cli").user == "uid 1000670000"


def test_a_process_that_has_ended_does_not_run():
    code = "from airflow_provider_fds.cli.arguments import process_owner as o; print(o('cli').run_id)"
    run_id = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()

    assert not arguments.owner_is_running(Owner(kind="cli", deployment="cli", run_id=run_id))


def test_a_process_with_a_reused_id_is_not_mistaken_for_the_old_one():
    mine = arguments.process_owner("cli").run_id
    assert mine is not None
    earlier = mine.rsplit(":", 1)[0] + ":1"

    assert not arguments.owner_is_running(Owner(kind="cli", deployment="cli", run_id=earlier))


def test_an_owner_that_cannot_be_looked_up_counts_as_running():
    assert arguments.owner_is_running(Owner(kind="cli", deployment="cli", run_id="elsewhere:1:1"))
    assert arguments.owner_is_running(Owner(kind="airflow", deployment="prod", dag_id="d", run_id="r", task_id="t"))


def test_batches_that_fds_plan_planned_belong_to_whoever_runs_them():
    assert not arguments.owner_is_running(Owner.of_plan("cli"))


def test_a_person_can_say_that_a_process_of_another_machine_is_gone(tmp_path):
    given = argparse.Namespace(staging=str(tmp_path), deployment="cli", storage_option=[], checkpoint=None, unlock=True)
    context = arguments.context_of(given, owner=arguments.process_owner("cli"))

    assert not context.owner_is_running(Owner(kind="cli", deployment="cli", run_id="elsewhere:1:1"))
    assert context.owner_is_running(Owner(kind="airflow", deployment="p", dag_id="d", run_id="r", task_id="t"))
