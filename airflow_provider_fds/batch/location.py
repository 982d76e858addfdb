"""File locations as Spark needs them: URIs for its file systems, without anything secret in them."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote

from airflow_provider_fds.credentials import redacted_uri, secret_part
from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.schemes import SCHEMES

_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*(?=:)")


def scheme_of(uri: str) -> str | None:
    """Return the scheme of ``uri`` in lower case, or ``None`` for a plain path."""
    match = _SCHEME.match(uri)
    return match.group().lower() if match else None


def spark_uri(uri: str) -> str:
    """Return ``uri`` with a scheme that Spark has a file system for: ``s3`` and ``s3n`` become ``s3a``.

    Every other URI is returned unchanged. Paths that the source's log holds as absolute URIs are never passed here:
    Spark must find them under the source's name for them, as when it reads the source itself.
    """
    scheme = scheme_of(uri)
    known = SCHEMES.get(scheme or "")
    if scheme is None or known is None or known.hadoop is None or known.hadoop == scheme:
        return uri
    return known.hadoop + uri[len(scheme) :]


def hadoop_path(uri: str) -> str:
    """Return ``uri`` as a Spark user writes a path: Hadoop's ``new Path(text)`` decodes nothing.

    The result is not percent-encoded, unlike the URIs inside a Delta log.
    """
    return spark_uri(unquote(uri))


def check_table_uri(uri: str) -> None:
    """Refuse a table URI that Spark could not use or that holds a credential.

    Raises:
        ConfigurationError: ``uri`` has no scheme, or has user info, a query or a fragment. A possible secret is neither
            in the message nor in the error's attributes.
    """
    part = secret_part(uri)
    if part is None and scheme_of(uri) is not None:
        return
    shown = redacted_uri(uri)
    if part is not None:
        raise ConfigurationError(
            f"the table URI {shown} contains {part}, but a batch is written to staging, which must not contain "
            "credentials. Write the URI as scheme://bucket/path (percent-encode ? and # that belong to the path) "
            "and put the credentials into the Airflow connection named by storage_conn_id",
            table=shown,
            reason=Reason.URI_HAS_CREDENTIALS,
        )
    raise ConfigurationError(
        f"the table URI {shown} has no scheme, so Spark would look for it on its default file system. Add the "
        "scheme, as in file:///data/orders or s3://bucket/orders",
        table=shown,
        reason=Reason.INVALID_URI,
    )
