"""Whether a sink may have rows of others, which its stream does not load again, by the sink's own log.

Who requests a removal of rows asks this, and the fence that removes them asks it again. Standard library only, Python
3.9 syntax.
"""
# The driver may run Python 3.9, so the annotations stay in its syntax.
# ruff: noqa: UP035, UP045

from __future__ import annotations

from typing import TYPE_CHECKING, Iterable, Optional

from airflow_provider_fds.batch.sink.sink_commit import brings_rows

if TYPE_CHECKING:
    from airflow_provider_fds.batch.sink.sink_commit import SinkCommit


def why_shared(
    commits: Iterable[SinkCommit], earliest: int, *, path: str, stream: str, uuid: Optional[str]
) -> Optional[str]:
    """Return which commit may have brought rows of others, or that one may be missing; ``None`` if there is none.

    Args:
        commits: The sink's commits, newest first.
        earliest: The earliest version that its log still has.
        path: The sink, for the message.
        stream: Name of the stream, for the message.
        uuid: Its uuid.
    """
    for commit in commits:
        if (commit.metadata or {}).get("uuid") != uuid and brings_rows(commit):
            return (
                f"version {commit.version} of the sink {path} ({commit.operation}) was not written by stream "
                f"{stream!r}, so the sink may have rows that the stream does not load again"
            )
    if earliest == 0:
        return None
    return (
        f"the log of the sink {path} reaches back only to version {earliest}, so it does not show whether writers "
        f"other than stream {stream!r} wrote to it"
    )
