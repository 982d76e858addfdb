"""Airflow connections as options of an object store.

Static keys, endpoints and regions go straight to obstore, without the cloud's own provider package. Features that need
that package (assume a role, impersonate a service account, a named profile) are left to its hook. If the package is not
installed, they are refused with its name. Without a connection the store's own default chain applies: environment,
instance metadata, workload identity.
"""

from __future__ import annotations

import json
import shlex
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.hooks.cloud import azure_provider, gcs_provider, s3_provider
from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.schemes import SCHEMES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class StorageConnection(Protocol):
    """The attributes of an Airflow connection that FDS reads."""

    conn_id: str
    conn_type: str | None
    host: str | None
    login: str | None
    password: str | None

    @property
    def extra_dejson(self) -> dict[str, Any]:
        """The connection's extra, as a dict."""


#: The connections that were found in the body of :func:`connections_looked_up_once`, by id.
_found: ContextVar[dict[str, StorageConnection] | None] = ContextVar("fds_connections", default=None)


@contextmanager
def connections_looked_up_once() -> Iterator[None]:
    """Ask Airflow only once for each connection in the body, in this thread: the streams of a fleet share few."""
    token = _found.set({})
    try:
        yield
    finally:
        _found.reset(token)


def store_kind(uri: str) -> str | None:
    """Return the kind of store of a URI or path (``"s3"``, ``"local"`` …), or ``None`` for an unknown scheme."""
    scheme, found, _ = uri.partition("://")
    known = SCHEMES.get(scheme.lower()) if found else SCHEMES["file"]
    return known.kind if known is not None and known.is_planned_from else None


def storage_options(conn_id: str | None, uri: str) -> dict[str, Any]:
    """Return the obstore options for the store of ``uri``, from an Airflow connection.

    Never serialise the options: they contain credentials. Looks up the connection (a request to Airflow), but sends no
    request to the store.

    Args:
        conn_id: Id of the connection. ``None``: no options, so the store's default chain of credentials applies.
        uri: URI or path of the table or folder. A local one needs no credentials: its options are empty, but the
            connection must exist, as for every other store.

    Raises:
        ConfigurationError: The connection does not exist, its type does not fit the store, or it asks for a feature
            whose provider package is not installed.
    """
    kind = store_kind(uri)
    if conn_id is None or kind is None:
        # delta.open refuses an unknown scheme and suggests the nearest known one
        return {}
    return _options(find_storage_connection(conn_id, uri), uri)


def options_by_uri(conn_id: str | None, purpose: str) -> Callable[[str], dict[str, Any]]:
    """Return what :func:`storage_options` returns, as a function of the URI that any thread may call.

    Looks up the connection now, and never again: the URI of a table is not known before its catalog is asked.

    Args:
        conn_id: Id of the connection; ``None``: no options.
        purpose: What it is for, in words: ``"storage_conn_id for main.sales.orders"``.

    Raises:
        ConfigurationError: The connection does not exist. The function raises as :func:`storage_options`.
    """
    if conn_id is None:
        return lambda _uri: {}
    connection = find_connection(conn_id, purpose, lambda: [one[2:] for one in CONNECTIONS.values()])
    return partial(_options, connection)


def _options(connection: StorageConnection, uri: str) -> dict[str, Any]:
    found = connection_options(connection, uri)
    return {**found, "storage_conn_id": connection.conn_id} if store_kind(uri) not in (None, "local") else {}


def find_storage_connection(conn_id: str, uri: str) -> StorageConnection:
    """Return the connection for the store of ``uri``. Raises :class:`ConfigurationError` if it does not exist."""
    kind = store_kind(uri) or ""
    purpose = f"storage_conn_id for {uri!r}"
    if kind == "local":
        return find_connection(conn_id, purpose, list, advice="Omit storage_conn_id if all paths are local.")
    kinds = [kind] if kind in CONNECTIONS else list(CONNECTIONS)
    return find_connection(conn_id, purpose, lambda: [CONNECTIONS[one][2:] for one in kinds])


