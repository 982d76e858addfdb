"""When a version was committed (Delta protocol, "In-Commit Timestamps"; Delta's ``DeltaHistoryManager``).

With in-commit timestamps, the commit records the time. Without, it is the modification time of the commit file, made
strictly increasing: a time that is not later than that of the previous version counts as one millisecond later.
``commitInfo.timestamp`` is never used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from airflow_provider_fds.delta.damage import describe
from airflow_provider_fds.delta.listing import name_before
from airflow_provider_fds.delta.names import LOG_FOLDER, parse_commit_name
from airflow_provider_fds.errors import StoppedError, TornFileError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_provider_fds.delta.actions import Metadata
    from airflow_provider_fds.delta.commits import Commit
    from airflow_provider_fds.delta.reader.log import DeltaLog, TableState

#: How many versions before a commit can push its time forward. Delta's ``_commit_timestamp`` looks 100 versions back
#: (``DeltaHistoryManager.POTENTIALLY_UNMONOTONIZED_TIMESTAMPS``); its search by time makes times increase in chunks of
#: 1,000. Without a bound, each plan would list the whole log. A search here makes them increase from the oldest commit
#: on.
_LOOK_BACK_VERSIONS: Final = 1000

#: The range of Spark's timestamps with a four-digit year.
_EARLIEST_MS: Final = -30_610_224_000_000
_LATEST_MS: Final = 253_402_300_799_999


class CommitTimestamps:
    """Commit times of one table, in milliseconds since the epoch, UTC.

    Keeps the time of the last requested version, so that requests in ascending order list the log once, from at most
    1,000 versions before the first one.
    """

    def __init__(self, log: DeltaLog) -> None:
        self._log = log
        self._last: tuple[int, int] | None = None

    def of(self, commit: Commit, metadata: Metadata) -> int:
        """Return the time of ``commit``.

        Args:
            commit: The commit.
            metadata: The metadata in force at its version, including its own.

        Raises:
            TornFileError: The table has in-commit timestamps, but the commit lacks one.
        """
        enabled = self._enablement(metadata, commit.version)
        if enabled is not None and commit.version >= enabled[0]:
            return self._in_commit(commit)
        if self._last is None or self._last[0] not in (commit.version, commit.version - 1):
            self._last = self._before(commit.version)
        if self._last is None:
            self._last = (commit.version, commit.modified_ms)
        elif self._last[0] != commit.version:
            self._last = (commit.version, max(commit.modified_ms, self._last[1] + 1))
        self._check("modification time", self._last[1], commit.version)
        return self._last[1]

    def at_or_after(self, timestamp_ms: int) -> int | None:
        """Return the first version whose time is not before ``timestamp_ms``; ``None`` if even the newest is earlier.

        A time before the oldest remaining commit gives that commit.

        Raises:
            UnsupportedFeatureError: All versions that FDS can read are earlier, and only the others know their times.
            TornFileError: The same, of a damaged commit.
        """
        newest, error = self._log.newest_readable()
        found = self._search(timestamp_ms, newest)
        if found is None:
            return self._log.earliest()
        version, at_ms = found
        if at_ms == timestamp_ms:
            return version
        if version < newest.version:
            return version + 1
        if error is not None:
            raise error
        return None

    def at_or_before(self, timestamp_ms: int) -> int | None:
        """Return the last version whose time is not after ``timestamp_ms``; ``None`` if all that remain are later.

        Versions that FDS cannot read do not count.
        """
        return self.last_until(timestamp_ms)[0]

    def last_until(self, timestamp_ms: int) -> tuple[int | None, bool]:
        """Return the version of :meth:`at_or_before`, and whether a later version shows that it stays that one."""
        newest, _ = self._log.newest_readable()
        found = self._search(timestamp_ms, newest)
        return (None, True) if found is None else (found[0], found[0] < newest.version)

    def _search(self, timestamp_ms: int, state: TableState) -> tuple[int, int] | None:
        """Return the last version up to ``state`` whose time is not after ``timestamp_ms``, and its time."""
        newest = state.version
        enabled = self._enablement(state.metadata, newest)
        if enabled is None:
            return self._search_files(timestamp_ms, newest)
        enabled_version, enabled_ms = enabled
        earliest = self._log.earliest()
        if enabled_version <= earliest or timestamp_ms >= enabled_ms:
            return self._search_commits(timestamp_ms, max(enabled_version, earliest), newest)
        return self._search_files(timestamp_ms, enabled_version - 1)

    def _search_files(self, timestamp_ms: int, last: int) -> tuple[int, int] | None:
        found: tuple[int, int] | None = None
        for version, at_ms in self._rising(None, last):
            if at_ms > timestamp_ms:
                break
            found = (version, at_ms)
        return found

    def _search_commits(self, timestamp_ms: int, first: int, last: int) -> tuple[int, int] | None:
        # the protocol guarantees that in-commit timestamps increase
        found: tuple[int, int] | None = None
        while first <= last:
            middle = (first + last) // 2
            at_ms = self._in_commit(self._log.commit(middle))
            if at_ms <= timestamp_ms:
                found = (middle, at_ms)
                first = middle + 1
            else:
                last = middle - 1
        return found

    def _before(self, version: int) -> tuple[int, int] | None:
        found: tuple[int, int] | None = None
        for found in self._rising(version - _LOOK_BACK_VERSIONS, version - 1):  # noqa: B007 - the last one is wanted
            pass
        return found

    def _rising(self, first: int | None, last: int) -> Iterator[tuple[int, int]]:
        """Yield the versions up to ``last`` (inclusive) with their file times, made strictly increasing."""
        previous: int | None = None
        for item in self._log.storage.list_after(LOG_FOLDER, name_before(first)):
            name = item.key.rpartition("/")[2]
            version = parse_commit_name(name)
            if version is None:
                if name[:1] > "9":
                    return
                continue
            if version > last:
                return
            previous = item.modified_ms if previous is None else max(item.modified_ms, previous + 1)
            yield version, previous

    def _in_commit(self, commit: Commit) -> int:
        info = commit.info
        if info is None or info.inCommitTimestamp is None:
            raise TornFileError(
                f"version {commit.version} of {self._log.table_uri} has no inCommitTimestamp in its commitInfo, "
                "although the table has in-commit timestamps: the commit file is damaged, or its writer does not "
                "support the feature",
                table=self._log.table_uri,
                version=commit.version,
            )
        self._check("inCommitTimestamp", info.inCommitTimestamp, commit.version)
        return info.inCommitTimestamp

    def _enablement(self, metadata: Metadata, version: int) -> tuple[int, int] | None:
        try:
            return _enablement(metadata)
        except ValueError as error:
            raise StoppedError(
                f"{self._log.table_uri}: the properties delta.inCommitTimestampEnablementVersion and …Timestamp "
                f"at version {version} are not numbers ({describe(error)}), so the times of commits are unknown. "
                "Restore the table's properties",
                table=self._log.table_uri,
                version=version,
            ) from error

    def _check(self, what: str, at_ms: int, version: int) -> None:
        if not _EARLIEST_MS <= at_ms <= _LATEST_MS:
            raise TornFileError(
                f"version {version} of {self._log.table_uri} has the {what} {at_ms}, expected milliseconds "
                "between the years 1000 and 9999: the commit file is damaged, or its writer's clock is wrong",
                table=self._log.table_uri,
                version=version,
            )


def has_commit_times(metadata: Metadata) -> bool:
    """Whether the commits of the table have in-commit timestamps."""
    return (metadata.property("delta.enableInCommitTimestamps") or "").lower() == "true"


def _enablement(metadata: Metadata) -> tuple[int, int] | None:
    """Return the version and time since which commits record their time, or ``None`` if they do not."""
    if not has_commit_times(metadata):
        return None
    version = metadata.property("delta.inCommitTimestampEnablementVersion")
    at_ms = metadata.property("delta.inCommitTimestampEnablementTimestamp")
    # without the properties: enabled since version 0
    return (int(version), int(at_ms)) if version is not None and at_ms is not None else (0, 0)
