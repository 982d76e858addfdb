"""Files of the change data feed: the effect of an ``add`` or a ``remove`` on the rows of its file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_fds.errors import StoppedError
from airflow_provider_fds.source.planned import ChangedFile

if TYPE_CHECKING:
    from airflow_provider_fds.delta.actions import Action, Add, Remove


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
    """Return a removed file; its remaining rows are deletes."""
    return ChangedFile(
        remove.path,
        size=remove.size or 0,
        partitionValues=remove.partitionValues,
        stats=remove.stats,
        deletionVector=remove.deletionVector,
        change_type="delete",
    )


def whole_file(action: Action, version: int, table: str) -> ChangedFile:
    """Return the effect of an ``add`` or ``remove`` action that changes data, if no other action has the same file.

    Raises:
        StoppedError: A ``remove`` lacks what the protocol calls extended file metadata.
    """
    if action.add is not None:
        return inserted(action.add)
    remove = action.remove
    if remove is None:
        raise AssertionError("the change of an action without a file was requested")
    if remove.size is None or remove.partitionValues is None:
        lacking = " and ".join(
            name
            for name, value in (("size", remove.size), ("partitionValues", remove.partitionValues))
            if value is None
        )
        raise StoppedError(
            f"{table}: version {version} removes {remove.path} without its {lacking} (extendedFileMetadata "
            "requires both), so the deleted rows cannot be read. The stream "
            f"stops before version {version}; everything before it is delivered. skip_versions='{version}' skips "
            "this commit with all its changes; a new stream without read_change_feed does not need removed files",
            table=table,
            version=version,
        )
    return deleted(remove)
