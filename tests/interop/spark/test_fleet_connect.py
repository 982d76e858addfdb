"""A fleet on a Spark Connect server: streams side by side from threads of one process."""

from __future__ import annotations

import threading

import pytest

from airflow_provider_fds.batch.fleet_spec import FleetProgress, fleet_name
from airflow_provider_fds.batch.spec import job_name
from airflow_provider_fds.sinks import DeltaAppendSink, DeltaMergeSink, ForeachBatchSink
from airflow_provider_fds.spark.sessions import connect_job
from airflow_provider_fds.spark.sessions.connect_fleet import ConnectFleet
from airflow_provider_fds.spark.sessions.connect_server import ConnectServer, ServerUnreachableError
from airflow_provider_fds.spark.writers.rows.user_code import function_here
from airflow_provider_fds.stream.attempt.driver_files import DriverFiles
from tests.interop.spark.test_fleet_job import Streams
from tests.stuck_file import stuck_file

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="session")
def spark(connect_session):
    """Instead of the classic session: one on the server."""
    return connect_session


@pytest.fixture(autouse=True)
def one_period(monkeypatch):
    monkeypatch.setattr(connect_job, "_SHARED_SECONDS", 10**12)


@pytest.fixture
def streams(tmp_path, source_template):
    return Streams(tmp_path, source_template)


def fleet_of(streams, url, lines=None, **fields):
    """The fleet as the task has it: nothing is read from the local disk but through the streams' own files."""
    jobs = []
    for job in streams.jobs:
        stream, spec = streams.all[job.stream], streams.specs[job.stream]
        key = f"orders/jobs/{job_name(spec.attempt_id, spec.to_json())}"
        stream.staging.put(key, spec.to_json())
        jobs.append(type(job)(job.stream, f"{stream.staging.uri}/{key}", job.num_bytes, job.timeout_seconds))
    streams.jobs = jobs
    first = next(iter(streams.all.values())).staging
    progress = f"{first.uri}/progress.json"
    data = streams.spec(progress=progress, **fields).to_json()
    first.put(fleet_name("try-1", data), data)
    files = {
        name: DriverFiles(stream.staging, type(stream.staging)(str(stream.sink_path)))
        for name, stream in streams.all.items()
    }
    tell = [].append if lines is None else lines.append
    server = ConnectServer(url, "connection 'warm'")
    uri = f"{first.uri}/{fleet_name('try-1', data)}"
    return ConnectFleet(server, uri, DriverFiles.union(files.values()), files, {}, tell), first


def test_streams_on_a_server_have_their_own_sessions_only_if_they_change_them(spark, streams, connect_server, capsys):
    sessions = {}
    hanging = threading.Event()

    def sets(df, batch):
        from pyspark.sql.connect.session import SparkSession

        session = df.sparkSession
        assert SparkSession.getActiveSession() is session
        sessions.setdefault(batch.stream, set()).add(session.session_id)
        session.conf.set("spark.sql.shuffle.partitions", "7")
        return df.count()

    def hangs(df, batch):
        hanging.wait(120)

    for number in range(2):
        streams.add(f"appends_{number}", batches=2)
    streams.add("merges", sink=lambda s: DeltaMergeSink(str(s.sink_path), keys=("id",)), batches=2)
    streams.add("packs", sink=lambda s: DeltaAppendSink(str(s.sink_path), target_file_size="1g"), batches=2)
    streams.add("calls", sink=lambda _: ForeachBatchSink("here:sets"), batches=2)
    streams.add("calls_too", sink=lambda _: ForeachBatchSink("here:sets"), batches=2)
    streams.add("hangs", sink=lambda _: ForeachBatchSink("here:hangs"), timeout=5.0)
    fleet, staging = fleet_of(streams, connect_server.url, parallelism=4)
    with function_here("here:sets", sets), function_here("here:hangs", hangs):
        ended = fleet.work()
        hanging.set()

    assert ended == {**dict.fromkeys(streams.all, "done"), "hangs": "failed"}
    for name in streams.all:
        if name != "hangs":
            assert streams.outcomes(name) == ["written"] * 2, [r.error_message for r in streams.reports(name)]
    assert [report.error_class for report in streams.reports("hangs")] == ["BATCH_TIMED_OUT"]
    for name in ("appends_0", "appends_1", "merges", "packs"):
        assert streams.ids(spark, name) == list(range(20))
    assert [len(sessions[name]) for name in ("calls", "calls_too")] == [1, 1]
    assert sessions["calls"] != sessions["calls_too"]
    assert FleetProgress.from_json(staging.get("progress.json")[0]).ended == ended
    assert "FDS fleet: 6 of 7 streams done" in capsys.readouterr().out


def test_a_fleet_that_is_killed_stops_its_writes(spark, streams, connect_server, tmp_path):
    import shutil

    damaged = tmp_path / "source"
    shutil.copytree(streams.source, damaged)
    streams.add("stuck", source=damaged)
    streams.add("done")
    lines = []
    fleet, _ = fleet_of(streams, connect_server.url, lines, parallelism=2)
    with stuck_file(min(damaged.glob("*.parquet"), key=lambda path: path.stat().st_mtime_ns)) as stuck:

        def kill() -> None:
            stuck.wait_for_reader()
            fleet.kill()

        killer = threading.Thread(target=kill)
        killer.start()
        ended = fleet.work()
        killer.join()
    assert ended["stuck"] == "failed"
    (report,) = streams.reports("stuck")
    assert report.retryable
    assert not streams.all["stuck"].sink_commits()
    assert any("operations stopped" in line for line in lines), lines


def test_a_server_that_does_not_answer_fails_the_fleet_as_a_whole(streams):
    streams.add("one")
    fleet, _ = fleet_of(streams, "sc://127.0.0.1:1")
    with pytest.raises(ServerUnreachableError, match="does not answer"):
        fleet.work()
    assert streams.reports("one") == []
