"""Checkpoints of the log: finds the one to start from, and reads its few actions that are not files.

Supports all forms of the protocol ("Checkpoints"): one classic file, several parts, v2 with sidecars and a Parquet or
JSON top level, and v2 content under a classic name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from airflow_provider_fds.delta.listing import hinted_version
from airflow_provider_fds.delta.log_checkpoint.checkpoint_file import small_actions
from airflow_provider_fds.delta.names import LOG_FOLDER, CheckpointName, parse_checkpoint_name, parse_commit_name
from airflow_provider_fds.errors import TornFileError

if TYPE_CHECKING:
    from collections.abc import Container

    from airflow_provider_fds.delta.actions import Metadata, Protocol, Txn
    from airflow_provider_fds.delta.log_checkpoint.checkpoint_file import OpenLog
    from airflow_provider_fds.delta.storage.storage import Storage

#: Number of versions to look back over first, if nothing indicates the distance of the last checkpoint.
_FIRST_WINDOW: Final = 100

#: A hint further back than this is ignored: listing in windows is cheaper and may find a newer checkpoint.
_FARTHEST_HINT: Final = 2_000

#: After a window without checkpoint, an older one this many times as long is searched.
_WINDOW_GROWTH: Final = 8

#: Number of missing parts that an error lists.
_SHOWN_PARTS: Final = 10


@dataclass(frozen=True, slots=True)
class CheckpointFiles:
    """A complete checkpoint.

    Attributes:
        version: The version whose state it holds.
        kind: The kind that its name indicates; the content of a ``"classic"`` one may be v2.
        keys: Its files relative to the table's root: the parts in order, or the one top-level file. Sidecars are named
            inside.
    """

    version: int
    kind: Literal["classic", "multipart", "v2"]
    keys: tuple[str, ...]


def find_checkpoint(log: OpenLog, version: int) -> CheckpointFiles | None:
    """Return the newest complete checkpoint of a version up to ``version``, or ``None``.

    ``_last_checkpoint`` only decides where the listing starts: if it is torn, stale, later than ``version`` or names a
    version without checkpoint, it only costs a request. Empty files and incomplete multi-part checkpoints are ignored.
    Among several checkpoints of one version the choice is Spark's: v2, then parts, then classic.

    Raises:
        TornFileError: The log begins with a later version than 0, and its only checkpoints lack parts.
    """
    hint = hinted_version(log.storage)
    seen = _Seen()
    back = version - hint if hint is not None and 0 <= version - hint <= _FARTHEST_HINT else _FIRST_WINDOW
    last = version
    while last >= 0:
        first = max(0, last - back)
        if (found := _newest_between(log.storage, first, last, seen)) is not None:
            return found
        last, back = first - 1, max(back, _FIRST_WINDOW) * _WINDOW_GROWTH
    if seen.incomplete and seen.earliest != 0:
        raise _incomplete(log.storage.uri, seen)
    return None


def checkpoint_state(log: OpenLog, checkpoint: CheckpointFiles) -> tuple[Protocol | None, Metadata | None]:
    """Return protocol and metadata in force at the checkpoint's version; ``None`` for one that it does not hold.

    Reads only these columns, and only row groups that may hold them. Raises ``TornFileError`` for a file that is not a
    checkpoint, ``LogTruncatedError`` for one that log cleanup removed in the meantime.
    """
    protocol: Protocol | None = None
    metadata: Metadata | None = None
    for key in checkpoint.keys:
        for action in small_actions(log, key, checkpoint.version, ("protocol", "metaData")):
            protocol = protocol or action.protocol
            metadata = metadata or action.metaData
            if protocol is not None and metadata is not None:
                return protocol, metadata
    return protocol, metadata


def checkpoint_transactions(log: OpenLog, checkpoint: CheckpointFiles, app_ids: Container[str]) -> dict[str, Txn]:
    """Return the transactions of ``app_ids`` that the checkpoint holds, by application id."""
    found: dict[str, Txn] = {}
    for key in checkpoint.keys:
        for action in small_actions(log, key, checkpoint.version, ("txn",)):
            if action.txn is not None and action.txn.appId in app_ids:
                found[action.txn.appId] = action.txn
    return found


class _Seen:
    """What a search for a checkpoint passes, from the newest window to the oldest.

    Attributes:
        earliest: Version of the oldest commit, ``None`` if there was none.
        incomplete: Version and number of parts of the newest checkpoint that lacks some, and those it has.
    """

    def __init__(self) -> None:
        self.earliest: int | None = None
        self.incomplete: tuple[int, int, frozenset[int]] | None = None


def _incomplete(table: str, seen: _Seen) -> TornFileError:
    assert seen.incomplete is not None  # noqa: S101  # the caller has looked
    version, parts, found = seen.incomplete
    missing = [part for part in range(1, parts + 1) if part not in found]
    shown = ", ".join(map(str, missing[:_SHOWN_PARTS])) + (", …" if len(missing) > _SHOWN_PARTS else "")
    name = f"{version:020d}.checkpoint.{missing[0]:010d}.{parts:010d}.parquet"
    begins = "no commits" if seen.earliest is None else f"no commits before version {seen.earliest}"
    return TornFileError(
        f"the log of {table} has {begins}, and its checkpoint of version {version} is incomplete: of its {parts} parts "
        f"it lacks {shown}. Restore {LOG_FOLDER}/{name} and any other missing part, or let a writer that still has "
        "them write a new checkpoint",
        table=table,
        version=version,
    )


def _newest_between(storage: Storage, first: int, last: int, seen: _Seen) -> CheckpointFiles | None:
    parts: dict[tuple[int, int], dict[int, str]] = {}
    found: list[tuple[int, int, str, CheckpointFiles]] = []
    end = f"{last + 1:020d}"
    # "-" sorts before "." and digits: every name of version `first` comes after this one
    for meta in storage.list_after(LOG_FOLDER, f"{first:020d}-"):
        name = meta.key.rpartition("/")[2]
        if name >= end:
            break
        parsed = parse_checkpoint_name(name)
        if parsed is None:
            commit = parse_commit_name(name)
            if commit is not None and (seen.earliest is None or commit < seen.earliest):
                seen.earliest = commit
            continue
        if meta.size_bytes == 0:
            continue
        if parsed.kind == "multipart":
            group = parts.setdefault((parsed.version, parsed.parts), {})
            group[parsed.part] = meta.key
            if len(group) == parsed.parts:
                keys = tuple(group[part] for part in sorted(group))
                found.append(_ranked(parsed, name, keys))
        else:
            found.append(_ranked(parsed, name, (meta.key,)))
    if not found and parts and seen.incomplete is None:
        version, number = max(parts)
        seen.incomplete = (version, number, frozenset(parts[version, number]))
    return max(found)[-1] if found else None


def _ranked(parsed: CheckpointName, name: str, keys: tuple[str, ...]) -> tuple[int, int, str, CheckpointFiles]:
    rank = ("classic", "multipart", "v2").index(parsed.kind)
    return (parsed.version, rank, name, CheckpointFiles(parsed.version, parsed.kind, keys))
