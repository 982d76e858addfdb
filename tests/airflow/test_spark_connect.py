"""``DeltaIngestOperator`` on a Spark Connect server: a real server, in a real run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time

import pytest

from airflow_provider_fds import DeltaAppendSink, DeltaIngestOperator, DeltaStream
from airflow_provider_fds.backends.base import UserArguments
from airflow_provider_fds.backends.registry import BACKENDS, find_backend
from airflow_provider_fds.backends.spark_connect import ConnectBackend
from airflow_provider_fds.errors import ConfigurationError
from tests.airflow.test_ingest import DAG_TEXT, data_file
from tests.interop.connect_server import free_port


@pytest.fixture
def connection(airflow_database, monkeypatch):
    def make(**fields):
        value = {"conn_type": "spark_connect", **fields}
        monkeypatch.setenv("AIRFLOW_CONN_WARM", json.dumps(value))
        return "warm"

    return make


def test_batches_are_loaded_on_a_server_and_those_before_a_failure_stay_committed(
    connection, installation, lake, spark_server
):
    connection(host="127.0.0.1", port=spark_server.port, login="fds")
    for ids in ((1, 2), (3,)):
        lake.append("orders", *ids)
    lost = data_file(lake, version=1)
    arguments = 'conn_id="warm", conf={"spark.sql.shuffle.partitions": 1}'
    dag = installation.add(
        DAG_TEXT.format(name="warm", lake=lake.uri, options="max_files_per_batch=1", arguments=arguments)
    )

    lost.rename(lost.with_suffix(".away"))
    failed = installation.run(dag)
    assert failed.state("ingest") == "failed"
    assert lake.ids("warm") == [1, 2]

    lost.with_suffix(".away").rename(lost)
    delivered = installation.run(dag)
    assert delivered.state("ingest") == "success"
    assert lake.ids("warm") == [1, 2, 3]
    result = delivered.xcom("ingest")
    assert (result["first_batch_id"], result["rows"], result["sink_version"]) == (1, 1, 1)
    (event,) = installation.events(f"{lake.uri}/warm")
    assert (event["first_batch_id"], event["batches"]) == (0, 2)

    assert installation.run(dag).state("ingest") == "skipped"


def test_a_run_without_a_sensor_waits_and_loads_in_a_real_run(connection, installation, lake, spark_server, tmp_path):
    """Through Airflow's own task process, an inline trigger and a real server: deferred, woken, loaded, told."""
    connection(host="127.0.0.1", port=spark_server.port, login="fds")
    lake.append("orders", 1)
    dag = installation.add(
        f"""
        from datetime import datetime
        from pathlib import Path
        from airflow.sdk import DAG
        from airflow_provider_fds import DeltaIngestOperator, DeltaStream, DeltaAppendSink

        class Telling(DeltaIngestOperator):
            def defer(self, **kwargs):
                Path("{tmp_path}/deferred").touch()
                super().defer(**kwargs)

        orders = DeltaStream("self_waiting", table="{lake.uri}/orders", starting_version="latest")
        with DAG("self_waiting", schedule=None, start_date=datetime(2026, 1, 1)):
            Telling(
                task_id="ingest",
                stream=orders,
                sink=DeltaAppendSink("{lake.uri}/sink"),
                conn_id="warm",
                wait=True,
                poll_interval=0.2,
            )
        """
    )

    def write():
        deadline = time.monotonic() + 120
        while not (tmp_path / "deferred").exists() and time.monotonic() < deadline:
            time.sleep(0.1)
        # also when it never came: the run must end, and the assertion below says what was missing
        lake.append("orders", 2)

    writer = threading.Thread(target=write)
    writer.start()
    run = installation.run(dag)
    writer.join()
    assert (tmp_path / "deferred").exists()
    assert run.state("ingest") == "success"
    assert lake.ids("sink") == [2]
    assert (run.xcom("ingest")["first_version"], run.xcom("ingest")["rows"]) == (1, 1)
    assert installation.events(f"{lake.uri}/sink") == [run.xcom("ingest")]


def test_an_unreachable_server_fails_the_task_and_is_named_with_its_connection(connection, installation, lake, capsys):
    connection(host="127.0.0.1", port=free_port(), password="s3cr3t")
    lake.append("orders", 1)
    dag = installation.add(DAG_TEXT.format(name="gone", lake=lake.uri, options="", arguments='conn_id="warm"'))
    assert installation.run(dag).state("ingest") == "failed"
    said = capsys.readouterr()
    assert "the Spark Connect server of connection 'warm' does not answer at 127.0.0.1" in said.out + said.err
    assert "s3cr3t" not in said.out + said.err
    assert not lake.exists("gone")


def test_a_connection_of_type_spark_connect_names_a_server_and_shows_no_token(connection):
    conn_id = connection(host="spark.example.com", login="me", password="s3cr3t")
    backend = find_backend(conn_id)
    assert isinstance(backend, ConnectBackend)
    assert (backend.server.endpoint, backend.server.url) == (
        "spark.example.com:15002",
        "sc://spark.example.com/;user_id=me;token=s3cr3t",
    )
    assert "s3cr3t" not in repr(backend)


@pytest.mark.parametrize("fields", [{}, {"host": "sc://host/path"}])
def test_a_spark_connect_connection_without_a_server_is_refused(connection, fields):
    with pytest.raises(ConfigurationError, match="Spark Connect connection 'warm' has"):
        find_backend(connection(**fields))


