"""A task that leaves its driver: when it goes back to its worker, and when it stays."""

from __future__ import annotations

import time
from datetime import timedelta
from types import SimpleNamespace

import pytest
from airflow.providers.common.compat.sdk import AirflowTaskTimeout

from airflow_provider_fds.backends.base import Application, Outcome, UserArguments
from airflow_provider_fds.backends.cluster_driver import ClusterDriver
from airflow_provider_fds.backends.spark_master import SparkMaster
from airflow_provider_fds.backends.spark_submit import SubmitBackend
from airflow_provider_fds.delta.storage.local import LocalStorage
from airflow_provider_fds.errors import ClusterLostError
from airflow_provider_fds.ledger.facts import SubmittedFacts
from airflow_provider_fds.operators.run.left_driver import LeftDriver, Resumed
from airflow_provider_fds.spark.clusters.cluster import Look
from airflow_provider_fds.spark.clusters.standalone import StandaloneCluster
from airflow_provider_fds.stream.attempt.result import Collected, PhaseSeconds, RunWork

LEFT = SubmittedFacts(epoch=1, attempt_id="t1", batch_id=1, cluster="standalone", address="http://m", driver="driver-1")
WAITED = Outcome()


class Saying(StandaloneCluster):
    """A cluster that says the same of its driver at each look."""

    stopped: list
    said: Look

    def look(self, handle):
        return self.said

    def stop(self, handle):
        self.stopped.append(handle.id)


@pytest.fixture
def task(tmp_path, monkeypatch):
    """Returns a task whose driver was left: what it does in the run that follows, with the cluster that it asks."""

    def make(said, *, committed=0, execution_timeout=None, was_killed=False, **resumed):
        cluster = Saying("spark://m:7077")
        object.__setattr__(cluster, "said", said)
        object.__setattr__(cluster, "stopped", [])
        master = SparkMaster("spark", "spark://m:7077", "cluster")
        backend = SubmitBackend(master, UserArguments(), None, cluster=ClusterDriver(cluster, master.master))
        operator = SimpleNamespace(
            conn_id="spark",
            spark=backend,
            execution_timeout=execution_timeout,
            was_killed=was_killed,
            on_kill=backend.cancel,
        )
        batches = (SimpleNamespace(batch_id=0), SimpleNamespace(batch_id=1))
        work = RunWork("work", 1, batches, attempt_id="t1", submitted=LEFT)
        monkeypatch.setattr(Application, "begun_key", "begun")
        session = SimpleNamespace(
            connected=SimpleNamespace(staging=LocalStorage(str(tmp_path))),
            stream=SimpleNamespace(name="orders"),
            collect=lambda _work, is_running: Collected(work.batches[:committed]),
        )
        found = {"began": time.time(), "own_attempt": "t1", "left_at": time.time(), **resumed}
        left = LeftDriver(operator, lambda _application: WAITED, Resumed(**found), PhaseSeconds())
        return SimpleNamespace(
            driver=left, run=lambda: left.run(Application(session, None, work, "")), stopped=cluster.stopped
        )

    return make


def test_a_driver_that_runs_is_left_again(task):
    one = task(Look("running"), committed=1)
    assert one.run() is None
    assert one.driver.has_left


@pytest.mark.parametrize(
    "state",
    [
        {"said": Look("running"), "committed": 2},
        {"said": Look("running"), "is_reported": True},
        {"said": Look("ended")},
        {"said": Look("running"), "was_killed": True},
    ],
    ids=["everything is committed", "all is reported", "the driver has ended", "the task was killed"],
)
def test_a_driver_that_ends_is_waited_for(task, state):
    one = task(**state)
    assert one.run() is WAITED
    assert not one.driver.has_left


def test_a_cluster_that_has_been_silent_for_too_long_is_asked_once_more(task):
    assert task(Look("unknown"), silent_seconds=599.0).run() is None
    assert task(Look("running"), silent_seconds=600.0).run() is None
    with pytest.raises(ClusterLostError, match="has not told the state of driver driver-1 for 600 s"):
        task(Look("unknown", words="no answer"), silent_seconds=600.0).run()


def test_the_execution_timeout_counts_over_all_deferrals_and_stops_the_driver(task):
    limit = timedelta(minutes=1)
    assert task(Look("running"), execution_timeout=limit, began=time.time() - 30).run() is None
    late = task(Look("running"), execution_timeout=limit, began=time.time() - 61)
    with pytest.raises(AirflowTaskTimeout, match="of 1 min is over; the cluster was asked to stop the driver"):
        late.run()
    assert late.stopped == ["driver-1"]
    assert task(Look("running"), committed=2, execution_timeout=limit, began=time.time() - 61).run() is WAITED


def test_a_task_knows_the_driver_that_it_has_started_and_when_its_time_is_over(task):
    assert task(Look("running")).driver.is_own("t1")
    of_others = task(Look("running"), own_attempt="")
    assert not of_others.driver.is_own("t1")
    assert of_others.run() is None
    assert not of_others.driver.is_own("t1")
    assert task(Look("running"), stop_after_ms=5).driver.keep_limit(9) == 5


def test_the_seconds_of_earlier_processes_and_of_the_deferral_count():
    seconds = PhaseSeconds()
    operator = SimpleNamespace(conn_id="c", spark=SimpleNamespace(cluster_of_drivers=lambda: {"kind": "yarn"}))
    resumed = Resumed(0.0, left_at=time.time() - 100, seconds={"plan": 2.0, "spark": 1.0})
    LeftDriver(operator, lambda _application: WAITED, resumed, seconds)
    assert seconds.to_dict()["plan"] == 2
    assert 101 <= seconds.to_dict()["spark"] < 200
