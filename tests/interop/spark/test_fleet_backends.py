"""A fleet from plan to commit through the backends: done streams are committed while others go on."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest

from airflow_provider_fds.backends import local, spark_submit
from airflow_provider_fds.backends.base import UserArguments
from airflow_provider_fds.backends.fleet_application import FleetApplication, FleetPart
from airflow_provider_fds.backends.local import LocalBackend
from airflow_provider_fds.backends.spark_connect import ConnectBackend
from airflow_provider_fds.backends.spark_master import SparkMaster
from airflow_provider_fds.batch.fleet_spec import FleetJob, FleetSpec, fleet_name
from airflow_provider_fds.checkpoint.file import FileCheckpointStore
from airflow_provider_fds.delta.storage.open import open_storage
from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.ledger.owner import Actor, Owner
from airflow_provider_fds.places import Place
from airflow_provider_fds.sinks import DeltaAppendSink
from airflow_provider_fds.stream import DeltaStream, StreamContext, StreamSession
from airflow_provider_fds.stream.run import collecting

pytestmark = pytest.mark.timeout(300)

#: A function that returns only when the worker has committed the other stream.
SLOW = """
import time
from pathlib import Path

def slow(df):
    end = time.monotonic() + 120
    while not Path({committed!r}).exists() and time.monotonic() < end:
        time.sleep(0.1)
    return df
"""

#: A function after which the driver cannot end itself.
STAYING = """
import sys, time

def staying(df):
    sys.modules["__main__"]._leave = lambda spark, code: time.sleep(600)
    return df
