"""The files of a batch as its manifest lists them: by absolute path, with the version and time of their commit."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

import msgspec

from airflow_provider_fds.batch.manifest.file_roots import FileRoots, stays_inside
from airflow_provider_fds.credentials import redacted_uri, secret_part
from airflow_provider_fds.delta.certain_statistics import CertainStatistics
from airflow_provider_fds.delta.paths import absolute_path, absolute_vector
from airflow_provider_fds.delta.statistics import count_only
from airflow_provider_fds.errors import ConfigurationError, FdsError, UnsupportedFeatureError
from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.source.filters.filter_column import NULLS, table_columns
from airflow_provider_fds.source.planned import ChangedFile

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from airflow_provider_fds.batch.manifest.manifest_schema import ManifestSchema
    from airflow_provider_fds.delta.actions import Add, DeletionVector, Metadata
    from airflow_provider_fds.source.planned import PlannedFile

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_KEY_BYTES: Final = 16


class Written(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """Base of encoded values: Delta's names; fields without a default are always written."""


class ListedVector(Written, frozen=True):
    """A deletion vector, with an absolute location or inline."""

    storage_type: str
    path_or_inline_dv: str
    size_in_bytes: int
    cardinality: int
    offset: int | None = None

    @property
    def unique_id(self) -> str:
        """The protocol's ``uniqueId``; since the path is absolute, a bitmap has one id however it was logged."""
        tail = "" if self.offset is None else f"@{self.offset}"
        return f"{self.storage_type}{self.path_or_inline_dv}{tail}"


class ListedFile(Written, frozen=True):
    """An ``add`` action of the manifest."""

    path: str
    partition_values: dict[str, str | None]
    size: int
    modification_time: int
    data_change: bool
    stats: str | None = None
    deletion_vector: ListedVector | None = None
    base_row_id: int | None = None
    default_row_commit_version: int | None = None


class FileContents:
    """The statistics and partition values that a manifest gives Spark: only those that FDS itself relies on.

    Args:
        metadata: Metadata of the table.
        stats: Whether statistics have more than the number of rows.
    """

    def __init__(self, metadata: Metadata, *, stats: bool) -> None:
        self._statistics = CertainStatistics(metadata).of if stats else count_only
        columns = table_columns(metadata).values() if metadata.partitionColumns else ()
        self._nullable = [one.key for one in columns if one.is_partition and not one.has_empty_values]

    def statistics(self, add: Add) -> str | None:
        """Return the statistics of a file."""
        return self._statistics(add.stats)

    def partition_values(self, add: Add) -> dict[str, str | None]:
        """Return the partition values of a file, in a new dict; NULL in the one form that every session can read."""
        found = dict(add.partitionValues or {})
        for key in self._nullable:
            if found.get(key) in NULLS and key in found:
                found[key] = None
        return found


def listed_files(
    planned: Sequence[PlannedFile],
    *,
    roots: FileRoots,
    base: str,
    schema: ManifestSchema,
    contents: FileContents,
    with_row_ids: bool,
) -> Iterator[ListedFile]:
    """Yield the files of a batch in their order. Iterate to the end: the last step finds files that are listed twice.

    Raises:
        ConfigurationError: A logged URI has a credential in it, or its location is not allowed.
        UnsupportedFeatureError: FDS cannot read a deletion vector of this kind.
        FdsError: A (path, deletion vector) is listed twice, so that Delta would read its rows once.
    """
    stamps: dict[int, str] = {}
    places = _Places(base, roots)
    keys = _Keys()
    for file in planned:
        add = file.add
        stamp = stamps.get(file.timestamp_ms)
        if stamp is None:
            stamp = stamps[file.timestamp_ms] = _timestamp(file.timestamp_ms)
        path, vector = places.of(file)
        keys.add(_key(path, vector))
        partition_values = contents.partition_values(add)
        partition_values[schema.version_key] = str(file.version)
        partition_values[schema.timestamp_key] = stamp
        for key in schema.hidden_keys:
            partition_values.pop(key, None)
        if schema.change_type_key is not None and isinstance(add, ChangedFile):
            partition_values[schema.change_type_key] = add.change_type
        yield ListedFile(
            path=path,
            partition_values=partition_values,
            size=add.size,
            modification_time=add.modificationTime,
            data_change=True,
            stats=contents.statistics(add),
            deletion_vector=vector,
            base_row_id=add.baseRowId if with_row_ids else None,
            default_row_commit_version=add.defaultRowCommitVersion if with_row_ids else None,
        )
    if (repeated := keys.repeated()) is not None:
        raise _listed_twice(planned, repeated, places, base)


