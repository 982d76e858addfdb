"""Checkpoints of the log: finds the one to start from, and reads its few actions that are not files.

Supports all forms of the protocol ("Checkpoints"): one classic file, several parts, v2 with sidecars and a Parquet or
JSON top level, and v2 content under a classic name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from airflow_provider_fds.delta.checkpoint_file import small_actions
from airflow_provider_fds.delta.listing import hinted_version
from airflow_provider_fds.delta.names import LOG_FOLDER, CheckpointName, parse_checkpoint_name

if TYPE_CHECKING:
    from collections.abc import Container

    from airflow_provider_fds.delta.actions import Metadata, Protocol, Txn
    from airflow_provider_fds.delta.checkpoint_file import OpenLog
    from airflow_provider_fds.delta.storage import Storage

#: Number of versions to look back over first, if nothing indicates the distance of the last checkpoint.
_FIRST_WINDOW: Final = 100

#: A hint further back than this is ignored: listing in windows is cheaper and may find a newer checkpoint.
_FARTHEST_HINT: Final = 2_000

#: After a window without checkpoint, an older one this many times as long is searched.
_WINDOW_GROWTH: Final = 8


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
