"""Connections to PostgreSQL, for the driver and for Airflow: the parameters a process was given, and how it opens one.

psycopg is imported when a connection is opened. Standard library otherwise, Python 3.9 syntax.
"""
# The driver may run Python 3.9, so the annotations stay in its syntax.
# ruff: noqa: UP006, UP035, UP045

from __future__ import annotations

import json
import os
import socket
import threading
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Any, Dict, Iterator, Optional

#: The environment variable with the parameters of connections by their ids, as JSON, for the driver.
CONNECTIONS = "FDS_POSTGRES"

#: Parameters of each connection; those of the Airflow connection take precedence.
_DEFAULTS: Dict[str, Any] = {
    "connect_timeout": 10,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "fallback_application_name": "airflow-provider-fds",
}


class NoPsycopgError(Exception):
    """psycopg is not installed where it is needed."""


class UnknownConnectionError(Exception):
    """The process was not given the parameters of a connection."""


def psycopg() -> Any:
    """Return the module. Raises :class:`NoPsycopgError` if it is not installed."""
    try:
        return import_module("psycopg")
    except ImportError as error:
        raise NoPsycopgError(
            "a PostgresSink needs psycopg 3 in the Python of the Spark driver, and with Spark Connect in that of the "
            f"worker: pip install 'airflow-provider-fds[postgres]' ({error})"
        ) from error


def parameters_of(conn_id: Optional[str]) -> Dict[str, Any]:
    """Return the parameters of a connection for libpq, which without an id takes the others from the environment.

    Raises:
        UnknownConnectionError: This process was not given the connection.
    """
    if conn_id is None:
        return dict(_DEFAULTS)
    known = json.loads(os.environ.get(CONNECTIONS) or "{}")
    if conn_id not in known:
        raise UnknownConnectionError(
            f"the connection {conn_id!r} is unknown in this process, which gets it from Airflow by the environment "
            f"variable {CONNECTIONS}. With deploy_mode='cluster' the driver does not get it: use client mode, or a "
            "PostgresSink without conn_id, and give the driver PGSERVICEFILE or PGPASSFILE in the cluster's own way"
        )
    return {**_DEFAULTS, **known[conn_id]}


def grant(conn_id: str, parameters: Dict[str, Any]) -> None:
    """Let this process, and the drivers that it starts, open a connection."""
    known = json.loads(os.environ.get(CONNECTIONS) or "{}")
    os.environ[CONNECTIONS] = json.dumps({**known, conn_id: parameters})


@contextmanager
def connected(conn_id: Optional[str]) -> Iterator[Any]:
    """Yield a connection, which is closed afterwards; a transaction that is open then is rolled back."""
    connection = psycopg().connect(**parameters_of(conn_id), client_encoding="UTF8", prepare_threshold=None)
    try:
        yield connection
    finally:
        with suppress(Exception):
            connection.close()


@contextmanager
def at_most(connection: Any, seconds: float) -> Iterator[None]:
    """Break the connection if the body takes longer: a server that holds an answer back keeps a client waiting."""
    timer = threading.Timer(seconds, _break, (connection,))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _break(connection: Any) -> None:
    with suppress(Exception), socket.socket(fileno=os.dup(connection.fileno())) as found:
        found.shutdown(socket.SHUT_RDWR)
