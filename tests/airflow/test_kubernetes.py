"""Drivers that Kubernetes runs: its real API server on this machine, a stand-in for its nodes, real tasks."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time

import pytest
import yaml

from airflow_provider_fds.spark.clusters.cluster import DriverRequest, Handle
from airflow_provider_fds.spark.clusters.kubernetes import KubernetesCluster
from airflow_provider_fds.spark.installation.install import bundled_spark_home
from tests.fds_command import fds
from tests.kubernetes_cluster import NAMESPACE, ROLES, running_kubernetes
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

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.skipif(os.environ.get("FDS_K8S") != "1", reason="make k8s-test builds the API server, and runs them"),
]

CONF = {**SMALL, "spark.executor.instances": "1", "spark.kubernetes.executor.request.cores": "100m"}


@pytest.fixture(scope="module")
def kubernetes(tmp_path_factory):
    with running_kubernetes(tmp_path_factory.mktemp("kubernetes")) as found:
        yield found


@pytest.fixture
def to_kubernetes(kubernetes, monkeypatch):
    """How drivers come there: the settings that a connection has."""
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", SMALL["spark.executor.extraJavaOptions"])
    return {
        "spark.kubernetes.authenticate.submission.oauthTokenFile": str(kubernetes.token_file),
        "spark.kubernetes.authenticate.submission.caCertFile": str(kubernetes.ca_file),
        "spark.kubernetes.container.image": "example/spark:4.2.0",
        "spark.kubernetes.authenticate.driver.serviceAccountName": "spark-driver",
        "spark.kubernetes.driver.podTemplateFile": str(ROLES.with_name("driver.yaml")),
    }


@pytest.fixture
def dag_of(installation, lake, kubernetes, to_kubernetes, monkeypatch):
    extra = {"deploy-mode": "cluster", "namespace": NAMESPACE, **to_kubernetes}
    connection = {"conn_type": "spark", "host": f"k8s://{kubernetes.url}", "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_ON_KUBERNETES", json.dumps(connection))

    def make(name, *, text=DAG_TEXT, more="", **env):
        values = {"conn_id": "on_kubernetes", "lake": lake.uri, "env": env, "conf": CONF}
        return installation.add(text.format(name=name, options="", more=more, **values))

    return make


@pytest.fixture
def started(kubernetes):
    """Returns the pods of drivers that were made since the test began."""
    before = {pod["metadata"]["uid"] for pod in kubernetes.pods()}
    return lambda: [pod for pod in kubernetes.pods() if pod["metadata"]["uid"] not in before]


def test_a_killed_task_deletes_its_pod_and_the_next_one_outlives_a_restart_of_the_api_server(
    dag_of, installation, lake, kubernetes, started, monkeypatch, caplog
):
    lake.append("orders", 1, 2)
    dag = dag_of("in_pod")
    with monkeypatch.context() as patch:
        processes = kill_once_it_runs(patch, KubernetesCluster, "Running", kubernetes.kubelet.process_of)
        assert installation.run(dag).state("ingest") == "failed"
    (process,) = processes
    process.wait(60)
    until = time.monotonic() + 60
    while started() and time.monotonic() < until:
        time.sleep(0.2)
    assert started() == []

    with monkeypatch.context() as patch:
        looks = restart_once_it_runs(
            patch, KubernetesCluster, "Running", kubernetes.kill_server, kubernetes.start_server
        )
        assert installation.run(dag).state("ingest") == "success", caplog.text
    assert lake.ids("in_pod") == [1, 2]
    assert {each.state for each in looks} == {"running", "unknown", "ended"}
    (pod,) = started()
    assert pod["status"]["phase"] == "Succeeded"
    assert pod["spec"]["restartPolicy"] == "Never"
    # of the page's template
    assert pod["spec"]["securityContext"]["runAsNonRoot"]
    assert f"Driver {pod['metadata']['name']} has been started on k8s://{kubernetes.url}." in caplog.text


def test_a_driver_that_cannot_start_fails_the_task_with_its_diagnosis_and_then_the_end_of_its_log(
    dag_of, installation, lake, caplog
):
    lake.append("orders", 1)
    assert installation.run(dag_of("not_in_pod", PYSPARK_PYTHON="/nowhere/python")).state("ingest") == "failed"
    assert not lake.exists("not_in_pod")
    first = caplog.text.index("ended: Failed: exit code 1. The last lines of its log:")
    assert "/nowhere/python" in caplog.text[first:]


def test_a_driver_that_outlives_its_task_is_found_by_the_next_attempt_which_starts_no_other(
    dag_of, installation, lake, started, tmp_path, monkeypatch, caplog
):
    lake.append("orders", 1, 2)
    lost = Lost(dag_of("left_pod", **stopping_driver(tmp_path)), tmp_path)
    assert not lake.exists("left_pod")
    look, looks = KubernetesCluster.look, []

    def then_go_on(self, handle):
        looks.append(look(self, handle))
        if len(looks) == 2:
            lost.go_on()
        return looks[-1]

    monkeypatch.setattr(KubernetesCluster, "look", then_go_on)
    assert lost.run_again(installation) == "success", caplog.text
    assert {each.state for each in looks[:2]} == {"running"}
    (pod,) = started()
    assert f"Driver {pod['metadata']['name']} was started before, for the same batches" in caplog.text
    assert lake.ids("left_pod") == [1, 2]


def test_a_task_leaves_its_pod_and_is_woken_by_its_reports(dag_of, installation, lake, started, caplog):
    lake.append("orders", 1, 2)
    assert installation.run(dag_of("deferred_pod", more=DEFERRED)).state("ingest") == "success", caplog.text
    assert lake.ids("deferred_pod") == [1, 2]
    (pod,) = started()
    assert f"Driver {pod['metadata']['name']} was started before, for the same batches" in caplog.text


def test_a_fleet_leaves_its_pod_which_loads_all_streams(dag_of, installation, lake, started, caplog):
    lake.append("orders", 1, 2)
    dag = dag_of("fleet_in_pod", text=FLEET_TEXT, more=DEFERRED)
    assert installation.run(dag).state("ingest") == "success", caplog.text
    assert [lake.ids(f"fleet_in_pod_{part}") for part in "ab"] == [[1, 2]] * 2
    assert len(started()) == 1


def test_the_command_has_its_driver_in_a_pod(installation, kubernetes, to_kubernetes, lake, started, tmp_path, caplog):
    lake.append("orders", 1, 2)
    conf = {**CONF, **to_kubernetes, "spark.kubernetes.namespace": NAMESPACE, "spark.driver.memory": "600m"}
    ran = fds(
        *("run", f"{lake.uri}/orders", "--stream", "by_pod", "--option", "starting_version=earliest"),
        *("--sink", f"{lake.uri}/by_pod", "--staging", str(tmp_path / "staging")),
        *("--master", f"k8s://{kubernetes.url}", "--deploy-mode", "cluster"),
        *(word for name, value in conf.items() for word in ("--conf", f"{name}={value}")),
    )
    assert ran.returncode == 0, ran.stderr
    assert lake.ids("by_pod") == [1, 2]
    (pod,) = started()
    assert f"Driver {pod['metadata']['name']} has been started" in caplog.text


def test_the_roles_of_the_page_grant_what_was_asked_for_and_nothing_else(
    dag_of, installation, lake, kubernetes, started, submitting
):
    lake.append("orders", 1)
    assert installation.run(dag_of("granted")).state("ingest") == "success"
    (pod,) = started()
    cluster, _, _ = submitting
    handle = Handle(cluster.address, pod["metadata"]["name"])
    assert any("FDS" in line for line in cluster.last_lines(handle))
    assert cluster.stop(handle) is None
    roles = {each["metadata"]["name"]: each for each in yaml.safe_load_all(ROLES.read_text()) if each["kind"] == "Role"}
    for account in ("airflow", "spark-driver"):
        rules = roles[f"fds-{account}"]["rules"]
        used = kubernetes.used(account)
        assert {(kind, verb) for kind, verb, code in used if code == 403} == set()
        asked = {(kind, verb) for kind, verb, _ in used}
        # the verb that the log has for a server-side apply; one that makes its object must be allowed to create it
        asked |= {(kind, "create") for kind, verb, code in used if (verb, code) == ("patch", 201)}
        assert {(kind, verb) for rule in rules for kind in rule["resources"] for verb in rule["verbs"]} == asked


@pytest.fixture
def submitting(kubernetes):
    """Returns the cluster, what starts a driver without Airflow, and what spark-submit has printed."""
    conf = {
        "spark.kubernetes.namespace": NAMESPACE,
        "spark.kubernetes.authenticate.submission.oauthTokenFile": str(kubernetes.token_file),
        "spark.kubernetes.trust.certificates": "true",
        "spark.kubernetes.container.image": "example/spark:4.2.0",
        "spark.kubernetes.authenticate.driver.serviceAccountName": "spark-driver",
    }
    master = f"k8s://{kubernetes.url}"
    cluster, said = KubernetesCluster.of(master, conf), []

    def start(claim, before=lambda _name: None, after=lambda: None):
        def submit(settings):
            before(settings["spark.kubernetes.driver.pod.name"])
            options = [f"--conf={name}={value}" for name, value in {**conf, **settings}.items()]
            command = [bundled_spark_home() / "bin" / "spark-submit", "--master", master, "--deploy-mode", "cluster"]
            ran = subprocess.run([*command, *options, "local:///job.py"], capture_output=True, text=True, check=False)
            said.append(ran.stdout + ran.stderr)
            ran.check_returncode()
            after()

        return cluster.start(DriverRequest("fds", "job.py", (), {}, {}, claim=claim, submit=submit))

    return cluster, start, said


def other_pod(kubernetes, name, phase):
    """Make the pod that another process has started under a name, in a phase in which it stays."""
    container = {"name": "spark-kubernetes-driver", "image": "x"}
    metadata = {"name": name, "labels": {"fds-start": "other"}}
    spec = {"restartPolicy": "Never", "containers": [container]}
    kubernetes.post_pod({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}, phase)


def test_a_name_that_another_process_takes_first_is_its_driver_and_one_that_has_ended_is_not_taken_again(
    kubernetes, submitting
):
    cluster, start, said = submitting
    found = start("T1-Race", before=lambda name: other_pod(kubernetes, name, "Running"))
    assert found.id == "fds-t1-race-0"
    assert re.search(r"fds-t1-race-0\W+ already exists", said[0]), said[0]
    assert cluster.look(found).state == "running"
    # from now on it is found before spark-submit starts
    assert start("T1-Race") == found
    assert len(said) == 1
    other_pod(kubernetes, "fds-t2-0", "Failed")
    assert start("t2").id == "fds-t2-1"
    assert len(said) == 2


def test_a_pod_that_a_killed_spark_submit_has_left_is_deleted(kubernetes, submitting):
    cluster, start, _ = submitting

    def kill():
        assert cluster.pod("GET", "fds-t3-0")[0] == 200
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        start("t3", after=kill)
    until = time.monotonic() + 60
    while cluster.pod("GET", "fds-t3-0")[0] == 200 and time.monotonic() < until:
        time.sleep(0.2)
    assert cluster.look(Handle(cluster.address, "fds-t3-0")).words == "its pod was deleted"
