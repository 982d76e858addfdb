"""A planned batch: which files of which versions, from where to where."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import msgspec

from airflow_provider_fds.delta.actions import Add
from airflow_provider_fds.delta.damage import MAX_INT64
from airflow_provider_fds.delta.statistics import num_rows_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from airflow_provider_fds.delta.reader.log import TableState
    from airflow_provider_fds.errors import FdsError
    from airflow_provider_fds.source.offset import Offset


#: How the files of a batch of changes record what happened to their rows. ``"whole_files"``: one change type applies to
#: all rows of a file. ``"change_files"``: each row has its own, in a column of the file. A manifest can list only one
#: kind.
FeedKind = Literal["whole_files", "change_files"]


class ChangedFile(Add, frozen=True, gc=False):
    """A file of the change data feed.

    Attributes:
        change_type: What happened to all its rows, ``"insert"`` or ``"delete"``; ``None``: each row has its own.
    """

    change_type: str | None = None


class PlannedFile(msgspec.Struct, frozen=True, gc=False):
    """A data file of a batch. A struct, not a dataclass: one is created for every file of a table.

    Attributes:
        version: Version that the file's rows belong to: that of the commit, or of the initial snapshot.
        index: Number of the file within that version, as in :class:`Offset`.
        timestamp_ms: Time of that version, milliseconds since the epoch.
        add: The action as logged.
    """

    version: int
    index: int
    timestamp_ms: int
    add: Add


@dataclass(frozen=True, slots=True)
class SkippedCommit:
    """A commit that changes data and was skipped as a whole.

    Attributes:
        version: Its version.
        operation: ``commitInfo.operation``, or ``None`` if the commit does not say.
        reason: The option that requires it, and the commit's contents.
    """

    version: int
    operation: str | None
    reason: str


@dataclass(frozen=True, slots=True)
class PassedSchemaChange:
    """A version from which on the table has another schema, and why the stream passes it.

    Attributes:
        version: The version.
        changes: The lines of a diff of the columns.
        allowed_by: The option, setting, person or default that lets the stream pass.
    """

    version: int
    changes: tuple[str, ...]
    allowed_by: str


class _Contents(NamedTuple):
    num_bytes: int
    has_vectors: bool


@dataclass(frozen=True)
class SourceBatch:
    """The rows between two offsets, as files.

    Attributes:
        start: Position before the batch (exclusive).
        end: Position after it (inclusive).
        files: The files in their order; empty if the range has no data for the stream. Those of a large batch are in a
            temporary file.
        state: Protocol and metadata in force at :attr:`last_version`: the schema to read all files with.
        skipped: Commits of the range that were skipped although they change data.
        first_version: First version that was read for the batch: that of a commit, or of the initial snapshot.
        last_version: Last version that was read for it; its rest may belong to the next batch.
        log_digest: :func:`range_digest` of the commit files that were read; it leaves out the frozen initial snapshot.
        last_commit_sha256: SHA-256 of the commit file of :attr:`last_version`, ``""`` if log cleanup removed the commit
            of the initial snapshot.
        log_checksum: :class:`RangeChecksums` of the same commit files, by content.
        log_etags: The same digest over the storage's ETags, ``""`` if the storage has no ETags.
        feed: The kind of change data feed files it holds; ``None`` if the stream does not read the feed.
        schema_changes: Changes of the schema in the range; the batch before ends at the first of them.
        where: What Spark filters the rows of the files by, in its SQL; empty: nothing.
    """

    start: Offset
    end: Offset
    files: Sequence[PlannedFile]
    state: TableState
    skipped: tuple[SkippedCommit, ...]
    first_version: int
    last_version: int
    log_digest: str
    last_commit_sha256: str
    feed: FeedKind | None = None
    log_checksum: str = ""
    log_etags: str = ""
    schema_changes: tuple[PassedSchemaChange, ...] = ()
    where: str = ""

    @property
    def num_files(self) -> int:
        """Number of files."""
        return len(self.files)

    @property
    def num_bytes(self) -> int:
        """Size of the files according to the log; at most 2^63 - 1."""
        return self._contents.num_bytes

    @property
    def has_vectors(self) -> bool:
        """Whether a file has a deletion vector."""
        return self._contents.has_vectors

    @cached_property
    def _contents(self) -> _Contents:
        """What one pass over the files finds: those of a large batch are read from a file each time."""
        num_bytes, has_vectors = 0, False
        for file in self.files:
            num_bytes += file.add.size
            has_vectors = has_vectors or file.add.deletionVector is not None
        return _Contents(min(num_bytes, MAX_INT64), has_vectors)

    @cached_property
    def num_rows(self) -> int | None:
        """Number of rows by the log's statistics, minus deleted rows; ``None`` if they do not say it.

        They do not if a file has no statistics, or if the rows are filtered.
        """
        if self.where:
            return None
        total = 0
        for file in self.files:
            rows = num_rows_of(file.add)
            if rows is None:
                return None
            total += rows
        return total if total <= MAX_INT64 else None


@dataclass(frozen=True, slots=True)
class PlanOutcome:
    """How planning ended.

    Attributes:
        status: ``"up_to_date"``: everything up to the target is planned. ``"stopped"``: a version prevents planning.
        error: The error to raise once the earlier batches are committed; else ``None``.
        target: The target version (inclusive).
    """

    status: Literal["up_to_date", "stopped"]
    error: FdsError | None
    target: int


#: Number of commits whose checksums are digested at once. The digests of content and tags depend on it.
_DIGESTED_TOGETHER: Final = 1000


class RangeChecksums:
    """What distinguishes the commit files of a range from others: their sizes, their contents, and their cheaper ETags.

    A size alone does not identify a commit's contents: another commit of equal size may have replaced it.
    """

    __slots__ = ("_contents", "_etags", "_has_etags", "_seen", "_sizes")

    def __init__(self) -> None:
        self._sizes = hashlib.sha256()
        self._contents = hashlib.sha256()
        self._etags = hashlib.sha256()
        self._has_etags = True
        # digested by the thousand, because planning reads ten thousand commits per second
        self._seen: list[tuple[int, int, int, object]] = []

    def see(self, version: int, size_bytes: int, crc32: int, etag: object) -> None:
        """Add a commit file: its size, its content, and the ETag that the storage gave with the content."""
        seen = self._seen
        seen.append((version, size_bytes, crc32, etag))
        if len(seen) == _DIGESTED_TOGETHER:
            self._digest()

    @property
    def of_sizes(self) -> str:
        """SHA-256 (hexadecimal) over version and size of each file: its :func:`range_digest`."""
        self._digest()
        return self._sizes.hexdigest()

    @property
    def of_contents(self) -> str:
        """SHA-256 (hexadecimal) over version and CRC-32 of each file, as MessagePack, in lists of a thousand."""
        self._digest()
        return self._contents.hexdigest()

    @property
    def of_etags(self) -> str:
        """The same over version and ETag of each file; ``""`` if one has no ETag."""
        self._digest()
        return self._etags.hexdigest() if self._has_etags else ""

    def _digest(self) -> None:
        seen = self._seen
        if not seen:
            return
        self._sizes.update("".join([f"{version} {size}\n" for version, size, _, _ in seen]).encode())
        self._contents.update(msgspec.msgpack.encode([(version, crc32) for version, _, crc32, _ in seen]))
        etags = [(version, etag) for version, _, _, etag in seen if etag is not None]
        self._has_etags = self._has_etags and len(etags) == len(seen)
        self._etags.update(msgspec.msgpack.encode(etags))
        seen.clear()


def range_digest(commits: Iterable[tuple[int, int]]) -> str:
    """Return the SHA-256 (hexadecimal) over the lines ``<version> <size in bytes>`` of commit files, ascending."""
    digest = hashlib.sha256()
    for version, size_bytes in commits:
        digest.update(commit_line(version, size_bytes))
    return digest.hexdigest()


def commit_line(version: int, size_bytes: int) -> bytes:
    """Return the line that represents a commit file in :func:`range_digest`."""
    return b"%d %d\n" % (version, size_bytes)
