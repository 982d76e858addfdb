"""A connection of Kubernetes: how FDS asks it about drivers, what they are started with, and what is refused."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
from airflow.providers.apache.spark.hooks import spark_submit

from airflow_provider_fds.backends import submitted_driver
from airflow_provider_fds.backends.base import UserArguments
from airflow_provider_fds.backends.kubernetes_driver import kubernetes_driver
from airflow_provider_fds.backends.registry import find_backend
from airflow_provider_fds.backends.spark_master import SparkMaster, prepare_submission
from airflow_provider_fds.delta.storage.local import LocalStorage
from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.operators.run.left_driver import LeftDriver
from airflow_provider_fds.operators.task.spark_task import SparkTask
from airflow_provider_fds.spark.submission.object_store import JobStorage
from airflow_provider_fds.stream.attempt.result import PhaseSeconds

SUBMISSION = "spark.kubernetes.authenticate.submission"
IMAGE = "spark.kubernetes.container.image"


@pytest.fixture
def backend_of(airflow_database, monkeypatch, spark_on_path):
    """Return the backend for a connection with this extra."""
    spark_on_path()

    def make(extra=None, *, conf=None, deploy_mode="cluster", **arguments):
        extra = {"deploy-mode": deploy_mode, "spark-binary": "spark-submit", **(extra or {})}
        connection = {"conn_type": "spark", "host": "k8s://https://api:6443", "extra": extra}
        monkeypatch.setenv("AIRFLOW_CONN_ON_KUBERNETES", json.dumps(connection))
        return find_backend("on_kubernetes", UserArguments(conf=conf or {}, **arguments))

    return make


def test_settings_of_the_connection_are_those_of_each_task_unless_it_has_its_own(backend_of):
    extra = {"namespace": "spark", f"{SUBMISSION}.oauthTokenFile": "/token", IMAGE: "spark:1", "other": "x"}
    backend = backend_of(extra, conf={IMAGE: "spark:2"})
    cluster = backend.cluster.cluster
    assert (cluster.address, cluster.token_file) == ("https://api:6443/api/v1/namespaces/spark", "/token")
    made = prepare_submission(
        backend.master, "file:///spec", given=backend.arguments, storage=JobStorage(), cache_dir=None
    )
    assert made.conf[IMAGE] == "spark:2"
    assert made.conf["spark.kubernetes.namespace"] == "spark"
    assert "other" not in made.conf


def test_settings_of_the_connection_are_also_those_of_client_mode(backend_of):
    assert backend_of({IMAGE: "spark:1"}, deploy_mode="client").arguments.conf == {IMAGE: "spark:1"}


def test_spark_submit_waits_for_a_driver_where_only_a_kubeconfig_has_credentials_and_in_client_mode(backend_of):
    assert backend_of().cluster is None
    assert backend_of({f"{SUBMISSION}.oauthTokenFile": "/token"}, deploy_mode="client").cluster is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("spark.kubernetes.driver.pod.name", "mine"),
        ("spark.kubernetes.submission.waitAppCompletion", "true"),
    ],
)
def test_a_setting_that_each_driver_gets_from_fds_is_refused(backend_of, name, value):
    with pytest.raises(ConfigurationError, match=rf"{name} is '{value}', but FDS sets it for each driver.*Remove it"):
        backend_of(conf={name: value}).check()
    # in client mode there is no pod of a driver
    backend_of(conf={name: value}, deploy_mode="client").check()


def test_a_task_whose_connection_has_the_token_itself_is_not_deferred_because_a_trigger_must_not_store_it(backend_of):
    operator = SimpleNamespace(conn_id="on_kubernetes", spark=backend_of({f"{SUBMISSION}.oauthToken": "t0ken"}))
    assert operator.spark.attaches_to("kubernetes")
    with pytest.raises(ConfigurationError, match=r"deferrable=True requires.*k8s://… whose token is in a file"):
        LeftDriver(operator, lambda _: None, None, PhaseSeconds())
    operator.spark = backend_of({f"{SUBMISSION}.oauthTokenFile": "/token"})
    LeftDriver(operator, lambda _: None, None, PhaseSeconds())


def test_pods_read_the_files_of_the_worker_in_staging(backend_of, tmp_path, monkeypatch):
    monkeypatch.setattr(submitted_driver, "cache_dir", lambda: tmp_path)
    for name in ("mine.py", "delta 1.jar"):
        (tmp_path / name).write_text(name)
    given = []
    task = SimpleNamespace(submit=lambda final, _context: given.append(final))
    place = backend_of().master
    arguments = UserArguments(
        py_files=f"{tmp_path}/mine.py", jars=f"local:///opt/my.jar,{tmp_path}/delta 1.jar", delta_version="provided"
    )
    made = prepare_submission(place, "file:///spec", given=arguments, storage=JobStorage(), cache_dir=tmp_path)
    staging = LocalStorage(str(tmp_path / "staging"))
    application = SimpleNamespace(staging=staging, name="fds", attempt_id="a1", context=None)
    request = kubernetes_driver(SparkMaster("x", "k8s://http://proxy", "cluster"), arguments, task).request
    request(application, made, arguments).submit({"spark.kubernetes.driver.pod.name": "fds-a1-0"})
    (final,) = given
    assert final.conf["spark.kubernetes.driver.pod.name"] == "fds-a1-0"
    files = [final.application, *final.py_files.split(","), *final.jars.split(",")]
    # a URI file:// would be a file that spark-submit uploads
    shipped = [uri.partition("/staging/.drivers/") for uri in files if uri != "local:///opt/my.jar"]
    assert {folder for folder, _, _ in shipped} == {f"local://{tmp_path}"}
    names = [name.partition("-")[2] for _, _, name in shipped]
    assert [*names[:2], names[3]] == ["job.py", "mine.py", "delta%201.jar"]
    assert names[2].endswith(".zip")
    assert len(list((tmp_path / "staging" / ".drivers").iterdir())) == 4


@pytest.mark.parametrize("waits", ["false", "true"])
def test_airflows_hook_needs_no_client_of_kubernetes_for_a_driver_that_it_leaves(backend_of, monkeypatch, waits):
    backend_of()
    monkeypatch.delattr(spark_submit, "kube_client", raising=False)
    task = SparkTask(
        task_id="x",
        application="job.py",
        conn_id="on_kubernetes",
        conf={"spark.kubernetes.submission.waitAppCompletion": waits},
    )
    if waits == "true":
        with pytest.raises((NameError, RuntimeError)):
            task._get_hook()
        return
    hook = task._get_hook()
    assert hook._spark_exit_code == 0
    assert getattr(spark_submit, "kube_client", None) is None
