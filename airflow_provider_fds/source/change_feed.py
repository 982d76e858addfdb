"""Change data feed: which rows a commit inserted, deleted and updated, as files.

A commit says it in one of two ways. *Change files* (``cdc`` actions) hold the changed rows, each with its
``_change_type``; where a commit has any, they are all there is to read. Else the *whole files* say it: the rows of an
added file are inserts, those of a removed one deletes. Source of the rules: ``DeltaSourceCDCSupport`` and
``CDCReader`` of delta-spark 4.4, and "Add CDC File" in the Delta protocol.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from airflow_provider_fds.errors import ConfigurationError, StoppedError
from airflow_provider_fds.source.planned import ChangedFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import TypeAlias

    from airflow_provider_fds.delta.actions import Action, Add, Cdc, Metadata, Remove
    from airflow_provider_fds.delta.commits import Commit
    from airflow_provider_fds.delta.log import DeltaLog
    from airflow_provider_fds.delta.storage import Storage
    from airflow_provider_fds.source.classify import CommitContent
    from airflow_provider_fds.source.offset import Offset
    from airflow_provider_fds.source.partition_filter import Keeps
    from airflow_provider_fds.source.planned import FeedKind

    #: Says of a logged path whether ``exclude_regex`` leaves it out; ``None``: nothing is left out.
    Excluded: TypeAlias = Callable[[str], object] | None

#: Table property that makes writers record changes.
ENABLED_PROPERTY: Final = "delta.enableChangeDataFeed"


def is_enabled(metadata: Metadata) -> bool:
    """Whether changes are recorded under ``metadata``."""
    return (metadata.property(ENABLED_PROPERTY) or "").lower() == "true"


def not_recorded(version: int, *, table: str) -> StoppedError:
    """Return the error of a version at which changes were not recorded (Delta: ``DELTA_MISSING_CHANGE_DATA``)."""
    return StoppedError(
        f"{table}: version {version} does not record changes: {ENABLED_PROPERTY} is not true there, expected it to be "
        f"from the first version that is read with read_change_feed=True on. The stream stops before version "
        f"{version}; everything before it is delivered. What now: ALTER TABLE … SET TBLPROPERTIES "
        f"('{ENABLED_PROPERTY}' = 'true') records what comes after it, then start a new stream with the version of "
        "that ALTER TABLE as starting_version (or without a start, for all rows of the table first); or pass over the "
        f"versions without changes with skip_versions='{version}-<last>', which loses what happened in them",
        table=table,
        version=version,
    )


def check_start(log: DeltaLog, start: Offset) -> None:
    """Make sure that changes are recorded where a stream of them is to start.

    Raises:
        ConfigurationError: They are not.
        LostPositionError: The state of the table there cannot be rebuilt any more.
    """
    version = min(start.version, log.latest())
    if not is_enabled(log.state_at(version).metadata):
        raise ConfigurationError(
            f"{log.table_uri}: read_change_feed=True needs a table that records changes, and {ENABLED_PROPERTY} is not "
            f"true at version {version}, where the stream would start. ALTER TABLE … SET TBLPROPERTIES "
            f"('{ENABLED_PROPERTY}' = 'true') records what comes after it: start at the version of that ALTER TABLE or "
            "later, or without a start, for all rows of the table first",
            table=log.table_uri,
            version=version,
        )


def as_inserts(files: Iterable[tuple[int, Add]], excluded: Excluded) -> Iterator[tuple[int, ChangedFile]]:
    """Yield the files of an initial snapshot as inserts, without those that are excluded."""
    for index, add in files:
        if excluded is None or not excluded(add.path):
            yield index, inserted(add)


def inserted(add: Add) -> ChangedFile:
    """Return an added file, all of whose rows are inserts."""
    return ChangedFile(
        add.path,
        size=add.size,
        partitionValues=add.partitionValues,
        modificationTime=add.modificationTime,
        stats=add.stats,
        deletionVector=add.deletionVector,
        change_type="insert",
    )


def deleted(remove: Remove) -> ChangedFile:
    """Return a removed file; the rows that were still in it are deletes."""
    return ChangedFile(
        remove.path,
        size=remove.size or 0,
        partitionValues=remove.partitionValues,
        stats=remove.stats,
        deletionVector=remove.deletionVector,
        change_type="delete",
    )


@dataclass(frozen=True, slots=True)
class CommitChanges:
    """The changes of one commit from an index on.

    Attributes:
        kind: Whether its files are change files or whole files.
        count: Number of its items, each of which has an index: the ``cdc`` actions if it has any, else the ``add`` and
            ``remove`` actions that change data, in line order.
        num_files: Number of files to deliver.
        num_excluded: Number of items left out by ``exclude_regex``.
        size_bytes: Size of the files to deliver.
        is_group: Whether they are delivered together or not at all, so that an update's two images, or what one
            commit did to a file, are never in two batches.
        files: Yields the files to deliver, each with its index; can be called again.
    """

    kind: FeedKind
    count: int
    num_files: int
    num_excluded: int
    size_bytes: int
    is_group: bool
    files: Callable[[], Iterable[tuple[int, ChangedFile]]]


def read_changes(
    commit: Commit, content: CommitContent, first_index: int, excluded: Excluded, storage: Storage
) -> CommitChanges:
    """Return the changes of ``commit`` from ``first_index`` on. Reads deletion vectors where files changed theirs.

    Args:
        commit: The commit.
        content: Its summary.
        first_index: Index of the first item that was not delivered before.
        excluded: The stream's exclusion.
        storage: Storage of the table.

    Raises:
        StoppedError: A removed file does not say what is needed to read it, or a deletion vector cannot be read.
        LostPositionError: The file of a deletion vector is gone.
    """
    if content.change_files:
        found = [
            (index, ChangedFile(cdc.path, size=cdc.size, partitionValues=cdc.partitionValues))
            for index, cdc in enumerate(a.cdc for a in commit.actions if a.cdc is not None)
            if index >= first_index
        ]
        return _group("change_files", content.change_files, found, excluded)
    count = content.adds + content.removes
    if any(_file(action).deletionVector is not None for action in _changing(commit.actions)):
        from airflow_provider_fds.source.vector_changes import vector_changes

        found = [
            (index, file)
            for index, file in vector_changes(commit, storage)
            if file is not None and index >= first_index
        ]
        return _group("whole_files", count, found, excluded)

    def files() -> Iterator[tuple[int, ChangedFile]]:
        for index, action in enumerate(_changing(commit.actions)):
            if index >= first_index and (excluded is None or not excluded(_file(action).path)):
                yield index, whole_file(action, commit.version, storage.uri)

    num_files = size_bytes = 0
    for _, file in files():
        num_files += 1
        size_bytes += file.size
    return CommitChanges(
        "whole_files", count, num_files, count - first_index - num_files, size_bytes, is_group=False, files=files
    )


def whole_file(action: Action, version: int, table: str) -> ChangedFile:
    """Return what an ``add`` or ``remove`` action that changes data did, if no other action has the same file.

    Raises:
        StoppedError: If a ``remove`` lacks what the protocol calls extended file metadata.
    """
    if action.add is not None:
        return inserted(action.add)
    remove = action.remove
    if remove is None:
        raise AssertionError("a change was asked of an action that is about no file")
    if remove.size is None or remove.partitionValues is None:
        lacking = " and ".join(
            name
            for name, value in (("size", remove.size), ("partitionValues", remove.partitionValues))
            if value is None
        )
        raise StoppedError(
            f"{table}: version {version} removes {remove.path} without its {lacking}, expected both "
            "(extendedFileMetadata), so the deleted rows cannot be read. The commit was not written by a writer that "
            f"records changes. The stream stops before version {version}; everything before it is delivered. "
            f"skip_versions='{version}' passes over this commit with all its changes; a new stream without "
            "read_change_feed needs no removed files",
            table=table,
            version=version,
        )
    return deleted(remove)


def has_changes(commit: Commit, content: CommitContent, excluded: Excluded, keeps: Keeps | None = None) -> bool:
    """Whether a commit that may pass holds anything for a stream of changes. Reads no deletion vector.

    Args:
        commit: The commit.
        content: Its summary.
        excluded: The stream's exclusion.
        keeps: The stream's ``partition_filter``. A file without partition values passes it: a run says what it lacks.
    """
    if excluded is None and keeps is None:
        return bool(content.change_files or content.adds or content.removes)
    files: Iterable[Add | Remove | Cdc]
    if content.change_files:
        files = (action.cdc for action in commit.actions if action.cdc is not None)
    else:
        files = (_file(action) for action in _changing(commit.actions))
    return any(
        not (excluded and excluded(file.path))
        and (keeps is None or file.partitionValues is None or keeps(file.partitionValues))
        for file in files
    )


def _group(kind: FeedKind, count: int, found: list[tuple[int, ChangedFile]], excluded: Excluded) -> CommitChanges:
    kept = [item for item in found if excluded is None or not excluded(item[1].path)]
    size_bytes = sum(file.size for _, file in kept)
    return CommitChanges(kind, count, len(kept), len(found) - len(kept), size_bytes, is_group=True, files=lambda: kept)


def _changing(actions: Iterable[Action]) -> Iterator[Action]:
    """Yield the actions that add or remove files and change data, in line order."""
    for action in actions:
        file = action.add or action.remove
        if file is not None and file.dataChange is not False:
            yield action


def _file(action: Action) -> Add | Remove:
    file = action.add or action.remove
    if file is None:
        raise AssertionError("a file was asked of an action that is about none")
    return file
