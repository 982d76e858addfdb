"""``airflow fds …``: the command of FDS with the settings of the installation."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from airflow.providers_manager import ProvidersManager

from airflow_provider_fds.delta.storage.open import open_storage
from airflow_provider_fds.ledger.entries.plan_entries import Claimed
from airflow_provider_fds.ledger.owner import Actor, Owner
from airflow_provider_fds.ledger.staging.log import Ledger

pytestmark = pytest.mark.skipif(
    not hasattr(ProvidersManager, "cli_command_functions"), reason="Airflow before 3.2 takes no commands of providers"
)


@pytest.fixture
def airflow(airflow_home, tmp_path, log_builder):
    """Runs ``airflow`` in an installation whose staging has one stream."""
    from airflow_provider_fds.cli.main import main

    log_builder.create()
    log_builder.append(2)
    staging = tmp_path / "staging"
    arguments = ("plan", log_builder.root, "--staging", staging, "--stream", "orders", "--deployment", "prod")
    assert main([*map(str, arguments), "--option", "starting_version=0"]) == 0

    def run(*arguments):
        return subprocess.run(
            [sys.executable, "-m", "airflow", *arguments],
            env={
                **os.environ,
                "AIRFLOW__FDS__STAGING": str(staging),
                "AIRFLOW__FDS__DEPLOYMENT": "prod",
            },
            capture_output=True,
            text=True,
            check=False,
        )

    return run


def test_a_command_has_the_staging_and_the_deployment_of_the_installation(airflow):
    ran = airflow("fds", "status")
    assert ran.returncode == 0, ran.stderr
    assert "orders  loading" in ran.stdout
    ran = airflow("fds", "hold", "orders", "--why", "maintenance")
    assert ran.returncode == 0, ran.stderr
    ran = airflow("fds", "explain", "nosuch")
    assert ran.returncode == 2
    assert "[STREAM_NOT_FOUND]" in ran.stderr


def test_explain_has_the_word_of_airflow_on_the_owner_and_on_the_dag(airflow, airflow_database, tmp_path):
    ledger = Ledger(open_storage(str(tmp_path / "staging")), "orders")
    state = ledger.find()
    task = {"deployment": "prod", "dag_id": "removed", "run_id": "r", "task_id": "t"}
    owner = Owner(kind="airflow", **task)
    ledger.execute(Claimed(epoch=state.epoch, owner=owner, previous=state.owner, why="a test"), Actor(**task))
    ran = airflow("fds", "explain", "orders")
    assert ran.returncode == 0, ran.stderr
    assert "is no longer running" in ran.stdout
    assert "Airflow no longer has the DAG 'removed'" in ran.stdout


def test_help_is_that_of_fds(airflow):
    assert "usage: airflow fds status" in airflow("fds", "status", "--help").stdout
    assert "airflow fds [-h] [--version] COMMAND" in airflow("fds", "help").stdout


def test_the_start_of_airflow_imports_no_more_of_fds_than_the_list_of_commands(airflow_home):
    code = (
        "import sys; import airflow.cli.cli_config; before = set(sys.modules);"
        "import airflow_provider_fds.cli.airflow_commands as it; it.airflow_commands();"
        "print(sorted(set(sys.modules) - before))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    new = ran.stdout.splitlines()[-1]
    assert "airflow_provider_fds.cli.airflow_commands" in new
    # the package itself was imported with the configuration
    for name in ("ledger", "stream", "delta", "obstore", "pyspark", "pyarrow"):
        assert name not in new
