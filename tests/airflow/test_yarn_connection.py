"""A connection of YARN: how FDS learns of its drivers, and what it refuses."""

from __future__ import annotations

import json
import threading
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
from airflow.providers.common.compat.sdk import AirflowException

from airflow_provider_fds.backends import spark_submit
from airflow_provider_fds.backends.base import UserArguments
from airflow_provider_fds.backends.cluster_driver import ClusterDriver
from airflow_provider_fds.backends.registry import find_backend
from airflow_provider_fds.backends.spark_master import SparkMaster, check_master, prepare_submission
from airflow_provider_fds.backends.spark_submit import SubmitBackend
from airflow_provider_fds.errors import ClusterLostError, ConfigurationError
from airflow_provider_fds.spark.clusters.cluster import DriverRequest
from airflow_provider_fds.spark.clusters.yarn import YarnCluster
from airflow_provider_fds.spark.submission.object_store import JobStorage

ADDRESS = "yarn_resourcemanager_webapp_address"


@pytest.fixture
def cluster_of(airflow_database, monkeypatch, tmp_path):
    """Return what starts drivers for a connection with this extra, on a worker with this configuration of Hadoop."""

    def make(extra, *, yarn_site="", core_site="", deploy_mode="cluster", **arguments):
        for name, text in (("yarn-site.xml", yarn_site), ("core-site.xml", core_site)):
            (tmp_path / name).write_text(f"<configuration>{text}</configuration>")
        monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
        extra = {"deploy-mode": deploy_mode, **extra}
        connection = {"conn_type": "spark", "host": "yarn", "extra": extra}
        monkeypatch.setenv("AIRFLOW_CONN_ON_YARN", json.dumps(connection))
        return find_backend("on_yarn", UserArguments(**arguments)).cluster

    return make


RM = "<property><name>yarn.resourcemanager.hostname</name><value>rm</value></property>"
KERBEROS = "<property><name>hadoop.security.authentication</name><value>kerberos</value></property>"


@pytest.mark.parametrize(
    ("given", "addresses"),
    [
        ("http://rm:8088/", ("http://rm:8088",)),
        ("rm1:8088, https://rm2", ("http://rm1:8088", "https://rm2")),
        ("", ("http://rm:8088",)),
    ],
)
def test_resource_managers_are_those_of_the_connection_else_of_yarn_site(cluster_of, given, addresses):
    assert cluster_of({ADDRESS: given}, yarn_site=RM).cluster.resource_managers == addresses


def test_an_application_is_stopped_as_the_user_that_owns_it(cluster_of, monkeypatch):
    monkeypatch.setenv("HADOOP_USER_NAME", "etl")
    assert cluster_of({}, yarn_site=RM).cluster.user == "etl"
    assert cluster_of({}, yarn_site=RM, proxy_user="ann").cluster.user == "ann"


@pytest.mark.parametrize("given", ["ftp://rm:8088", "http://", "http://:8088"])
def test_a_resource_manager_without_an_address_is_refused(cluster_of, given):
    with pytest.raises(ConfigurationError, match=r"'on_yarn' has the yarn_resourcemanager_webapp_address .*rm:8088"):
        cluster_of({ADDRESS: given})


def test_a_password_in_an_address_which_the_ledger_would_keep_is_refused_and_not_shown(cluster_of):
    with pytest.raises(ConfigurationError, match=r"without user and password") as refused:
        cluster_of({ADDRESS: "http://rm1:8088, https://etl:hush@gateway/yarn"})
    assert "hush" not in str(refused.value)


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"yarn_site": RM, "core_site": KERBEROS},
        {"yarn_site": RM, "principal": "etl", "keytab": "/etl"},
        {"yarn_site": RM, "deploy_mode": "client"},
    ],
)
def test_spark_submit_waits_for_a_driver_that_no_resource_manager_can_be_asked_about(cluster_of, more):
    assert cluster_of({}, **more) is None


def test_a_spark_submit_that_cannot_submit_is_how_spark_failed_and_a_cluster_that_is_silent_ends_the_attempt(
    monkeypatch,
):
    def request(*_):
        def submit(settings):
            assert settings["spark.yarn.tags"] == "fds-one"
            if is_refused:
                raise AirflowException("Error code is: 1")

        return DriverRequest("fds", "job.py", (), {}, {}, claim="one", submit=submit)

    silent = YarnCluster(("http://127.0.0.1:1",), find_seconds=0)
    place = SparkMaster("on_yarn", "yarn", "cluster")
    driver = ClusterDriver(silent, "yarn", request=request)
    backend = SubmitBackend(place, UserArguments(), SimpleNamespace(), cluster=driver)
    monkeypatch.setattr(spark_submit, "application_arguments", lambda *_: None)
    is_refused = True
    error = backend._run(SimpleNamespace(context=None), nullcontext(threading.Event())).error
    assert str(error) == "Error code is: 1"
    is_refused = False
    with pytest.raises(ClusterLostError, match="no ResourceManager shows an application with the tag fds-one"):
        backend._run(SimpleNamespace(context=None), nullcontext(threading.Event()))


def test_yarn_does_not_start_a_driver_again_by_itself(spark_on_path):
    spark_on_path()
    place = SparkMaster("on_yarn", "yarn", "cluster", binary="spark-submit")
    made = prepare_submission(place, "file:///spec", given=UserArguments(), storage=JobStorage(), cache_dir=None)
    assert made.conf["spark.yarn.maxAppAttempts"] == "1"
    check_master(place, UserArguments(conf={"spark.yarn.maxAppAttempts": 1}))
    given = UserArguments(conf={"spark.yarn.maxAppAttempts": 2})
    with pytest.raises(ConfigurationError, match=r"spark\.yarn\.maxAppAttempts is 2, but FDS needs '1'.*Remove it"):
        check_master(place, given)
    # in client mode it is no driver that YARN starts
    check_master(SparkMaster("on_yarn", "yarn", "client", binary="spark-submit"), given)
