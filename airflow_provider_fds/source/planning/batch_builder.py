"""A batch that is being built."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_fds.delta.paths import absolute_vector
from airflow_provider_fds.delta.reader.log import TableState
from airflow_provider_fds.source.planned import RangeChecksums, SkippedCommit, SourceBatch
from airflow_provider_fds.source.planning.admission import Admission
from airflow_provider_fds.source.planning.planned_files import FileCollector

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_provider_fds.delta.actions import Add, DeletionVector
    from airflow_provider_fds.delta.commits import Commit
    from airflow_provider_fds.source.offset import Offset
    from airflow_provider_fds.source.options.options import SourceOptions
    from airflow_provider_fds.source.planned import FeedKind, PassedSchemaChange
    from airflow_provider_fds.source.planning.files_read import FilesRead


class BatchBuilder:
    """The contents of a batch so far. It grows version by version and file by file.

    Attributes:
        start: Position before the batch (exclusive).
        end: Position after its contents (inclusive).
        state: Protocol and metadata at the last version added; its version is not kept up to date.
        feed: Kind of the files added, if the stream reads the change data feed.
        files: Files added.
        schema_changes: Changes of the schema.
        skipped: Skipped commits.
        keys: Identity of each file added, see :func:`file_key_below`: a manifest, being a Delta log, can list a file
            only once.
        admission: The remaining room.
    """

    __slots__ = (
        "_checksums",
        "_files_read",
        "_first_version",
        "_last_commit",
        "_last_version",
        "admission",
        "end",
        "feed",
        "files",
        "keys",
        "schema_changes",
        "skipped",
        "start",
        "state",
    )

    def __init__(self, start: Offset, options: SourceOptions, state: TableState | None, files_read: FilesRead) -> None:
        self.start = start
        self.end = start
        self.state = state
        self.feed: FeedKind | None = None
        self.files = FileCollector()
        self.skipped: list[SkippedCommit] = []
        self.schema_changes: list[PassedSchemaChange] = []
        self.keys: set[int] = set()
        self.admission = Admission(options)
        self._files_read = files_read
        self._checksums = RangeChecksums()
        self._first_version = self._last_version = start.version
        # its digest is computed when the batch is built: the digest of most commits is never needed
        self._last_commit: Commit | None = None

    def read_snapshot(self, commit: Commit | None) -> None:
        """Record that what follows comes from the snapshot of the start version, whose commit file may be gone."""
        self._last_commit = commit

    def read_commit(self, commit: Commit, state: TableState) -> None:
        """Record that what follows comes from ``commit``, after which ``state`` is in force. Once per commit."""
        self.state = state
        self._last_version = commit.version
        self._last_commit = commit
        self._checksums.see(commit.version, commit.size_bytes, commit.checksum, commit.etag)

    def build(self) -> SourceBatch:
        """Return the batch. Nothing may be added afterwards."""
        if self.state is None:
            raise AssertionError("a batch was built before the first version was read")
        # the planner keeps the builder while the batch is processed, so free its memory
        self.keys.clear()
        files = self.files.collected()
        return SourceBatch(
            start=self.start,
            end=self.end,
            files=files,
            state=TableState(self._last_version, self.state.protocol, self.state.metadata),
            skipped=tuple(self.skipped),
            first_version=self._first_version,
            last_version=self._last_version,
            log_digest=self._checksums.of_sizes,
            last_commit_sha256="" if self._last_commit is None else self._last_commit.sha256,
            feed=self.feed,
            log_checksum=self._checksums.of_contents,
            log_etags=self._checksums.of_etags,
            schema_changes=tuple(self.schema_changes),
            where=self._files_read.row_sql(self.state.metadata, (file.add for file in files)),
        )


def file_key_below(table_uri: str) -> Callable[[Add], int]:
    """Return the function from an action to the identity of its file: the hash of absolute path and deletion vector.

    A batch may have millions of files, and their names are large. If two files have the same 64-bit hash, the second
    merely begins another batch. Paths below the table's root stay relative, which saves joining each of them. The
    location of a vector is made absolute: one commit may log a bitmap as relative (``u``) and another as absolute
    (``p``).
    """
    root = table_uri + "/"

    def key(add: Add) -> int:
        path = add.path.removeprefix(root)
        vector = add.deletionVector
        return hash(path if vector is None else (path, _vector_id(table_uri, vector)))

    return key


def _vector_id(table_uri: str, vector: DeletionVector) -> str:
    try:
        return absolute_vector(table_uri, vector).unique_id
    except ValueError:
        # unknown or damaged; the manifest refuses it and names its version
        return vector.unique_id
