"""Change data feed: which rows a commit inserted, deleted and updated, as files.

A commit records changes in one of two ways. *Change files* (``cdc`` actions) hold the changed rows, each with its
``_change_type``; if a commit has any, only they are read. Otherwise *whole files* represent the changes: the rows of an
added file are inserts, those of a removed file are deletes. Source of the rules: ``DeltaSourceCDCSupport`` and
``CDCReader`` of delta-spark 4.4, and "Add CDC File" in the Delta protocol.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from airflow_provider_fds.source.changes.changed_files import inserted, whole_file
from airflow_provider_fds.source.changes.vector_changes import vector_changes
from airflow_provider_fds.source.planned import ChangedFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import TypeAlias

    from airflow_provider_fds.delta.actions import Action, Add, Cdc, Remove
    from airflow_provider_fds.delta.commits import Commit
    from airflow_provider_fds.delta.storage.storage import Storage
    from airflow_provider_fds.source.changes.classify import CommitContent
    from airflow_provider_fds.source.planned import FeedKind

    #: Returns whether ``exclude_regex`` excludes a logged path; ``None``: nothing is excluded.
    Excluded: TypeAlias = Callable[[str], object] | None


def as_inserts(files: Iterable[tuple[int, Add]], excluded: Excluded) -> Iterator[tuple[int, ChangedFile]]:
    """Yield the files of an initial snapshot as inserts, except the excluded ones."""
    for index, add in files:
        if excluded is None or not excluded(add.path):
            yield index, inserted(add)


@dataclass(frozen=True, slots=True)
class CommitChanges:
    """The changes of one commit from an index on.

    Attributes:
        kind: Whether its files are change files or whole files.
        count: Number of its items, each of which has an index: the ``cdc`` actions if it has any, else the ``add`` and
            ``remove`` actions that change data, in line order.
        num_files: Number of files to deliver.
        num_excluded: Number of items excluded by ``exclude_regex``.
        is_group: Whether they are delivered together or not at all, so that an update's two images, or the effects of
            one commit on a file, are never in two batches; for a sink that decides per key also its effects on a key.
        files: Yields the files to deliver, each with its index; can be called repeatedly.
    """

    kind: FeedKind
    count: int
    num_files: int
    num_excluded: int
    is_group: bool
    files: Callable[[], Iterable[tuple[int, ChangedFile]]]

    def passing(
        self, passes: Callable[[Iterable[tuple[int, ChangedFile]]], Iterable[tuple[int, ChangedFile]]]
    ) -> CommitChanges:
        """Return those of the files that pass a filter."""
        return replace(self, num_files=sum(1 for _ in passes(self.files())), files=lambda: passes(self.files()))


def read_changes(
    commit: Commit,
    content: CommitContent,
    first_index: int,
    excluded: Excluded,
    storage: Storage,
    *,
    keeps_replaced_rows: bool = False,
) -> CommitChanges:
    """Return the changes of ``commit`` from ``first_index`` on. Reads deletion vectors if files changed theirs.

    Args:
        commit: The commit.
        content: Its summary.
        first_index: Index of the first item that was not delivered before.
        excluded: The stream's exclusion.
        storage: Storage of the table.
        keeps_replaced_rows: Whether a commit that both adds and removes rows is a group too.

    Raises:
        StoppedError: A removed file lacks the metadata needed to read it, or a deletion vector cannot be read.
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

    num_files = sum(1 for _ in files())
    is_group = keeps_replaced_rows and content.replaces_rows
    num_excluded = count - first_index - num_files
    return CommitChanges("whole_files", count, num_files, num_excluded, is_group, files)


def files_of_changes(commit: Commit, content: CommitContent) -> Iterator[Add | Remove | Cdc]:
    """Yield the files that hold the changes of a commit that may pass. Reads no deletion vector.

    Args:
        commit: The commit.
        content: Its summary.
    """
    if content.change_files:
        return (action.cdc for action in commit.actions if action.cdc is not None)
    return (_file(action) for action in _changing(commit.actions))


def _group(kind: FeedKind, count: int, found: list[tuple[int, ChangedFile]], excluded: Excluded) -> CommitChanges:
    kept = [item for item in found if excluded is None or not excluded(item[1].path)]
    return CommitChanges(kind, count, len(kept), len(found) - len(kept), is_group=True, files=lambda: kept)


def _changing(actions: Iterable[Action]) -> Iterator[Action]:
    """Yield the actions that add or remove files and change data, in line order."""
    for action in actions:
        file = action.add or action.remove
        if file is not None and file.dataChange is not False:
            yield action


def _file(action: Action) -> Add | Remove:
    file = action.add or action.remove
    if file is None:
        raise AssertionError("the file of an action without a file was requested")
    return file
