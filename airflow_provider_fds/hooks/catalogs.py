"""Catalogs from Airflow connections."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.hooks.storage import find_connection
from airflow_provider_fds.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_provider_fds.catalog.table import Catalog
    from airflow_provider_fds.hooks.storage import StorageConnection


def _hive(connection: StorageConnection, extra: dict[str, Any]) -> Catalog:
    from airflow_provider_fds.catalog.hive import HiveCatalog

    if extra.get("auth_mechanism") in ("GSSAPI", "KERBEROS") or extra.get("authMechanism") in ("GSSAPI", "KERBEROS"):
        raise _unusable(connection, "asks for Kerberos, which FDS does not support")
    host, port = _host(connection), getattr(connection, "port", None) or 9083
    return HiveCatalog(f"thrift://{host}:{port}")


#: Connection types, each with what makes its catalog, and an example of a connection.
_CATALOGS: Final[dict[str, tuple[Callable[[StorageConnection, dict[str, Any]], Catalog], str, str]]] = {
    "hive_metastore": (
        _hive,
        "--conn-type hive_metastore --conn-host HOST --conn-port 9083",
        "the host and port of a Hive metastore",
    ),
}


def catalog_of(conn_id: str) -> Catalog:
    """Return the catalog of an Airflow connection; equal connections share one in a process.

    Looks up the connection (a request to Airflow), but sends no request to the catalog.

    Raises:
        ConfigurationError: The connection does not exist, is not one of a catalog, or has no host.
    """
    connection = find_connection(
        conn_id, "catalog_conn_id", lambda: [(example, expects) for _, example, expects in _CATALOGS.values()]
    )
    kind = connection.conn_type or ""
    if kind not in _CATALOGS:
        raise ConfigurationError(
            f"connection {conn_id!r} is of type {kind!r}, but catalog_conn_id needs one of "
            f"{', '.join(map(repr, _CATALOGS))}. Set catalog_conn_id to a connection of a catalog.",
            reason=Reason.CONNECTION_UNUSABLE,
        )
    content = json.dumps(
        [connection.host, getattr(connection, "port", None), connection.extra_dejson], sort_keys=True, default=str
    )
    return _made(_Shared(connection, (conn_id, kind, connection.login, connection.password, content)))


class _Shared:
    """A connection that equals another one of the same content."""

    def __init__(self, connection: StorageConnection, content: tuple[str | None, ...]) -> None:
        self.connection = connection
        self._content = content

    def __hash__(self) -> int:
        return hash(self._content)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Shared) and other._content == self._content


@lru_cache(maxsize=32)
def _made(shared: _Shared) -> Catalog:
    connection = shared.connection
    make, _, _ = _CATALOGS[connection.conn_type or ""]
    return make(connection, {key: value for key, value in connection.extra_dejson.items() if value not in (None, "")})


def _host(connection: StorageConnection) -> str:
    if not connection.host:
        raise _unusable(connection, "has no host")
    return connection.host


def _unusable(connection: StorageConnection, problem: str) -> ConfigurationError:
    return ConfigurationError(
        f"connection {connection.conn_id!r}, which is the catalog_conn_id, {problem}. Correct the connection",
        reason=Reason.CONNECTION_UNUSABLE,
    )


__all__ = ["catalog_of"]
