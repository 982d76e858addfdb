"""The password of a PostgresSink: no file, command line or log of a run shows it, whether the run works or fails."""

from __future__ import annotations

import subprocess
import sys
import tempfile

import pytest

from tests.airflow.conftest import HOME
from tests.airflow.warehouse import PASSWORD, Search

pytestmark = pytest.mark.timeout(900)

DAG = """
from airflow.sdk import DAG
from airflow_provider_fds import DeltaIngestOperator, DeltaStream, PostgresSink

with DAG("password_of_a_database"):
    DeltaIngestOperator(
        task_id="ingest",
        stream=DeltaStream("orders", table="{lake}/orders", starting_version=0),
        sink=PostgresSink("public.orders", conn_id="warehouse", provenance=True),
        conn_id="spark_default",
        conf={{"spark.eventLog.enabled": "true", "spark.eventLog.dir": "{events}", "spark.eventLog.compress": "false"}},
    )
"""


def test_the_search_finds_it_in_files_and_command_lines(tmp_path):
    (tmp_path / "file").write_text(f"password={PASSWORD}")
    search = Search(tmp_path)
    program = "print(flush=True); import time; time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", program, PASSWORD], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            process.stdout.readline()
            search.look()
        finally:
            process.kill()
    assert str(tmp_path / "file") in search.found
    assert any(program in found for found in search.found)


@pytest.mark.parametrize("is_right", [True, False], ids=["right", "wrong"])
def test_no_command_file_or_log_of_a_run_has_the_password(
    installation, lake, warehouse, tmp_path, monkeypatch, capfd, caplog, is_right
):
    events, temporary = tmp_path / "events", tmp_path / "tmp"
    events.mkdir()
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setattr(tempfile, "tempdir", None)
    lake.append("orders", 1, 2)
    if not is_right:
        warehouse.run("ALTER ROLE loader PASSWORD 'another'")
    dag = installation.add(DAG.format(lake=lake.uri, events=events.as_uri()))
    search = Search(tmp_path, HOME)
    with search.meanwhile():
        run = installation.run(dag)

    assert run.state("ingest") == ("success" if is_right else "failed")
    assert warehouse.run("SELECT id FROM public.orders ORDER BY id") == ([(1,), (2,)] if is_right else [])
    written = capfd.readouterr()
    said = written.out + written.err + caplog.text
    assert PASSWORD not in said
    assert not search.found
    # the search has seen what there is to see
    assert any("spark.eventLog" in command or "fds-driver" in command for command in search.commands)
    assert any(path.stat().st_size for path in events.rglob("*") if path.is_file())
    assert is_right or "password authentication failed" in said
