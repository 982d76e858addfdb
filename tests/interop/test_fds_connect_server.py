"""``fds connect-server`` as a person runs it: a real process that starts a real server, and ends it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys

import deltalake
import pyarrow as pa
import pytest

from airflow_provider_fds.spark.sessions.connect_server import ConnectServer
from tests.fds_command import fds
from tests.interop import quick_spark

pytestmark = pytest.mark.timeout(300)

QUICK = ("--conf", f"spark.driver.extraJavaOptions={quick_spark.JVM}")


def test_a_server_loads_a_batch_and_leaves_neither_port_nor_process_when_it_is_asked_to_end(tmp_path):
    deltalake.write_deltalake(tmp_path / "orders", pa.table({"id": [1, 2, 3]}))
    command = [sys.executable, "-m", "airflow_provider_fds.cli.main", "connect-server", "--port", "0", *QUICK]
    with subprocess.Popen(
        [*command, "--output", "json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path
    ) as process:
        try:
            server = json.loads(process.stdout.readline())
            with ConnectServer(server["url"], "the server").session("fds-t") as spark:
                assert spark.range(3).count() == 3
                assert spark.conf.get("spark.databricks.delta.delta.log.cacheSize") == "100"
            places = ("--staging", str(tmp_path / "staging"), "--sink", str(tmp_path / "bronze"))
            done = fds("run", str(tmp_path / "orders"), "--stream", "orders", *places, "--remote", server["url"])
        finally:
            process.send_signal(signal.SIGTERM)
        out, log = process.communicate(timeout=60)
    assert done.returncode == 0, done.stderr
    assert sorted(deltalake.DeltaTable(tmp_path / "bronze").to_pyarrow_table()["id"].to_pylist()) == [1, 2, 3]
    assert (process.returncode, out) == (0, "")
    assert "INFO SparkConnectServer: Spark Connect server started at" in log
    with pytest.raises(ProcessLookupError):
        os.kill(server["pid"], 0)
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", int(server["url"].rpartition(":")[2]))) != 0
    assert {path.name for path in tmp_path.iterdir()} == {"orders", "staging", "bronze"}


def test_a_server_that_cannot_start_is_an_error_with_what_spark_said(capfd):
    done = fds("connect-server", "--port", "0", "--driver-memory", "300m", *QUICK)
    assert (done.returncode, done.stdout) == (2, "")
    assert "[SPARK_UNUSABLE] the Spark Connect server ended with exit code 1 before it listened" in done.stderr
    assert "must be at least" in done.stderr
