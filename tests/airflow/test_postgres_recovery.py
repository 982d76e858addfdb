"""A stream into PostgreSQL whose task was killed, or whose ledger was lost: only Airflow knows the database."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from datetime import UTC, datetime
from uuid import uuid4

import pytest
from airflow.providers_manager import ProvidersManager

from airflow_provider_fds.batch.sink.postgres_connection import CONNECTIONS
from airflow_provider_fds.fault_points import ASKED_BY, MARKS_IN
from tests.airflow.conftest import HOME
from tests.airflow.warehouse import PASSWORD, Search
from tests.lost_task import TASK

pytestmark = pytest.mark.timeout(900)

DAG = """
from datetime import datetime
from airflow.sdk import DAG
from airflow_provider_fds import DeltaIngestOperator, DeltaStream, PostgresSink

with DAG("{dag_id}", schedule=None, start_date=datetime(2026, 1, 1)):
    DeltaIngestOperator(
        task_id="ingest",
        stream=DeltaStream("orders", table="{lake}/orders", starting_version=0),
        sink=PostgresSink("public.orders", conn_id="warehouse", provenance=True),
        conn_id="spark_default",
    )
"""
WHEN = datetime(2026, 1, 1, tzinfo=UTC)
SINK = "postgres://warehouse/public.orders"

needs_command = pytest.mark.skipif(
    not hasattr(ProvidersManager, "cli_command_functions"), reason="Airflow before 3.2 takes no commands of providers"
)


@pytest.fixture
def loads(installation, on_server, lake, warehouse):
    """A DAG that loads the table, which has two rows."""
    lake.append("orders", 1, 2)
    # dag.test() cannot replace the run that another version of a DAG made
    return installation.add(DAG.format(dag_id=f"recovered_{uuid4().hex}", lake=lake.uri))


@pytest.fixture
def killed(loads, tmp_path):
    """The DAG, after its task was killed between the commit in PostgreSQL and the entry of the ledger."""
    task = subprocess.run(
        [sys.executable, "-c", TASK.format(""), loads.fileloc, WHEN.isoformat()],
        env={**os.environ, ASKED_BY: "kill@entry.before.committed", MARKS_IN: str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert task.returncode == -signal.SIGKILL, task.stdout + task.stderr
    return loads


@pytest.fixture
def airflow(tmp_path):
    """Returns a function that runs ``airflow fds`` in a process that only has Airflow's connections."""

    def run(*arguments):
        done = subprocess.run(
            [sys.executable, "-m", "airflow", "fds", *arguments],
            env={name: value for name, value in os.environ.items() if name != CONNECTIONS},
            capture_output=True,
            text=True,
            check=False,
        )
        said = done.stdout + done.stderr
        assert done.returncode == 0, said
        (tmp_path / f"said_by_{arguments[0]}").write_text(said)
        return said

    return run


@pytest.fixture
def loaded(warehouse):
    """Returns a function that returns the ids in the table."""
    return lambda: [row[0] for row in warehouse.run("SELECT id FROM public.orders ORDER BY id")]


@pytest.fixture
def hidden(tmp_path, capfd, caplog):
    """Lets a test end only if the password is in no file and no log."""
    yield
    search = Search(tmp_path, HOME)
    search.look()
    assert not search.found
    said = capfd.readouterr()
    assert PASSWORD not in said.out + said.err + caplog.text


@needs_command
def test_a_batch_that_only_the_database_has_and_rows_that_a_rewind_removes_are_in_the_table_once(
    installation, lake, warehouse, killed, loaded, hidden, airflow
):
    assert loaded() == [1, 2]
    lake.append("orders", 3)
    assert installation.run(killed, logical_date=WHEN).state("ingest") == "success"
    assert loaded() == [1, 2, 3]

    assert "version 1" in airflow("explain", "orders")
    moved = airflow("rewind", "orders", "--to", "1", "--sink-rows", "delete", "--why", "a test", "--yes")
    assert "_source_version >= 1" in moved
    assert loaded() == [1, 2, 3]
    lake.append("orders", 4)
    assert installation.run(killed).state("ingest") == "success"
    assert loaded() == [1, 2, 3, 4]
    removed = warehouse.run("SELECT epoch, digest, rows FROM fds.batches WHERE batch = -1")
    assert removed == [(2, "rows", 1)]


def by_command(airflow, _, table):
    airflow("recover", "orders", "--sink", SINK, "--table", table, "--airflow", "--why", "a test", "--yes")


def by_dag(_, installation, table):
    dag = installation.add_example("fds_ops")
    conf = {"stream": "orders", "why": "a test", "action": "recover", "sink_uri": SINK, "table": table}
    assert installation.run(dag, run_conf=conf).state("act") == "success"


@pytest.mark.parametrize("recover", [pytest.param(by_command, marks=needs_command), by_dag])
def test_a_lost_ledger_is_recovered_from_a_database_that_only_airflow_knows(
    installation, lake, killed, loaded, hidden, airflow, tmp_path, recover
):
    shutil.rmtree(tmp_path / "staging" / "orders")
    lake.append("orders", 3)
    assert installation.run(killed).state("ingest") == "failed"
    # the task has run in this process
    os.environ.pop(CONNECTIONS, None)
    recover(airflow, installation, f"{lake.uri}/orders")
    assert loaded() == [1, 2]
    assert installation.run(killed).state("ingest") == "success"
    assert loaded() == [1, 2, 3]
