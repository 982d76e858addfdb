"""What the REST servers of standalone masters say, as recorded from Spark 4.2, and what it is taken for."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import closing, suppress

import pytest

from airflow_provider_fds.spark.clusters import rest
from airflow_provider_fds.spark.clusters.cluster import ClusterError, DriverRequest, Handle, Look
from airflow_provider_fds.spark.clusters.standalone import StandaloneCluster
from tests.answers import answering

REQUEST = DriverRequest(
    name="fds orders",
    resource="file:/staging/.drivers/fds-driver.zip",
    arguments=("file:/staging/job.json",),
    conf={"spark.jars": "file:/staging/.drivers/delta.jar", "spark.driver.supervise": "true"},
    env_vars={"PYSPARK_PYTHON": "/usr/bin/python3"},
    py_files=("/shared/mine.py",),
)
HANDLE = Handle("http://127.0.0.1:6066", "driver-20261129030152-0000")
STANDBY = {"success": False, "message": "Current state is not alive: STANDBY."}
UNKNOWN = {"action": "SubmissionStatusResponse", "success": False, "submissionId": HANDLE.id}


@pytest.fixture
def cluster_of():
    servers = []

    def make(*answers):
        server, asked = answering(answers)
        servers.append(server)
        return StandaloneCluster("spark://127.0.0.1:7077", server.server_port), asked

    yield make
    for server in servers:
        server.shutdown()
        server.server_close()


def test_a_driver_is_one_file_that_the_cluster_does_not_start_twice(cluster_of):
    cluster, asked = cluster_of({"success": True, "submissionId": HANDLE.id})
    assert cluster.start(REQUEST).id == HANDLE.id
    ((method, path, body),) = asked
    assert (method, path) == ("POST", "/v1/submissions/create")
    assert body["appResource"] == REQUEST.resource
    assert body["appArgs"] == ["{{USER_JAR}}", "/shared/mine.py", "file:/staging/job.json"]
    assert body["environmentVariables"] == {"SPARK_ENV_LOADED": "1", "PYSPARK_PYTHON": "/usr/bin/python3"}
    assert body["sparkProperties"] == {
        "spark.app.name": "fds orders",
        "spark.jars": "file:/staging/.drivers/delta.jar",
        "spark.master": "spark://127.0.0.1:7077",
        "spark.submit.deployMode": "cluster",
        "spark.driver.supervise": "false",
    }


def test_of_several_masters_the_one_that_leads_starts_the_driver(cluster_of):
    cluster, asked = cluster_of(STANDBY, {"success": True, "submissionId": HANDLE.id})
    two = StandaloneCluster("spark://127.0.0.1:7077,127.0.0.1:7078", cluster.rest_port)
    assert two.start(REQUEST).id == HANDLE.id
    assert len(asked) == 2


@pytest.mark.parametrize(
    ("answer", "said"),
    [(STANDBY, "Current state is not alive"), (b"<html>", "does not answer as"), ([1], r"answers \[1\]")],
)
def test_a_refusal_and_another_server_are_errors_that_show_the_answer(cluster_of, answer, said):
    with pytest.raises(ClusterError, match=said):
        cluster_of(answer)[0].start(REQUEST)


@pytest.mark.parametrize(
    ("answer", "look"),
    [
        ({"success": True, "driverState": "SUBMITTED"}, Look("running", words="SUBMITTED")),
        ({"success": True, "driverState": "RUNNING"}, Look("running", words="RUNNING")),
        ({"success": True, "driverState": "FINISHED"}, Look("ended", words="FINISHED")),
        ({"success": True, "driverState": "FAILED"}, Look("ended", has_failed=True, words="FAILED")),
        ({"success": True, "driverState": "KILLED"}, Look("ended", has_failed=True, words="KILLED")),
        (
            {"success": True, "driverState": "ERROR", "message": "Exception from the cluster: no such file"},
            Look("ended", has_failed=True, words="ERROR: Exception from the cluster: no such file"),
        ),
        # a master that recovers
        ({"success": True, "driverState": "UNKNOWN"}, Look("unknown", words="UNKNOWN")),
        # of a Spark to come
        ({"success": True, "driverState": "PAUSED"}, Look("unknown", words="PAUSED")),
    ],
)
def test_each_state_is_running_ended_or_unknown(cluster_of, answer, look):
    assert cluster_of(answer)[0].look(HANDLE) == look


@pytest.mark.parametrize("answer", [UNKNOWN, b"[" * 100_000, b"\xff", b"", {"success": True, "driverState": 1}])
def test_a_master_that_does_not_know_a_driver_does_not_say_that_it_ended(cluster_of, answer):
    assert cluster_of(answer)[0].look(HANDLE).state == "unknown"


def test_a_driver_whose_name_fits_in_no_address_is_unknown(cluster_of):
    assert cluster_of(UNKNOWN)[0].look(Handle(HANDLE.cluster, "driver\n1")).state == "unknown"


def test_a_cluster_that_is_not_reached_says_nothing_of_its_drivers():
    found = StandaloneCluster("spark://127.0.0.1:7077", 1).look(HANDLE)
    assert found.state == "unknown"
    assert "does not answer" in found.words


def test_a_driver_that_cannot_be_stopped_is_told_with_the_reason(cluster_of):
    assert cluster_of({"success": True})[0].stop(HANDLE) is None
    refusal = {"success": False, "message": "Driver has already finished or does not exist"}
    assert "already finished or does not exist" in (cluster_of(refusal)[0].stop(HANDLE) or "")


def test_the_master_that_has_started_a_driver_is_asked_also_if_the_connection_names_another_one_by_now(cluster_of):
    old, asked = cluster_of({"success": True, "driverState": "RUNNING"}, {"success": True})
    handle = Handle(f"http://127.0.0.1:{old.rest_port}", HANDLE.id)
    new, _ = cluster_of(UNKNOWN)
    assert new.look(handle).state == "running"
    assert new.stop(handle) is None
    assert [method for method, _, _ in asked] == ["GET", "POST"]


def test_an_answer_that_does_not_end_or_is_too_large_is_none(cluster_of, monkeypatch):
    monkeypatch.setattr(rest, "_MOST_BYTES", 100)
    assert "more than 100 bytes" in cluster_of({"success": True, "driverState": "RUNNING" * 20})[0].look(HANDLE).words
    monkeypatch.setattr(rest, "SECONDS", 0.5)
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        threading.Thread(target=_drip, args=(server,), daemon=True).start()
        found = StandaloneCluster("spark://127.0.0.1:7077", server.getsockname()[1]).look(HANDLE)
    assert "did not end within" in found.words


def _drip(server):
    connection, _ = server.accept()
    with closing(connection), suppress(OSError):
        connection.recv(10_000)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
        while True:
            connection.sendall(b" ")
            time.sleep(0.02)
