"""The protocol of a manifest: derived from the source's by allow-lists, so that nothing that affects reading is lost.

Dropping a reader feature is only correct if it does not change how data files are read. Therefore every feature of the
source is either kept (``DATA_FEATURES``), dropped on purpose (``LOG_FEATURES``, ``CATALOG_FEATURES``), or refused by
name; an unknown feature is never dropped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from airflow_provider_fds.delta.protocol import CATALOG_FEATURES, DATA_FEATURES, LOG_FEATURES
from airflow_provider_fds.errors import UnsupportedFeatureError

if TYPE_CHECKING:
    from airflow_provider_fds.delta.actions import Metadata, Protocol

#: Writer features that give a file's rows their ids; Delta refuses one without the other.
ROW_ID_FEATURES: Final = ("domainMetadata", "rowTracking")

#: A writer feature that nobody supports, so that DELETE, VACUUM and every other write to a manifest fail. Readers
#: ignore it.
GUARD_FEATURE: Final = "fdsManifest"

#: Table properties without which mapped columns read as NULL.
MAPPING_PROPERTIES: Final = ("delta.columnMapping.maxColumnId", "delta.columnMapping.mode")

#: Table properties without which ``_metadata.row_id`` and ``_metadata.row_commit_version`` are absent.
ROW_ID_PROPERTIES: Final = (
    "delta.enableRowTracking",
    "delta.rowTracking.materializedRowCommitVersionColumnName",
    "delta.rowTracking.materializedRowIdColumnName",
)

_NEWEST_READER_VERSION: Final = 3
_MAPPING_READER_VERSION: Final = 2


class ManifestProtocol(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The ``protocol`` action of a manifest; ``reader_features`` is absent below reader version 3."""

    min_reader_version: int
    min_writer_version: int
    writer_features: tuple[str, ...]
    reader_features: tuple[str, ...] | None = None


def manifest_protocol(
    protocol: Protocol, *, with_vectors: bool, with_row_ids: bool, table: str, version: int
) -> ManifestProtocol:
    """Return the protocol of a manifest of files that are read under the source's ``protocol``.

    Args:
        protocol: The source's protocol in force at the batch's last version.
        with_vectors: Whether a file of the batch has a deletion vector. If so, ``deletionVectors`` is listed even if
            the source has since dropped the feature: Spark ignores the vectors of a table that does not list it.
        with_row_ids: Whether the row ids of the source stay readable.
        table: URI of the source, for the error.
        version: Version of the source at which ``protocol`` is in force, for the error.

    Raises:
        UnsupportedFeatureError: The protocol has a reader feature or version outside the allow-lists.
    """
    features = _reader_features(protocol, table=table, version=version)
    unknown = features - DATA_FEATURES - LOG_FEATURES - CATALOG_FEATURES
    if unknown:
        names = tuple(sorted(unknown))
        raise UnsupportedFeatureError(
            f"table {table} uses the reader feature{'s' if len(names) > 1 else ''} {', '.join(names)} at version "
            f"{version}, which FDS does not support; it supports {', '.join(sorted(DATA_FEATURES))}. Drop the "
            "feature (ALTER TABLE … DROP FEATURE), or use a version of FDS that supports it",
            features=names,
            table=table,
            version=version,
        )
    kept = features & DATA_FEATURES
    if with_vectors:
        kept |= {"deletionVectors"}
    reader = tuple(sorted(kept))
    writer = tuple(sorted({*reader, *(ROW_ID_FEATURES if with_row_ids else ()), GUARD_FEATURE}))
    if not reader:
        return ManifestProtocol(min_reader_version=1, min_writer_version=7, writer_features=writer)
    return ManifestProtocol(min_reader_version=3, min_writer_version=7, writer_features=writer, reader_features=reader)


def kept_properties(metadata: Metadata, *, with_row_ids: bool) -> dict[str, str]:
    """Return the table properties a manifest keeps, sorted by name.

    All others are dropped: a property that activates a writer feature which the manifest does not list makes the read
    fail (``DELTA_FEATURES_PROTOCOL_METADATA_MISMATCH``), and the rest have no meaning for a reader.
    """
    names = (*MAPPING_PROPERTIES, *(ROW_ID_PROPERTIES if with_row_ids else ()))
    return {name: value for name in names if (value := metadata.property(name)) is not None}


def has_row_ids(protocol: Protocol, metadata: Metadata) -> bool:
    """Return whether the source's files carry usable row ids: row tracking is listed and enabled."""
    if "rowTracking" not in (protocol.writerFeatures or ()):
        return False
    enabled = (metadata.property("delta.enableRowTracking") or "").lower() == "true"
    return enabled and all(metadata.property(name) for name in ROW_ID_PROPERTIES)


def _reader_features(protocol: Protocol, *, table: str, version: int) -> frozenset[str]:
    if protocol.minReaderVersion > _NEWEST_READER_VERSION:
        raise UnsupportedFeatureError(
            f"table {table} needs reader version {protocol.minReaderVersion} at version {version}, but FDS "
            f"supports at most {_NEWEST_READER_VERSION}. Use a newer version of FDS",
            features=(f"minReaderVersion={protocol.minReaderVersion}",),
            table=table,
            version=version,
        )
    if protocol.minReaderVersion == _NEWEST_READER_VERSION:
        return frozenset(protocol.readerFeatures or ())
    # A legacy protocol lists no features: reader version 2 means column mapping, and nothing else (protocol, "Reader
    # Version Requirements").
    return frozenset({"columnMapping"} if protocol.minReaderVersion == _MAPPING_READER_VERSION else ())
