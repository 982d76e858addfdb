"""The manifest: a batch as a Delta table of one commit, that lists the source's files by absolute URI.

``spark.read.format("delta").load(folder)`` gives the rows of the batch, each with ``_commit_version`` and
``_commit_timestamp``, and with ``_change_type`` if it is of the change data feed. What that read needs is applied by
Spark itself: deletion vectors, column mapping, widened types, partition values. The actions follow the Delta protocol
("Actions"); absolute paths are what a shallow clone writes.
"""

from __future__ import annotations

import hashlib
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

import msgspec

from airflow_provider_fds.batch.location import check_table_uri, redacted, secret_part, spark_uri
from airflow_provider_fds.batch.manifest_protocol import ManifestProtocol, has_row_ids, manifest_protocol
from airflow_provider_fds.batch.manifest_schema import NAMESPACE, ManifestSchema, manifest_schema
from airflow_provider_fds.batch.publish import write_manifest
from airflow_provider_fds.delta.paths import absolute_path, absolute_vector
from airflow_provider_fds.errors import ConfigurationError, FdsError, UnsupportedFeatureError
from airflow_provider_fds.source.planned import ChangedFile

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from airflow_provider_fds.delta.actions import DeletionVector
    from airflow_provider_fds.source.plan import PlannedFile, SourceBatch

__all__ = ["Manifest", "build_manifest", "write_manifest"]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_DIGEST_CHARACTERS: Final = 32
#: As long as every id.
_NO_ID: Final = str(uuid.UUID(int=0))


@dataclass(frozen=True, slots=True)
class Manifest:
    """The two files of a manifest, and its name.

    Attributes:
        commit_json: The commit, one action a line: ``protocol``, ``metaData``, then the files in planned order.
        checksum_json: The version checksum of that commit; it spares Spark a job.
        digest: First 32 hex characters of the SHA-256 of ``commit_json``.
    """

    commit_json: bytes | bytearray
    checksum_json: bytes
    digest: str


