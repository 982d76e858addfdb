"""Checkpoints of the log: find the one to start from, and read the few actions of it that are not files.

All forms of the protocol ("Checkpoints"): one classic file, several parts, v2 with sidecars whose top level is
Parquet or JSON, and v2 content under a classic name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from airflow_provider_fds.delta.checkpoint_file import small_actions
from airflow_provider_fds.delta.hint import hinted_version
from airflow_provider_fds.delta.names import LOG_FOLDER, CheckpointName, parse_checkpoint_name

if TYPE_CHECKING:
    from collections.abc import Container

    from airflow_provider_fds.delta.actions import Metadata, Protocol, Txn
    from airflow_provider_fds.delta.checkpoint_file import OpenLog
    from airflow_provider_fds.delta.storage import Storage

#: Versions to look back over first, when nothing says how far the last checkpoint is away.
_FIRST_WINDOW: Final = 100

#: A hint that lies further back than this is not worth a listing from there: the windows may find a newer one.
_FARTHEST_HINT: Final = 2_000

#: Each window that holds no checkpoint is followed by an older one this many times as long.
_WINDOW_GROWTH: Final = 8


@dataclass(frozen=True, slots=True)
class CheckpointFiles:
    """A complete checkpoint.

    Attributes:
        version: The version whose state it holds.
        kind: What its name says; content of a ``"classic"`` one may be v2.
        keys: Its files relative to the table's root: the parts in order, or the one top-level file. Sidecars are
            named inside.
    """

    version: int
    kind: Literal["classic", "multipart", "v2"]
    keys: tuple[str, ...]


def find_checkpoint(log: OpenLog, version: int) -> CheckpointFiles | None:
    """Return the newest complete checkpoint of a version not above ``version``, ``None`` if there is none.

    ``_last_checkpoint`` only decides where the listing starts: one that is torn, stale, ahead of ``version`` or names
    a version without checkpoint costs a request, nothing else. Empty files and incomplete multi-part checkpoints do
    not count. Of several of one version the choice is Spark's: v2, then parts, then classic.
    """
    hint = hinted_version(log.storage)
    back = version - hint if hint is not None and 0 <= version - hint <= _FARTHEST_HINT else _FIRST_WINDOW
    last = version
    while last >= 0:
        first = max(0, last - back)
        if (found := _newest_between(log.storage, first, last)) is not None:
            return found
        last, back = first - 1, max(back, _FIRST_WINDOW) * _WINDOW_GROWTH
    return None


def checkpoint_state(log: OpenLog, checkpoint: CheckpointFiles) -> tuple[Protocol | None, Metadata | None]:
    """Return protocol and metadata in force at the checkpoint's version; ``None`` for one that it does not hold.

    Reads only these columns, and only row groups that may hold them. Raises ``TornFileError`` for a file that is no
    checkpoint, ``LogTruncatedError`` for one that log cleanup removed meanwhile.
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


def _newest_between(storage: Storage, first: int, last: int) -> CheckpointFiles | None:
    parts: dict[tuple[int, int], dict[int, str]] = {}
    found: list[tuple[int, int, str, CheckpointFiles]] = []
    end = f"{last + 1:020d}"
    # "-" sorts before "." and digits: every name of version `first` comes after this one
    for meta in storage.list_after(LOG_FOLDER, f"{first:020d}-"):
        name = meta.key.rpartition("/")[2]
        if name >= end:
            break
        parsed = parse_checkpoint_name(name)
        if parsed is None or meta.size_bytes == 0:
            continue
        if parsed.kind == "multipart":
            group = parts.setdefault((parsed.version, parsed.parts), {})
            group[parsed.part] = meta.key
            if len(group) == parsed.parts:
                keys = tuple(group[part] for part in sorted(group))
                found.append(_ranked(parsed, name, keys))
        else:
            found.append(_ranked(parsed, name, (meta.key,)))
    return max(found)[-1] if found else None


def _ranked(parsed: CheckpointName, name: str, keys: tuple[str, ...]) -> tuple[int, int, str, CheckpointFiles]:
    rank = ("classic", "multipart", "v2").index(parsed.kind)
    return (parsed.version, rank, name, CheckpointFiles(parsed.version, parsed.kind, keys))
