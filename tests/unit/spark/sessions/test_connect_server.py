"""What is known of a Spark Connect server without asking it."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from importlib import metadata
from types import SimpleNamespace
from uuid import uuid4

import pytest

from airflow_provider_fds.batch.spec import Expectations, FenceSpec, JobSpec
from airflow_provider_fds.sinks import DeltaAppendSink, DeltaMergeSink, DeltaReplaceSink, ForeachBatchSink
from airflow_provider_fds.spark.runtime.settings import DELTA_EXTENSION, EXTENSIONS
from airflow_provider_fds.spark.sessions import connect_server as connect
from airflow_provider_fds.spark.sessions.connect_job import ServerWork, shared_session_id, tag_of
from airflow_provider_fds.spark.sessions.connect_server import (
    ConnectServer,
    ServerUnfitError,
    is_shared,
    version_difference,
)
from tests.unit.spark.batches import batch


@pytest.mark.parametrize(
    ("url", "endpoint"),
    [
        ("sc://host", "host:15002"),
        ("sc://host:15099/;user_id=me;token=s3cr3t;use_ssl=true", "host:15099"),
        ("sc://host/;token=s3cr3t", "host:15002"),
    ],
)
def test_a_server_is_named_by_host_and_port_and_never_by_its_token(url, endpoint):
    server = ConnectServer(url, "connection 'warm'")
    assert server.endpoint == endpoint
    assert "s3cr3t" not in repr(server)


def test_a_server_of_another_version_than_the_client_is_named_with_both():
    mine = metadata.version("pyspark")
    assert version_difference(mine) is None
    assert version_difference(f"{mine.rsplit('.', 1)[0]}.99-SNAPSHOT") is None
    said = version_difference("3.5.7")
    assert said is not None
    assert "the server is Spark 3.5.7" in said
    assert f"the installed pyspark is {mine}" in said


def test_a_tag_has_no_comma_and_names_the_attempt():
    assert tag_of("20261121T101500-abc,def") == "fds-20261121T101500-abc-def"


SESSION = "0f6c2f5e-3b0a-4c39-9f0e-6a4f6f1d2b11"
NOW = 1_700_000_000.0


def job(sink, stream="0f3c"):
    batches = (batch(uuid=stream),)
    return JobSpec(batches, sink.to_dict(), sink_table_id=None, sink_version=None, reports="", attempt_id=str(uuid4()))


def test_jobs_of_a_stream_share_a_session_for_a_while_if_all_of_them_set_the_same_for_it():
    plain = DeltaAppendSink("/lake/orders", where="id > 0", merge_schema=True, partition_by=["day"])
    first = shared_session_id(job(plain), {}, NOW)
    assert first is not None
    assert is_shared(first)
    assert not is_shared(str(uuid4()))
    assert shared_session_id(job(plain), {}, NOW + 60) == first
    # the server ends a session that nobody used for an hour
    others = [
        shared_session_id(job(plain), {}, NOW + 3600),
        shared_session_id(job(plain), {"spark.sql.session.timeZone": "UTC"}, NOW),
        shared_session_id(job(plain), {"spark.sql.session.timeZone": "Asia/Tokyo"}, NOW),
        shared_session_id(job(plain, stream="77aa"), {}, NOW),
    ]
    assert len({first, *others}) == 5


@pytest.mark.parametrize(
    "sink",
    [
        DeltaAppendSink("/lake/orders", transform="pkg.module:function"),
        DeltaAppendSink("/lake/orders", target_file_size="128m"),
        DeltaAppendSink("/lake/orders", cluster_by=["id"]),
        DeltaMergeSink("/lake/orders", keys=["id"]),
        DeltaReplaceSink("/lake/orders", provenance=True),
        ForeachBatchSink("pkg.module:function"),
    ],
)
def test_a_job_that_sets_something_for_its_session_or_runs_a_function_has_one_of_its_own(sink):
    assert shared_session_id(job(sink), {}, NOW) is None


def test_a_job_that_rejects_rows_has_a_session_of_its_own():
    """A new epoch removes what the one before has rejected, by a statement under a transaction of the session."""
    plain = job(DeltaAppendSink("/lake/orders"))
    dropping = Expectations({"id > 0": "drop"})
    assert shared_session_id(replace(plain, expectations=dropping), {}, NOW) is not None
    rejecting = Expectations({"id > 0": "reject"}, None, "/lake/rejects")
    assert shared_session_id(replace(plain, expectations=rejecting), {}, NOW) is None


def test_a_fence_has_a_session_of_its_own():
    fence = replace(job(DeltaAppendSink("/lake/orders")), batches=(), fence=FenceSpec("orders", "0f3c", 2))
    assert shared_session_id(fence, {}, NOW) is None


def test_a_marker_stops_only_what_its_own_attempt_has_begun(tmp_path, monkeypatch):
    spec = replace(job(DeltaAppendSink("/lake/orders")), reports=tmp_path.as_uri(), attempt_id="mine")
    folder = tmp_path / "1" / "0"
    folder.mkdir(parents=True)
    forged = {
        "attempt_id": "theirs",
        "connect": {"session_id": SESSION, "user_id": "u", "tags": ["fds-theirs", "payroll"]},
    }
    (folder / "dead.started.json").write_text(json.dumps(forged))
    for name, session in (("list", [SESSION]), ("text", "x"), ("none", None)):
        (folder / f"{name}.started.json").write_text(json.dumps({"connect": {"session_id": session}}))
    stopped = []
    monkeypatch.setattr(ConnectServer, "interrupt", lambda _, *what: stopped.append(what) or [])
    ServerWork(ConnectServer("sc://host", "warm"), print).stop_earlier(spec, None)
    assert stopped == [(SESSION, "u", ("fds-dead",))]


class Answering:
    """A server's session that says its version and settings."""

    def __init__(self, version):
        self.version = version
        self.conf = SimpleNamespace(getAll={EXTENSIONS: DELTA_EXTENSION}, set=lambda *_: None)
        self.client = SimpleNamespace(set_retry_policies=lambda _: None)

    def stop(self):
        pass


