"""Drivers that YARN runs: a ResourceManager and a NodeManager on this machine, real tasks."""

from __future__ import annotations

import json
import os
import signal
import sys
import time

import pytest

from airflow_provider_fds.spark.clusters.yarn import YarnCluster
from airflow_provider_fds.spark.installation.install import bundled_spark_home
from tests.fds_command import fds
from tests.lost_task import (
    DAG_TEXT,
    DEFERRED,
    FLEET_TEXT,
    Lost,
    kill_once_it_runs,
    restart_once_it_runs,
    stopping_driver,
)
from tests.standalone_cluster import SMALL
from tests.yarn_cluster import running_yarn

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def yarn(tmp_path_factory):
    with running_yarn(tmp_path_factory.mktemp("yarn")) as found:
        yield found


@pytest.fixture
def conf(yarn, monkeypatch):
    """Settings of an application in YARN."""
    monkeypatch.setenv("HADOOP_CONF_DIR", str(yarn.conf))
    quick = SMALL["spark.executor.extraJavaOptions"]
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", quick)
    return {
        **SMALL,
        "spark.driver.extraJavaOptions": quick,
        "spark.executor.instances": "1",
        "spark.executorEnv.SPARK_LOCAL_IP": "127.0.0.1",
        # they are on the node already
        "spark.yarn.jars": f"local:{bundled_spark_home()}/jars/*",
        "spark.yarn.stagingDir": yarn.staging.as_uri(),
    }


@pytest.fixture
def dag_of(installation, lake, conf, monkeypatch):
    connection = {"conn_type": "spark", "host": "yarn", "extra": {"deploy-mode": "cluster"}}
    monkeypatch.setenv("AIRFLOW_CONN_ON_YARN", json.dumps(connection))
    env = {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}

    def make(name, *, text=DAG_TEXT, more="", **more_env):
        values = {"conn_id": "on_yarn", "lake": lake.uri, "env": {**env, **more_env}, "conf": conf}
        return installation.add(text.format(name=name, options="", more=more, **values))

    return make


def test_a_killed_task_ends_its_application_and_the_next_one_outlives_a_restart_of_the_resource_manager(
    dag_of, installation, lake, yarn, monkeypatch, caplog
):
    lake.append("orders", 1, 2)
    dag = dag_of("in_yarn")
    with monkeypatch.context() as patch:
        kill_once_it_runs(patch, YarnCluster, "RUNNING")
        assert installation.run(dag).state("ingest") == "failed"
    killed = newest_of(yarn)
    assert (killed["state"], killed["name"]) == ("KILLED", "fds-in_yarn")
    until = time.monotonic() + 60
    while (left := processes_of(killed["id"])) and time.monotonic() < until:
        time.sleep(0.2)
    assert left == []

    with monkeypatch.context() as patch:
        looks = restart_once_it_runs(patch, YarnCluster, "RUNNING", yarn.kill_manager, yarn.start_manager)
        assert installation.run(dag).state("ingest") == "success", caplog.text
    assert lake.ids("in_yarn") == [1, 2]
    assert {each.state for each in looks} == {"running", "unknown", "ended"}
    done = newest_of(yarn)
    assert f"Driver {done['id']} has been started on yarn." in caplog.text
    assert done["finalStatus"] == "SUCCEEDED"
    assert f"/node/containerlogs/container_{done['id'].removeprefix('application_')}_01_000001/" in caplog.text
    # what spark-submit brings there, YARN removes at the end
    assert list(yarn.staging.glob(f"*/.sparkStaging/{done['id']}")) == []


def newest_of(yarn):
    return max(yarn.applications(), key=lambda each: each["startedTime"])


def test_a_driver_that_cannot_start_fails_the_task_with_its_diagnosis_and_then_the_end_of_its_log(
    dag_of, installation, lake, caplog
):
    lake.append("orders", 1)
    dag = dag_of("not_in_yarn", PYSPARK_PYTHON="/nowhere/python")
    assert installation.run(dag).state("ingest") == "failed"
    assert not lake.exists("not_in_yarn")
    first = caplog.text.index("ended: FAILED: User class threw exception")
    assert "/nowhere/python" in caplog.text[first:].partition("\n")[0]
    assert "Log of the driver: http://" in caplog.text[:first]
    assert " stderr: " in caplog.text[first:]