def find_connection(
    conn_id: str,
    purpose: str,
    examples: Callable[[], list[tuple[str, str]]],
    *,
    advice: str = "If its name is wrong, correct the name.",
) -> StorageConnection:
    """Return an Airflow connection.

    Args:
        conn_id: Its id.
        purpose: What it is for, in words.
        examples: Returns, for each possible type, the arguments of ``airflow connections add`` after the id, and what
            the connection contains.
        advice: The last sentence of the message about a connection that does not exist.

    Raises:
        ConfigurationError: It does not exist; the message has the commands that create it. Or its extra is no object.
    """
    from airflow.providers.common.compat.sdk import AirflowNotFoundException, BaseHook

    found = _found.get()
    if found is not None and conn_id in found:
        return found[conn_id]
    try:
        connection: StorageConnection = BaseHook.get_connection(conn_id)
    except AirflowNotFoundException as error:
        commands = [
            f"`airflow connections add {shlex.quote(conn_id)} {example}` ({expects})" for example, expects in examples()
        ]
        ways = f"with {' or '.join(commands)}, in" if commands else "in"
        raise ConfigurationError(
            f"Airflow connection {conn_id!r}, which is the {purpose}, does not exist. Create it {ways} the UI (Admin, "
            f"Connections), or as the environment variable AIRFLOW_CONN_{conn_id.upper()}. {advice}",
            reason=Reason.CONNECTION_NOT_FOUND,
        ) from error
    # Airflow checks it only if it stores the connection itself
    extra: object = connection.extra_dejson
    if not isinstance(extra, dict):
        raise ConfigurationError(
            f"The extra of Airflow connection {conn_id!r} must be a JSON object, got a {type(extra).__name__}.",
            reason=Reason.CONNECTION_UNUSABLE,
        )
    if found is not None:
        found[conn_id] = connection
    return connection


def connection_options(connection: StorageConnection, uri: str) -> dict[str, Any]:
    """Return the obstore options of a connection, for the store of ``uri``. See :func:`storage_options`."""
    kind = store_kind(uri)
    if kind is None or kind == "local":
        return {}
    if kind not in CONNECTIONS:
        raise ConfigurationError(
            f"{uri!r} is in a store of kind {kind!r}, for which FDS cannot use an Airflow connection. Omit "
            f"storage_conn_id to use the environment's credentials; connections are for {', '.join(CONNECTIONS)}.",
            reason=Reason.CONNECTION_UNUSABLE,
        )
    expected, mapping = CONNECTIONS[kind][:2]
    if connection.conn_type not in expected:
        raise ConfigurationError(
            f"Connection {connection.conn_id!r} is of type {connection.conn_type!r}, but {uri!r} needs one of "
            f"type {' or '.join(map(repr, expected))}. Set storage_conn_id to a connection of that type.",
            reason=Reason.CONNECTION_UNUSABLE,
        )
    try:
        options = mapping(connection, _plain_extra(connection))
    except (AttributeError, TypeError, FileNotFoundError) as error:
        # a secrets backend may have anything in it
        raise ConfigurationError(
            f"The extra of connection {connection.conn_id!r} cannot be used for {uri!r}: {error}. Correct the value; "
            "it must be text, or the name of a file that exists here.",
            reason=Reason.CONNECTION_UNUSABLE,
        ) from error
    return {key: value for key, value in options.items() if value not in (None, "")}


def _content(connection: StorageConnection) -> int:
    return hash(
        (connection.host, connection.login, connection.password, json.dumps(connection.extra_dejson, sort_keys=True))
    )


def _plain_extra(connection: StorageConnection) -> dict[str, Any]:
    """Return the extra without the ``extra__<type>__`` prefix that older Airflow added to its keys."""
    prefix = f"extra__{connection.conn_type}__"
    return {
        key.removeprefix(prefix): value for key, value in connection.extra_dejson.items() if value not in (None, "")
    }


def _s3_options(connection: StorageConnection, extra: dict[str, Any]) -> dict[str, Any]:
    service = (extra.get("service_config") or {}).get("s3") or {}
    endpoint = service.get("endpoint_url") or extra.get("endpoint_url")
    options: dict[str, Any] = {
        "region": extra.get("region_name") or extra.get("region"),
        "endpoint": endpoint,
        **_tls_options(endpoint, extra.get("verify")),
    }
    if any(extra.get(key) for key in ("role_arn", "profile_name", "assume_role_method", "session_kwargs")):
        return {**options, "credential_provider": s3_provider(connection.conn_id, _content(connection))}
    return {
        **options,
        "access_key_id": connection.login or extra.get("aws_access_key_id"),
        "secret_access_key": connection.password or extra.get("aws_secret_access_key"),
        "session_token": extra.get("aws_session_token"),
    }


def _gcs_options(connection: StorageConnection, extra: dict[str, Any]) -> dict[str, Any]:
    if any(extra.get(key) for key in ("impersonation_chain", "key_secret_name", "credential_config_file")):
        return {"credential_provider": gcs_provider(connection.conn_id, _content(connection))}
    key = extra.get("keyfile_dict")
    return {
        "service_account_key": json.dumps(key) if isinstance(key, dict) else key,
        "service_account": extra.get("key_path"),
        "base_url": extra.get("endpoint_url"),
        "skip_signature": True if extra.get("is_anonymous") else None,
        **_tls_options(extra.get("endpoint_url"), None),
    }


