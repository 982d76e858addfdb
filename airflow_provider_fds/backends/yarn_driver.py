"""A driver that YARN runs: spark-submit starts it and ends, and its ResourceManager tells how it goes on."""

from __future__ import annotations

import getpass
import os
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from airflow_provider_fds.backends.cluster_driver import ClusterDriver
from airflow_provider_fds.backends.submitted_driver import submitted_request
from airflow_provider_fds.credentials import redacted_uri, secret_part
from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.spark.clusters.hadoop_conf import resource_managers, wants_kerberos
from airflow_provider_fds.spark.clusters.yarn import YarnCluster

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_provider_fds.backends.base import Application, SubmitTask, UserArguments
    from airflow_provider_fds.backends.fleet_application import FleetApplication
    from airflow_provider_fds.backends.spark_master import SparkMaster
    from airflow_provider_fds.spark.clusters.cluster import DriverRequest
    from airflow_provider_fds.spark.submission.submit import SubmitArguments

#: Key of the connection's extra, as Airflow's Spark provider calls it.
ADDRESS: Final = "yarn_resourcemanager_webapp_address"


def yarn_driver(
    place: SparkMaster, arguments: UserArguments, extra: Mapping[str, Any], task: SubmitTask | None
) -> ClusterDriver | None:
    """Return what starts drivers in YARN; ``None``: spark-submit has to wait for each.

    It has to where no ResourceManager is known, or where Hadoop authenticates by Kerberos, for which FDS has no ticket.

    Args:
        place: The master.
        arguments: The user's arguments.
        extra: That of the connection.
        task: The task that starts spark-submit.

    Raises:
        ConfigurationError: The connection names a ResourceManager by something that is no address, or has a password.
    """
    environ = {**os.environ, **{name: str(value) for name, value in arguments.env_vars.items()}}
    given = str(extra.get(ADDRESS) or "")
    addresses = _addresses(place, given) if given else resource_managers(environ)
    has_keytab = arguments.principal or arguments.keytab or extra.get("principal") or extra.get("keytab")
    if not addresses or has_keytab or wants_kerberos(environ):
        return None

    def request(
        application: Application | FleetApplication, made: SubmitArguments, _given: UserArguments
    ) -> DriverRequest:
        return submitted_request(place, task, application, made)

    user = arguments.proxy_user or environ.get("HADOOP_USER_NAME") or getpass.getuser()
    return ClusterDriver(YarnCluster(addresses, user), place.master, request=request)


def _addresses(place: SparkMaster, text: str) -> tuple[str, ...]:
    found = [each.strip() for each in text.split(",") if each.strip()]
    whole = [each if "://" in each else f"http://{each}" for each in found]
    for each in whole:
        parts = urlsplit(each)
        if parts.scheme not in ("http", "https") or not parts.hostname or secret_part(each):
            # ledgers, triggers and logs have it
            raise ConfigurationError(
                f"Spark {place.subject} has the {ADDRESS} {redacted_uri(each)!r}, expected the address of the "
                "ResourceManager's web server, without user and password, such as http://rm:8088",
                reason=Reason.CONNECTION_UNUSABLE,
            )
    return tuple(each.rstrip("/") for each in whole)