"""


class Lake:
    """Tables, and the fleet of streams that read them."""

    def __init__(self, folder):
        self.folder = folder
        self.staging = folder / "staging"
        self.quick_is_committed = folder / "quick-is-committed"
        self.parts = []
        self.committed = {}

    def add(self, name, versions=2, **sink):
        for version in range(versions):
            rows = pa.table({"id": list(range(version * 5, version * 5 + 5))})
            deltalake.write_deltalake(self.folder / name, rows, mode="append")
        session = StreamSession(
            DeltaStream(name, table=str(self.folder / name), starting_version=0, max_versions_per_batch=1),
            StreamContext(
                staging_uri=str(self.staging),
                deployment="test",
                actor=Actor(deployment="test", user="me", host="here"),
                owner=Owner(kind="cli", deployment="test", run_id="fleet"),
                owner_is_running=lambda _: False,
                checkpoints=FileCheckpointStore(self.folder / f"{name}.json"),
            ),
        )
        target = DeltaAppendSink(str(self.folder / "bronze" / name), **sink)
        work = session.begin(target)
        self.parts.append(FleetPart(session, target, work, session.job(work, target)))

    def application(self):
        jobs = tuple(FleetJob(part.session.stream.name, part.spec_uri, part.num_bytes) for part in self.parts)
        data = FleetSpec(jobs, 2).to_json()
        storage = open_storage(str(self.staging))
        storage.put(fleet_name("try-1", data), data)
        uri = f"{storage.uri}/{fleet_name('try-1', data)}"
        return FleetApplication(tuple(self.parts), uri, self.commit, parallelism=2)

    def commit(self):
        for part in self.parts:
            done = collecting.commit_reported(part.session, part.work).committed
            self.committed.setdefault(part.session.stream.name, []).append(len(done))
        if self.committed["quick"][-1] == 2:
            self.quick_is_committed.touch()
        return all(counts[-1] == 2 for counts in self.committed.values())

    def check(self):
        for part in self.parts:
            collected = part.session.collect(part.work)
            assert collected.failure is None
            assert len(collected.committed) == 2
            rows = deltalake.DeltaTable(part.sink.uri).to_pyarrow_table()
            assert sorted(rows.column("id").to_pylist()) == list(range(10))


@pytest.fixture
def lake(tmp_path, monkeypatch):
    found = Lake(tmp_path)
    (tmp_path / "fleet_slow.py").write_text(SLOW.format(committed=str(found.quick_is_committed)))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{':'.join(sys.path)}")
    found.add("quick")
    found.add("slow", transform="fleet_slow:slow")
    return found


def test_spark_on_this_machine_loads_a_fleet_and_what_is_done_is_committed_meanwhile(lake):
    lines = []
    LocalBackend("local[2]", UserArguments(), lines.append).run_fleet(lake.application())
    # before Spark has ended
    assert (2, 0) in zip(lake.committed["quick"], lake.committed["slow"], strict=True), lines
    lake.check()


def test_a_driver_that_stays_after_all_streams_are_committed_is_ended(tmp_path, monkeypatch):
    lake = Lake(tmp_path)
    (tmp_path / "fleet_staying.py").write_text(STAYING)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{':'.join(sys.path)}")
    monkeypatch.setattr(local, "committing", partial(collecting.committing, grace_seconds=1))
    lake.add("quick")
    lake.add("staying", transform="fleet_staying:staying")
    assert LocalBackend("local[2]", UserArguments(), print).run_fleet(lake.application()).error is None
    lake.check()


def test_a_connect_server_loads_a_fleet(lake, connect_server):
    backend = ConnectBackend.from_url(connect_server.url, UserArguments(), print)
    backend.run_fleet(lake.application())
    assert lake.committed["quick"][-1] == 2
    lake.check()


class Task:
    """Instead of a task that is a SparkSubmitOperator."""

    def __init__(self):
        self.made = []

    def submit(self, arguments, context):
        self.made.append((arguments, Path(arguments.properties_file).read_text()))

    def kill_submission(self):
        pass

    def application_id(self):
        return None

    def yarn_application_id(self):
        return None


def test_a_task_submits_the_spec_of_the_fleet_with_fair_pools_and_the_settings_of_all_its_streams(lake):
    task = Task()
    arguments = UserArguments(conf={"spark.executor.cores": 2}, conf_by_size=lambda size: {"spark.sized": str(size)})
    backend = spark_submit.SubmitBackend(SparkMaster("spark_default", "local[2]", None), arguments, task)
    application = lake.application()
    assert backend.run_fleet(application).error is None
    ((made, settings),) = task.made
    assert made.application_args == (application.spec_uri,)
    assert made.application_args[0].endswith(".fleet.json")
    assert "spark.scheduler.mode=FAIR" in settings
    assert "spark.executor.cores=2" in settings
    largest = max(batch.num_bytes for part in lake.parts for batch in part.work.batches)
    assert application.largest_bytes == largest
    assert application.num_bytes == sum(batch.num_bytes for part in lake.parts for batch in part.work.batches)
    assert f"spark.sized={largest}" in settings


def test_a_fleet_with_one_sink_on_s3_commits_through_the_log_store(lake, monkeypatch):
    quick, slow = lake.parts
    on_s3 = DeltaAppendSink("s3://lake/bronze/quick")
    monkeypatch.setattr(
        type(quick.session.connected),
        "places",
        lambda _, uri: [Place("file:/staging"), Place(uri or "", {"region": "eu"})],
    )
    parts = (FleetPart(quick.session, on_s3, quick.work, quick.spec_uri), slow)
    storage = FleetApplication(parts, "s3://staging/x.fleet.json", lambda: None).storage()
    assert storage.needs_log_store
    assert storage.is_on_s3
    assert [place.uri for place in storage.places] == ["file:/staging", "s3://lake/bronze/quick", slow.sink.uri]


def test_a_backend_without_fleets_says_which_have_them(lake):
    backend = spark_submit.SubmitBackend(SparkMaster("spark_default", "local[2]", None), UserArguments(), None)
    with pytest.raises(ConfigurationError, match="cannot run the jobs of several streams in one application"):
        backend.in_process().run_fleet(lake.application())
