"""Catalogs from Airflow connections."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.hooks.cloud import aws_session
from airflow_provider_fds.hooks.storage import find_connection
from airflow_provider_fds.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from airflow_provider_fds.catalog.table import Catalog
    from airflow_provider_fds.hooks.storage import StorageConnection


_HIVE_PORT: Final = 9083


def _hive(connection: StorageConnection, extra: Mapping[str, Any]) -> Catalog:
    from airflow_provider_fds.catalog.hive import HiveCatalog

    mechanism = str(extra.get("auth_mechanism") or extra.get("authMechanism") or "NONE").upper()
    if mechanism not in ("NONE", "NOSASL"):
        raise _unusable(connection, f"asks for {mechanism}, and FDS reads a metastore without a login only")
    port = getattr(connection, "port", None) or _HIVE_PORT
    return HiveCatalog(",".join(_thrift_uri(host.strip(), port) for host in _host(connection).split(",")))


def _thrift_uri(host: str, port: int) -> str:
    """Return the URI of a host as people write it: with or without a scheme, with or without its own port."""
    address = host.removeprefix("thrift://").rstrip("/")
    has_port = ":" in address.rpartition("]")[2]
    return f"thrift://{address}" if has_port else f"thrift://{address}:{port}"


def _unity(connection: StorageConnection, extra: Mapping[str, Any]) -> Catalog:
    from airflow_provider_fds.catalog.unity import UnityCatalog

    host, port = _host(connection), getattr(connection, "port", None)
    url = host if "://" in host else f"https://{host}"
    if port:
        url = f"{url.rstrip('/')}:{port}"
    secret = connection.password or ""
    if connection.login and connection.login != "token":
        return UnityCatalog(
            url,
            client_id=connection.login,
            client_secret=secret,
            token_url=extra.get("token_url"),
            conn_id=connection.conn_id,
        )
    return UnityCatalog(url, token=secret or extra.get("token"), conn_id=connection.conn_id)


def _glue(connection: StorageConnection, extra: Mapping[str, Any]) -> Catalog:
    from airflow_provider_fds.catalog.glue import GlueCatalog, glue_client

    if any(extra.get(key) for key in ("role_arn", "profile_name", "assume_role_method", "session_kwargs")):
        session = aws_session(connection.conn_id)
        return GlueCatalog(lambda: glue_client(session=session))
    service = (extra.get("service_config") or {}).get("glue") or {}
    options = {
        "region_name": extra.get("region_name") or extra.get("region"),
        "endpoint_url": service.get("endpoint_url") or extra.get("endpoint_url"),
        "aws_access_key_id": connection.login or extra.get("aws_access_key_id"),
        "aws_secret_access_key": connection.password or extra.get("aws_secret_access_key"),
        "aws_session_token": extra.get("aws_session_token"),
    }
    return GlueCatalog(lambda: glue_client(**options))


class _Kind(NamedTuple):
    """A kind of catalog: what makes it of a connection, and an example of one."""

    make: Callable[[StorageConnection, Mapping[str, Any]], Catalog]
    example: str
    expects: str


_HIVE_KIND: Final = _Kind(
    _hive, f"--conn-type fds_hive --conn-host HOST --conn-port {_HIVE_PORT}", "the address of a Hive metastore"
)
_UNITY_KIND: Final = _Kind(
    _unity,
    "--conn-type fds_unity --conn-host https://HOST --conn-password TOKEN",
    "Unity Catalog; for OAuth, the id of a client as login and its secret as password",
)
_GLUE_KIND: Final = _Kind(
    _glue, """--conn-type aws --conn-extra '{"region_name": "REGION"}'""", "AWS Glue, with the keys of the connection"
)

#: Kinds of catalogs by the type of a connection; those of other providers are accepted for what they connect to.
_CATALOGS: Final = {
    "fds_hive": _HIVE_KIND,
    "fds_unity": _UNITY_KIND,
    "aws": _GLUE_KIND,
    "databricks": _UNITY_KIND,
    "hive_metastore": _HIVE_KIND,
}


def catalog_of(conn_id: str) -> Catalog:
    """Return the catalog of an Airflow connection; equal connections share one in a process.

    Looks up the connection (a request to Airflow), but sends no request to the catalog.

    Raises:
        ConfigurationError: The connection does not exist, is not one of a catalog, or has no host.
    """
    connection = find_connection(
        conn_id, "catalog_conn_id", lambda: [one[1:] for one in dict.fromkeys(_CATALOGS.values())]
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
    return _CATALOGS[connection.conn_type or ""].make(connection, connection.extra_dejson)


def _host(connection: StorageConnection) -> str:
    if not connection.host:
        raise _unusable(connection, "has no host")
    return connection.host


def _unusable(connection: StorageConnection, problem: str) -> ConfigurationError:
    return ConfigurationError(
        f"connection {connection.conn_id!r}, which is the catalog_conn_id, {problem}. Correct the connection",
        reason=Reason.CONNECTION_UNUSABLE,
    )
