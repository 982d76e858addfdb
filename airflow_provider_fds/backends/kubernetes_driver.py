"""A driver that Kubernetes runs: spark-submit makes its pod and ends, and the API server tells how it goes on."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from airflow_provider_fds.backends.cluster_driver import ClusterDriver
from airflow_provider_fds.backends.staged_files import ship
from airflow_provider_fds.backends.submitted_driver import submitted_request
from airflow_provider_fds.spark.clusters.kubernetes import KubernetesCluster
from airflow_provider_fds.spark.clusters.kubernetes_api import NAMESPACE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_provider_fds.backends.base import Application, SubmitTask, UserArguments
    from airflow_provider_fds.backends.fleet_application import FleetApplication
    from airflow_provider_fds.backends.spark_master import SparkMaster
    from airflow_provider_fds.delta.storage.storage import Storage
    from airflow_provider_fds.spark.clusters.cluster import DriverRequest
    from airflow_provider_fds.spark.submission.submit import SubmitArguments

_SETTINGS: Final = "spark.kubernetes."


def with_settings_of(extra: Mapping[str, Any], given: UserArguments) -> UserArguments:
    """Return the user's arguments with the namespace and the settings ``spark.kubernetes.…`` of a connection's extra.

    Settings of the operator take precedence.
    """
    namespace = {NAMESPACE: extra["namespace"]} if extra.get("namespace") else {}
    shared = {name: value for name, value in extra.items() if name.startswith(_SETTINGS)}
    return replace(given, conf={**namespace, **shared, **given.conf})


def kubernetes_driver(place: SparkMaster, given: UserArguments, task: SubmitTask | None) -> ClusterDriver | None:
    """Return what starts drivers in Kubernetes; ``None``: spark-submit has to wait for each.

    It has to where only a kubeconfig has the credentials, which FDS does not read.

    Args:
        place: The master.
        given: The user's arguments, with the settings of the connection.
        task: The task that starts spark-submit.
    """
    cluster = KubernetesCluster.of(place.master, given.conf)
    if not cluster.can_ask:
        return None

    def request(
        application: Application | FleetApplication, made: SubmitArguments, _given: UserArguments
    ) -> DriverRequest:
        return submitted_request(place, task, application, _in_staging(application.staging, made))

    return ClusterDriver(cluster, place.master, request=request)


def _in_staging(staging: Storage, made: SubmitArguments) -> SubmitArguments:
    """Return the arguments with the files of this machine in staging, which the pods read."""

    def all_of(paths: str) -> str:
        return ",".join(_in_pod(ship(staging, path)) for path in paths.split(","))

    return replace(
        made,
        application=all_of(made.application),
        py_files=all_of(made.py_files),
        jars=None if made.jars is None else all_of(made.jars),
    )


def _in_pod(uri: str) -> str:
    """Return the URI of a file as spark-submit takes it that must not look for the file on its own machine."""
    return f"local://{uri.removeprefix('file://')}" if uri.startswith("file://") else uri
