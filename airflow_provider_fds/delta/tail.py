"""The result of listing ``_delta_log``, and the errors it shows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_fds.delta.names import LOG_FOLDER, commit_name, parse_checkpoint_name, parse_commit_name
from airflow_provider_fds.errors import (
    LogGapError,
    LogRewoundError,
    LogTruncatedError,
    TornFileError,
)

if TYPE_CHECKING:
    from airflow_provider_fds.delta.storage.storage import ObjectMeta


class LogTail:
    """The commits of a listing, added one by one in ascending order; holds a few numbers, however long the listing is.

    Attributes:
        first: Version of the first commit file, or ``None`` if the log has no commits.
        newest: Version of the last commit file with content.
        hole: The first place where versions are missing: the versions before and after it.
        last_hole: The last such place.
        empty: Version of an empty commit file with later commits, so that it is not just being written.
        checkpoint: Version of the newest checkpoint file.
    """

    def __init__(self) -> None:
        self.first: int | None = None
        self.newest: int | None = None
        self.hole: tuple[int, int] | None = None
        self.last_hole: tuple[int, int] | None = None
        self.empty: int | None = None
        self.checkpoint: int | None = None
        self._previous: int | None = None
        self._previous_is_empty = False

    def see(self, item: ObjectMeta) -> bool:
        """Add the next file; return ``False`` when no commit can follow it in the listing."""
        name = item.key.rpartition("/")[2]
        if name[:1] > "9":
            # _last_checkpoint, _sidecars/, _staged_commits/ … sort after all versions
            return False
        version = parse_commit_name(name)
        if version is None:
            if (checkpoint := parse_checkpoint_name(name)) is not None:
                self.checkpoint = checkpoint.version
            return True
        if self.first is None:
            self.first = version
        if self._previous is not None:
            if version != self._previous + 1:
                self.last_hole = (self._previous, version)
                self.hole = self.hole or self.last_hole
            if self._previous_is_empty and self.empty is None:
                self.empty = self._previous
        self._previous = version
        self._previous_is_empty = item.size_bytes == 0
        if not self._previous_is_empty:
            self.newest = version
        return True


def truncated(table: str, version: int, earliest: int) -> LogTruncatedError:
    """Return the error for a version earlier than the oldest commit that is left."""
    return LogTruncatedError(
        f"version {version} of {table} was removed by log cleanup: the oldest remaining commit is version "
        f"{earliest}, so rows committed in between can no longer be read from the log. Reload the whole table "
        "(`fds rewind STREAM --to start --sink-rows keep|empty --why …`, with no start option on the stream: empty, if "
        "the sink allows it, removes its rows first; with keep, empty it yourself unless it merges), or "
        f"continue at version {earliest} without them (on_lost_position='earliest'). To prevent "
        "this, raise delta.logRetentionDuration or run the stream more often",
        table=table,
        version=version,
        earliest_version=earliest,
    )


def gap(table: str, before: int, after: int, checkpoint: int | None = None) -> LogGapError:
    """Return the error for versions that are missing between two existing ones.

    Args:
        table: URI of the table.
        before: Version before the gap.
        after: Version after it.
        checkpoint: Version of the newest checkpoint file, if known.
    """
    missing = f"version {before + 1} is" if after == before + 2 else f"versions {before + 1} to {after - 1} are"
    return LogGapError(
        f"{missing} missing from the log of {table}, which has versions {before} and {after}: expected one commit "
        f"file per version. Restore {LOG_FOLDER}/{commit_name(before + 1)}"
        + (
            f". If it cannot be restored, its rows are lost: once this stream has loaded version {before}, end it "
            "(`fds retire STREAM --why …`) and continue after the gap under another stream name, with "
            f"starting_version={after} and the same sink"
            if checkpoint is not None and checkpoint >= after - 1
            else "; without it the table cannot be read, because there is no checkpoint after the gap"
        ),
        table=table,
        version=before + 1,
        earliest_version=after,
    )


def rewound(table: str, version: int, newest: int) -> LogRewoundError:
    """Return the error for a version later than the newest one, although it was seen before."""
    return LogRewoundError(
        f"{table} no longer has version {version}: its newest version is {newest}. The table was restored from a copy, "
        "or the end of its log was removed; rows that were already read may be missing from it. Check the table; if it "
        f"is correct, `fds rewind STREAM --to {newest + 1} --sink-rows keep|delete|empty --why …` continues "
        f"after version {newest}; with --sink-rows delete, if the sink allows it, the next run removes the rows of the "
        "missing versions from it",
        table=table,
        version=version,
        earliest_version=newest,
    )


def empty_commit(table: str, version: int) -> TornFileError:
    """Return the error for a commit file without content."""
    return TornFileError(
        f"version {version} of {table} cannot be read: {LOG_FOLDER}/{commit_name(version)} is empty. Either its "
        "writer has not finished and a later attempt will succeed, or the file is damaged and must be restored",
        table=table,
        version=version,
    )
