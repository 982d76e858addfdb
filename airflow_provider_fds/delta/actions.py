"""The actions of the Delta transaction log as values (Delta protocol, "Actions").

Unknown actions and unknown fields are ignored, as the protocol requires of readers. Every optional field has a default;
``null`` counts as absent. Attribute names are Delta's own, so that a value reads like its line in the log.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated, Any, Final

import msgspec

from airflow_provider_fds.delta.damage import MAX_INT64

#: Ranges are part of the types: the decoder checks them, and the code that reads the values relies on them.
_Int32 = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
_Int64 = Annotated[int, msgspec.Meta(ge=0, le=MAX_INT64)]


class _Struct(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Base of all actions: immutable, decoded without validation beyond the types."""


class DeletionVector(_Struct, frozen=True):
    """Which rows of a file are deleted (protocol, "Deletion Vectors")."""

    storageType: str  # noqa: N815
    pathOrInlineDv: str  # noqa: N815
    sizeInBytes: _Int64 = 0  # noqa: N815
    cardinality: _Int64 = 0
    offset: _Int64 | None = None

    @property
    def unique_id(self) -> str:
        """The protocol's ``uniqueId``: storage type, path and, if any, ``@offset``."""
        tail = "" if self.offset is None else f"@{self.offset}"
        return f"{self.storageType}{self.pathOrInlineDv}{tail}"


class Add(_Struct, frozen=True):
    """A data file that was added to the table. ``path`` is as logged: a URI, relative or absolute, encoded."""

    path: str
    size: _Int64 = 0
    partitionValues: dict[str, str | None] | None = None  # noqa: N815
    modificationTime: _Int64 = 0  # noqa: N815
    dataChange: bool | None = True  # noqa: N815
    stats: str | None = None
    deletionVector: DeletionVector | None = None  # noqa: N815
    baseRowId: _Int64 | None = None  # noqa: N815
    defaultRowCommitVersion: _Int64 | None = None  # noqa: N815

    @property
    def changes_data(self) -> bool:
        """``dataChange``; absent means true."""
        return self.dataChange is not False

    @property
    def file_key(self) -> tuple[str, str | None]:
        """Identity of a logical file: path and deletion vector id (protocol, "Action Reconciliation")."""
        return (self.path, self.deletionVector.unique_id if self.deletionVector is not None else None)


class Remove(_Struct, frozen=True):
    """A data file that was removed from the table."""

    path: str
    dataChange: bool | None = True  # noqa: N815
    deletionTimestamp: int | None = None  # noqa: N815
    size: _Int64 | None = None
    partitionValues: dict[str, str | None] | None = None  # noqa: N815
    stats: str | None = None
    deletionVector: DeletionVector | None = None  # noqa: N815

    @property
    def changes_data(self) -> bool:
        """``dataChange``; absent means true."""
        return self.dataChange is not False

    @property
    def file_key(self) -> tuple[str, str | None]:
        """Identity of a logical file: path and deletion vector id."""
        return (self.path, self.deletionVector.unique_id if self.deletionVector is not None else None)


class Cdc(_Struct, frozen=True):
    """A change data file."""

    path: str
    size: _Int64 = 0
    partitionValues: dict[str, str | None] | None = None  # noqa: N815


class Metadata(_Struct, frozen=True):
    """``metaData``: id, schema, partition columns and configuration of the table from this version on."""

    id: str
    schemaString: str = ""  # noqa: N815
    partitionColumns: tuple[str, ...] = ()  # noqa: N815
    configuration: dict[str, str] | None = None
    name: str | None = None
    description: str | None = None
    createdTime: int | None = None  # noqa: N815

    def property(self, key: str) -> str | None:
        """Return the table property ``key``, or ``None``."""
        return (self.configuration or {}).get(key)


class Protocol(_Struct, frozen=True):
    """The reader and writer versions and features that the table requires from this version on."""

    minReaderVersion: int = 1  # noqa: N815
    minWriterVersion: int = 1  # noqa: N815
    readerFeatures: tuple[str, ...] | None = None  # noqa: N815
    writerFeatures: tuple[str, ...] | None = None  # noqa: N815