def test_an_application_that_outlives_its_task_is_found_by_the_next_attempt_which_starts_no_other(
    dag_of, installation, lake, yarn, tmp_path, monkeypatch, caplog
):
    lake.append("orders", 1, 2)
    before = len(yarn.applications())
    lost = Lost(dag_of("outlives_in_yarn", **stopping_driver(tmp_path)), tmp_path)
    assert not lake.exists("outlives_in_yarn")
    look, looks = YarnCluster.look, []

    def then_go_on(self, handle):
        looks.append(look(self, handle))
        if len(looks) == 2:
            lost.go_on()
        return looks[-1]

    monkeypatch.setattr(YarnCluster, "look", then_go_on)
    assert lost.run_again(installation) == "success", caplog.text
    assert {each.state for each in looks[:2]} == {"running"}
    assert len(yarn.applications()) == before + 1
    assert f"Driver {newest_of(yarn)['id']} was started before, for the same batches" in caplog.text
    assert lake.ids("outlives_in_yarn") == [1, 2]


def test_an_application_that_died_after_its_task_is_followed_by_another_one(
    dag_of, installation, lake, yarn, tmp_path, caplog
):
    lake.append("orders", 1, 2)
    before = len(yarn.applications())
    lost = Lost(dag_of("died_in_yarn", **stopping_driver(tmp_path)), tmp_path)
    os.kill(int(lost.mark.read_text()), signal.SIGKILL)
    assert lost.run_again(installation) == "success", caplog.text
    assert len(yarn.applications()) == before + 2
    assert lake.ids("died_in_yarn") == [1, 2]


def test_a_task_leaves_its_application_and_is_woken_by_its_reports(dag_of, installation, lake, yarn, caplog):
    lake.append("orders", 1, 2)
    before = len(yarn.applications())
    assert installation.run(dag_of("left_in_yarn", more=DEFERRED)).state("ingest") == "success", caplog.text
    assert lake.ids("left_in_yarn") == [1, 2]
    assert len(yarn.applications()) == before + 1
    done = newest_of(yarn)
    assert (done["finalStatus"], done["name"]) == ("SUCCEEDED", "fds-left_in_yarn")
    assert f"Driver {done['id']} was started before, for the same batches" in caplog.text


def test_a_fleet_leaves_its_application_which_loads_all_streams(dag_of, installation, lake, yarn, caplog):
    lake.append("orders", 1, 2)
    before = len(yarn.applications())
    dag = dag_of("fleet_in_yarn", text=FLEET_TEXT, more=DEFERRED)
    assert installation.run(dag).state("ingest") == "success", caplog.text
    assert [lake.ids(f"fleet_in_yarn_{part}") for part in "ab"] == [[1, 2]] * 2
    assert len(yarn.applications()) == before + 1
    assert newest_of(yarn)["finalStatus"] == "SUCCEEDED"


def test_the_command_has_its_driver_in_yarn(installation, conf, lake, yarn, tmp_path, monkeypatch, caplog):
    lake.append("orders", 1, 2)
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    before = len(yarn.applications())
    ran = fds(
        *("run", f"{lake.uri}/orders", "--stream", "by_yarn", "--option", "starting_version=earliest"),
        *("--sink", f"{lake.uri}/by_yarn", "--staging", str(tmp_path / "staging")),
        *("--master", "yarn", "--deploy-mode", "cluster"),
        *(word for name, value in conf.items() for word in ("--conf", f"{name}={value}")),
    )
    assert ran.returncode == 0, ran.stderr
    assert lake.ids("by_yarn") == [1, 2]
    assert len(yarn.applications()) == before + 1
    assert f"Driver {newest_of(yarn)['id']} has been started on yarn." in caplog.text


def processes_of(application):
    """Return the processes whose command or working directory is of an application."""
    import psutil

    found = []
    for process in psutil.process_iter(["cwd", "cmdline"]):
        words = [process.info["cwd"] or "", *(process.info["cmdline"] or [])]
        if any(application in word for word in words):
            found.append(process.pid)
    return found
