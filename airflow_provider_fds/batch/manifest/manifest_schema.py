"""The schema of a manifest: the source's, readable for every file of the batch, plus the origin of each row.

The schema is the one in force at the batch's last version; files of earlier versions are read under it.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec

from airflow_provider_fds.batch.manifest.manifest_protocol import kept_properties
from airflow_provider_fds.batch.manifest_columns import (
    CHANGE_TYPE,
    COMMIT_TIMESTAMP,
    COMMIT_VERSION,
    PHYSICAL_NAME,
    narrowed,
)
from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow_provider_fds.delta.actions import Metadata
    from airflow_provider_fds.source.planned import FeedKind

#: Ids are derived, not random, so that the same batch gives the same manifest to the byte, whoever builds it.
NAMESPACE: Final = uuid.uuid5(uuid.NAMESPACE_OID, "airflow-provider-fds/manifest")

_COLUMNS: Final = ((COMMIT_VERSION, "long"), (COMMIT_TIMESTAMP, "timestamp"))
_MODE: Final = "delta.columnMapping.mode"
_MAX_ID: Final = "delta.columnMapping.maxColumnId"
_FIELD_ID: Final = "delta.columnMapping.id"

#: Field metadata that only concerns writers.
_WRITERS_METADATA: Final = (
    "CURRENT_DEFAULT",
    "EXISTS_DEFAULT",
    "delta.generationExpression",
    "delta.identity.",
    "delta.invariants",
)
_NULLABILITY: Final = ("nullable", "containsNull", "valueContainsNull")


@dataclass(frozen=True, slots=True)
class ManifestSchema:
    """The columns of a manifest's ``metaData``, and how its files name the added ones.

    Attributes:
        schema_string: The schema, as Delta's schema JSON.
        partition_columns: Logical names: the source's partition columns, then the added ones.
        configuration: The table properties that are kept.
        version_key: Key of the commit version in ``partitionValues`` (a physical name).
        timestamp_key: Key of the commit timestamp in ``partitionValues`` (a physical name).
        change_type_key: Key of the change type in ``partitionValues`` (a physical name); ``None`` if files have none.
        hidden_keys: Keys in ``partitionValues`` (physical names) of partition columns that are not read.
    """

    schema_string: str
    partition_columns: tuple[str, ...]
    configuration: dict[str, str]
    version_key: str
    timestamp_key: str
    change_type_key: str | None = None
    hidden_keys: frozenset[str] = frozenset()


def manifest_schema(
    metadata: Metadata,
    *,
    with_row_ids: bool,
    table: str,
    version: int,
    feed: FeedKind | None = None,
    columns: Sequence[str] = (),
) -> ManifestSchema:
    """Return the schema of a manifest from the source's ``metadata``.

    Every column, element and value becomes nullable: an older file may hold a null where the newest schema says NOT
    NULL, and Spark would read it as 0. Metadata that only concerns writers is removed. The two columns of provenance
    are added as partition columns. In a column-mapped table they get ids above all that were ever assigned, and
    physical names derived from the table's id, so that they never collide with a name in a data file.

    Files of the change data feed also have ``_change_type``: whole files as a partition column, like the other two;
    change files as the column they were written with, whose physical name is its name. That column has no field id in
    the file. Therefore a table mapped by id is then read by physical name, which its writer also gave to the change
    files.

    With ``columns`` the manifest has only these columns of the source, whole and in the table's order: Spark knows of
    no others, so it reads no others.

    Raises:
        ConfigurationError: The source itself has a column of that name (names are compared case-insensitively), or
            lacks one of ``columns``.
    """
    schema: dict[str, Any] = {"type": "struct", "fields": []}
    if metadata.schemaString:
        schema = msgspec.json.decode(metadata.schemaString)
    partition_columns = _COLUMNS if feed != "whole_files" else ((CHANGE_TYPE, "string"), *_COLUMNS)
    added = _COLUMNS if feed is None else ((CHANGE_TYPE, "string"), *_COLUMNS)
    _check_names(schema, added, table=table, version=version)
    highest_id = _relax(schema)
    hidden = narrowed(schema, columns, table=table, version=version) if columns else {}
    configuration = kept_properties(metadata, with_row_ids=with_row_ids)
    is_mapped = configuration.get(_MODE, "none") != "none"
    if is_mapped:
        highest_id = max(highest_id, int(configuration.get(_MAX_ID, "0")))
    keys = {}
    for name, kind in added:
        field_metadata: dict[str, Any] = {}
        key = name
        if is_mapped:
            highest_id += 1
            if (name, kind) in partition_columns:
                key = f"col-{uuid.uuid5(NAMESPACE, f'{metadata.id}/{name}')}"
            field_metadata = {_FIELD_ID: highest_id, PHYSICAL_NAME: key}
        schema["fields"].append({"name": name, "type": kind, "nullable": True, "metadata": field_metadata})
        keys[name] = key
    if is_mapped:
        configuration[_MAX_ID] = str(highest_id)
        if feed == "change_files":
            configuration[_MODE] = "name"
    return ManifestSchema(
        schema_string=msgspec.json.encode(schema).decode(),
        partition_columns=(
            *(name for name in metadata.partitionColumns if name not in hidden),
            *(name for name, _ in partition_columns),
        ),
        configuration=configuration,
        version_key=keys[COMMIT_VERSION],
        timestamp_key=keys[COMMIT_TIMESTAMP],
        change_type_key=keys[CHANGE_TYPE] if feed == "whole_files" else None,
        hidden_keys=frozenset(hidden[name] for name in metadata.partitionColumns if name in hidden),
    )


def _check_names(schema: dict[str, Any], columns: Sequence[tuple[str, str]], *, table: str, version: int) -> None:
    reserved = [name for name, _ in columns]
    taken = [field["name"] for field in schema["fields"] if field["name"].lower() in reserved]
    if taken:
        raise ConfigurationError(
            f"table {table} has the column{'s' if len(taken) > 1 else ''} {', '.join(taken)} at version "
            f"{version}; a batch adds {', '.join(reserved[:-1])} and {reserved[-1]} to every row, and Delta does "
            "not allow two columns whose names differ only in case. Rename the column in the source (ALTER TABLE "
            "… RENAME COLUMN, with delta.columnMapping.mode = 'name'), or read a copy of the table without it",
            table=table,
            version=version,
            reason=Reason.RESERVED_COLUMN_NAME,
        )


def _relax(kind: Any) -> int:
    """Make everything in ``kind`` nullable, remove writers' metadata, and return the highest column id seen.

    A user-defined type (``udt``) is not changed: it is read by its class, not by the flags of its ``sqlType``.
    """
    if not isinstance(kind, dict) or kind.get("type") not in ("struct", "array", "map"):
        return 0
    highest_id = 0
    for flag in _NULLABILITY:
        if flag in kind:
            kind[flag] = True
    for field in kind.get("fields", ()):
        field["nullable"] = True
        field_metadata = field.get("metadata") or {}
        field["metadata"] = {k: v for k, v in field_metadata.items() if not k.startswith(_WRITERS_METADATA)}
        highest_id = max(highest_id, int(field_metadata.get(_FIELD_ID, 0)), _relax(field["type"]))
    for inner in ("elementType", "keyType", "valueType"):
        highest_id = max(highest_id, _relax(kind.get(inner)))
    return highest_id
