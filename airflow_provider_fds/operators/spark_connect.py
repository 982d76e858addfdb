"""A Spark Connect connection, and what is checked of it before anything is planned."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from airflow_provider_fds.errors import ConfigurationError, ServerLostError
from airflow_provider_fds.spark.connect import ConnectJob, ConnectServer, ServerUnfitError, ServerUnreachableError
from airflow_provider_fds.spark.install import spark_problem
from airflow_provider_fds.spark.settings import conf_problems, setting_text
from airflow_provider_fds.stream.collecting import commit_reported
from airflow_provider_fds.stream.driver_files import driver_files

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from airflow_provider_fds.sinks import Sink
    from airflow_provider_fds.stream.base_session import Session
    from airflow_provider_fds.stream.result import Collected, RunWork

log = logging.getLogger(__name__)

#: Arguments of SparkSubmitOperator that start a driver or its executors; attribute and name.
OF_A_DRIVER: Final = {
    "jars": "jars",
    "packages": "packages",
    "exclude_packages": "exclude_packages",
    "_repositories": "repositories",
    "py_files": "py_files",
    "files": "files",
    "_archives": "archives",
    "driver_class_path": "driver_class_path",
    "_driver_memory": "driver_memory",
    "_executor_memory": "executor_memory",
    "_executor_cores": "executor_cores",
    "_total_executor_cores": "total_executor_cores",
    "_num_executors": "num_executors",
    "env_vars": "env_vars",
    "properties_file": "properties_file",
    "_spark_binary": "spark_binary",
    "_deploy_mode": "deploy_mode",
    "keytab": "keytab",
    "principal": "principal",
    "proxy_user": "proxy_user",
    "_yarn_queue": "yarn_queue",
}


@dataclass(frozen=True)
class ConnectBackend:
    """A Spark Connect server that batches are worked off on, from the process of the task."""

    conn_id: str
    server: ConnectServer

    def check(self, operator: Any) -> None:
        """Check what can be checked before anything is planned.

        Raises:
            ConfigurationError: Arguments that only a driver of one's own can have, a setting that must not be, or a
                pyspark that does not fit; all problems at once.
        """
        given = [name for attribute, name in OF_A_DRIVER.items() if getattr(operator, attribute)]
        problems = conf_problems(operator.conf or {})
        if given:
            problems.append(
                f"{', '.join(given)} cannot be given with connection {self.conn_id!r}, which is of type "
                "'spark_connect': its server is running already. Set up the server that way, or name a connection of "
                "type 'spark'"
            )
        if "py_files" in given:
            problems.append(
                "A transform or function is imported in this process with such a connection: put its folder on the "
                "worker's PYTHONPATH instead of py_files"
            )
        if (problem := spark_problem()) is not None:
            problems.append(problem)
        if problems:
            raise ConfigurationError(*problems, subject=f"Spark job of connection {self.conn_id!r}")

    def job(self, session: Session, sink: Sink, spec_uri: str, conf: Mapping[str, Any]) -> ConnectJob:
        """Return the job at ``spec_uri``, with the user's settings."""
        return ConnectJob(
            self.server,
            spec_uri,
            files=driver_files(session.connected, sink),
            conf={key: setting_text(value) for key, value in conf.items()},
            tell=log.info,
        )


def work_off(
    job: ConnectJob,
    session: Session,
    work: RunWork,
    tell: Callable[[Collected], object] = lambda _: None,
) -> None:
    """Work the job off, and commit each batch as soon as it is reported. What came of it, the reports say.

    Args:
        job: The job.
        session: The run.
        work: What the job is made of.
        tell: Called with what came of the try until now, after each report.

    Raises:
        ServerLostError: The server does not answer; retryable.
        ConfigurationError: It cannot do what is asked as it is set up.
    """
    table = session.stream.table
    try:
        job.work(lambda _: tell(commit_reported(session, work)))
    except ServerUnreachableError as error:
        raise ServerLostError(str(error), error_class="ServerUnreachable", table=table) from None
    except ServerUnfitError as error:
        raise ConfigurationError(str(error), table=table) from None


def connect_backend(conn_id: str, connection: Any) -> ConnectBackend:
    """Return the backend of a connection of type ``spark_connect``.

    Raises:
        ConfigurationError: The connection has no host, or one that is none.
    """
    from airflow.providers.apache.spark.hooks.spark_connect import SparkConnectHook

    if not connection.host:
        raise ConfigurationError(
            f"Spark Connect connection {conn_id!r} has no host. Its host and port are those of the server "
            "(sc://host, 15002 by default), its login is the user id, its password the token."
        )
    try:
        url = SparkConnectHook(conn_id).get_connection_url()
    except ValueError:
        raise ConfigurationError(
            f"Spark Connect connection {conn_id!r} has the host {connection.host!r}, expected a host name, or "
            "sc://host, without a path."
        ) from None
    return ConnectBackend(conn_id, ConnectServer(url, f"connection {conn_id!r}"))
