"""Where a stream ends: the last version to read, once it is finally known."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from airflow_provider_fds.delta.reader.log import DeltaLog
    from airflow_provider_fds.source.offset import Offset
    from airflow_provider_fds.source.options.options import SourceOptions


class StreamEnd(NamedTuple):
    """The last version that a stream reads.

    Attributes:
        version: That version (inclusive); less than the oldest commit if the stream has nothing to read.
        reason: The option that sets it, ``"ending_version=7"``.
        is_a_commit: Whether the version was found in the log as an existing one.
        is_of_log: Whether the table's log decided it, so that it is another one in another table.
    """

    version: int
    reason: str
    is_a_commit: bool = False
    is_of_log: bool = False

    def is_reached(self, position: Offset) -> bool:
        """Whether everything up to the end is before ``position``. An initial snapshot is always read whole."""
        return position.version > self.version and not position.is_initial_snapshot

    def target(self, position: Offset, newest: int) -> int:
        """Return the last version to plan (inclusive) for a stream at ``position``."""
        return min(newest, max(self.version, position.version) if position.is_initial_snapshot else self.version)

    def describe(self, name: str, table: str) -> str:
        """Return a sentence that a stream has reached this end."""
        return f"Stream {name!r} is finished: {self.reason}, and everything in table {table} up to there is committed."


def ending_at(timestamp: str, version: int) -> StreamEnd:
    """Return the end of a stream whose ``ending_timestamp`` resolves to a version."""
    return StreamEnd(version, f"ending_timestamp={timestamp!r} means version {version}", is_a_commit=True)


def known_end(log: DeltaLog, options: SourceOptions, position: Offset | None) -> StreamEnd | None:
    """Return where the stream ends, or ``None`` if it has no end or the end is not known yet.

    ``ending_version`` does not need the table, which may be gone when the stream is finished. ``ending_timestamp``
    means the last commit at or before it (Delta's ``endingTimestamp``), which is known once FDS can read a later
    commit. A bounded read ends with its snapshot, that is, where ``position`` has left it.

    Args:
        log: The table's log.
        options: The stream's options.
        position: The stream's position, or ``None`` before it is open.
    """
    if options.ending_version is not None:
        return StreamEnd(options.ending_version, f"ending_version={options.ending_version}")
    if options.ending_timestamp is not None:
        from airflow_provider_fds.delta.moments import parse_timestamp
        from airflow_provider_fds.delta.reader.timestamps import CommitTimestamps

        found, is_last = CommitTimestamps(log).last_until(parse_timestamp(options.ending_timestamp))
        if found is None:
            reason = f"ending_timestamp={options.ending_timestamp!r} is before the oldest commit"
            return StreamEnd(log.earliest() - 1, reason, is_of_log=True)
        return ending_at(options.ending_timestamp, found)._replace(is_of_log=True) if is_last else None
    if options.is_bounded and position is not None:
        version = position.version if position.is_initial_snapshot else position.version - 1
        option = "version_as_of" if options.version_as_of is not None else "timestamp_as_of"
        return StreamEnd(version, f"{option} means version {version}")
    return None
