"""The DAGs of a file of streams."""

from __future__ import annotations

import runpy
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest

from airflow_provider_fds import DeltaFleetOperator, DeltaIngestOperator, StreamAlerts, fds_dags
from airflow_provider_fds.delta.storage.open import open_storage
from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.fleet.discovery import find_tables
from airflow_provider_fds.hooks.exceptions import TaskFailedError
from tests.airflow.test_parsing import _PARSE

EXAMPLE = Path(__file__).parents[2] / "airflow_provider_fds" / "example_dags" / "fleet_file.py"

FILE = """\
groups:
  crm:
    schedule: 15m
    tags: [fds, crm]
    parallelism: 4
    pool: spark
    on_stream_failure: continue
    on_gone: fail
    max_bytes_in_flight: 1g
    run_time_limit: 1h
    alerts: {lag: 30m, notifiers: ["tests.airflow.test_fleet_dags:notify"]}
    spark: {driver_memory: 4g, conf: {spark.sql.shuffle.partitions: 8}}
  apart:
    schedule: "@hourly"
    dag_per: stream
    wait: true
    poll_interval: 20s
streams:
  - {table: /lake/orders, sink: /bronze/orders, group: crm, batch_timeout: 10m}
  - {tables: /crm/*, sink: "/bronze/crm/{table}", group: crm}
  - {table: /lake/a, sink: /bronze/a, group: apart}
  - {table: /lake/b, sink: /bronze/b, group: apart}
"""


def notify(context):
    """Do nothing."""


@pytest.fixture
def dag_file(tmp_path):
    (tmp_path / "streams.yaml").write_text(FILE)
    return {"__file__": str(tmp_path / "dag.py"), "__name__": "dag"}


def test_a_group_is_a_dag_with_one_task(dag_file):
    dags = fds_dags("streams.yaml", dag_file)
    assert list(dags) == ["fds_crm", "fds_apart.a", "fds_apart.b"]
    assert all(dag_file[dag_id] is dag for dag_id, dag in dags.items())
    dag = dags["fds_crm"]
    assert (dag.schedule, dag.tags, dag.catchup, dag.max_active_runs) == (
        timedelta(minutes=15),
        {"fds", "crm"},
        False,
        1,
    )
    assert dag.fileloc == dag_file["__file__"]
    (task,) = dag.tasks
    assert isinstance(task, DeltaFleetOperator)
    assert (task.task_id, task.pool, task.parallelism, task.on_stream_failure) == ("load", "spark", 4, "continue")
    assert (task.on_gone, task.max_bytes_in_flight) == ("fail", 1 << 30)
    assert [one.name for one in task.streams] == ["orders"]
    assert task.streams[0].batch_timeout == timedelta(minutes=10)
    assert [one.tables for one in task.patterns] == ["/crm/*"]
    assert task.alerts == StreamAlerts(lag=timedelta(minutes=30), notifiers=(notify,))


def test_a_stream_may_have_a_dag_of_its_own(dag_file):
    dag = fds_dags("streams.yaml", dag_file)["fds_apart.a"]
    (task,) = dag.tasks
    assert isinstance(task, DeltaIngestOperator)
    assert (task.stream.name, task.sink.uri, task.wait, dag.schedule) == ("a", "/bronze/a", True, "@hourly")


def test_arguments_of_the_dag_file_decide(dag_file):
    start = datetime(2026, 1, 1, tzinfo=UTC)
    dag = fds_dags(
        "streams.yaml",
        dag_file,
        dag_arguments={"start_date": start, "schedule": None},
        task_arguments={"retries": 3, "pool": "other"},
    )["fds_crm"]
    assert (dag.start_date, dag.schedule, dag.tasks[0].retries, dag.tasks[0].pool) == (start, None, 3, "other")


def test_a_continuous_dag_has_a_start_date_without_which_airflow_runs_it_once(dag_file, tmp_path):
    (tmp_path / "streams.yaml").write_text(FILE.replace("@hourly", "@continuous"))
    dags = fds_dags("streams.yaml", dag_file)
    assert (dags["fds_crm"].start_date, dags["fds_apart.a"].start_date.year) == (None, 2020)
    start = datetime(2026, 1, 1, tzinfo=UTC)
    dags = fds_dags("streams.yaml", {**dag_file}, dag_arguments={"start_date": start})
    assert dags["fds_apart.a"].start_date == start


def test_a_file_that_is_not_valid_is_an_import_error_with_lines(dag_file, tmp_path):
    (tmp_path / "streams.yaml").write_text("streams:\n- {table: /a, sink: /b, x: 1}\n- {table: /c}\n")
    with pytest.raises(ConfigurationError) as error:
        fds_dags("streams.yaml", dag_file)
    assert f"{tmp_path}/streams.yaml:2:25: a stream has no key 'x'" in str(error.value)
    assert f"{tmp_path}/streams.yaml:3:3: the stream has no sink" in str(error.value)


CLASHES = """\
  - {table: /lake/orders2, name: orders, sink: /bronze/orders2, group: crm}
  - {table: /lake/customers, sink: /bronze/customers, group: crm}
  - {table: /lake/c, name: a, sink: /bronze/c, group: apart}
  - {table: /lake/d, sink: /bronze/d, group: apart}
  - {table: /lake/e, sink: /bronze/d/, group: apart}
"""


