"""Commits of a sink as the worker reads them, for the account that the driver also makes (``batch/sink_account``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from airflow_provider_fds.batch.sink.commit_metadata import read_commit_metadata, read_write_metadata
from airflow_provider_fds.batch.sink.sink_commit import SinkCommit, texts_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from airflow_provider_fds.delta.commits import Commit
    from airflow_provider_fds.delta.reader.log import DeltaLog

#: Number of commits read first, from the newest backwards, and the most read at once; it grows fourfold each time.
_FIRST_WINDOW: Final = 4
_MOST: Final = 256


def sink_commit(commit: Commit) -> SinkCommit:
    """Return what FDS reads of a commit."""
    info = commit.info
    transactions: dict[str, int] = {}
    metadata = None
    features: tuple[str, ...] = ()
    removes_rows = False
    for action in commit.actions:
        if action.remove is not None:
            removes_rows = removes_rows or action.remove.changes_data
        elif action.txn is not None:
            transactions[action.txn.appId] = action.txn.version
        elif action.metaData is not None:
            metadata = action.metaData
        elif action.protocol is not None:
            features = tuple(action.protocol.writerFeatures or ())
    text = None if info is None else info.userMetadata
    return SinkCommit(
        version=commit.version,
        operation=(None if info is None else info.operation) or "",
        metrics=texts_of(None if info is None else info.operationMetrics),
        metadata=read_commit_metadata(text),
        transactions=transactions,
        table_id=None if metadata is None else metadata.id,
        properties=None if metadata is None else texts_of(metadata.configuration),
        features=features,
        parameters=texts_of(None if info is None else info.operationParameters),
        removes_rows=removes_rows,
        write=read_write_metadata(text),
    )


def newest_commits(
    log: DeltaLog, earliest: int, newest: int, is_enough: Callable[[SinkCommit], bool]
) -> list[SinkCommit]:
    """Return the commits from ``newest`` back to the first that is enough (inclusive), or to ``earliest``.

    Returns:
        The commits, oldest first.
    """
    found: list[SinkCommit] = []
    for commit in newest_first(log, earliest, newest):
        found.append(commit)
        if is_enough(commit):
            break
    return found[::-1]


def newest_first(log: DeltaLog, earliest: int, newest: int) -> Iterator[SinkCommit]:
    """Yield the commits from ``newest`` back to ``earliest``, both inclusive; they are read as they are asked for."""
    last, window = newest, _FIRST_WINDOW
    while last >= earliest:
        first = max(earliest, last - window + 1)
        yield from reversed([sink_commit(commit) for commit in log.commits(first, last)])
        last, window = first - 1, min(4 * window, _MOST)
