"""Where a stream begins: resolves the start options against the log, once, before any data is read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_provider_fds.errors import ConfigurationError, LostPositionError, TableReplacedError
from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.source.offset import Offset
from airflow_provider_fds.source.planning.end import known_end

if TYPE_CHECKING:
    from airflow_provider_fds.delta.reader.log import DeltaLog, TableState
    from airflow_provider_fds.source.options.options import SourceOptions


@dataclass(frozen=True, slots=True)
class SnapshotStart:
    """The stream begins with all files of the table at ``version``, then continues with the commits after it.

    Attributes:
        version: Version of the snapshot.
        table_id: ``metaData.id`` of the table.
    """

    version: int
    table_id: str

    @property
    def offset(self) -> Offset:
        """The offset before the first file of the snapshot."""
        return Offset(self.table_id, self.version, is_initial_snapshot=True)


def resolve_start(log: DeltaLog, options: SourceOptions) -> Offset | SnapshotStart | None:
    """Resolve the start options against the current table.

    Keep the result: resolved again later, ``"latest"`` would skip what has arrived in between. A start version needs
    only its commit file, not a version whose state can still be rebuilt. A time before the oldest commit in the log
    means that commit.

    Returns:
        The base of the first version to read; a snapshot if no start, or a bounded read, was requested; ``None`` while
        no commit has reached ``starting_timestamp`` (resolve it again when there are new commits).

    Raises:
        ConfigurationError: The start version is newer than the newest or older than the oldest commit in the log, or is
            after the end of the stream; ``version_as_of`` or ``timestamp_as_of`` is later than the table's newest
            commit; or only a checkpoint is left of the version of a snapshot.
        TableNotFoundError: There is no table.
        UnsupportedFeatureError: The current table needs a reader feature that FDS does not support.
    """
    newest = log.latest()
    if options.is_bounded:
        return _snapshot_as_of(log, options, newest)
    start = _start(log, options, newest)
    _ensure_not_after_end(log, options, start, newest)
    return start


def _start(log: DeltaLog, options: SourceOptions, newest: int) -> Offset | SnapshotStart | None:
    version = options.starting_version
    if version == "latest" or (version is None and options.starting_timestamp is None):
        table_id = log.state_at(newest).metadata.id
        if version == "latest":
            return Offset(table_id, newest + 1)
        return _snapshot(log, newest, table_id, newest, "a snapshot of the newest version")
    # what lies before a commit that cannot be read is loaded
    table_id = log.newest_readable()[0].metadata.id
    if version == "earliest":
        return Offset(table_id, log.earliest())
    if version is not None:
        return Offset(table_id, _existing(log, int(version), newest))
    from airflow_provider_fds.delta.moments import parse_timestamp
    from airflow_provider_fds.delta.reader.timestamps import CommitTimestamps

    assert options.starting_timestamp is not None  # noqa: S101  # the only other start
    found = CommitTimestamps(log).at_or_after(parse_timestamp(options.starting_timestamp))
    return None if found is None else Offset(table_id, found)


def _snapshot_as_of(log: DeltaLog, options: SourceOptions, newest: int) -> SnapshotStart:
    """Resolve a bounded read as Delta's time travel does: refuse what is later than the newest commit."""
    version, given = options.version_as_of, f"version_as_of={options.version_as_of}"
    if options.timestamp_as_of is not None:
        from airflow_provider_fds.delta.moments import parse_timestamp
        from airflow_provider_fds.delta.reader.timestamps import CommitTimestamps

        given = f"timestamp_as_of={options.timestamp_as_of!r}"
        timestamp_ms = parse_timestamp(options.timestamp_as_of)
        times = CommitTimestamps(log)
        version = times.at_or_before(timestamp_ms)
        if version is None:
            earliest = log.earliest()
            raise ConfigurationError(
                f"{log.table_uri}: {given} is before the oldest remaining commit, version {earliest}. Use "
                f"version_as_of={earliest} or a later time.",
                table=log.table_uri,
                version=earliest,
                reason=Reason.START_NOT_AVAILABLE,
            )
        if times.at_or_after(timestamp_ms) is None:
            raise ConfigurationError(
                f"{log.table_uri}: {given}, which is later than the table's newest commit, version {newest}. Use an "
                "earlier time.",
                table=log.table_uri,
                version=newest,
                reason=Reason.START_NOT_AVAILABLE,
            )
    if version is None or version > newest:
        raise ConfigurationError(
            f"{log.table_uri}: {given}, but the newest version of the table is {newest}. Use {newest} or an older "
            "version.",
            table=log.table_uri,
            version=version,
            reason=Reason.START_NOT_AVAILABLE,
        )
    try:
        table_id = log.state_at(version).metadata.id
    except LostPositionError as error:
        raise ConfigurationError(
            f"{given} means version {version}, which can no longer be read: {error}",
            table=log.table_uri,
            version=version,
            reason=Reason.START_NOT_AVAILABLE,
        ) from error
    return _snapshot(log, version, table_id, newest, given)


