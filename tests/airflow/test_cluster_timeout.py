"""Tasks whose ``execution_timeout`` is over while a cluster runs their driver; the master is a server of the test."""

from __future__ import annotations

import json
import os
import signal

import pytest

from airflow_provider_fds.spark.clusters.standalone import StandaloneCluster
from tests.answers import answering
from tests.lost_task import DAG_TEXT

DRIVER = "driver-20261130120000-0000"


@pytest.fixture
def dag_of(installation, lake, monkeypatch):
    """Return a DAG on a master that runs its driver for ever, and what the master is asked."""
    said = {"success": True, "submissionId": DRIVER, "driverState": "RUNNING"}
    server, asked = answering((said,))

    def make(name, more=""):
        extra = {"rest-port": server.server_port}
        connection = {"conn_type": "spark", "host": "spark://127.0.0.1", "port": 7077, "extra": extra}
        monkeypatch.setenv(f"AIRFLOW_CONN_{name.upper()}", json.dumps(connection))
        limit = '__import__("datetime").timedelta(hours=1)'
        more = f'deploy_mode="cluster", execution_timeout={limit}, {more}'
        text = DAG_TEXT.format(name=name, conn_id=name, lake=lake.uri, env={}, conf={}, more=more, options="")
        return installation.add(text), asked

    yield make
    server.shutdown()
    server.server_close()


def test_a_task_whose_execution_timeout_is_over_stops_the_driver_that_it_waits_for(
    dag_of, installation, lake, monkeypatch
):
    lake.append("orders", 1)
    dag, asked = dag_of("too_slow")
    look = StandaloneCluster.look

    def then_time_out(self, handle):
        found = look(self, handle)
        # the alarm of Airflow's timeout
        os.kill(os.getpid(), signal.SIGALRM)
        return found

    monkeypatch.setattr(StandaloneCluster, "look", then_time_out)
    assert installation.run(dag).state("ingest") == "failed"
    assert ("POST", f"/v1/submissions/kill/{DRIVER}", None) in asked
