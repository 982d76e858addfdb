"""Opens the storage of a URI."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, unquote

from airflow_provider_fds.credentials import redacted, redacted_uri, secret_part
from airflow_provider_fds.delta.storage.client_limits import CLIENT, RETRY
from airflow_provider_fds.delta.storage.local import LocalStorage
from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.schemes import PATH_SAFE, SCHEMES, of_kind

if TYPE_CHECKING:
    from airflow_provider_fds.delta.storage.object_store import Store
    from airflow_provider_fds.delta.storage.storage import Storage
    from airflow_provider_fds.places import Place

_SCHEMES: Final = tuple(name for name, scheme in SCHEMES.items() if scheme.is_planned_from)

#: Common names for a scheme that no similarity search finds.
_ALIASES: Final = {"gcs": "gs", "azure": "az", "adl": "abfss", "aws": "s3", "minio": "s3", "local": "file"}

#: A scheme without its colon: ``s3//bucket``.
_MISTYPED: Final = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)//(?P<rest>.*)", re.DOTALL)
_SCHEME: Final = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*):(?P<rest>/.*)", re.DOTALL)
#: Bucket, or container@account; S3 access points contain colons.
_AUTHORITY: Final = re.compile(r"[A-Za-z0-9._:-]+(?:@[A-Za-z0-9._-]+(?::\d+)?)?")
#: The maximum length of a path on Linux; keys of object stores are shorter.
_MOST_CHARS: Final = 4096
#: Options whose value has several lines.
_KEY_FILES: Final = frozenset({"service_account_key", "application_credentials", "root_certificate"})
_ENDPOINT: Final = re.compile(r"https?://[^\s/?#@]+(?:/[^\s?#]*)?", re.IGNORECASE)
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_STRAY_PERCENT: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")

#: Options of the HTTP client; all others belong to the store (obstore's ``ClientConfig``).
_CLIENT_OPTIONS: Final = frozenset(
    {
        "allow_http", "allow_invalid_certificates", "connect_timeout", "default_content_type", "default_headers",
        "pool_idle_timeout", "pool_max_idle_per_host", "proxy_url", "proxy_ca_certificate", "proxy_excludes",
        "root_certificate", "randomize_addresses", "read_timeout", "timeout", "user_agent",
    }
)  # fmt: skip


def open_storage(uri: str, options: Mapping[str, Any] | None = None) -> Storage:
    """Open the folder at ``uri``. Nothing is read or written, and no connection is made.

    For staging and other folders, which are always URIs; a table is opened by :func:`open_place`.

    Args:
        uri: A path, or a URI with one of the schemes ``file``, ``s3``/``s3a``/``s3n``, ``gs``, ``az``/``abfs``/
            ``abfss``/``wasb``/``wasbs``, ``hdfs``. A URI is encoded, a path is not.
        options: obstore's configuration of the store (``region``, ``access_key_id``, ``endpoint`` …) and of its client
            (``allow_http``, ``timeout`` …), ``retry_config``, ``credential_provider``. Missing options are taken from
            the environment, limits from :mod:`.limits`. ``storage_conn_id`` names the connection they come from, for
            messages. Ignored for files; for HDFS see :func:`~airflow_provider_fds.delta.storage.hdfs.open_hdfs`.

    Raises:
        ConfigurationError: Unknown scheme, missing bucket, or an option the store does not know.

    >>> open_storage("/lake/orders").uri
    'file:///lake/orders'
    """
    canonical = canonical_uri(uri)
    scheme, _, rest = canonical.partition("://")
    authority, _, path = rest.partition("/")
    if scheme == "file":
        return LocalStorage("/" + unquote(path, errors="surrogateescape"))
    if SCHEMES[scheme].kind == "hdfs":
        from airflow_provider_fds.delta.storage.hdfs import open_hdfs

        return open_hdfs(canonical, {key: value for key, value in (options or {}).items() if value is not None})
    from airflow_provider_fds.delta.storage.object_store import ObjectStorage, Renewable

    given = {key: value for key, value in (options or {}).items() if value is not None}
    _check_options(given, canonical)
    provider = given.pop("credential_provider", None)
    conn_id = given.pop("storage_conn_id", None)
    credentials = "the credentials of the environment (no storage_conn_id is given)"
    if conn_id is not None:
        credentials = f"the credentials of the connection {conn_id!r}"
    elif provider is not None:
        credentials = "the credentials that the catalog gives"
    renewable = provider if isinstance(provider, Renewable) else None
    store = _store(scheme, authority, _frozen(given), provider)
    # directory buckets ("S3 Express", recognised by their name) do not list in order
    is_ordered = not (SCHEMES[scheme].kind == "s3" and authority.endswith("--x-s3"))
    return ObjectStorage(
        store, canonical, unquote(path), is_ordered=is_ordered, credentials=credentials, renewable=renewable
    )


def open_place(place: Place) -> Storage:
    """Open the folder of a table, as its catalog shows it. Raises as :func:`open_storage`."""
    folder = open_storage(place.uri, place.options)
    return folder if place.view is None else place.view(folder)


def _check_options(options: Mapping[str, Any], uri: str) -> None:
    """Refuse values on which the client aborts instead of raising. They are not shown: they may be secret."""
    problems = [
        f"the value of option {key!r} contains a line break or another control character"
        for key, value in options.items()
        if isinstance(value, str) and key not in _KEY_FILES and _CONTROL.search(value)
    ]
    region = options.get("region")
    if isinstance(region, str) and re.fullmatch(r"[A-Za-z0-9-]+", region) is None:
        problems.append(f"option 'region' is {region!r}, expected a region such as 'eu-west-1'")
    for key in ("endpoint", "base_url", "proxy_url"):
        value = options.get(key)
        if isinstance(value, str) and _ENDPOINT.fullmatch(value) is None:
            problems.append(f"option {key!r} is {redacted_uri(value)!r}, expected http(s)://<host>[:<port>]")
    problems += [
        f"option {key!r} must be a mapping, got {type(options[key]).__name__}"
        for key in ("retry_config", "client_options")
        if key in options and not isinstance(options[key], Mapping)
    ]
    if problems:
        raise ConfigurationError(
            *problems, table=uri, subject=f"options of the storage of {uri}", reason=Reason.INVALID_OPTION
        )


def canonical_uri(uri: str) -> str:
    """Return ``uri`` encoded, with scheme, without trailing slash; idempotent.

    A path without scheme is made absolute and encoded. In a URI, only characters that are not allowed are encoded;
    percent escapes are kept. ``s3a`` and ``s3n`` are kept.

    Raises:
        ConfigurationError: The scheme is unknown, or the URI is empty or has no bucket.

    >>> canonical_uri("/lake/a b/")
    'file:///lake/a%20b'
    >>> canonical_uri("s3a://lake/a%20b")
    's3a://lake/a%20b'
    """
    text = uri.strip()
    if not text:
        raise ConfigurationError(
            "the URI of the table or folder is empty; expected a path, or a URI such as s3://…",
            reason=Reason.INVALID_URI,
        )
    _check_text(text)
    match = _SCHEME.match(text)
    if match is None:
        if "://" in text:
            raise ConfigurationError(
                f"{uri!r} is not a URI: expected <scheme>://<bucket>/<path>, or a plain path", reason=Reason.INVALID_URI
            )
        if (typo := _MISTYPED.match(text)) and typo["scheme"].lower() in _SCHEMES:
            raise ConfigurationError(
                f"{uri!r} looks like a mistyped URI: write {typo['scheme']}://{typo['rest']}, or, for a folder of that "
                f"name, ./{text}",
                reason=Reason.INVALID_URI,
            )
        return LocalStorage(os.path.expanduser(text)).uri  # noqa: PTH111
    scheme, rest = match["scheme"].lower(), match["rest"]
    if scheme not in _SCHEMES:
        raise ConfigurationError(_unknown_scheme(uri, scheme), table=redacted_uri(uri), reason=Reason.INVALID_URI)
    authority, path = _split(rest)
    if scheme == "file":
        if authority not in ("", "localhost"):
            raise ConfigurationError(
                f"{uri!r} names the host {authority!r}: a file URI has three slashes, did you mean "
                f"'file:///{authority}{path}'?",
                table=uri,
                reason=Reason.INVALID_URI,
            )
        return "file://" + _encoded(path).rstrip("/")
    if not authority:
        is_hdfs = SCHEMES[scheme].kind == "hdfs"
        missing = "NameNode and no name service" if is_hdfs else "bucket"
        first = "NameNode>:<port" if is_hdfs else "bucket"
        raise ConfigurationError(
            f"{uri!r} has no {missing}: expected {scheme}://<{first}>/<path>", table=uri, reason=Reason.INVALID_URI
        )
    if _AUTHORITY.fullmatch(authority) is None:
        raise ConfigurationError(
            f"{uri!r} has the bucket or container {authority!r}: expected letters, digits, '.', '_' and '-'",
            table=uri,
            reason=Reason.INVALID_URI,
        )
    segments = [segment for segment in path.split("/") if segment]
    return "/".join([f"{scheme}://{authority}", *(_encoded(segment) for segment in segments)])


def _check_text(text: str) -> None:
    """Refuse a URI that no store accepts, or that holds a credential."""
    if len(text) > _MOST_CHARS:
        raise ConfigurationError(
            f"the URI {redacted_uri(text)[:100]}… has {len(text):,} characters; at most {_MOST_CHARS:,} are allowed",
            reason=Reason.INVALID_URI,
        )
    scheme, mark, rest = text.partition(":")
    if mark and scheme.lower() in _SCHEMES and not rest.startswith("/"):
        raise ConfigurationError(
            f"{redacted(text)!r} is not a URI: expected {scheme}://<bucket>/<path>, or './{scheme}:…' for a file",
            reason=Reason.INVALID_URI,
        )
    is_uri = text.startswith("//") or ("://" in text and scheme.lower() in _SCHEMES)
    part = secret_part(text) if is_uri else None
    if part is not None and part.startswith("user info"):
        raise ConfigurationError(
            f"{redacted_uri(text)} contains {part}, which everyone can see there. Put credentials into the "
            "Airflow connection (storage_conn_id) or the environment",
            table=redacted_uri(text),
            reason=Reason.URI_HAS_CREDENTIALS,
        )


def _split(rest: str) -> tuple[str, str]:
    if not rest.startswith("//"):
        return "", rest
    authority, slash, path = rest[2:].partition("/")
    return authority, slash + path


def _encoded(path: str) -> str:
    return quote(_STRAY_PERCENT.sub("%25", path), safe=PATH_SAFE + "%")


def _unknown_scheme(uri: str, scheme: str) -> str:
    uri = redacted_uri(uri)
    if scheme in of_kind("hadoop"):
        return (
            f"{uri!r} has the scheme {scheme!r}, which only Spark can read. Write "
            "hdfs://<NameNode or name service>/<path>, or use an object store"
        )
    from difflib import get_close_matches

    nearest = _ALIASES.get(scheme) or next(iter(get_close_matches(scheme, _SCHEMES, n=1, cutoff=0.5)), None)
    hint = f"; did you mean {nearest}://?" if nearest else ""
    return f"{uri!r} has the unknown scheme {scheme!r}; expected one of {', '.join(_SCHEMES)}{hint}"


def _frozen(value: Any) -> Any:
    """Return a hashable stand-in for an option, so that equal options share one store."""
    if isinstance(value, dict):
        return ("dict", tuple(sorted((key, _frozen(inner)) for key, inner in value.items())))
    if isinstance(value, (list, tuple)):
        return ("list", tuple(_frozen(inner) for inner in value))
    return value


def _thawed(value: Any) -> Any:
    if isinstance(value, tuple):
        kind, items = value
        return {key: _thawed(inner) for key, inner in items} if kind == "dict" else [_thawed(inner) for inner in items]
    return value


def _s3_store(bucket: str, **arguments: Any) -> Store:
    from obstore.store import S3Store

    return S3Store(bucket, **arguments)


def _gcs_store(bucket: str, **arguments: Any) -> Store:
    from obstore.store import GCSStore

    return GCSStore(bucket, **arguments)


def _azure_store(container: str, **arguments: Any) -> Store:
    from obstore.store import AzureStore

    if "@" in container:
        return AzureStore.from_url(f"abfss://{container}", **arguments)
    return AzureStore(container, **arguments)


#: How each kind of object store is opened.
_STORES: Final[dict[str, Callable[..., Store]]] = {"s3": _s3_store, "gcs": _gcs_store, "azure": _azure_store}


# a store holds a connection pool and costs about 4 ms and 0.1 MB: one for all tables of a bucket
@lru_cache(maxsize=128)
def _store(scheme: str, authority: str, options: Any, provider: Any) -> Store:
    from obstore.exceptions import BaseError

    kind = SCHEMES[scheme].kind
    open_store = _STORES.get(kind)
    if open_store is None:
        raise ConfigurationError(
            f"{scheme}://{authority} is in a store of kind {kind!r}, which FDS cannot open; expected one of "
            f"{', '.join(_STORES)}",
            reason=Reason.INVALID_URI,
        )
    config: dict[str, Any] = _thawed(options)
    client = {key: config.pop(key) for key in list(config) if key in _CLIENT_OPTIONS}
    client.update(config.pop("client_options", None) or {})
    if str(config.get("endpoint", "")).startswith("http://"):
        client.setdefault("allow_http", True)
    arguments: dict[str, Any] = {
        "retry_config": {**RETRY, **(config.pop("retry_config", None) or {})},
        "client_options": {**CLIENT, **client},
    }
    if provider is not None:
        arguments["credential_provider"] = provider
    try:
        return open_store(authority, config=config, **arguments)
    except (BaseError, ValueError, TypeError) as error:
        cause = str(error).split("\n", 1)[0]
        raise ConfigurationError(
            f"the storage of {scheme}://{authority} cannot be set up: {cause}. The given options are "
            f"{', '.join(sorted([*config, *client])) or 'none'}; expected are those of obstore's {scheme} store",
            reason=Reason.INVALID_OPTION,
        ) from None