def _snapshot(log: DeltaLog, version: int, table_id: str, newest: int, given: str) -> SnapshotStart:
    """Return the start with a version, or refuse one of which only a checkpoint is left, as Delta's time travel does.

    When it was committed, which is a column of its rows, is unknown then.
    """
    if log.probe(version):
        return SnapshotStart(version, table_id)
    if version == newest:
        way_on = "Start once the table has another commit"
    else:
        way_on = f"Use version_as_of={log.earliest()} or a later version"
    raise ConfigurationError(
        f"{log.table_uri}: {given} needs version {version}, which has a checkpoint, but its commit is gone: its "
        f"time, the _commit_timestamp of its rows, is unknown. {way_on}.",
        table=log.table_uri,
        version=version,
        reason=Reason.START_NOT_AVAILABLE,
    )


def _ensure_not_after_end(
    log: DeltaLog, options: SourceOptions, start: Offset | SnapshotStart | None, newest: int
) -> None:
    end = known_end(log, options, None)
    if end is None:
        return
    first = newest + 1 if start is None else start.version
    # two times between the same two commits are an empty range, as in Delta's batch reader
    is_between_commits = options.starting_timestamp is not None and options.ending_timestamp is not None
    if end.version >= first or is_between_commits:
        return
    if options.starting_version is not None:
        given = f"starting_version={options.starting_version!r} is version {first}"
    elif options.starting_timestamp is not None:
        given = f"starting_timestamp={options.starting_timestamp!r} is version {first} or a later one"
    else:
        given = f"without a start the stream begins with a snapshot of version {first}"
    raise ConfigurationError(
        f"{log.table_uri}: the stream ends before it starts: {given}, and {end.reason}. Choose a later end or an "
        "earlier start; both are inclusive.",
        table=log.table_uri,
        version=first,
        reason=Reason.START_NOT_AVAILABLE,
    )


def starting_state(log: DeltaLog, start: Offset) -> TableState | None:
    """Return the state to plan the first batch of a stream with: the table as it is *at* the start version.

    A stream that begins at a schema change has no earlier rows, so the change does not stop it. From its second batch
    on, the planner looks up the state before the position itself.

    Returns:
        The state; ``None`` if the start version does not exist yet or its state can no longer be rebuilt.
    """
    try:
        return log.state_at(start.version)
    except LostPositionError:
        return None


def newest_state(log: DeltaLog, target: int) -> TableState:
    """Return the state at ``target``; if it can no longer be rebuilt, that of the newest version that can be read."""
    try:
        return log.state_at(target)
    except LostPositionError:
        return log.newest_readable(target)[0]


def other_table(log: DeltaLog, start: Offset, found_id: str) -> TableReplacedError:
    """Return the error for a start whose version has another table id than the start.

    Args:
        log: Log of the table.
        start: Where the stream begins or continues.
        found_id: The table's id there.
    """
    newest = log.latest()
    if log.state_at(newest).metadata.id == start.table_id:
        # the newest metadata says what the table is; it was another one at the start
        changed = start.version
        for commit in log.commits(start.version, newest):
            if any(action.metaData is not None and action.metaData.id == start.table_id for action in commit.actions):
                changed = commit.version
                break
        return TableReplacedError(
            f"{log.table_uri}: version {start.version} has table id {found_id}, but the table has id "
            f"{start.table_id} since version {changed}: it was replaced, or a writer gave it another id. A stream "
            f"reads versions of one id. Use starting_version={changed}, or no start option to begin with all rows of "
            "the table.",
            table=log.table_uri,
            version=start.version,
        )
    return start.belongs_elsewhere(found_id, table=log.table_uri)


def _existing(log: DeltaLog, version: int, newest: int) -> int:
    if version > newest:
        raise ConfigurationError(
            f"{log.table_uri}: starting_version is {version}, but the newest version of the table is {newest}. "
            f"Use {newest} or an older version, or starting_version='latest' to read only new commits.",
            table=log.table_uri,
            version=version,
            reason=Reason.START_NOT_AVAILABLE,
        )
    earliest = log.earliest()
    if version < earliest:
        raise ConfigurationError(
            f"{log.table_uri}: starting_version is {version}, but the log begins with version {earliest}: older "
            f"commits were removed by log cleanup. Use starting_version={earliest} or 'earliest' to read the "
            "remaining commits, or omit the start to begin with all rows of the table.",
            table=log.table_uri,
            version=version,
            reason=Reason.START_NOT_AVAILABLE,
        )
    return version
