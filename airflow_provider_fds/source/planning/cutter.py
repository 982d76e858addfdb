"""Where one batch ends and the next begins."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

from airflow_provider_fds.errors import StoppedError
from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.source.offset import Offset
from airflow_provider_fds.source.planned import PlannedFile, SkippedCommit, SourceBatch
from airflow_provider_fds.source.planning.admission import Admission
from airflow_provider_fds.source.planning.batch_builder import BatchBuilder, file_key_below

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator

    from airflow_provider_fds.delta.actions import Add
    from airflow_provider_fds.delta.commits import Commit
    from airflow_provider_fds.delta.reader.log import TableState
    from airflow_provider_fds.source.options.options import SourceOptions
    from airflow_provider_fds.source.planned import FeedKind
    from airflow_provider_fds.source.planning.files_read import FilesRead

#: Files of a large version that join a batch together if all of them fit.
_ADMITTED_TOGETHER: Final = 100


class BatchCutter:
    """Adds versions and their files to a batch, and ends it at the limits or before a repeated file.

    Args:
        table: URI of the table.
        start: Position before the first batch (exclusive).
        options: The stream's options.
        state: Protocol and metadata in force at ``start``, or ``None`` if not known yet.
        files_read: Decides which files are read.

    Attributes:
        builder: The batch being built.
        is_inside_version: Whether the batch holds files of a version that its end does not cover yet.
    """

    def __init__(
        self,
        table: str,
        start: Offset,
        options: SourceOptions,
        state: TableState | None,
        files_read: FilesRead,
    ) -> None:
        self.builder = BatchBuilder(start, options, state, files_read)
        self.is_inside_version = False
        self._files_read = files_read
        self._excluded = files_read.excluded
        self._table_id = start.table_id
        self._options = options
        self._table = table
        self._key = file_key_below(table)

    def is_excluded(self, add: Add) -> bool:
        """Whether ``exclude_regex`` excludes the file."""
        return self._excluded is not None and self._excluded(add.path) is not None

    def skip(self, version: int, operation: str | None, reason: str) -> None:
        """Record that a version is skipped."""
        self.builder.skipped.append(SkippedCommit(version, operation, reason))

    def end_version(self, version: int) -> None:
        """Record that all of a version was read."""
        self.builder.end = Offset.after(version, self._table_id)
        self.is_inside_version = False

    def make_room(self) -> None:
        """Reset the limits, because none of the admitted files was added."""
        self.builder.admission = Admission(self._options)

    def cut(self) -> Iterator[SourceBatch]:
        """End the batch and begin the next; if all files were excluded, only reset the limits."""
        builder = self.builder
        if not builder.files:
            self.make_room()
            return
        self.builder = BatchBuilder(builder.end, self._options, builder.state, self._files_read)
        yield builder.build()

    def admit(
        self,
        commit: Commit,
        state: TableState,
        files: Callable[[], Iterable[tuple[int, Add]]],
        *,
        timestamp_ms: int,
        feed: FeedKind | None = None,
        is_group: bool = False,
    ) -> Generator[SourceBatch, None, int]:
        """Begin a commit in the batch or, if it does not fit, in the next one; then deliver its files.

        Args:
            commit: The commit.
            state: Protocol and metadata after it.
            files: Yields its files with their indexes.
            timestamp_ms: Time of the commit.
            feed: The kind of its files, if the stream reads the change data feed.
            is_group: Whether they must not be divided.

        Returns:
            The number of files that were not excluded.

        Raises:
            StoppedError: Files that must not be divided list one file twice.
        """
        if is_group:
            self._ensure_distinct(commit.version, files)
        builder = self.builder
        is_other_kind = bool(builder.files) and builder.feed != feed
        held: list[tuple[int, Add]] = []
        adds: list[Add] = []
        keys: list[int] | None = None
        if isinstance(commit.actions, list):
            # not streamed: the identity of each file is computed once
            held = list(files())
            adds = [add for _, add in held]
            keys = [*map(self._key, adds)]

        def to_count() -> Iterable[Add]:
            return (add for _, add in files()) if keys is None else adds

        if (
            is_other_kind
            or not builder.admission.admit_version(to_count, is_group=is_group)
            or self._repeats_a_file(files, keys)
        ):
            yield from self.cut()
            self.builder.admission.admit_version(to_count, is_group=is_group)

        def read(builder: BatchBuilder) -> None:
            builder.read_commit(commit, state)
            builder.feed = feed

        if keys is not None and self._take_group(commit.version, timestamp_ms, held, adds, keys):
            self.is_inside_version = True
            read(self.builder)
            return len(held)
        found = files() if keys is None else held
        return (yield from self.deliver(commit.version, timestamp_ms, found, read, keys=keys))

    def deliver(
        self,
        version: int,
        timestamp_ms: int,
        files: Iterable[tuple[int, Add]],
        read: Callable[[BatchBuilder], None],
        *,
        keys: Iterable[int] | None = None,
        is_snapshot: bool = False,
    ) -> Generator[SourceBatch, None, int]:
        """Add the files of one version to the batch and to later ones; return how many were not excluded.

        ``keys`` are the identities of the files in their order, if known.
        """
        builder, excluded = self.builder, self._excluded
        delivered = 0
        # the builder holds more than its end says, until the end is moved past the version
        self.is_inside_version = True
        read(builder)
        # most files join the batch in groups: the loop below runs once per file, and a table has many
        for group, group_keys in self._groups(files, keys):
            if self._take_group(version, timestamp_ms, group, [add for _, add in group], group_keys):
                delivered += len(group)
                continue
            taken, admit, append = builder.keys, builder.admission.admit_file, builder.files.append
            for (index, add), key in zip(group, group_keys, strict=True):
                if key in taken or not admit(add):
                    builder.end = Offset(self._table_id, version, index - 1, is_snapshot)
                    yield from self.cut()
                    if builder is not self.builder:
                        builder = self.builder
                        read(builder)
                    taken, admit, append = builder.keys, builder.admission.admit_file, builder.files.append
                    builder.admission.admit_version(tuple, is_snapshot=is_snapshot)
                    admit(add)
                if excluded is not None and excluded(add.path):
                    continue
                delivered += 1
                taken.add(key)
                append(PlannedFile(version, index, timestamp_ms, add))
        return delivered

    def _groups(
        self, files: Iterable[tuple[int, Add]], keys: Iterable[int] | None
    ) -> Iterator[tuple[list[tuple[int, Add]], list[int]]]:
        """Yield the files in small groups, with their identities."""
        rest = iter(files)
        known = None if keys is None else iter(keys)
        while group := list(islice(rest, _ADMITTED_TOGETHER)):
            if known is None:
                yield group, [self._key(add) for _, add in group]
            else:
                yield group, list(islice(known, len(group)))

    def _take_group(
        self, version: int, timestamp_ms: int, files: list[tuple[int, Add]], adds: list[Add], keys: list[int]
    ) -> bool:
        """Add all of ``files`` to the batch, if none is excluded or repeated and all of them fit."""
        builder = self.builder
        distinct = set(keys)
        if (
            self._excluded is not None
            or not files
            or len(distinct) < len(keys)
            or not builder.keys.isdisjoint(distinct)
        ):
            return False
        if not builder.admission.admit_files(adds):
            return False
        builder.keys |= distinct
        builder.files.extend([PlannedFile(version, index, timestamp_ms, add) for index, add in files])
        return True

    def _ensure_distinct(self, version: int, files: Callable[[], Iterable[tuple[int, Add]]]) -> None:
        """Stop before a commit that must not be cut but would be, because it lists a file twice."""
        seen: set[int] = set()
        for _, add in files():
            if (key := self._key(add)) in seen:
                raise StoppedError(
                    f"{self._table}: version {version} lists the file {add.path} twice with the same deletion "
                    "vector, which the Delta protocol forbids, and its changes can only be read together. The "
                    f"stream stops before it; skip_versions='{version}' skips the commit with all its changes",
                    table=self._table,
                    version=version,
                    reason=Reason.SOURCE_FILE_REPEATED,
                )
            seen.add(key)

    def _repeats_a_file(self, files: Callable[[], Iterable[tuple[int, Add]]], keys: list[int] | None) -> bool:
        taken = self.builder.keys
        if not taken:
            return False
        return not taken.isdisjoint((self._key(add) for _, add in files()) if keys is None else keys)
