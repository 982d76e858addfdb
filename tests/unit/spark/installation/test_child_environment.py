"""Spark has no key of Airflow's in its environment."""

from __future__ import annotations

import os
import sys
from dataclasses import replace

import pytest

from airflow_provider_fds.spark.installation.install import PASSED, child_environment, held_back
from airflow_provider_fds.spark.sessions import session_job
from airflow_provider_fds.spark.submission import launch
from airflow_provider_fds.spark.submission.submit import SubmitArguments

KEYS = {
    "AIRFLOW_CONN_AWS_LAKE": "HUSH",
    "AIRFLOW_VAR_TOKEN": "HUSH",
    "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": "HUSH",
    "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN_CMD": "HUSH",
    "AIRFLOW__CORE__FERNET_KEY": "HUSH",
    "AIRFLOW__API_AUTH__JWT_SECRET": "HUSH",
    "_AIRFLOW_WWW_USER_PASSWORD": "HUSH",
    "_AIRFLOW__AS_LIBRARY": "HUSH",
}
OTHERS = {"PATH": "/bin", "AIRFLOW_HOME": "/airflow", "AWS_REGION": "eu", "AIRFLOW_CTX_DAG_ID": "d", "JAVA_HOME": "/j"}


def test_settings_of_airflow_are_withheld_and_all_others_are_passed_on():
    assert child_environment({**KEYS, **OTHERS}) == OTHERS
    assert held_back({**KEYS, **OTHERS}) == list(KEYS)


def test_the_needs_of_a_job_can_be_described():
    named = {PASSED: "AIRFLOW_VAR_TOKEN, AIRFLOW_CONN_AWS_LAKE"}
    found = child_environment({**KEYS, **OTHERS, **named})
    assert {name for name in found if name in KEYS} == {"AIRFLOW_VAR_TOKEN", "AIRFLOW_CONN_AWS_LAKE"}
    everything = {**KEYS, **OTHERS, PASSED: "*"}
    assert child_environment(everything) == everything


@pytest.fixture
def keys(monkeypatch):
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)


def arguments(tmp_path):
    script = tmp_path / "spark-submit"
    script.write_text(f"#!/bin/sh\n{sys.executable} -c 'import os; print(\"FDS\", sorted(os.environ.items()))'\n")
    script.chmod(0o755)
    made = SubmitArguments("local", "client", "job.py", ("x",), {}, None, None, "fds.zip", {"MINE": "1"})
    return replace(made, spark_binary=str(script))


def test_spark_submit_of_the_command_line_has_no_key_of_airflows(keys, tmp_path):
    lines = []
    assert launch.run_submission(arguments(tmp_path), lines.append) == 0
    assert "'MINE', '1'" in "".join(lines)
    assert "HUSH" not in "".join(lines)


def test_a_session_of_a_task_is_started_without_them_and_the_task_keeps_them(keys, monkeypatch, tmp_path):
    seen = {}
    job = session_job.SessionJob(arguments(tmp_path), "", "fds")
    builder = type("Builder", (), {"appName": lambda self, _: self, "getOrCreate": lambda _: seen.update(os.environ)})()
    monkeypatch.setattr("pyspark.sql.SparkSession.builder", builder)
    job._start()
    assert seen["MINE"] == "1"
    assert "HUSH" not in seen.values()
    assert all(os.environ[name] == "HUSH" for name in KEYS)


def test_a_spark_that_starts_while_this_process_has_connect_sessions_has_a_session_of_its_own():
    assert child_environment({"SPARK_CONNECT_MODE_ENABLED": "1", "SPARK_HOME": "/spark"}) == {"SPARK_HOME": "/spark"}
