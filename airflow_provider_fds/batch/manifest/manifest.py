"""The manifest: a batch as a Delta table of one commit that lists the source's files by absolute URI.

``spark.read.format("delta").load(folder)`` returns the rows of the batch, each with ``_commit_version`` and
``_commit_timestamp``, and with ``_change_type`` if it belongs to the change data feed. Spark itself applies what this
read needs: deletion vectors, column mapping, widened types, partition values. The actions follow the Delta protocol
("Actions"); a shallow clone writes absolute paths, too.
"""

from __future__ import annotations

import hashlib
import tempfile
import uuid
import weakref
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Final

import msgspec

from airflow_provider_fds.batch.location import check_table_uri, spark_uri
from airflow_provider_fds.batch.manifest.file_roots import FileRoots
from airflow_provider_fds.batch.manifest.manifest_files import FileContents, ListedFile, Written, listed_files
from airflow_provider_fds.batch.manifest.manifest_protocol import ManifestProtocol, has_row_ids, manifest_protocol
from airflow_provider_fds.batch.manifest.manifest_schema import NAMESPACE, ManifestSchema, manifest_schema
from airflow_provider_fds.batch.version_ranges import describe_range
from airflow_provider_fds.delta.damage import DAMAGE, describe
from airflow_provider_fds.delta.reader.scratch import scratch_errors
from airflow_provider_fds.errors import StoppedError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from airflow_provider_fds.source.planned import SourceBatch

_DIGEST_CHARACTERS: Final = 32
#: Has the length of every id.
_NO_ID: Final = str(uuid.UUID(int=0))
#: A commit up to this size, that of about 15,000 files, stays in memory; a larger one goes to a temporary file.
_KEPT_BYTES: Final = 16 << 20
_CHUNK_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Manifest:
    """The two files of a manifest, and its name.

    Attributes:
        commit: The commit, one action per line: ``protocol``, ``metaData``, then the files in planned order. A file
            open for reading with seek, in memory or, if it is large, on disk.
        checksum_json: The version checksum of that commit; it saves Spark a job.
        digest: First 32 hexadecimal digits of the SHA-256 of the commit.
    """

    commit: IO[bytes] = field(compare=False)
    checksum_json: bytes
    digest: str


class _Format(Written, frozen=True):
    provider: str
    options: dict[str, str]


class _MetaData(Written, frozen=True):
    id: str
    format: _Format
    schema_string: str
    partition_columns: tuple[str, ...]
    configuration: dict[str, str]
    created_time: int


class _Line(Written, frozen=True):
    """One line of the commit: exactly one field is set."""

    protocol: ManifestProtocol | None = None
    meta_data: _MetaData | None = None
    add: ListedFile | None = None


class _Checksum(Written, frozen=True):
    """The protocol's "Version Checksum File", with the fields that Delta reads from it when it loads a table."""

    table_size_bytes: int
    num_files: int
    num_metadata: int
    num_protocol: int
    set_transactions: tuple[()]
    domain_metadata: tuple[()]
    metadata: _MetaData
    protocol: ManifestProtocol


_ENCODER: Final = msgspec.json.Encoder()


def build_manifest(
    batch: SourceBatch,
    *,
    table_uri: str,
    stats: bool = True,
    allowed_roots: Sequence[str] = (),
    columns: Sequence[str] = (),
) -> Manifest:
    """Return the manifest of ``batch``. Pure, and deterministic to the byte.

    Args:
        batch: The batch; all its files are read under the protocol and schema of its ``state``.
        table_uri: URI of the source, percent-encoded, with scheme. ``s3`` and ``s3n`` become ``s3a``.
        stats: Keep the certain statistics of the files, which enable data skipping. Otherwise a file keeps only its
            number of rows, and no values except those of partition columns get into staging.
        allowed_roots: Locations that files may be in besides the table's own store; see :mod:`.file_roots`.
        columns: Columns of the source that the batch has; empty: all.

    The predicate by which the job filters the rows is part of the id of the manifest's table, so batches of the same
    files with other predicates have other digests.

    Raises:
        UnsupportedFeatureError: The source has a reader feature that FDS does not support.
        ConfigurationError: The source has a column with the name of an added one, lacks one of ``columns``, has a URI
            with a credential in it, or a file in a location that is not allowed.
        StoppedError: An action of the batch is damaged.
        FdsError: The batch lists a (path, deletion vector) twice, so that Delta would read its rows once.
    """
    check_table_uri(table_uri)
    try:
        return _manifest(batch, table_uri, stats=stats, allowed_roots=allowed_roots, columns=columns)
    except DAMAGE as error:
        raise StoppedError(
            f"{table_uri}: no manifest can be written for {describe_range(batch.first_version, batch.last_version)} "
            f"({describe(error)}): one of their actions is damaged. The stream stops before them; everything "
            "before them is delivered. Restore the commits, or skip the damaged one with skip_versions",
            table=table_uri,
            version=batch.last_version,
        ) from error


