"""Connections to PostgreSQL, for the driver and for Airflow: the parameters a process was given, and how it opens one.

psycopg is imported when a connection is opened. Standard library otherwise, Python 3.9 syntax.
"""
# The driver may run Python 3.9, so the annotations stay in its syntax.
# ruff: noqa: UP006, UP035, UP045

from __future__ import annotations

import json
import os
import re
import select
import socket
import threading
import time
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

#: How libpq traces the server's error: severity in its language, severity, and SQLSTATE.
_ERROR_RESPONSE = re.compile(rb'\tErrorResponse\t S "[^"\n]*" V "[A-Z]+" C "([0-9A-Z]{5})"')


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
    """Yield a connection, which is closed afterwards; a transaction that is open then is rolled back.

    The error of a refused connection has the SQLSTATE of the server, if libpq traces it.
    """
    parameters = parameters_of(conn_id)
    try:
        connection = psycopg().connect(**parameters, client_encoding="UTF8", prepare_threshold=None)
    except psycopg().OperationalError as error:
        if error.sqlstate is None and not isinstance(error, psycopg().errors.ConnectionTimeout):
            error.sqlstate = _refusing_state(parameters, error)
        raise
    try:
        yield connection
    finally:
        with suppress(Exception):
            connection.close()


def _refusing_state(parameters: Dict[str, Any], error: Any) -> Optional[str]:
    """Return the SQLSTATE with which the server refuses a connection, ``None`` if it is unknown.

    libpq tells only the text, in the language of the server. A second attempt is traced, in memory: a trace may have
    the password. libpq 18 traces what comes before the login, too.
    """
    pq = psycopg().pq
    failed: Any = getattr(error, "pgconn", None)
    if getattr(failed, "needs_password", False):
        # libpq ends the login itself, and the server would say this
        return "28P01"
    with suppress(Exception):
        # of several hosts, the error is about the last one
        place = {} if not failed.host else {"host": failed.host.decode(), "port": failed.port.decode()}
        info = psycopg().conninfo.make_conninfo(**{**parameters, **place})
        with os.fdopen(os.memfd_create("fds"), "rb") as trace:
            attempt = pq.PGconn.connect_start(info.encode())
            try:
                attempt.trace(trace.fileno())
                _end_attempt(attempt, pq.PollingStatus)
            finally:
                # writes what the trace still buffers
                attempt.untrace()
                attempt.finish()
            trace.seek(0)
            states = _ERROR_RESPONSE.findall(trace.read())
        return states[-1].decode() if states else None
    return None


def _end_attempt(attempt: Any, status: Any) -> None:
    deadline = time.monotonic() + _DEFAULTS["connect_timeout"]
    now = status.WRITING
    while now in (status.READING, status.WRITING) and (left := deadline - time.monotonic()) > 0:
        waited = [attempt.socket]
        select.select(*((waited, [], []) if now == status.READING else ([], waited, [])), left)
        now = attempt.connect_poll()


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
