"""Connections of databases that the Spark driver writes to, from Airflow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from airflow_provider_fds.batch.sink.postgres_connection import grant
from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.hooks.storage import find_connection
from airflow_provider_fds.reasons import Reason

if TYPE_CHECKING:
    from airflow_provider_fds.hooks.storage import StorageConnection

#: Types of connection, by what they have been called.
_TYPES: Final = ("postgres", "postgresql")
_EXAMPLE: Final = (
    "--conn-type postgres --conn-host HOST --conn-port 5432 --conn-schema DATABASE --conn-login ROLE "
    "--conn-password PASSWORD"
)
_EXPECTS: Final = "its schema is the name of the database"
#: Words of the connection, and what libpq calls them.
_FIELDS: Final = {"host": "host", "port": "port", "schema": "dbname", "login": "user", "password": "password"}
#: Keys of the extra that libpq takes as they are.
_TAKEN: Final = frozenset(
    {
        *("sslmode", "sslrootcert", "sslcert", "sslkey", "sslpassword", "sslcrl", "sslsni", "ssl_min_protocol_version"),
        *("channel_binding", "gssencmode", "krbsrvname", "passfile", "service", "hostaddr", "target_session_attrs"),
        *("connect_timeout", "application_name", "options", "require_auth", "tcp_user_timeout"),
        *("keepalives", "keepalives_idle", "keepalives_interval", "keepalives_count"),
    }
)
#: Keys of the extra that only concern other users of the connection.
_IGNORED: Final = frozenset({"cursor", "client_log_level", "sqlalchemy_scheme", "sqlalchemy_query", "dataset"})


def grant_database(conn_id: str | None) -> None:
    """Let this process, and the drivers that it starts, open a database, by the environment.

    Without a connection, the environment of the process says where it is.

    Raises:
        ConfigurationError: The connection is missing, is of another type, or has something that libpq does not take.
    """
    if conn_id is None:
        return
    connection = find_connection(conn_id, "the database of a PostgresSink", lambda: [(_EXAMPLE, _EXPECTS)])
    if connection.conn_type not in _TYPES:
        raise ConfigurationError(
            f"connection {conn_id!r} of a PostgresSink is of type {connection.conn_type!r}, expected 'postgres'.",
            reason=Reason.CONNECTION_UNUSABLE,
        )
    grant(conn_id, parameters(connection))


def parameters(connection: StorageConnection) -> dict[str, Any]:
    """Return the parameters of a connection for libpq. Raises as :func:`grant_database`."""
    found = {name: getattr(connection, field, None) for field, name in _FIELDS.items()}
    given = {name: value for name, value in found.items() if value not in (None, "")}
    extra = connection.extra_dejson
    unknown = sorted(key for key in extra if key not in _TAKEN | _IGNORED)
    if unknown:
        raise ConfigurationError(
            f"connection {connection.conn_id!r} of a PostgresSink has {', '.join(unknown)} in its extra, which a "
            f"driver cannot use. Remove it; known keys are {', '.join(sorted(_TAKEN))}.",
            reason=Reason.CONNECTION_UNUSABLE,
        )
    return {**given, **{key: value for key, value in extra.items() if key in _TAKEN}}
