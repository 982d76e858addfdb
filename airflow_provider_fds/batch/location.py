"""Where files lie, as Spark has to be told: URIs for its file systems, without anything secret in them."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote

from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.schemes import SCHEMES, of_kind

#: In these the part before ``@`` is the container, not a user.
_CONTAINER_SCHEMES: Final = frozenset(of_kind("azure")) - {"az"}
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*(?=:)")
_USER_INFO: Final = re.compile(r"(?<=//)[^/?#]*@")


def scheme_of(uri: str) -> str | None:
    """Return the scheme of ``uri`` in lower case, ``None`` if it has none."""
    match = _SCHEME.match(uri)
    return match.group().lower() if match else None


def spark_uri(uri: str) -> str:
    """Return ``uri`` with the scheme that Spark has a file system for: ``s3`` and ``s3n`` become ``s3a``.

    Every other URI is returned as it is. Paths that the source's log holds as absolute URIs never go through here:
    Spark has to find them by the name the source gives them, as it would when it reads the source itself.
    """
    scheme = scheme_of(uri)
    known = SCHEMES.get(scheme or "")
    if scheme is None or known is None or known.hadoop is None or known.hadoop == scheme:
        return uri
    return known.hadoop + uri[len(scheme) :]


def hadoop_path(uri: str) -> str:
    """Return ``uri`` as a user of Spark writes a path: Hadoop's ``new Path(text)`` decodes nothing.

    So the result is not percent-encoded, unlike the URIs inside a Delta log.
    """
    return spark_uri(unquote(uri))


def redacted(uri: str) -> str:
    """Return ``uri`` without what may be secret in it: user info, query and fragment become ``***``."""
    head, mark, _ = uri.partition("?") if "?" in uri else uri.partition("#")
    if scheme_of(uri) not in _CONTAINER_SCHEMES or ":" in _user_info(uri):
        head = _USER_INFO.sub("***@", head)
    return head + (f"{mark}***" if mark else "")


def secret_part(uri: str) -> str | None:
    """Return in words which part of ``uri`` may hold a credential, ``None`` if none does.

    The container of an Azure URI (``abfss://container@account…``) is not a credential.
    """
    user = _user_info(uri)
    if user and (":" in user or scheme_of(uri) not in _CONTAINER_SCHEMES):
        return "user info before the @"
    if "?" in uri:
        return "a query after the ?"
    if "#" in uri:
        return "a fragment after the #"
    return None


def check_table_uri(uri: str) -> None:
    """Refuse a table URI that Spark could not use or that holds a credential.

    Raises:
        ConfigurationError: ``uri`` has no scheme, or has user info, a query or a fragment. What may be secret is
            neither in the message nor in the error's attributes.
    """
    shown = redacted(uri)
    part = secret_part(uri)
    if part is not None:
        raise ConfigurationError(
            f"the table URI {shown} has {part}; a batch is written to staging, where no credential may lie. Write the "
            "URI as scheme://bucket/path (percent-encode ? and # that belong to the path) and put the credentials "
            "into the Airflow connection named by storage_conn_id",
            table=shown,
        )
    if scheme_of(uri) is None:
        raise ConfigurationError(
            f"the table URI {shown} has no scheme; Spark would look for it on its default file system. "
            "Write it with its scheme, as in file:///data/orders or s3://bucket/orders",
            table=shown,
        )


def _user_info(uri: str) -> str:
    match = _USER_INFO.search(uri)
    return match.group()[:-1] if match else ""
