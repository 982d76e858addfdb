"""Which tables FDS can read (Delta protocol, "Table Features" and "Protocol Evolution").

Spark reads the data, but the log is read here. A reader feature may change the meaning of the log, so one that is not
listed is refused by name. Writer features never matter to a reader.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from airflow_provider_fds.errors import ConfigurationError, UnsupportedFeatureError
from airflow_provider_fds.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_provider_fds.delta.actions import Metadata, Protocol

#: Reader features that change how data files are read. A batch's manifest must carry those it needs.
DATA_FEATURES: Final = frozenset(
    {
        "columnMapping",
        "deletionVectors",
        "timestampNtz",
        "typeWidening",
        "typeWidening-preview",
        "variantType",
        "variantType-preview",
        "variantShredding",
        "variantShredding-preview",
    }
)

#: Reader features that only concern the log or VACUUM.
LOG_FEATURES: Final = frozenset({"v2Checkpoint", "vacuumProtocolCheck"})

#: Features of a log whose newest commits only a catalog knows: supported if the log is read through the catalog, and by
#: path refused.
CATALOG_FEATURES: Final = frozenset({"catalogManaged", "catalogOwned", "catalogOwned-preview"})

#: All reader features that FDS supports, however a table is reached.
READABLE_FEATURES: Final[frozenset[str]] = DATA_FEATURES | LOG_FEATURES

#: The property with the catalog's id of a table, today's name and that of ``catalogOwned``.
_CATALOG_ID_PROPERTIES: Final = ("io.unitycatalog.tableId", "ucTableId")

_MAX_READER_VERSION: Final = 3

#: Why a known feature is refused, by the prefix of its name. Some are also refused as writer features: they move the
#: table, or its newest commits, away from this log.
_REFUSED: Final = (
    (
        "catalogManaged",
        "only a catalog knows its newest commits, so they cannot be read by path; read it through the catalog",
    ),
    (
        "catalogOwned",
        "only a catalog knows its newest commits, so they cannot be read by path; read it through the catalog",
    ),
    ("coordinatedCommits", "only a commit coordinator knows its newest commits, so they cannot be read by path"),
    ("redirectReaderWriter", "the table has moved; read it at its new location"),
    ("redirectWriterOnly", "the table has moved and gets no more commits here; read it at its new location"),
    ("adaptiveMetadata", "its commits need not list their files"),
    ("geospatial", "FDS does not know its types"),
)
_REFUSED_FOR_WRITERS: Final = ("catalogManaged", "catalogOwned", "coordinatedCommits", "redirect", "adaptiveMetadata")

#: Properties that show that the table has moved, whatever the protocol lists.
_REDIRECT_PROPERTIES: Final = ("delta.redirectReaderWriter", "delta.redirectReaderWriter-preview")


def is_managed_by_catalog(protocol: Protocol) -> bool:
    """Return whether only a catalog knows the newest commits of a table."""
    return not CATALOG_FEATURES.isdisjoint((*(protocol.readerFeatures or ()), *(protocol.writerFeatures or ())))


def check_readable(
    protocol: Protocol,
    *,
    table: str,
    version: int,
    metadata: Metadata | None = None,
    catalog_table_id: str | None = None,
) -> None:
    """Check that FDS can read the table under this protocol.

    Args:
        protocol: The protocol in force at ``version``.
        table: URI of the table, for the message.
        version: The version, for the message.
        metadata: The metadata in force there, which may also show a redirect.
        catalog_table_id: The id in its catalog, if the log is read as the catalog shows it; ``None``: by path.

    Raises:
        UnsupportedFeatureError: Names all unsupported features, with the reasons.
        ConfigurationError: The log belongs to another table of the catalog.
    """
    supported = READABLE_FEATURES if catalog_table_id is None else READABLE_FEATURES | CATALOG_FEATURES
    reader_version = protocol.minReaderVersion
    refused: dict[str, str] = {}
    for feature in protocol.readerFeatures or ():
        if feature not in supported:
            refused[feature] = _why(feature)
    for feature in protocol.writerFeatures or ():
        if feature not in supported and feature.startswith(_REFUSED_FOR_WRITERS):
            refused[feature] = _why(feature)
    for key in _REDIRECT_PROPERTIES:
        if metadata is not None and metadata.property(key):
            refused.setdefault(key.removeprefix("delta."), _why(key.removeprefix("delta.")))
    if refused:
        reasons = "; ".join(f"{feature!r}: {why}" for feature, why in refused.items())
        raise UnsupportedFeatureError(
            f"version {version} of {table} uses reader features that FDS does not support ({reasons}); it "
            f"supports {', '.join(sorted(READABLE_FEATURES))}. {_way_on(refused)}",
            features=tuple(refused),
            table=table,
            version=version,
        )
    if not 0 <= reader_version <= _MAX_READER_VERSION:
        raise UnsupportedFeatureError(
            f"version {version} of {table} needs reader version {reader_version}, but FDS supports at most "
            f"{_MAX_READER_VERSION}. Use a newer version of FDS",
            features=(f"minReaderVersion={reader_version}",),
            table=table,
            version=version,
        )
    if catalog_table_id is not None and metadata is not None:
        _check_catalog_id(protocol, metadata, catalog_table_id, table=table, version=version)


def _check_catalog_id(protocol: Protocol, metadata: Metadata, expected: str, *, table: str, version: int) -> None:
    found = next((value for name in _CATALOG_ID_PROPERTIES if (value := metadata.property(name))), "")
    # a version from before the catalog managed the table has no id
    if found == expected or (not found and not is_managed_by_catalog(protocol)):
        return
    raise ConfigurationError(
        f"the log of {table} belongs to another table than the catalog says: the catalog's id is {expected}, and "
        f"version {version} has {found or 'none'} ({_CATALOG_ID_PROPERTIES[0]}). Correct the location of the table in "
        "the catalog",
        table=table,
        version=version,
        reason=Reason.CATALOG_TABLE_UNREADABLE,
    )


def _way_on(refused: Mapping[str, str]) -> str:
    if CATALOG_FEATURES.issuperset(refused):
        return "Give its name in the catalog, and the catalog (catalog_conn_id, or --catalog on the command line)"
    return (
        "Use a version of FDS that supports them, or drop them with ALTER TABLE … DROP FEATURE. The versions that have "
        "them stay unreadable: for their rows, load the whole table with a stream of another name, without a start "
        "option and into another sink"
    )


def _why(feature: str) -> str:
    return next((why for start, why in _REFUSED if feature.startswith(start)), "FDS does not know it")