def test_settings_of_a_new_driver_are_refused_with_a_running_server(connection, lake):
    conn_id = connection(host="host")
    operator = DeltaIngestOperator(
        task_id="load",
        stream=DeltaStream("orders", table=f"{lake.uri}/orders"),
        sink=DeltaAppendSink(f"{lake.uri}/sink"),
        conn_id=conn_id,
        jars="x.jar",
        driver_memory="4g",
        conf={"spark.sql.files.ignoreCorruptFiles": True},
    )
    with pytest.raises(ConfigurationError) as caught:
        operator.find_spark(conn_id).check()
    first, second = caught.value.problems
    assert "ignoreCorruptFiles" in first
    assert second.startswith("jars, driver_memory cannot be given with connection 'warm'")


@pytest.fixture
def service_connection(connection, monkeypatch, spark_server, tmp_path):
    """Register the backend of ``service_backend``, with the one line that a new backend takes."""
    monkeypatch.setitem(BACKENDS, "service", "tests.airflow.service_backend:ServiceBackend")
    extra = {"log": str(tmp_path / "service.log")}
    return connection(conn_type="service", host="127.0.0.1", port=spark_server.port, extra=extra)


def test_a_backend_of_one_file_and_one_line_loads_batches(service_connection, installation, lake, tmp_path, capsys):
    for ids in ((1, 2), (3,)):
        lake.append("orders", *ids)
    arguments = f"conn_id={service_connection!r}"
    dag = installation.add(
        DAG_TEXT.format(name="by_service", lake=lake.uri, options="max_files_per_batch=1", arguments=arguments)
    )
    delivered = installation.run(dag)
    assert delivered.state("ingest") == "success"
    assert lake.ids("by_service") == [1, 2, 3]
    assert (delivered.xcom("ingest")["batches"], delivered.xcom("ingest")["rows"]) == (2, 3)
    assert (tmp_path / "service.log").read_text() == "fds-by_service"
    said = capsys.readouterr()
    assert "Job of the service: https://service/jobs/1" in said.out + said.err


def test_a_backend_says_what_it_cannot_take_and_a_function_needs_one_that_runs_here(service_connection):
    backend = find_backend(service_connection, UserArguments(jars="x.jar", driver_memory="4g"))
    with pytest.raises(ConfigurationError, match="jars, driver_memory cannot be given"):
        backend.check()
    with pytest.raises(ConfigurationError, match="ServiceBackend runs jobs outside the task's process"):
        backend.in_process()


def test_the_error_for_another_connection_type_lists_a_registered_backend(connection, service_connection):
    conn_id = connection(conn_type="http", host="x")
    with pytest.raises(ConfigurationError, match=r"expected 'spark' or 'spark_connect' or 'service'.*the service\)"):
        find_backend(conn_id)


def test_a_failed_function_gets_each_batch_again_and_its_writes_land_once(
    connection, installation, lake, spark_server, tmp_path
):
    connection(host="127.0.0.1", port=spark_server.port, login="fds")
    lake.append("orders", 1, 2)
    lake.append("orders", 3)
    dag = installation.add(
        f"""
        from datetime import datetime
        from pathlib import Path
        from airflow.sdk import DAG, task
        from airflow_provider_fds import DeltaStream

        orders = DeltaStream(
            "handed_over", table="{lake.uri}/orders", starting_version="earliest", max_files_per_batch=1
        )
        with DAG("handed_over", schedule=None, start_date=datetime(2026, 1, 1)):

            @task.delta_batch(stream=orders, writes=["all"], conn_id="warm")
            def load(df, batch, run_id, target):
                rows = df.drop("_commit_version", "_commit_timestamp")
                rows.write.format("delta").mode("append").options(**batch.txn_options("all")).save(target)
                with Path("{tmp_path}/calls").open("a") as calls:
                    calls.write(f"{{batch.batch_id}} {{run_id}}\\n")
                if batch.batch_id == 1 and not Path("{tmp_path}/mended").exists():
                    raise ValueError("not yet")
                return rows.count()

            load(target="{lake.uri}/handed_over")
        """
    )
    failed = installation.run(dag)
    assert failed.state("load") == "failed"

    (tmp_path / "mended").touch()
    delivered = installation.run(dag)
    assert delivered.state("load") == "success"
    # batch 1 was written before the function failed; the same write of the next run is one that Delta knows
    assert lake.ids("handed_over") == [1, 2, 3]
    assert (delivered.xcom("load")["first_batch_id"], delivered.xcom("load")["rows"]) == (1, 1)
    calls = [line.split(maxsplit=1) for line in (tmp_path / "calls").read_text().splitlines()]
    assert calls == [["0", failed.run_id], ["1", failed.run_id], ["1", delivered.run_id]]


_FORKED = """
import os, sys
sys.argv = ["airflow", "scheduler"]
from airflow.plugins_manager import ensure_plugins_loaded
ensure_plugins_loaded()
from airflow_provider_fds.spark.sessions.connect_server import ConnectServer
assert "pyspark.sql.connect.session" in sys.modules and "pandas" in sys.modules
children = []
for _ in range(2):
    child = os.fork()
    if not child:
        before = set(sys.modules)
        with ConnectServer(os.environ["SERVER"], "the server").session("fds-forked") as spark:
            rows = spark.range(1000).repartition(4).toPandas()
        ours = {name for name in set(sys.modules) - before if name.startswith(("pyspark", "airflow_provider_fds"))}
        os._exit(0 if len(rows) == 1000 and not ours else 1)
    children.append(child)
print([os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children])
"""


def test_tasks_that_are_forked_after_the_preload_reach_the_server(airflow_database, spark_server):
    """gRPC, pyarrow and pandas are imported in the parent; only the children connect."""
    env = {**os.environ, "AIRFLOW__FDS__PRELOAD": "True", "SERVER": f"sc://127.0.0.1:{spark_server.port}"}

    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _FORKED],
        env=env,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )

    assert ran.stdout.splitlines()[-1:] == ["[0, 0]"], ran.stderr