class _Written(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """Base of what is encoded: Delta's names; fields without a default are always written."""


class _Vector(_Written, frozen=True):
    storage_type: str
    path_or_inline_dv: str
    size_in_bytes: int
    cardinality: int
    offset: int | None = None

    @property
    def unique_id(self) -> str:
        """The protocol's ``uniqueId``; with the path absolute, one bitmap has one id however it was logged."""
        tail = "" if self.offset is None else f"@{self.offset}"
        return f"{self.storage_type}{self.path_or_inline_dv}{tail}"


class _File(_Written, frozen=True):
    path: str
    partition_values: dict[str, str | None]
    size: int
    modification_time: int
    data_change: bool
    stats: str | None = None
    deletion_vector: _Vector | None = None
    base_row_id: int | None = None
    default_row_commit_version: int | None = None


class _Format(_Written, frozen=True):
    provider: str
    options: dict[str, str]


class _MetaData(_Written, frozen=True):
    id: str
    format: _Format
    schema_string: str
    partition_columns: tuple[str, ...]
    configuration: dict[str, str]
    created_time: int


class _Line(_Written, frozen=True):
    """One line of the commit: exactly one field is set."""

    protocol: ManifestProtocol | None = None
    meta_data: _MetaData | None = None
    add: _File | None = None


class _Checksum(_Written, frozen=True):
    """The protocol's "Version Checksum File", with the fields that Delta takes from it when it loads a table."""

    table_size_bytes: int
    num_files: int
    num_metadata: int
    num_protocol: int
    set_transactions: tuple[()]
    domain_metadata: tuple[()]
    metadata: _MetaData
    protocol: ManifestProtocol


class _Statistics(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """What remains of a file's statistics without the values of columns."""

    num_records: int


_ENCODER: Final = msgspec.json.Encoder()
_STATISTICS: Final = msgspec.json.Decoder(_Statistics)


def build_manifest(batch: SourceBatch, *, table_uri: str, stats: bool = True) -> Manifest:
    """Return the manifest of ``batch``. Pure, and deterministic to the byte.

    Args:
        batch: The batch; its ``state`` is the protocol and schema under which all its files are read.
        table_uri: URI of the source, percent-encoded, with scheme. ``s3`` and ``s3n`` become ``s3a``.
        stats: Keep the statistics of the files, which give data skipping. Without them a file keeps its number of
            rows only, and no value of a column gets into staging other than those of partition columns.

    Raises:
        UnsupportedFeatureError: The source has a reader feature that FDS does not read.
        ConfigurationError: The source has a column named as one that is added, or a URI with a credential in it.
        FdsError: The batch lists a (path, deletion vector) twice, so that Delta would read its rows once.
    """
    check_table_uri(table_uri)
    base = spark_uri(table_uri.rstrip("/"))
    state = batch.state
    # rows of the change data feed have no ids, as in Delta: a removed file, or a change file, lists none
    with_row_ids = (
        batch.feed is None
        and has_row_ids(state.protocol, state.metadata)
        and all(
            # Files from before row tracking was enabled have no ids: Spark would make some up without a word.
            file.add.baseRowId is not None and file.add.defaultRowCommitVersion is not None
            for file in batch.files
        )
    )
    protocol = manifest_protocol(
        state.protocol,
        with_vectors=any(file.add.deletionVector is not None for file in batch.files),
        with_row_ids=with_row_ids,
        table=table_uri,
        version=state.version,
    )
    schema = manifest_schema(
        state.metadata, with_row_ids=with_row_ids, table=table_uri, version=state.version, feed=batch.feed
    )
    metadata = _MetaData(
        id=_NO_ID,
        format=_Format(provider="parquet", options={}),
        schema_string=schema.schema_string,
        partition_columns=schema.partition_columns,
        configuration=schema.configuration,
        created_time=0,
    )
    # encoded one by one, and behind a head that has no id yet: the files of a large batch are in memory once only
    head = _head(protocol, metadata)
    commit = bytearray(head)
    for file in _files(batch.files, base=base, schema=schema, stats=stats, with_row_ids=with_row_ids):
        _ENCODER.encode_into(_Line(add=file), commit, -1)
        commit += b"\n"
    content = f"{state.metadata.id}\n{schema.schema_string}\n{_sha256(commit, len(head))}"
    metadata = msgspec.structs.replace(metadata, id=str(uuid.uuid5(NAMESPACE, content)))
    commit[: len(head)] = _head(protocol, metadata)
    checksum = _Checksum(
        table_size_bytes=batch.num_bytes,
        num_files=batch.num_files,
        num_metadata=1,
        num_protocol=1,
        set_transactions=(),
        domain_metadata=(),
        metadata=metadata,
        protocol=protocol,
    )
    return Manifest(
        commit_json=commit,
        checksum_json=_ENCODER.encode(checksum),
        digest=_sha256(commit)[:_DIGEST_CHARACTERS],
    )


def _head(protocol: ManifestProtocol, metadata: _MetaData) -> bytes:
    return _ENCODER.encode_lines([_Line(protocol=protocol), _Line(meta_data=metadata)])


def _sha256(data: bytearray, start: int = 0) -> str:
    with memoryview(data) as view:
        return hashlib.sha256(view[start:]).hexdigest()


def _files(
    planned: Sequence[PlannedFile], *, base: str, schema: ManifestSchema, stats: bool, with_row_ids: bool
) -> Iterator[_File]:
    seen: set[bytes] = set()
    stamps: dict[int, str] = {}
    vectors = _Vectors(base)
    for file in planned:
        add = file.add
        stamp = stamps.get(file.timestamp_ms)
        if stamp is None:
            stamp = stamps[file.timestamp_ms] = _timestamp(file.timestamp_ms)
        path = _without_secret(absolute_path(base, add.path), base)
        vector = None if add.deletionVector is None else vectors.absolute(add.deletionVector, file.version)
        # a digest is a fifth of a path
        key = hashlib.blake2b(f"{path}\n{vector.unique_id if vector else ''}".encode(), digest_size=16).digest()
        if key in seen:
            raise FdsError(
                f"the batch of table {base} lists {path} of version {file.version} twice, with the same deletion "
                "vector; Delta keeps one of them and the rows of the other would be lost. The batch should have ended "
                "before this version: report this as an error of FDS, with the commits of the range",
                table=base,
                version=file.version,
            )
        seen.add(key)
        partition_values = {
            **(add.partitionValues or {}),
            schema.version_key: str(file.version),
            schema.timestamp_key: stamp,
        }
        if schema.change_type_key is not None and isinstance(add, ChangedFile):
            partition_values[schema.change_type_key] = add.change_type
        yield _File(
            path=path,
            partition_values=partition_values,
            size=add.size,
            modification_time=add.modificationTime,
            data_change=True,
            stats=add.stats if stats else _count_only(add.stats),
            deletion_vector=vector,
            base_row_id=add.baseRowId if with_row_ids else None,
            default_row_commit_version=add.defaultRowCommitVersion if with_row_ids else None,
        )


class _Vectors:
    """Makes deletion vectors absolute; the vectors of one commit share a file, whose name is decoded once."""

    def __init__(self, base: str) -> None:
        self._base = base
        self._places: dict[tuple[str, str], tuple[str, str]] = {}

    def absolute(self, logged: DeletionVector, version: int) -> _Vector:
        logged_place = (logged.storageType, logged.pathOrInlineDv)
        place = self._places.get(logged_place)
        if place is None:
            place = self._places[logged_place] = self._locate(logged, version)
        return _Vector(
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
                f"table {self._base} has a deletion vector in version {version} that FDS does not read: {error}. Use a "
                "version of FDS that reads it, or rewrite the file without it (REORG TABLE … APPLY (PURGE))",
                features=("deletionVectors",),
                table=self._base,
                version=version,
            ) from error
        if vector.storageType == "p":
            _without_secret(vector.pathOrInlineDv, self._base)
        return vector.storageType, vector.pathOrInlineDv


def _timestamp(milliseconds: int) -> str:
    """Return the partition value of an instant: with ``Z`` it is the same in every session time zone."""
    return (_EPOCH + timedelta(milliseconds=milliseconds)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _count_only(stats: str | None) -> str | None:
    """Return statistics with the number of rows only, ``None`` where it is unknown."""
    if stats is None:
        return None
    try:
        return _ENCODER.encode(_STATISTICS.decode(stats)).decode()
    except msgspec.DecodeError:  # no numRecords in it, or no JSON at all: then it is no use to anyone
        return None


def _without_secret(uri: str, base: str) -> str:
    """Return ``uri``; refuse a logged absolute URI (of a clone) that holds a credential."""
    if not uri.startswith(base) and secret_part(uri) is not None:
        raise ConfigurationError(
            f"the log of table {base} lists a file as {redacted(uri)}, with {secret_part(uri)}; a batch is written to "
            "staging, where no credential may lie. Clone the table again from a URI without credentials",
            table=base,
        )
    return uri