def _azure_options(connection: StorageConnection, extra: dict[str, Any]) -> dict[str, Any]:
    text = extra.get("connection_string")
    if text:
        return _azure_connection_string(str(text))
    host = extra.get("account_host") or (connection.host if "." in (connection.host or "") else None)
    account = extra.get("account_name") or (host.split("://")[-1].split(".")[0] if host else connection.login)
    endpoint = f"https://{host}" if host and "://" not in host else host
    options = {"account_name": account, "endpoint": endpoint, **_tls_options(endpoint, None)}
    tenant = extra.get("tenant_id")
    if extra.get("anon"):
        return {**options, "skip_signature": True}
    if extra.get("sas_token"):
        return {**options, "sas_key": str(extra["sas_token"]).lstrip("?")}
    if tenant:
        # with a tenant, WasbHook keeps the application's id in the login and its secret in the password
        return {
            **options,
            "tenant_id": tenant,
            "client_id": extra.get("client_id") or connection.login,
            "client_secret": extra.get("client_secret") or connection.password,
        }
    key = extra.get("account_key") or extra.get("shared_access_key") or connection.password
    if key:
        return {**options, "account_key": key}
    if extra.get("managed_identity_client_id"):
        return {**options, "credential_provider": azure_provider(connection.conn_id, _content(connection))}
    return options


def _azure_connection_string(text: str) -> dict[str, Any]:
    """Split an Azure connection string into options: obstore has no option for the whole string."""
    parts = dict(part.split("=", 1) for part in text.split(";") if "=" in part)
    sas = parts.get("SharedAccessSignature")
    endpoint = parts.get("BlobEndpoint")
    return {
        "account_name": parts.get("AccountName"),
        "account_key": parts.get("AccountKey"),
        "sas_key": sas.lstrip("?") if sas else None,
        "endpoint": endpoint,
        **_tls_options(endpoint, None),
    }


def _tls_options(endpoint: str | None, verify: object) -> dict[str, Any]:
    options: dict[str, Any] = {}
    if endpoint and endpoint.lower().startswith("http://"):
        options["allow_http"] = True
    if verify is False or str(verify).lower() == "false":
        options["allow_invalid_certificates"] = True
    elif isinstance(verify, str) and verify.lower() != "true":
        options["root_certificate"] = Path(verify).read_bytes()
    return options


def _hdfs_options(_connection: StorageConnection, extra: dict[str, Any]) -> dict[str, Any]:
    """The URI names the NameNode, as it does for Spark; host and login of the connection are not used."""
    names = {"config": "config", "config_dir": "config_dir"}
    names |= {f"kerberos_{name}": name for name in ("principal", "keytab", "cache")}
    return {option: extra.get(option) or extra.get(name) for option, name in names.items()}


class ConnectionKind(NamedTuple):
    """The Airflow connections that fit a kind of store.

    Attributes:
        types: Types of connection.
        options: Returns the obstore options of a connection and its extra.
        example: Arguments of ``airflow connections add`` after the id; what differs from site to site is in capitals.
        expects: What the connection contains, in words.
    """

    types: tuple[str, ...]
    options: Callable[[StorageConnection, dict[str, Any]], dict[str, Any]]
    example: str
    expects: str


#: The connections of each kind of store.
CONNECTIONS: Final[dict[str, ConnectionKind]] = {
    "s3": ConnectionKind(
        ("aws", "s3"),
        _s3_options,
        "--conn-type aws --conn-login ACCESS_KEY_ID --conn-password SECRET_ACCESS_KEY "
        """--conn-extra '{"region_name": "REGION", "endpoint_url": "https://HOST"}'""",
        "omit endpoint_url for AWS itself",
    ),
    "gcs": ConnectionKind(
        ("google_cloud_platform",),
        _gcs_options,
        """--conn-type google_cloud_platform --conn-extra '{"key_path": "KEY_FILE"}'""",
        "key_path is the JSON key of a service account",
    ),
    "azure": ConnectionKind(
        ("wasb", "adls", "azure_data_lake", "azure"),
        _azure_options,
        "--conn-type wasb --conn-host ACCOUNT.blob.core.windows.net --conn-password ACCOUNT_KEY "
        """--conn-extra '{"account_name": "ACCOUNT"}'""",
        "its host is that of the storage account",
    ),
    "hdfs": ConnectionKind(
        ("hdfs", "webhdfs"),
        _hdfs_options,
        """--conn-type hdfs --conn-extra '{"principal": "PRINCIPAL", "keytab": "KEYTAB_FILE"}'""",
        "only for Kerberos; the NameNode is the host in the URI",
    ),
}