class CommitInfo(_Struct, frozen=True):
    """Provenance of a commit. No field is required, and only the in-commit timestamp has a meaning to readers."""

    timestamp: int | None = None
    inCommitTimestamp: int | None = None  # noqa: N815
    operation: str | None = None
    operationParameters: dict[str, object] | None = None  # noqa: N815
    operationMetrics: dict[str, object] | None = None  # noqa: N815
    userMetadata: str | None = None  # noqa: N815
    engineInfo: str | None = None  # noqa: N815
    txnId: str | None = None  # noqa: N815
    isBlindAppend: bool | None = None  # noqa: N815


class Txn(_Struct, frozen=True):
    """The newest transaction of an application (protocol, "Transaction Identifiers")."""

    appId: str  # noqa: N815
    version: int
    lastUpdated: int | None = None  # noqa: N815


class Sidecar(_Struct, frozen=True):
    """A sidecar file of a v2 checkpoint; ``path`` is relative to ``_delta_log/_sidecars``."""

    path: str
    sizeInBytes: int = 0  # noqa: N815
    modificationTime: int = 0  # noqa: N815


class Action(_Struct, frozen=True):
    """One line of a commit: at most one field is set, and none for an unknown action."""

    add: Add | None = None
    remove: Remove | None = None
    cdc: Cdc | None = None
    metaData: Metadata | None = None  # noqa: N815
    protocol: Protocol | None = None
    commitInfo: CommitInfo | None = None  # noqa: N815
    txn: Txn | None = None
    sidecar: Sidecar | None = None


#: Decodes one line of a commit, or with ``decode_lines`` a whole one. Strict: see :func:`decode_actions`.
ACTION_DECODER: msgspec.json.Decoder[Action] = msgspec.json.Decoder(Action)

_LOOSE_DECODER: Final[msgspec.json.Decoder[dict[str, Any]]] = msgspec.json.Decoder(dict[str, Any])

#: The fields of ``commitInfo``.
_PROVENANCE: Final = {field.encode_name: field.type for field in msgspec.structs.fields(CommitInfo)}

#: Maps whose values may be null: ``null`` is a valid partition value.
_MAPS_WITH_NULLS: Final = frozenset({"partitionValues", "operationParameters", "operationMetrics"})


def decode_actions(lines: bytes) -> list[Action]:
    """Decode whole lines of a log file, one action per line, in order; blank lines are ignored.

    A field that is ``null`` counts as absent even if its type does not allow ``null``, because some writers log such
    fields. ``commitInfo`` may be any JSON (protocol, "Commit Provenance Information"), so a field of it that has an
    unexpected type counts as absent too. Only a log that has such lines pays the cost.

    Raises:
        msgspec.DecodeError: The text is not JSON, is truncated, or an action lacks a required field.
    """
    try:
        return ACTION_DECODER.decode_lines(lines)
    except msgspec.ValidationError:
        return [_loose_action(line) for line in _LOOSE_DECODER.decode_lines(lines)]


def _loose_action(line: dict[str, Any]) -> Action:
    info = line.pop("commitInfo", None)
    action: Action = msgspec.convert(_without_nulls(line), Action)
    return action if info is None else msgspec.structs.replace(action, commitInfo=_provenance(info))


def _provenance(logged: object) -> CommitInfo:
    found = {}
    for name, type_ in _PROVENANCE.items():
        with suppress(msgspec.ValidationError):
            found[name] = msgspec.convert(logged.get(name) if isinstance(logged, dict) else None, type_)
    return CommitInfo(**found)


def _without_nulls(value: dict[str, Any]) -> dict[str, Any]:
    return {
        key: _without_nulls(inner) if isinstance(inner, dict) and key not in _MAPS_WITH_NULLS else inner
        for key, inner in value.items()
        if inner is not None
    }
