"""``fds connect-server``: its arguments, what it prints, how it ends. Its Spark is a script; interop has a real one."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress

import pytest

from airflow_provider_fds.cli.main import main, parser
from airflow_provider_fds.spark.installation import own_spark

LISTENS = "echo '09:00:00 INFO SparkConnectServer: Spark Connect server started at: 127.0.0.1:4711'"


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """A machine without pyspark, with a Java that only says its version; returns what makes its Spark."""
    program(tmp_path / "jdk" / "bin" / "java", "echo 'openjdk version \"17.0.15\" 2025-04-15' >&2")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setenv("FDS_CACHE_DIR", str(tmp_path / "cache"))
    for name in ("SPARK_HOME", "SPARK_CONNECT_AUTHENTICATE_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(own_spark, "has_bundled_spark", lambda: False)
    own_spark._asked.cache_clear()

    def spark(does, version="4.2.0", jars=("spark-connect_2.13-4.2.0", "delta-spark_4.2_2.13-4.4.0")):
        """Make a Spark with Delta whose server does this; return the path of its spark-submit."""
        for jar in jars:
            (tmp_path / "spark" / "jars").mkdir(parents=True, exist_ok=True)
            (tmp_path / "spark" / "jars" / f"{jar}.jar").touch()
        says = f"echo '   version {version}'; echo 'Using Scala version 2.13.18, OpenJDK 64-Bit Server VM'"
        submit = tmp_path / "spark" / "bin" / "spark-submit"
        return str(program(submit, f'if [ "$1" = --version ]; then {says}; exit; fi\n{does}'))

    return spark


def program(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def said(capsys, *words):
    code = main(["connect-server", *words])
    captured = capsys.readouterr()
    return code, captured.out, " ".join(captured.err.split())


def test_it_listens_on_this_machine_only_unless_told_otherwise():
    given = parser().parse_args(["connect-server"])
    assert (given.bind, given.port, given.master, given.driver_memory) == ("127.0.0.1", 15002, "local[2]", "2g")


@pytest.mark.parametrize("port", ["65536", "-1", "many"])
def test_a_port_is_a_number_from_0_to_65535(port, capsys):
    code, _, err = said(capsys, f"--port={port}")
    assert code == 2
    assert f"expected a port from 0 to 65535, got {port!r}" in err


def test_an_argument_is_not_a_setting_as_well(machine, capsys):
    words = ["--spark-binary", machine("exit 1")]
    assert (
        "--conf spark.driver.memory: use --driver-memory" in said(capsys, *words, "--conf", "spark.driver.memory=9g")[2]
    )
    code, _, err = said(capsys, *words, "--conf", "spark.connect.grpc.binding.port=1")
    assert code == 2
    assert "Spark setting spark.connect.grpc.binding.port is an argument of its own" in err


@pytest.mark.parametrize("client", [None, "4.2.0"])
def test_a_machine_without_spark_is_told_how_to_install_it(machine, capsys, monkeypatch, client):
    monkeypatch.setattr(own_spark, "installed_client", lambda: client)
    code, out, err = said(capsys)
    assert (code, out) == (2, "")
    only = "" if client is None else f" (pyspark-client {client} is, but contains no Spark)"
    assert f"[SPARK_UNUSABLE] no Spark was found: pyspark is not installed{only}, SPARK_HOME is not set" in err
    assert "pip install 'airflow-provider-fds[local]'" in err


def test_a_machine_without_java_is_told_how_to_install_it(monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    code, out, err = said(capsys, "--port", "0", "--output", "json")
    assert code == 2
    assert "Spark needs Java 17 or newer" in err
    assert json.loads(out)["error"]["reason_code"] == "SPARK_UNUSABLE"


def test_a_spark_without_a_server_is_named(machine, capsys):
    words = ["--spark-binary", machine("exit 1", "3.5.7", jars=["delta-spark_2.13-3.3.2"])]
    code, _, err = said(capsys, *words)
    assert code == 2
    assert "has no Spark Connect server (spark-connect_*.jar is missing in its folder jars). Use Spark 4.0" in err


def test_a_port_that_another_process_has_is_named_before_spark_starts(machine, capsys):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        code, _, err = said(capsys, "--spark-binary", machine("exit 1"), "--port", str(port))
    assert code == 2
    assert f"cannot listen on 127.0.0.1:{port} (Address already in use). Choose another port" in err


def test_a_port_that_is_taken_while_spark_starts_is_named_too(machine, capsys):
    binds = "echo 'ERROR SparkConnectServer: java.net.BindException: Address already in use'; exit 1"
    code, _, err = said(capsys, "--spark-binary", machine(binds))
    assert code == 2
    assert "cannot listen on 127.0.0.1:15002 (Address already in use)" in err


def test_an_address_of_another_machine_is_refused(machine, capsys):
    code, _, err = said(capsys, "--spark-binary", machine("exit 1"), "--bind", "192.0.2.1")
    assert code == 2
    assert "cannot listen on 192.0.2.1:15002 (Cannot assign requested address)" in err


def test_a_server_that_dies_at_its_start_is_an_error_with_its_last_lines(machine, capsys):
    dies = "for i in $(seq 40); do echo line $i; done; echo no such class >&2; exit 3"
    code, out, err = said(capsys, "--port", "0", "--spark-binary", machine(dies))
    assert (code, out) == (2, "")
    assert "the Spark Connect server ended with exit code 3 before it listened. Its last lines: line 27 line 28" in err
    assert err.endswith("line 40 no such class")


def test_a_server_that_dies_later_is_another_error_which_a_restart_helps(machine, capsys):
    code, out, err = said(capsys, "--port", "0", "--spark-binary", machine(f"{LISTENS}; echo out of memory; exit 3"))
    assert code == 6
    assert out == "sc://127.0.0.1:4711\n"
    assert "[SPARK_CONNECT_LOST] the Spark Connect server at sc://127.0.0.1:4711 ended with exit code 3:" in err
    assert err.endswith("out of memory")


def test_a_server_that_others_reach_without_a_token_is_warned_of(machine, capsys, monkeypatch):
    words = ["--port", "0", "--bind", "0.0.0.0", "--spark-binary", machine(f"{LISTENS}; exit 3")]
    _, out, err = said(capsys, *words)
    assert out == f"sc://{socket.gethostname()}:4711\n"
    assert "fds connect-server: whoever reaches 0.0.0.0 can run any code as this user" in err
    monkeypatch.setenv("SPARK_CONNECT_AUTHENTICATE_TOKEN", "s3cr3t")
    assert "whoever reaches" not in said(capsys, *words)[2]


@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("output", ["text", "json"])
def test_a_signal_ends_the_server_and_the_command_well(machine, tmp_path, sign, output):
    submit = machine(f"echo starting >&2; echo $$ > '{tmp_path}/pid'; {LISTENS}; while :; do sleep 0.1; done")
    words = ["connect-server", "--port", "0", "--spark-binary", submit, "--output", output]
    command = [sys.executable, "-m", "airflow_provider_fds.cli.main", *words]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ
    ) as process:
        line = process.stdout.readline()
        pid = json.loads(line)["pid"] if output == "json" else int((tmp_path / "pid").read_text())
        process.send_signal(sign)
        rest, log = process.communicate(timeout=60)
    assert (process.returncode, rest) == (0, "")
    assert (json.loads(line)["url"] if output == "json" else line.strip()) == "sc://127.0.0.1:4711"
    assert log.startswith("starting\n09:00:00 INFO SparkConnectServer")
    with suppress(ProcessLookupError):
        os.kill(pid, 0)
        raise AssertionError("the server still runs")