def test_streams_that_clash_are_failing_tasks_and_the_others_are_loaded(dag_file, tmp_path):
    (tmp_path / "streams.yaml").write_text(FILE + CLASHES)
    dags = fds_dags("streams.yaml", dag_file)
    assert list(dags) == ["fds_crm", "fds_apart.a", "fds_apart.d", "fds_apart.e", "fds_apart.b"]
    load, refused = dags["fds_crm"].tasks
    assert ([one.name for one in load.streams], len(load.patterns)) == (["customers"], 1)
    assert dags["fds_apart.b"].tasks[0].stream.name == "b"
    context = {"ti": SimpleNamespace(xcom_push=lambda **_: None)}
    with pytest.raises(TaskFailedError) as error:
        refused.execute(context)
    text = f"{tmp_path}/streams.yaml:23:28: the stream 'orders' is here a second time, first in line 19"
    assert text in str(error.value)
    for name, problem in (("a", "the stream 'a' is here a second time"), ("d", "is also that"), ("e", "is also that")):
        (task,) = dags[f"fds_apart.{name}"].tasks
        assert task.task_id == "load"
        with pytest.raises(TaskFailedError, match=problem):
            task.execute(context)


def test_a_group_of_nothing_else_has_only_the_failing_task(dag_file, tmp_path):
    twice = "streams:\n- {table: /lake/a, sink: /x}\n- {table: /raw/a, sink: /y}\n"
    (tmp_path / "streams.yaml").write_text(twice)
    dags = fds_dags("streams.yaml", dag_file)
    assert [(dag_id, dag.task_ids) for dag_id, dag in dags.items()] == [("fds_default", ["refused_streams"])]
    (tmp_path / "streams.yaml").write_text(f"{twice}- {{table: /c}}\n")
    with pytest.raises(ConfigurationError, match="has no sink"):
        fds_dags("streams.yaml", dag_file)


def test_a_variable_of_the_dag_file_is_not_replaced(dag_file):
    dag_file["fds_crm"] = 3
    with pytest.raises(ConfigurationError, match="already has a variable 'fds_crm'"):
        fds_dags("streams.yaml", dag_file)


def test_two_dags_of_one_id_are_refused_in_one_file_and_in_two(dag_file, tmp_path):
    (tmp_path / "more.yaml").write_text(FILE)
    fds_dags("streams.yaml", dag_file)
    # as when the module is loaded again
    fds_dags("streams.yaml", dag_file)
    with pytest.raises(ConfigurationError, match=r"already has a DAG 'fds_crm' of .*streams\.yaml, .* of more\.yaml"):
        fds_dags("more.yaml", dag_file)
    same_id = "    dag_per: stream\n", "    dag_id: fds_crm\n"
    same_as_a_stream = "    schedule: 15m\n", "    schedule: 15m\n    dag_id: fds_apart.a\n"
    for old, new in (same_id, same_as_a_stream):
        (tmp_path / "twice.yaml").write_text(FILE.replace(old, new))
        with pytest.raises(ConfigurationError, match=r"twice\.yaml: two of its DAGs have the id 'fds_"):
            fds_dags("twice.yaml", {"__file__": dag_file["__file__"]})


def test_a_notifier_that_cannot_be_imported_is_named(dag_file, tmp_path):
    (tmp_path / "streams.yaml").write_text(FILE.replace("test_fleet_dags:notify", "test_fleet_dags:none"))
    with pytest.raises(ConfigurationError, match=r"the notifier 'tests\.airflow\.test_fleet_dags:none' of group 'crm'"):
        fds_dags("streams.yaml", dag_file)


def test_the_example_loads_all_tables_of_a_lake(tmp_path, monkeypatch):
    lake = tmp_path / "lake"
    for table in ("orders", "customers", "bronze"):
        (lake / table / "_delta_log").mkdir(parents=True)
        (lake / table / "_delta_log" / f"{0:020}.json").write_text("{}")
    monkeypatch.setenv("FDS_EXAMPLE_LAKE", str(lake))
    task = runpy.run_path(str(EXAMPLE))["fleet_file"].get_task("load")
    staging = open_storage(str(tmp_path / "staging"))
    found = find_tables(task.patterns, task.streams, open_storage, staging, "fleet_file.load")
    assert [(one.name, one.sink.uri) for one in found.streams] == [
        ("file_orders", f"{lake}/from_file/orders"),
        ("file_customers", f"{lake}/from_file/customers"),
    ]


def test_parsing_reads_the_file_and_nothing_else(dag_file, tmp_path, airflow_home):
    (tmp_path / "streams.yaml").write_text(FILE.replace(', notifiers: ["tests.airflow.test_fleet_dags:notify"]', ""))
    (tmp_path / "dag.py").write_text('from airflow_provider_fds import fds_dags\nfds_dags("streams.yaml", globals())\n')
    ran = subprocess.run(
        [sys.executable, "-c", _PARSE, str(tmp_path / "dag.py")], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert f"""io [('open', "('{tmp_path}/streams.yaml',)")]""" in ran.stdout
    assert "heavy []" in ran.stdout