def test_a_server_is_checked_before_planning_and_not_again_for_ten_minutes(tmp_path, monkeypatch):
    monkeypatch.setenv("FDS_CACHE_DIR", str(tmp_path / "cache"))
    server, asked, version = ConnectServer("sc://host", "connection 'warm'"), [], [metadata.version("pyspark")]
    monkeypatch.setattr(ConnectServer, "check_reachable", lambda _: None)
    monkeypatch.setattr(ConnectServer, "open", lambda _, **__: asked.append(1) or Answering(version[0]))

    server.check_fit()
    server.check_fit()
    assert len(asked) == 1
    # another client, and a server that has been upgraded since
    monkeypatch.setattr(connect, "client_version", lambda: "4.0.1")
    server.check_fit()
    assert len(asked) == 2
    for kept in (tmp_path / "cache" / "servers").iterdir():
        os.utime(kept, (time.time() - 601, time.time() - 601))
    version[0] = "3.5.7"
    for _ in range(2):
        with pytest.raises(
            ServerUnfitError, match=r"the server is Spark 3\.5\.7, but the installed pyspark is 4\.0\.1"
        ):
            server.check_fit()
    assert len(asked) == 4


def test_the_last_of_several_threads_takes_the_mode_of_connect_with_it(monkeypatch):
    # a spark-submit that this process starts later would inherit it
    monkeypatch.delenv("SPARK_CONNECT_MODE_ENABLED", raising=False)
    first, second = connect.connect_mode(), connect.connect_mode()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert os.environ["SPARK_CONNECT_MODE_ENABLED"] == "1"
    second.__exit__(None, None, None)
    assert "SPARK_CONNECT_MODE_ENABLED" not in os.environ
