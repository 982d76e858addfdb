"""A job on a Spark Connect server whose client, server or way to it dies in the middle."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
from contextlib import contextmanager, suppress
from dataclasses import replace

import pytest

from airflow_provider_fds.batch.report import started_name
from airflow_provider_fds.batch.spec import job_name
from airflow_provider_fds.sinks import DeltaAppendSink
from airflow_provider_fds.spark.runtime import hadoop_files as files
from airflow_provider_fds.spark.runtime.versions import server_problem
from airflow_provider_fds.spark.sessions import connect_job
from airflow_provider_fds.spark.sessions import connect_server as connect
from airflow_provider_fds.spark.sessions.connect_job import ConnectJob, left_behind, tag_of
from airflow_provider_fds.spark.sessions.connect_server import (
    ConnectServer,
    ServerUnfitError,
    ServerUnreachableError,
    is_shared,
)
from airflow_provider_fds.stream.attempt.driver_files import DriverFiles
from tests.interop.connect_server import running_server
from tests.stuck_file import stuck_file

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="session")
def spark(connect_session):
    """Instead of the classic session: one on the server."""
    return connect_session


#: So that a test that runs across the full half hour keeps its shared session.
ONE_PERIOD = 10**12


@pytest.fixture(autouse=True)
def one_period(monkeypatch):
    monkeypatch.setattr(connect_job, "_SHARED_SECONDS", ONE_PERIOD)


def job_of(stream, spec, url, lines=None):
    server = ConnectServer(url, "connection 'warm'")
    tell = [].append if lines is None else lines.append
    sink = type(stream.staging)(str(stream.sink_path))
    key = f"orders/jobs/{job_name(spec.attempt_id, spec.to_json())}"
    stream.staging.put(key, spec.to_json())
    uri = f"{stream.staging.uri}/{key}"
    return ConnectJob(server, uri, DriverFiles(stream.staging, sink), {}, tell)


def test_a_server_with_a_token_accepts_its_holder_and_tells_others_what_is_missing(tmp_path):
    with running_server(tmp_path, **{"spark.connect.authenticate.token": "s3cr3t"}) as server:

        def refused(url):
            with pytest.raises(ServerUnfitError) as caught, ConnectServer(url, "connection 'warm'").session("fds-t"):
                raise AssertionError("let in")
            return str(caught.value)

        assert "rejected the login (No authentication token provided). The token is the" in refused(server.url)
        here, elsewhere = f"sc://localhost:{server.port}", f"sc://127.0.0.1:{server.port}"
        assert "(Invalid authentication token)" in refused(f"{here}/;token=other")
        # a token for another machine goes over TLS, which the server does not speak
        assert "put a proxy with a certificate in front" in refused(f"{elsewhere}/;token=s3cr3t")
        # a client that reads the token from the environment can use the URI as it is printed
        assert server.url == here
        with ConnectServer(f"{here}/;token=s3cr3t", "connection 'warm'").session("fds-t") as spark:
            assert spark.range(3).count() == 3


def data_file(stream):
    return min(stream.source.glob("*.parquet"), key=lambda path: path.stat().st_mtime_ns)


CLIENT = f"""
import sys
from airflow_provider_fds.delta.storage.local import LocalStorage
from airflow_provider_fds.spark.sessions.connect_server import ConnectServer
from airflow_provider_fds.spark.sessions import connect_job
from airflow_provider_fds.stream.attempt.driver_files import DriverFiles
connect_job._SHARED_SECONDS = {ONE_PERIOD}
url, spec, staging = sys.argv[1:]
server = ConnectServer(url, "connection 'warm'")
connect_job.ConnectJob(server, spec, DriverFiles(LocalStorage(staging)), {{}}, print).work()
"""


def client_of(stream, spec, url):
    arguments = [sys.executable, "-c", CLIENT, url, stream.save(spec), str(stream.folder / "staging")]
    return subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def test_a_write_that_outlived_its_client_is_stopped_by_the_next_attempt_and_the_batch_lands_once(
    stream_of_a_copy, connect_server
):
    stream = stream_of_a_copy
    batch = stream.plan()[0]
    dead, retry = stream.job(batch), stream.job(batch)
    with stuck_file(data_file(stream)) as stuck:
        client = client_of(stream, dead, connect_server.url)
        stuck.wait_for_reader()
        client.send_signal(signal.SIGKILL)
        client.wait()
        assert stream.read_reports(dead) == []
        (marker,) = left_behind(retry, None)
        assert marker["connect"]["tags"] == [tag_of(dead.attempt_id)]

        lines = []
        code = job_of(stream, retry, connect_server.url, lines).work()
    (report,) = stream.read_reports(retry)
    assert (code, report.outcome, report.rows_written) == (0, "written", 10)
    assert len(stream.sink_commits()) == 1
    assert any("1 operations stopped" in line for line in lines), lines


def test_a_job_that_is_killed_stops_its_write_and_reports_that(stream_of_a_copy, connect_server):
    stream = stream_of_a_copy
    batches = stream.plan()
    spec = stream.job(*batches[:2])
    job = job_of(stream, spec, connect_server.url)
    with stuck_file(data_file(stream)) as stuck:

        def kill() -> None:
            stuck.wait_for_reader()
            job.kill()

        killer = threading.Thread(target=kill)
        killer.start()
        code = job.work()
        killer.join()
    (report,) = stream.read_reports(spec)
    assert (code, report.outcome, report.retryable) == (10, "failed", True)
    # whichever of the two Spark says first
    assert report.error_class in ("OPERATION_CANCELED", "SPARK_SESSION_ENDED")
    assert stream.sink_commits() == []


@contextmanager
def way_to(port):
    """A forwarder to a port that can be cut; yields its own port and the scissors."""
    listener = socket.create_server(("127.0.0.1", 0))
    sockets = [listener]

    def forward(source, target):
        try:
            while data := source.recv(1 << 16):
                target.sendall(data)
        except OSError:
            pass

    def accept():
        while True:
            try:
                here, _ = listener.accept()
            except OSError:
                return
            there = socket.create_connection(("127.0.0.1", port))
            sockets.extend((here, there))
            for pair in ((here, there), (there, here)):
                threads.append(threading.Thread(target=forward, args=pair))
                threads[-1].start()

    def cut():
        for one in sockets:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    threads = [threading.Thread(target=accept)]
    threads[0].start()
    try:
        yield listener.getsockname()[1], cut
    finally:
        cut()
        for thread in threads:
            thread.join()


def test_a_server_that_is_lost_in_the_middle_is_named_and_a_retry_may_find_it(
    stream_of_a_copy, connect_server, monkeypatch
):
    stream = stream_of_a_copy
    spec = stream.job(stream.plan()[0])
    monkeypatch.setattr(connect, "_RETRIES", {"max_retries": 1, "initial_backoff": 10})
    with stuck_file(data_file(stream)) as stuck, way_to(connect_server.port) as (port, cut):

        def lose() -> None:
            stuck.wait_for_reader()
            cut()

        loser = threading.Thread(target=lose)
        loser.start()
        code = job_of(stream, spec, f"sc://127.0.0.1:{port}").work()
        loser.join()
    (report,) = stream.read_reports(spec)
    assert (code, report.outcome, report.error_class, report.retryable) == (10, "failed", "SPARK_CONNECT_LOST", True)
    assert "Spark Connect server" in report.error_message

    retry = stream.job(stream.plan()[0])
    assert job_of(stream, retry, connect_server.url).work() == 0
    assert len(stream.sink_commits()) == 1


def test_a_server_that_does_not_answer_is_named_before_anything_is_written(stream):
    spec = stream.job(stream.plan()[0])
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(ServerUnreachableError, match=rf"connection 'warm' does not answer at 127\.0\.0\.1:{port}"):
        job_of(stream, spec, f"sc://127.0.0.1:{port}/;token=secret").work()
    assert not stream.reports.exists()


def test_a_server_without_what_a_batch_needs_is_refused_with_how_to_start_it(connect_server, monkeypatch):
    monkeypatch.setattr(connect, "DELTA_EXTENSION", "not.there")
    server = ConnectServer(connect_server.url, "connection 'warm'")
    with (
        pytest.raises(ServerUnfitError, match=r"connection 'warm' .* has no Delta: .* Start it with"),
        server.session("t"),
    ):
        pass


def test_a_server_says_which_jars_it_was_started_with_and_one_for_another_spark_is_refused(connect_server, monkeypatch):
    # as if this server's Spark were a later one
    monkeypatch.setattr(connect, "server_problem", lambda _, __, *more: server_problem("9.9.0", "9.9.0", *more))
    server = ConnectServer(connect_server.url, "connection 'warm'")
    found = r"was started with .*/delta-spark_4\.2_2\.13-.*\.jar, which is Delta .* for Spark 4\.2 .*built for Spark 9"
    with pytest.raises(ServerUnfitError, match=found), server.session("t"):
        pass


def test_a_setting_that_the_server_does_not_take_is_named(connect_server):
    server = ConnectServer(connect_server.url, "connection 'warm'")
    conf = {"spark.sql.warehouse.dir": "/elsewhere"}
    with (
        pytest.raises(ServerUnfitError, match=r"refused the session .*spark\.sql\.warehouse\.dir"),
        server.session("t", conf),
    ):
        pass


def test_each_batch_can_be_committed_while_the_job_continues(stream, connect_server, monkeypatch):
    spec = stream.job(*stream.plan()[:2])
    job = job_of(stream, spec, connect_server.url)
    # what is not local goes through the storages of Airflow's side
    monkeypatch.setattr(files, "local_path", lambda _: None)
    seen = []
    code = job.work(lambda report: seen.append((report.batch_id, len(stream.sink_commits()))))
    assert (code, seen) == (0, [(0, 1), (1, 2)])
    assert [report.outcome for report in stream.read_reports(spec)] == ["written"] * 2


def session_of(stream, spec, batch):
    marker = stream.reports / started_name(batch.epoch, batch.batch_id, spec.attempt_id)
    return json.loads(marker.read_bytes())["connect"]["session_id"]


def test_jobs_of_a_stream_share_a_session_that_is_recreated_when_the_server_has_ended_it(stream, connect_server):
    first, second, third = stream.plan()
    specs = []
    for batch in (first, second):
        specs.append(stream.job(batch))
        assert job_of(stream, specs[-1], connect_server.url).work() == 0
    shared = session_of(stream, specs[0], first)
    assert is_shared(shared)
    assert session_of(stream, specs[1], second) == shared

    ended = ConnectServer(connect_server.url, "connection 'warm'").open(is_active=False, session_id=shared)
    ended.client.release_session()
    ended.client.close()
    spec = stream.job(third)
    assert job_of(stream, spec, connect_server.url).work() == 0
    assert not is_shared(session_of(stream, spec, third))
    assert len(stream.sink_commits()) == 3


def test_a_job_with_a_function_does_not_leave_it_to_the_next_one(stream, connect_server, monkeypatch):
    (stream.folder / "orders_function.py").write_text("def as_it_is(df):\n    return df\n")
    monkeypatch.syspath_prepend(stream.folder)
    sink = DeltaAppendSink(str(stream.sink_path), transform="orders_function:as_it_is")
    (batch, *_) = stream.plan()
    spec = stream.job(batch, sink=sink)
    assert job_of(stream, spec, connect_server.url).work() == 0
    assert not is_shared(session_of(stream, spec, batch))


def test_a_job_that_is_killed_between_two_batches_does_no_more_and_others_may_use_the_session(stream, connect_server):
    first, second, _ = stream.plan()
    spec = stream.job(first, second)
    job = job_of(stream, spec, connect_server.url)
    code = job.work(lambda _: job.kill())
    reports = stream.read_reports(spec)
    assert (code, [report.outcome for report in reports]) == (10, ["written", "failed"])
    assert reports[1].error_class == "SPARK_SESSION_ENDED"
    assert len(stream.sink_commits()) == 1

    retry = stream.job(second)
    assert job_of(stream, retry, connect_server.url).work() == 0
    assert session_of(stream, retry, second) == session_of(stream, spec, first)


def test_concurrent_intervals_in_one_session_do_not_affect_each_other(stream_of_a_copy, connect_server):
    stream = stream_of_a_copy
    standing, passing = (
        replace(b, interval=f"{b.batch_id}/{b.batch_id + 1}", prev_txn_version=None) for b in stream.plan()[:2]
    )
    stands, passes = stream.job(standing), stream.job(passing)
    with stuck_file(data_file(stream)) as stuck:
        client = client_of(stream, stands, connect_server.url)
        stuck.wait_for_reader()
        assert job_of(stream, passes, connect_server.url).work() == 0
        assert session_of(stream, passes, passing) == session_of(stream, stands, standing)
        assert client.poll() is None
        stuck.release()
        client.wait()
    (report,) = stream.read_reports(stands)
    # the file's checksums were cut off: that is all that became of it
    assert (report.outcome, report.error_class) == ("failed", "FAILED_READ_FILE.NO_HINT")
    assert len(stream.sink_commits()) == 1
