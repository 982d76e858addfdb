"""The table's state at a version from checkpoint and commits (protocol, "Action Reconciliation").

The commits after the checkpoint are read from the newest to the oldest. What they say about a file is final, so a file
is live if its first mention is an ``add``, and rows of the checkpoint count only for files that were never mentioned.
Memory grows with the files mentioned after the checkpoint (about 200 bytes each), not with the files of the table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from airflow_provider_fds.delta.log_checkpoint.add_rows import file_key, file_keys, rows_from_adds, with_root
from airflow_provider_fds.delta.log_checkpoint.checkpoint_file import add_rows, sidecar_keys
from airflow_provider_fds.delta.log_checkpoint.checkpoints import (
    CheckpointFiles,
    checkpoint_transactions,
    find_checkpoint,
)
from airflow_provider_fds.delta.names import commit_key
from airflow_provider_fds.delta.paths import root_of
from airflow_provider_fds.delta.reader.ordering import in_order
from airflow_provider_fds.delta.reader.repeats import Repeats
from airflow_provider_fds.errors import LogTruncatedError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    import pyarrow as pa

    from airflow_provider_fds.delta.actions import Add
    from airflow_provider_fds.delta.commits import Commit
    from airflow_provider_fds.delta.reader.log import DeltaLog

#: Commits are read forward, as storage prefetches them, in windows of this size; each window is processed backward.
_WINDOW_BYTES: Final = 16 << 20
_WINDOW_COMMITS: Final = 64

_ADDS_PER_BATCH: Final = 4_096


def live_rows(log: DeltaLog, version: int, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield the live files of ``version`` in no particular order, as rows with ``columns`` and ``vectorId``.

    ``columns`` must contain ``path`` and ``deletionVector``. Raises ``LogTruncatedError`` if neither checkpoint nor
    commits reach back far enough, ``LogGapError`` if a commit after the checkpoint is missing.
    """
    checkpoint = _base(log, version)
    mentioned: set[str] = set()
    yield from _tail_rows(log, _first_of_tail(checkpoint), version, columns, mentioned)
    if checkpoint is not None:
        yield from _checkpoint_rows(log, checkpoint, columns, mentioned)


def files_in_order(log: DeltaLog, version: int, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield the live files of ``version`` by :data:`~airflow_provider_fds.delta.reader.ordering.ORDER`, each file once.

    Arguments and errors are those of :func:`live_rows`. Memory grows by eight bytes with each file of the table.
    """
    repeats = Repeats()
    for batch in in_order(repeats.watched(live_rows(log, version, columns))):
        yield repeats.once(batch)


def transactions(log: DeltaLog, version: int, app_ids: Collection[str]) -> dict[str, int]:
    """Return the newest transaction version of each of ``app_ids`` in the table's state at ``version``.

    An id without a transaction is omitted. A table with ``delta.setTransactionRetentionDuration`` forgets old
    transactions when it writes a checkpoint; those are omitted too. Raises what :func:`live_rows` raises.
    """
    missing = set(app_ids)
    if not missing:
        return {}
    checkpoint = _base(log, version)
    found: dict[str, int] = {}
    for commit in _newest_first(log, _first_of_tail(checkpoint), version):
        for action in commit.actions:
            if action.txn is not None and action.txn.appId in missing:
                missing.remove(action.txn.appId)
                found[action.txn.appId] = action.txn.version
        if not missing:
            return found
    if checkpoint is not None:
        found |= {txn.appId: txn.version for txn in checkpoint_transactions(log, checkpoint, missing).values()}
    return found


def transactions_with(log: DeltaLog, version: int, prefix: str) -> dict[str, int]:
    """Return the newest transaction version of each application id that begins with ``prefix``, at ``version``.

    See :func:`transactions`. Reads the commits since the newest log checkpoint, and only the transactions of that
    checkpoint.
    """
    checkpoint = _base(log, version)
    found: dict[str, int] = {}
    if checkpoint is not None:
        held = checkpoint_transactions(log, checkpoint, _Beginning(prefix))
        found = {app_id: txn.version for app_id, txn in held.items()}
    first = _first_of_tail(checkpoint)
    for commit in log.commits(first, version) if first <= version else ():
        for action in commit.actions:
            if action.txn is not None and action.txn.appId.startswith(prefix):
                found[action.txn.appId] = action.txn.version
    return found


class _Beginning:
    """All strings that begin with ``prefix``."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix

    def __contains__(self, text: object) -> bool:
        return isinstance(text, str) and text.startswith(self._prefix)


def _base(log: DeltaLog, version: int) -> CheckpointFiles | None:
    checkpoint = find_checkpoint(log, version)
    if checkpoint is None and log.storage.head(commit_key(0)) is None:
        raise LogTruncatedError(
            f"{log.table_uri}: the state of version {version} cannot be read. Log cleanup removed the commits from "
            f"version 0 on, and there is no complete checkpoint at or before version {version}. Read a newer version",
            table=log.table_uri,
            version=version,
        )
    return checkpoint


def _first_of_tail(checkpoint: CheckpointFiles | None) -> int:
    return 0 if checkpoint is None else checkpoint.version + 1


def _newest_first(log: DeltaLog, first: int, last: int) -> Iterator[Commit]:
    if first > last:
        return
    window: list[int] = []
    size = 0
    sizes = [meta.size_bytes for meta in log.list_commits(first, last)]
    for version in range(last, first - 1, -1):
        here = sizes[version - first]
        if window and (len(window) == _WINDOW_COMMITS or size + here > _WINDOW_BYTES):
            yield from reversed(list(log.commits(window[-1], window[0])))
            window, size = [], 0
        window.append(version)
        size += here
    yield from reversed(list(log.commits(window[-1], window[0])))


def _tail_rows(
    log: DeltaLog, first: int, last: int, columns: Sequence[str], mentioned: set[str]
) -> Iterator[pa.RecordBatch]:
    live: list[Add] = []
    root = root_of(log.table_uri)
    for commit in _newest_first(log, first, last):
        for action in commit.actions:
            file = action.add or action.remove
            if file is None:
                continue
            path = file.path if file.path[:1] != "/" else root + file.path
            key = file_key(path, file.deletionVector)
            if key in mentioned:
                continue
            mentioned.add(key)
            if action.add is not None:
                live.append(action.add)
                if len(live) == _ADDS_PER_BATCH:
                    yield with_root(rows_from_adds(live, columns), root)
                    live = []
    if live:
        yield with_root(rows_from_adds(live, columns), root)


def _checkpoint_rows(
    log: DeltaLog, checkpoint: CheckpointFiles, columns: Sequence[str], mentioned: set[str]
) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa
    import pyarrow.compute as pc

    overridden = pa.array(mentioned, pa.string())
    root = root_of(log.table_uri)
    sidecars: tuple[str, ...] = ()
    if checkpoint.kind != "multipart":
        sidecars = sidecar_keys(log, checkpoint.keys[0], checkpoint.version)
    for key in (*checkpoint.keys, *sidecars):
        for rows in add_rows(log, key, checkpoint.version, columns):
            live = batch = with_root(rows, root)
            if mentioned:
                is_overridden = pc.is_in(file_keys(batch), value_set=overridden)
                # most batches have none, and filtering copies the whole batch
                if is_overridden.true_count:
                    live = batch.filter(pc.invert(is_overridden))
            if live.num_rows:
                yield live
