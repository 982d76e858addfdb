"""Lists ``_delta_log``: where to begin, the existing commits, and the reason why one is missing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import msgspec

from airflow_provider_fds.delta import tail as tails
from airflow_provider_fds.delta.damage import DAMAGE, MAX_INT64
from airflow_provider_fds.delta.names import (
    LAST_CHECKPOINT,
    LOG_FOLDER,
    commit_name,
    parse_checkpoint_name,
    parse_commit_name,
)
from airflow_provider_fds.delta.storage.local import LocalStorage
from airflow_provider_fds.delta.tail import LogTail
from airflow_provider_fds.errors import StorageError, TableNotFoundError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_provider_fds.delta.storage.storage import ObjectMeta, Storage
    from airflow_provider_fds.errors import FdsError


class _LastCheckpoint(msgspec.Struct):
    version: Annotated[int, msgspec.Meta(ge=0, le=MAX_INT64)]


_DECODER: Final = msgspec.json.Decoder(_LastCheckpoint)


def hinted_version(storage: Storage) -> int | None:
    """Return the version that ``_last_checkpoint`` names, or ``None`` if that file is missing or cannot be read.

    It only decides where a listing starts: if it is torn or wrong, it only costs a request.
    """
    try:
        return _DECODER.decode(storage.get(LAST_CHECKPOINT)[0]).version
    except (FileNotFoundError, *DAMAGE):
        return None


def name_before(version: int | None) -> str | None:
    """Return the name after which to list so that ``version`` itself comes first; ``None`` lists everything."""
    return None if version is None or version <= 0 else commit_name(version - 1)


def listed(storage: Storage, first: int, last: int) -> Iterator[ObjectMeta]:
    """Yield the metadata of the commit files from ``first`` to ``last``, both inclusive.

    Raises the error of :func:`missing` when it reaches a version that does not exist.
    """
    expected = first
    # a hole is checked twice: a listing may be older than a HEAD
    for _ in range(2):
        if expected > last:
            return
        for item in storage.list_after(LOG_FOLDER, name_before(expected)):
            name = item.key.rpartition("/")[2]
            version = parse_commit_name(name)
            if version is None and name[:1] <= "9":
                continue
            if version != expected:
                break
            yield item
            expected += 1
            if expected > last:
                return
    raise missing(storage, expected)


def list_tail(storage: Storage, known: int | None) -> LogTail:
    """List the log from ``known`` on; once more if there is a hole, since a listing may be stale."""
    tail = LogTail()
    for _ in range(2):
        tail = LogTail()
        for item in storage.list_after(LOG_FOLDER, name_before(known)):
            if not tail.see(item):
                break
        if tail.hole is None:
            break
    return tail


def missing(storage: Storage, version: int) -> FdsError:
    """Return the error that explains why the commit of ``version`` is missing, from a listing of the whole log."""
    before: int | None = None
    checkpoint: int | None = None
    items = iter(storage.list_after(LOG_FOLDER))
    for item in items:
        found = parse_commit_name(item.key.rpartition("/")[2])
        if found is None:
            # that of a version sorts before its commit
            checkpoint = _checkpoint_version(item) or checkpoint
            continue
        if found < version:
            before = found
        elif found == version:
            return StorageError(
                f"version {version} of {storage.uri} was not found, but a later listing contains it: the storage "
                "gives inconsistent answers. Try again",
                table=storage.uri,
                version=version,
            )
        elif before is None:
            return tails.truncated(storage.uri, version, found)
        else:
            for other in items:
                checkpoint = _checkpoint_version(other) or checkpoint
            return tails.gap(storage.uri, before, found, checkpoint)
    return not_found(storage) if before is None else tails.rewound(storage.uri, version, before)


def _checkpoint_version(item: ObjectMeta) -> int | None:
    found = parse_checkpoint_name(item.key.rpartition("/")[2])
    return None if found is None else found.version


def not_found(storage: Storage) -> TableNotFoundError:
    """Return the error for a location without a log, which says what is there instead."""
    in_log = next(iter(storage.list_after(LOG_FOLDER)), None)
    if in_log is not None:
        found = f"its {LOG_FOLDER} has no commits, only files such as {in_log.key!r}"
    elif (in_root := next(iter(storage.list_after("")), None)) is not None:
        found = f"the folder has files such as {in_root.key!r}, but no commits in {LOG_FOLDER}"
    elif isinstance(storage, LocalStorage) and storage.root.exists():
        found = f"the folder exists, but it has no commits in {LOG_FOLDER}"
    else:
        found = "nothing exists there"
    return TableNotFoundError(
        f"no Delta table at {storage.uri}: {found}; expected {LOG_FOLDER}/{commit_name(0)} or later versions. "
        "Check the path, and that the credentials allow listing it",
        table=storage.uri,
    )
