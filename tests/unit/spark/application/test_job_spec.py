"""A job does what the spec says that the command line binds, and no other."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from airflow_provider_fds.batch.spec import JobSpec, SpecChangedError, job_name
from airflow_provider_fds.spark.application import job
from airflow_provider_fds.spark.application.batch_attempt import BatchAttempt
from airflow_provider_fds.spark.sessions.connect_job import ConnectJob
from airflow_provider_fds.spark.sessions.connect_server import ConnectServer
from airflow_provider_fds.spark.sessions.session_job import SessionJob
from tests.unit.spark.batches import batch

JOB = JobSpec(
    batches=(batch(),),
    sink={"kind": "foreach_batch", "function": "jobs:load", "writes": []},
    sink_table_id=None,
    sink_version=None,
    reports="file:///staging/orders/attempts",
    attempt_id="t1",
)


@pytest.fixture
def changed(tmp_path):
    """URI of a spec that was exchanged for one that calls another function."""
    path = tmp_path / job_name("t1", JOB.to_json())
    path.write_bytes(replace(JOB, sink={**JOB.sink, "function": "os:system"}).to_json())
    return path.as_uri()


def test_spark_submit_runs_no_spec_that_was_exchanged(changed, monkeypatch, capsys):
    monkeypatch.setattr(job, "run_lingering", lambda *_: pytest.fail("it was run"))
    monkeypatch.setattr(job, "_session", lambda: pytest.fail("a session was started for it"))
    assert job.main([changed]) == job.EXIT_FAILED
    assert "was changed after it was written" in capsys.readouterr().err


def test_spark_connect_runs_no_spec_that_was_exchanged(changed):
    server = ConnectServer("sc://127.0.0.1:1", "connection 'warm'")
    with pytest.raises(SpecChangedError, match="was changed after it was written"):
        ConnectJob(server, changed, None, {}, print).work()


def test_a_session_of_the_task_runs_no_spec_that_was_exchanged(changed, monkeypatch):
    class Session:
        def stop(self):
            os.environ["STOPPED"] = "1"

    monkeypatch.setenv("STOPPED", "0")
    monkeypatch.setattr(SessionJob, "_start", lambda _: Session())
    with pytest.raises(SpecChangedError, match="was changed after it was written"):
        SessionJob(None, changed, "fds").work()
    assert os.environ["STOPPED"] == "1"


@pytest.mark.parametrize(
    ("sink", "words"),
    [
        ({"kind": "delta_append", "uri": "s3a://lake/bronze"}, "s3a://lake/bronze"),
        ({"kind": "foreach_batch", "function": "jobs:load", "writes": []}, "jobs:load"),
        ({"kind": "papyrus", "roll": 3}, "a sink of kind 'papyrus'"),
        ({"kind": "delta_append", "roll": 3}, "a sink of kind 'delta_append'"),
    ],
)
def test_a_failure_names_the_sink_whatever_its_kind(sink, words):
    failed = BatchAttempt(None, replace(JOB, sink=sink), JOB.batches[0]).failed(OSError("no space left"))
    assert f"into {words}: " in failed.error_message
