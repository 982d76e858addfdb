"""The registry of catalogs: what a URI of a catalog, or a connection of one, stands for. Imports none of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from airflow_provider_fds.credentials import redacted_uri, secret_part
from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_provider_fds.catalog.table import Catalog


def _hive(uri: str, _secret: str | None) -> Catalog:
    from airflow_provider_fds.catalog.hive import HiveCatalog

    return HiveCatalog(uri)


def _unity(uri: str, secret: str | None) -> Catalog:
    from airflow_provider_fds.catalog.unity import UnityCatalog

    return UnityCatalog(uri, token=secret)


def _glue(uri: str, _secret: str | None) -> Catalog:
    from airflow_provider_fds.catalog.glue import GlueCatalog, glue_client

    region = urlsplit(uri).netloc or None
    return GlueCatalog(lambda: glue_client(region_name=region))


#: Catalogs by the scheme of their URI, with an example.
_CATALOGS: Final[dict[str, tuple[Callable[[str, str | None], Catalog], str]]] = {
    "thrift": (_hive, "thrift://HOST:9083"),
    "https": (_unity, "https://HOST"),
    "http": (_unity, "http://HOST"),
    "glue": (_glue, "glue://REGION"),
}


def catalog_at(uri: str, secret: str | None = None) -> Catalog:
    """Return the catalog at a URI. Sends no request.

    Args:
        uri: ``thrift://host:port`` of a Hive metastore, ``https://host`` of Unity Catalog, or ``glue://region``; the
            credentials for Glue are those of the environment.
        secret: A token for Unity Catalog.

    Raises:
        ConfigurationError: The URI has another scheme, or a user or password, or the catalog's extra is not installed.
    """
    scheme, mark, _ = uri.partition("://")
    if secret_part(uri) is not None and scheme in _CATALOGS:
        raise ConfigurationError(
            f"the catalog {redacted_uri(uri)} contains {secret_part(uri)}, which everyone can see there. Put a token "
            "into the environment variable FDS_CATALOG_TOKEN",
            reason=Reason.URI_HAS_CREDENTIALS,
        )
    if not mark or scheme not in _CATALOGS:
        ways = ", ".join(dict.fromkeys(example for _, example in _CATALOGS.values()))
        raise ConfigurationError(
            f"{redacted_uri(uri)!r} is not the URI of a catalog; expected one of {ways}. Airflow connections are known "
            "to `airflow fds` only",
            reason=Reason.INVALID_URI,
        )
    return _CATALOGS[scheme][0](uri, secret)
