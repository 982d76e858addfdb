"""Paths in the log as absolute URIs (Delta protocol, "Add File and Remove File", "Deletion Vectors").

A path in the log is an already encoded URI. It is joined to the table's URI as text and never encoded or decoded on the
way; the code that opens the file decodes it exactly once.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import quote

from airflow_provider_fds.delta.actions import DeletionVector
from airflow_provider_fds.schemes import PATH_SAFE
from airflow_provider_fds.z85 import vector_file

_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")


def absolute_path(table_uri: str, logged_path: str) -> str:
    """Return the URI of a data file.

    Args:
        table_uri: The table's root as in :attr:`Storage.uri`: encoded, with scheme, no trailing slash.
        logged_path: ``add.path`` as in the log. With a scheme or a leading ``/`` it is already absolute (shallow
            clones) and is returned unchanged.

    >>> absolute_path("s3://lake/a%20b", "p=x%2520y/part-0.parquet")
    's3://lake/a%20b/p=x%2520y/part-0.parquet'
    """
    if logged_path.startswith("/") or _SCHEME.match(logged_path):
        return logged_path
    return f"{table_uri}/{logged_path}"


def root_of(table_uri: str) -> str:
    """Return what Delta's replay prepends to a logged path that begins with ``/``: scheme and authority of the table.

    Thus ``/a`` and ``file:/a`` are the same file, and ``file:///a`` is another (``canonicalizePath`` of delta-spark).

    >>> root_of("file:///lake/orders"), root_of("s3://lake/orders")
    ('file:', 's3://lake')
    """
    scheme, _, rest = table_uri.partition("://")
    authority = rest.partition("/")[0]
    return f"{scheme}://{authority}" if authority else f"{scheme}:"


def absolute_vector(table_uri: str, dv: DeletionVector) -> DeletionVector:
    """Return a deletion vector independent of the location of its log: ``u`` (by UUID) becomes ``p`` (by path).

    Inline vectors and those with a path are returned unchanged. Raises ``ValueError`` for a storage type that the
    protocol does not define, or a name that is not a Z85-encoded UUID.
    """
    if dv.storageType in ("i", "p"):
        return dv
    if dv.storageType != "u":
        raise ValueError(f"deletion vector storage type {dv.storageType!r} is unknown; expected 'u', 'i' or 'p'")
    prefix, name = vector_file(dv.pathOrInlineDv)
    folder = f"{table_uri}/{quote(prefix, safe=PATH_SAFE)}" if prefix else table_uri
    return DeletionVector(
        storageType="p",
        pathOrInlineDv=f"{folder}/{name}",
        sizeInBytes=dv.sizeInBytes,
        cardinality=dv.cardinality,
        offset=dv.offset,
    )
