"""Decides what an entry of a metastore is, and where its Delta table is; Hive and Glue keep the same fields."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from airflow_provider_fds.catalog import problems
from airflow_provider_fds.catalog.external_table import PLACEHOLDER
from airflow_provider_fds.credentials import redacted, redacted_uri
from airflow_provider_fds.delta.storage.open import canonical_uri
from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.schemes import PATH_SAFE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_provider_fds.catalog.names import TableName

_SYMLINKS: Final = "/_symlink_format_manifest"
_SCHEME: Final = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*:(?://[^/]*)?)(?P<path>/.*)?", re.DOTALL)

#: Formats by what their names contain, in the order in which they are tried.
_FORMATS: Final = {
    "iceberg": "an Iceberg table",
    "hudi": "a Hudi table",
    "hoodie": "a Hudi table",
    "parquet": "a Parquet table",
    "orc": "an ORC table",
    "avro": "an Avro table",
    "csv": "a CSV table",
    "json": "a JSON table",
}


@dataclass(frozen=True)
class MetastoreTable:
    """What a metastore says of a table; empty is absent.

    Attributes:
        name: Its name.
        table_type: ``MANAGED_TABLE``, ``EXTERNAL_TABLE``, ``VIRTUAL_VIEW``, …
        parameters: Its parameters.
        location: Location of its storage descriptor, as text that is not encoded.
        serde_path: Parameter ``path`` of its serde.
        input_format: Class that reads its files.
        link: Name of the table that it only points to.
    """

    name: TableName
    table_type: str = ""
    parameters: Mapping[str, str] = field(default_factory=dict)
    location: str = ""
    serde_path: str = ""
    input_format: str = ""
    link: str = ""


def delta_location(catalog: str, table: MetastoreTable) -> str:
    """Return the URI of the folder of a Delta table.

    It is a Delta table if its provider is ``delta``, or, without a provider, its ``table_type``, ``classification`` or
    storage handler says so; ``delta`` in any case. UniForm tables have ``table_type=ICEBERG`` and the provider
    ``delta``: they are Delta tables.

    Args:
        catalog: The catalog, as for :func:`.problems.not_found`.
        table: What it says.

    Raises:
        ConfigurationError: It is anything else, or no folder is known (``CATALOG_TABLE_UNREADABLE``).

    >>> from airflow_provider_fds.catalog.names import TableName
    >>> spark = {"spark.sql.sources.provider": "delta"}
    >>> delta_location("Glue", MetastoreTable(TableName(("d", "t")), parameters=spark, location="s3://lake/t"))
    's3://lake/t'
    """
    parameters = {key.lower(): value for key, value in table.parameters.items()}
    if table.link:
        raise problems.unreadable(
            catalog,
            table.name,
            f"a link to {table.link}, which is a link itself",
            "Use the name of the table that the links lead to",
        )
    if "VIEW" in table.table_type.upper():
        kind = "a materialized view" if "MATERIALIZED" in table.table_type.upper() else "a view"
        raise problems.unreadable(
            catalog, table.name, f"{kind}, which has no log of changes", "Use the name of a Delta table that it reads"
        )
    if not _is_delta(parameters):
        raise _not_delta(catalog, table, parameters)
    text = (table.serde_path or table.location).strip()
    if not text:
        raise problems.unreadable(
            catalog,
            table.name,
            "a Delta table without a location",
            "Set its location in the catalog, or use the URI of its folder instead of the name",
        )
    if text.rstrip("/").endswith(PLACEHOLDER):
        raise problems.unreadable(
            catalog,
            table.name,
            f"a Delta table whose location is a placeholder of Spark ({redacted_uri(text)!r}), and its serde has no "
            "'path' with the folder",
            "Set its location by ALTER TABLE … SET LOCATION, or use the URI of its folder instead of the name",
        )
    return folder_uri(catalog, table.name, text)


def folder_uri(catalog: str, name: TableName, text: str) -> str:
    """Return the canonical URI of a folder that a metastore has as plain text.

    Raises:
        ConfigurationError: It is on storage that FDS cannot read (``CATALOG_TABLE_UNREADABLE``).
    """
    try:
        return canonical_uri(_encoded(text))
    except ConfigurationError as error:
        raise problems.unreadable(
            catalog, name, f"at a location that FDS cannot read: {error}", "Use a table on supported storage"
        ) from None


def _is_delta(parameters: Mapping[str, str]) -> bool:
    provider = parameters.get("spark.sql.sources.provider", "")
    if provider:
        return provider.lower() == "delta"
    if "io.delta." in parameters.get("storage_handler", ""):
        return True
    # what a crawler found in the files does not outweigh what a person declared
    return (parameters.get("table_type") or parameters.get("classification", "")).lower() == "delta"


def _not_delta(catalog: str, table: MetastoreTable, parameters: Mapping[str, str]) -> ConfigurationError:
    location = table.serde_path or table.location
    if "SymlinkTextInputFormat" in table.input_format or location.rstrip("/").endswith(_SYMLINKS):
        folder = redacted_uri(location.rstrip("/").removesuffix(_SYMLINKS))
        return problems.unreadable(
            catalog,
            table.name,
            "a symlink table: a list of files that only follows a Delta table",
            f"Use the URI of the Delta table's folder, probably {folder!r}, or register the Delta table itself",
        )
    signs = [
        parameters.get(key, "")
        for key in ("spark.sql.sources.provider", "table_type", "storage_handler", "classification")
    ]
    way_on = "FDS reads Delta tables only: use the name of one, or convert this table with CONVERT TO DELTA"
    for sign in (*signs, table.input_format):
        for part, kind in _FORMATS.items():
            if part in sign.lower():
                return problems.unreadable(catalog, table.name, f"{kind}, not a Delta table", way_on)
    told = next((redacted(sign)[:100] for sign in signs if sign), "")
    if told:
        return problems.unreadable(catalog, table.name, f"a table of the format {told!r}, not a Delta table", way_on)
    return problems.unreadable(
        catalog,
        table.name,
        "not known as a Delta table",
        "If it is one, register it by CREATE TABLE … USING DELTA LOCATION … in Spark, or with the table property "
        "'table_type'='DELTA'; FDS reads no other tables",
    )


def _encoded(text: str) -> str:
    """Return a location as a URI: metastores keep text that is not encoded, in which ``%`` and ``?`` are letters."""
    found = _SCHEME.fullmatch(text)
    return text if found is None else found["scheme"] + quote(found["path"] or "", safe=PATH_SAFE)
