"""The registry of Spark backends: the only place that chooses one.

To add a type of connection, write one module with a class that follows
:class:`~airflow_provider_fds.backends.base.ConnectionBackend`, and add one line to :data:`BACKENDS`.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, Final

from airflow_provider_fds.backends.base import UserArguments
from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.lazy import load_class
from airflow_provider_fds.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_provider_fds.backends.base import ConnectionBackend, SparkBackend, SubmitTask

#: Backends by the type of the Airflow connection, each ``module:class``, loaded when it is used.
BACKENDS: Final[dict[str, str]] = {
    "spark": "airflow_provider_fds.backends.spark_submit:SubmitBackend",
    "spark_connect": "airflow_provider_fds.backends.spark_connect:ConnectBackend",
}


def find_backend(conn_id: str, arguments: UserArguments | None = None, task: SubmitTask | None = None) -> SparkBackend:
    """Return the backend of a Spark connection, by its type.

    Airflow's own hook silently replaces a missing connection with the master ``yarn``; this function raises.

    Raises:
        ConfigurationError: The connection does not exist, has a type without a backend, or lacks something.
    """
    from airflow_provider_fds.hooks.storage import find_connection

    connection: Any = find_connection(
        conn_id,
        "Spark connection (conn_id) of this operator",
        lambda: [(_load(name).example, _load(name).expects) for name in BACKENDS],
    )
    if connection.conn_type not in BACKENDS:
        types = " or ".join(repr(name) for name in BACKENDS)
        choices = ", or one ".join(f"of type {name!r} ({_load(name).expects})" for name in BACKENDS)
        raise ConfigurationError(
            f"Connection {conn_id!r} is of type {connection.conn_type!r}, expected {types}. Set conn_id to a "
            f"connection {choices}.",
            reason=Reason.CONNECTION_UNUSABLE,
        )
    backend = _load(connection.conn_type)
    return backend.from_connection(conn_id, connection, arguments or UserArguments(), task)


def command_line_backend(
    master: str, remote: str | None, arguments: UserArguments, tell: Callable[[str], None]
) -> SparkBackend:
    """Return the backend of ``fds run``: a server that is already running, a cluster, or spark-submit on this machine.

    Args:
        master: Spark's master URL.
        remote: ``sc://host:port`` of a Spark Connect server.
        arguments: The user's arguments.
        tell: Called with each line of output for people.

    Raises:
        ConfigurationError: ``remote`` is not such a URL, or the master runs no drivers by itself.
    """
    if remote is None and arguments.deploy_mode == "cluster":
        if "airflow" not in sys.modules:
            # the parts of Airflow that this needs work without its settings, its logs and its database
            os.environ.setdefault("_AIRFLOW__AS_LIBRARY", "1")
        from airflow_provider_fds.backends.command_line_driver import cluster_backend

        return cluster_backend(master, arguments, tell)
    if remote is None:
        from airflow_provider_fds.backends.local import LocalBackend

        return LocalBackend(master, arguments, tell)
    from airflow_provider_fds.backends.spark_connect import ConnectBackend

    return ConnectBackend.from_url(remote, arguments, tell)


def _load(conn_type: str) -> type[ConnectionBackend]:
    found: type[ConnectionBackend] = load_class(BACKENDS[conn_type])
    return found
