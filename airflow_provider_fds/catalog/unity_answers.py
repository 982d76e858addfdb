"""What a Unity Catalog says of a table, by either of its APIs, checked."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from airflow_provider_fds.catalog import problems
from airflow_provider_fds.catalog.log_view import LogTip, StagedCommit
from airflow_provider_fds.catalog.names import TableName
from airflow_provider_fds.delta.storage.open import canonical_uri
from airflow_provider_fds.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

_MANAGED: Final = ("delta.feature.catalogManaged", "delta.feature.catalogOwned", "delta.feature.catalogOwned-preview")
#: The types with files; the other known ones, in words.
_OWN: Final = "MANAGED"
_TYPES: Final = frozenset({_OWN, "EXTERNAL"})
_WORDS: Final = {
    "VIEW": "a view",
    "METRIC_VIEW": "a metric view",
    "MATERIALIZED_VIEW": "a materialized view",
    "STREAMING_TABLE": "a streaming table",
    "FOREIGN": "a foreign table, whose data is in another system",
}
_READ_ANOTHER: Final = "FDS reads Delta tables with files: give the name of the table that it is made of"
_STAGED_NAME: Final = re.compile(r"(\d{20})\.[A-Za-z0-9_-]+\.json")


@dataclass(frozen=True)
class TableAnswer:
    """A table that FDS can read, if it is Delta.

    Attributes:
        location: URI of its folder.
        table_id: The catalog's id of it.
        tip: Its newest commits, if the catalog manages it.
        is_delta: Whether the answer shows that it is Delta.
        is_of_rest_api: Whether the older API gave the answer.
        name: Its name, if the answer has it.
        is_managed: Whether its folder is the catalog's own.
    """

    location: str
    table_id: str
    tip: LogTip | None = None
    is_delta: bool = True
    is_of_rest_api: bool = False
    name: TableName | None = None
    is_managed: bool = False


def delta_table(body: Mapping[str, Any], catalog: str, name: TableName) -> TableAnswer:
    """Return the table of an answer of the API for Delta.

    Raises:
        ConfigurationError: It is none that FDS can read.
        StorageError: The answer contradicts itself.
    """
    metadata = body.get("metadata")
    if not isinstance(metadata, dict):
        raise problems.unavailable(catalog, name, "an answer without the table's metadata")
    _check_type(metadata.get("table-type"), catalog, name)
    location = _location(metadata.get("location"), catalog, name)
    table_id = metadata.get("table-uuid")
    if not isinstance(table_id, str) or not table_id:
        raise problems.unavailable(catalog, name, "an answer without the table's id (table-uuid)")
    properties = metadata.get("properties")
    found = properties if isinstance(properties, dict) else {}
    is_managed = any(found.get(key) == "supported" for key in _MANAGED)
    tip = _tip(body, catalog, name) if is_managed else None
    return TableAnswer(
        location,
        table_id,
        tip,
        is_delta=is_managed or "delta.minReaderVersion" in found,
        is_managed=metadata.get("table-type") == _OWN,
    )


def rest_table(body: Mapping[str, Any], catalog: str, name: TableName) -> TableAnswer:
    """Return the table of an answer of the older API. Raises as :func:`delta_table`."""
    _check_type(body.get("table_type"), catalog, name)
    source = str(body.get("data_source_format") or "")
    if source.upper() != "DELTA":
        raise problems.unreadable(
            catalog, name, f"a table of the format {source[:50] or 'unknown'}", "FDS reads Delta tables only"
        )
    columns = body.get("columns")
    masks = (column.get("mask") for column in columns if isinstance(column, dict)) if isinstance(columns, list) else ()
    if body.get("row_filter") or any(masks):
        raise problems.unreadable(
            catalog, name, "a table with a row filter or a column mask",
            "Its files hold what the filter hides, so the catalog does not let others read them; read a copy",
        )  # fmt: skip
    properties = body.get("properties")
    if isinstance(properties, dict) and any(properties.get(key) == "supported" for key in _MANAGED):
        raise problems.unreadable(
            catalog, name, "a table whose newest commits only the catalog knows, and the catalog has no API to ask for "
            "them", "Use a catalog with version 1 of the API for Delta",
        )  # fmt: skip
    parts = tuple(str(body.get(key) or "") for key in ("catalog_name", "schema_name", "name"))
    spelled = TableName(parts) if all(parts) else None
    location = _location(body.get("storage_location"), catalog, name)
    is_managed = body.get("table_type") == _OWN
    return TableAnswer(
        location, str(body.get("table_id") or ""), is_of_rest_api=True, name=spelled, is_managed=is_managed
    )


def rest_credentials(body: Mapping[str, Any], location: str) -> list[dict[str, Any]]:
    """Return the credentials of an answer of the older API as the one for Delta gives them."""
    config: dict[str, Any] = {}
    for part, names in {
        "aws_temp_credentials": {
            "access_key_id": "s3.access-key-id",
            "secret_access_key": "s3.secret-access-key",
            "session_token": "s3.session-token",
        },
        "azure_user_delegation_sas": {"sas_token": "azure.sas-token"},
        "gcp_oauth_token": {"oauth_token": "gcs.oauth-token"},
    }.items():
        given = body.get(part)
        if isinstance(given, dict):
            config |= {new: given[old] for old, new in names.items() if given.get(old)}
    prefix = body.get("url") or location
    return [{"prefix": prefix, "config": config, "expiration-time-ms": body.get("expiration_time")}]


def _check_type(table_type: object, catalog: str, name: TableName) -> None:
    if table_type is None or table_type in _TYPES:
        return
    text = str(table_type)
    raise problems.unreadable(
        catalog, name, _WORDS.get(text.upper(), f"of the type {text[:50]}, which FDS does not know"), _READ_ANOTHER
    )


def _location(location: object, catalog: str, name: TableName) -> str:
    if isinstance(location, str) and location:
        try:
            canonical_uri(location)
        except ConfigurationError as error:
            raise problems.unreadable(
                catalog, name, f"at a location that FDS cannot read: {error}", "Use a table on supported storage"
            ) from None
        return location
    raise problems.unreadable(catalog, name, "a table without a folder of its own", _READ_ANOTHER)


def _tip(body: Mapping[str, Any], catalog: str, name: TableName) -> LogTip:
    latest, commits = _number(body.get("latest-table-version")), body.get("commits", [])
    if latest is None or not isinstance(commits, list):
        raise problems.unavailable(catalog, name, "an answer without the latest version of a table that it manages")
    staged: dict[int, StagedCommit] = {}
    for item in commits:
        commit = _staged(item, catalog, name)
        if commit.version > latest or staged.setdefault(commit.version, commit) != commit:
            raise problems.unavailable(
                catalog, name, f"an answer that contradicts itself on version {commit.version} (the latest is {latest})"
            )
    return LogTip(latest, staged)


def _staged(item: object, catalog: str, name: TableName) -> StagedCommit:
    version = _number(item.get("version")) if isinstance(item, dict) else None
    if not isinstance(item, dict) or version is None:
        raise problems.unavailable(catalog, name, "an answer with a commit without version")
    file_name = item.get("file-name")
    if not file_name:
        raise problems.unreadable(
            catalog, name, f"a table with a commit that is in no file (version {version})", "Use a newer version of FDS"
        )
    match = _STAGED_NAME.fullmatch(str(file_name))
    if match is None or int(match[1]) != version:
        raise problems.unavailable(catalog, name, f"an answer with a file for version {version} that is not named so")
    size = _number(item.get("file-size"))
    if not size:
        raise problems.unavailable(catalog, name, f"an answer without the size of the file of version {version}")
    modified = _number(item.get("file-modification-timestamp"))
    return StagedCommit(version, str(file_name), size, modified or 0)


def _number(value: object) -> int | None:
    """Return a version, size or time; ``None`` for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63 else None
