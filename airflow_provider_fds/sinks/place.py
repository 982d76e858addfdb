"""Checks of how a sink's table is given: URI, or name in a catalog. Standard library only, Python 3.9 syntax."""

from __future__ import annotations

import re
from typing import Any

from airflow_provider_fds.credentials import redacted_uri, secret_part
from airflow_provider_fds.sinks import options
from airflow_provider_fds.table_names import name_parts

_LIKE_A_NAME = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*){1,2}$|[\w.-]*`")
#: How many parts a name in a catalog can have.
_NAME_PARTS = (2, 3)


def check_place(sink: str, uri: str, catalog_conn_id: Any, *, create: Any, location: Any) -> None:
    """Check the arguments of a Delta sink that say where its table is.

    Args:
        sink: Name of the sink's class, for messages.
        uri: URI or path of the table, or its name.
        catalog_conn_id: The catalog that has the name; ``None``: the table is given by its URI.
        create: Whether a table that is missing in the catalog is created.
        location: URI of the folder of a table that is created, or ``None``.

    Raises:
        ValueError: The URI has credentials or looks like a name, the name is none, or arguments exclude each other.
    """
    if location is not None and not (isinstance(location, str) and location.strip()):
        raise ValueError(f"{sink}: location must be the URI of a folder, got {location!r}")
    for what, text in (("uri", uri), ("location", location or "")):
        part = secret_part(text) if "://" in text and not options.is_template(text) else None
        if part is not None:
            raise ValueError(
                f"{sink}: {what} {redacted_uri(text)} contains {part}, visible to everyone who can see the DAG. "
                "Put credentials into the Airflow connection (storage_conn_id) and Spark's settings"
            )
    if catalog_conn_id is None:
        _check_uri(sink, uri, has_more=bool(create) or location is not None)
        return
    if not isinstance(catalog_conn_id, str) or not catalog_conn_id.strip():
        raise ValueError(f"{sink}: catalog_conn_id must be the id of a connection, got {catalog_conn_id!r}")
    if not isinstance(create, bool):
        raise ValueError(f"{sink}: create must be True or False, got {create!r}")  # noqa: TRY004
    if location is not None and not create:
        raise ValueError(
            f"{sink}: location is where a missing table is created, which needs create=True. Omit it: the catalog "
            "knows where an existing table is"
        )
    _check_name(sink, uri)


def _check_uri(sink: str, uri: str, *, has_more: bool) -> None:
    if has_more:
        raise ValueError(
            f"{sink}: create and location are for a table that is given by its name, with catalog_conn_id. Omit them: "
            "the first batch creates a table that is given by its URI"
        )
    if _LIKE_A_NAME.match(uri):
        raise ValueError(
            f"{sink}: {uri!r} looks like a name in a catalog. Set catalog_conn_id to the Airflow connection of that "
            f"catalog (`fds`: --sink-catalog), or give the URI of its location (DESCRIBE DETAIL {uri} shows it); for a "
            f"folder of that name, write ./{uri}"
        )


def _check_name(sink: str, name: str) -> None:
    if "{" in name:
        # a template, or a text with parts such as {table}: it is checked once it is complete
        return
    try:
        parts = name_parts(name)
    except ValueError as error:
        raise ValueError(f"{sink}: uri {error}") from None
    if len(parts) not in _NAME_PARTS:
        raise ValueError(
            f"{sink}: uri {name!r} has {len(parts)} part{'' if len(parts) == 1 else 's'}, but a table in a catalog has "
            "a name such as 'sales.orders' (Hive metastore, Glue) or 'main.sales.orders' (Unity Catalog)"
        )


__all__ = ["check_place"]