def _manifest(
    batch: SourceBatch,
    table_uri: str,
    *,
    stats: bool,
    allowed_roots: Sequence[str],
    columns: Sequence[str],
) -> Manifest:
    base = spark_uri(table_uri.rstrip("/"))
    state = batch.state
    # rows of the change data feed have no ids, as in Delta: a removed file, or a change file, lists none
    with_row_ids = (
        batch.feed is None
        and has_row_ids(state.protocol, state.metadata)
        and all(
            # Files from before row tracking was enabled have no ids: Spark would silently invent some.
            file.add.baseRowId is not None and file.add.defaultRowCommitVersion is not None
            for file in batch.files
        )
    )
    protocol = manifest_protocol(
        state.protocol,
        with_vectors=batch.has_vectors,
        with_row_ids=with_row_ids,
        table=table_uri,
        version=state.version,
    )
    schema = manifest_schema(
        state.metadata,
        with_row_ids=with_row_ids,
        table=table_uri,
        version=state.version,
        feed=batch.feed,
        columns=columns,
    )
    roots = FileRoots(base, allowed_roots)
    contents = FileContents(state.metadata, stats=stats)
    files = listed_files(
        batch.files, roots=roots, base=base, schema=schema, contents=contents, with_row_ids=with_row_ids
    )
    commit = tempfile.SpooledTemporaryFile(_KEPT_BYTES, prefix="fds-manifest-")  # noqa: SIM115 - lives with the manifest
    try:
        source = f"{state.metadata.id}\n{batch.where}" if batch.where else state.metadata.id
        metadata = _write_commit(commit, source, protocol, schema, files)
        digest = _sha256(commit)[:_DIGEST_CHARACTERS]
    except BaseException:
        commit.close()
        raise
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
    manifest = Manifest(commit, _ENCODER.encode(checksum), digest)
    weakref.finalize(manifest, commit.close)
    return manifest


def _write_commit(
    commit: IO[bytes], source: str, protocol: ManifestProtocol, schema: ManifestSchema, files: Iterable[ListedFile]
) -> _MetaData:
    """Write the lines of the commit, with at most one chunk of them in memory; return its metadata.

    Its id is derived from ``source`` (the source's id, and what else tells its batches apart), schema and files.
    """
    metadata = _MetaData(
        id=_NO_ID,
        format=_Format(provider="parquet", options={}),
        schema_string=schema.schema_string,
        partition_columns=schema.partition_columns,
        configuration=schema.configuration,
        created_time=0,
    )
    # the head first has a placeholder id, because the id is derived from what follows
    _write(commit, _head(protocol, metadata))
    listed = hashlib.sha256()
    for lines in _encoded(files):
        listed.update(lines)
        _write(commit, lines)
    content = f"{source}\n{schema.schema_string}\n{listed.hexdigest()}"
    metadata = msgspec.structs.replace(metadata, id=str(uuid.uuid5(NAMESPACE, content)))
    commit.seek(0)
    _write(commit, _head(protocol, metadata))
    return metadata


def _write(commit: IO[bytes], data: bytes | bytearray) -> None:
    with scratch_errors(commit):
        commit.write(data)
        # an error of the disk comes here, and not with a later read
        commit.flush()


def _head(protocol: ManifestProtocol, metadata: _MetaData) -> bytes:
    return _ENCODER.encode_lines([_Line(protocol=protocol), _Line(meta_data=metadata)])


def _encoded(files: Iterable[ListedFile]) -> Iterator[bytearray]:
    """Yield the lines of the files in chunks of about :data:`_CHUNK_BYTES`, in one buffer."""
    lines = bytearray()
    for file in files:
        _ENCODER.encode_into(_Line(add=file), lines, -1)
        lines += b"\n"
        if len(lines) >= _CHUNK_BYTES:
            yield lines
            lines.clear()
    yield lines


def _sha256(file: IO[bytes]) -> str:
    digest = hashlib.sha256()
    file.seek(0)
    while chunk := file.read(_CHUNK_BYTES):
        digest.update(chunk)
    return digest.hexdigest()
