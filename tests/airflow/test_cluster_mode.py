"""Drivers that a standalone cluster runs: a master and a worker on this machine, real tasks."""

from __future__ import annotations

import json
import socket
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.standalone_cluster import SMALL, running

pytestmark = pytest.mark.timeout(600)

DAG_TEXT = """
from datetime import datetime
from airflow.sdk import DAG
from airflow_provider_fds import DeltaIngestOperator, DeltaStream, DeltaAppendSink

with DAG("{name}", schedule=None, start_date=datetime(2026, 1, 1)):
    DeltaIngestOperator(
        task_id="ingest",
        conn_id="{name}",
        deploy_mode="cluster",
        driver_memory="600m",
        env_vars={{"PYSPARK_PYTHON": {python!r}}},
        conf={conf!r},
        stream=DeltaStream("{name}", table="{lake}/orders", starting_version="earliest"),
        sink=DeltaAppendSink("{lake}/{name}"),
    )
"""
CONF = {**SMALL, "spark.cores.max": "1", "spark.driver.host": "127.0.0.1"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with running(tmp_path_factory.mktemp("cluster"), workers=2) as found:
        yield found


@pytest.fixture
def dag_of(installation, lake, cluster, monkeypatch):
    def make(name, rest_port=None):
        extra = {"rest-port": rest_port or cluster.rest_port}
        host, port = cluster.master.rsplit(":", 1)
        connection = {"conn_type": "spark", "host": host, "port": int(port), "extra": extra}
        monkeypatch.setenv(f"AIRFLOW_CONN_{name.upper()}", json.dumps(connection))
        text = DAG_TEXT.format(name=name, lake=lake.uri, python=sys.executable, conf=CONF)
        return installation.add(text)

    return make


def test_a_cluster_runs_the_driver_of_a_task_and_a_failure_names_its_log(
    dag_of, installation, lake, cluster, tmp_path, caplog
):
    lake.append("orders", 1, 2)
    dag = dag_of("in_cluster")
    done = installation.run(dag)
    assert done.state("ingest") == "success", caplog.text
    assert lake.ids("in_cluster") == [1, 2]
    (driver,) = [
        path for path in cluster.work.glob("driver-*") if f"Driver {path.name} has been started" in caplog.text
    ]
    # the files of the driver are in staging once
    (archive,) = (tmp_path / "staging" / ".drivers").glob("*.zip")
    assert (driver / archive.name).is_file()

    lake.append("orders", 3)
    newest = max((lake.root / "orders").glob("*.parquet"), key=lambda path: path.stat().st_mtime_ns)
    newest.rename(newest.with_suffix(".away"))
    assert installation.run(dag).state("ingest") == "failed"
    assert "Log of the driver: http://127.0.0.1:" in caplog.text
    newest.with_suffix(".away").rename(newest)
    assert installation.run(dag).state("ingest") == "success"
    assert lake.ids("in_cluster") == [1, 2, 3]
    assert len(list((tmp_path / "staging" / ".drivers").glob("*.zip"))) == 1


def test_a_driver_that_is_stopped_leaves_no_process_and_the_next_attempt_loads_the_rows(
    dag_of, installation, lake, cluster, monkeypatch
):
    from airflow_provider_fds.backends.cluster_driver import ClusterDriver

    lake.append("orders", 1, 2)
    dag = dag_of("stopped")
    drivers: list[ClusterDriver] = []
    wait = ClusterDriver._end

    def stop_once_it_runs(self, application, handle, was_ended):
        if not drivers:
            drivers.append(self)
            while self.cluster.look(handle).words != "RUNNING":
                time.sleep(0.1)
            threading.Thread(target=self.stop).start()
        return wait(self, application, handle, was_ended)

    monkeypatch.setattr(ClusterDriver, "_end", stop_once_it_runs)
    assert installation.run(dag).state("ingest") == "failed"
    (driver,) = drivers
    assert driver.cluster.look(driver._handle).words == "KILLED"
    until = time.monotonic() + 60
    while (left := processes_in(cluster.work / driver._handle.id)) and time.monotonic() < until:
        time.sleep(0.2)
    assert left == []
    assert installation.run(dag).state("ingest") == "success"
    assert lake.ids("stopped") == [1, 2]


def processes_in(folder):
    """Return the processes whose working directory is the folder of a driver."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if (process / "cwd").resolve() == folder.resolve():
                found.append(process.name)
    return found


def test_a_port_on_which_no_rest_server_listens_fails_the_task_and_is_named(dag_of, installation, lake, capsys):
    lake.append("orders", 1)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    assert installation.run(dag_of("elsewhere", rest_port=port)).state("ingest") == "failed"
    said = capsys.readouterr()
    assert "SPARK_CLUSTER_LOST" in said.out + said.err
    assert f"http://127.0.0.1:{port}/v1/submissions/create does not answer" in said.out + said.err
    assert not lake.exists("elsewhere")