def _key(path: str, vector: ListedVector | None) -> bytes:
    text = f"{path}\n{vector.unique_id if vector else ''}"
    return hashlib.blake2b(text.encode(), digest_size=_KEY_BYTES).digest()


def _listed_twice(planned: Sequence[PlannedFile], repeated: bytes, places: _Places, base: str) -> FdsError:
    first, second, *_ = (
        (file.version, path) for file in planned for path, vector in [places.of(file)] if _key(path, vector) == repeated
    )
    return FdsError(
        f"the batch of table {base} lists {second[1]} of version {second[0]} twice, first for version {first[0]}, "
        "with the same deletion vector; Delta keeps one of them, and the rows of the other would be lost. The "
        "batch should have ended before this version. This is a bug in fds; report it with the commits of the range",
        table=base,
        version=second[0],
    )


class _Keys:
    """Finds a repeated key, using little more memory than the keys themselves: there may be millions."""

    def __init__(self) -> None:
        self._by_first_byte = [bytearray() for _ in range(256)]

    def add(self, key: bytes) -> None:
        self._by_first_byte[key[0]] += key

    def repeated(self) -> bytes | None:
        """Return a key that was added more than once, or ``None``."""
        for keys in self._by_first_byte:
            seen: set[bytes] = set()
            for start in range(0, len(keys), _KEY_BYTES):
                key = bytes(keys[start : start + _KEY_BYTES])
                if key in seen:
                    return key
                seen.add(key)
        return None


class _Places:
    """Locations of files and their deletion vectors. The vectors of a commit share a file, whose name is decoded once.

    Args:
        base: URI of the table, without a trailing slash.
        roots: The locations that files may be in.
    """

    def __init__(self, base: str, roots: FileRoots) -> None:
        self._base = base
        self._roots = roots
        self._vectors: dict[tuple[str, str], tuple[str, str]] = {}

    def of(self, file: PlannedFile) -> tuple[str, ListedVector | None]:
        """Return the absolute path and vector of a file."""
        add = file.add
        path = f"{self._base}/{add.path}"
        if not stays_inside(add.path):
            path = self._checked(absolute_path(self._base, add.path), file.version)
        return path, None if add.deletionVector is None else self._vector(add.deletionVector, file.version)

    def _vector(self, logged: DeletionVector, version: int) -> ListedVector:
        logged_place = (logged.storageType, logged.pathOrInlineDv)
        place = self._vectors.get(logged_place)
        if place is None:
            place = self._vectors[logged_place] = self._locate(logged, version)
        return ListedVector(
            storage_type=place[0],
            path_or_inline_dv=place[1],
            size_in_bytes=logged.sizeInBytes,
            cardinality=logged.cardinality,
            offset=logged.offset,
        )

    def _locate(self, logged: DeletionVector, version: int) -> tuple[str, str]:
        try:
            vector = absolute_vector(self._base, logged)
        except ValueError as error:
            raise UnsupportedFeatureError(
                f"table {self._base} has a deletion vector in version {version} that FDS cannot read: {error}. "
                "Use a version of FDS that can read it, or rewrite the file without it (REORG TABLE … APPLY "
                "(PURGE))",
                features=("deletionVectors",),
                table=self._base,
                version=version,
            ) from error
        if vector.storageType == "p":
            self._checked(vector.pathOrInlineDv, version)
        return vector.storageType, vector.pathOrInlineDv

    def _checked(self, uri: str, version: int) -> str:
        """Return ``uri``; refuse one that holds a credential, as in a clone, or whose location is not allowed."""
        if not uri.startswith(self._base) and secret_part(uri) is not None:
            raise ConfigurationError(
                f"the log of table {self._base} lists the file {redacted_uri(uri)}, which contains "
                f"{secret_part(uri)}, but a batch is written to staging, which must not contain credentials. "
                "Clone the table from a URI without credentials",
                table=self._base,
                version=version,
                reason=Reason.URI_HAS_CREDENTIALS,
            )
        return self._roots.check(uri, version)


def _timestamp(milliseconds: int) -> str:
    """Return the partition value of an instant; with ``Z`` it means the same in every session time zone."""
    return (_EPOCH + timedelta(milliseconds=milliseconds)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
