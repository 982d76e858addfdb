"""Positions that the log no longer reaches back to, or soon will not (``on_lost_position``)."""

from __future__ import annotations

import logging
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from airflow_provider_fds.batch.version_ranges import describe_range
from airflow_provider_fds.delta.names import commit_key
from airflow_provider_fds.delta.retention import FILE_RETENTION, LOG_RETENTION, retention
from airflow_provider_fds.durations import format_duration
from airflow_provider_fds.errors import FdsError, LogGapError, LogTruncatedError, TornFileError
from airflow_provider_fds.ledger.entries.plan_entries import Advanced
from airflow_provider_fds.ledger.values import Skipped
from airflow_provider_fds.source.offset import Offset
from airflow_provider_fds.stream.position.source_unchanged import check_last_commit, check_position, check_table

if TYPE_CHECKING:
    from airflow_provider_fds.delta.reader.log import DeltaLog
    from airflow_provider_fds.ledger.owner import Owner
    from airflow_provider_fds.ledger.state import StreamState
    from airflow_provider_fds.stream.connected_stream import ConnectedStream

logger = logging.getLogger(__name__)

#: Warn if the oldest version still to be read is older than this share of the table's retention.
WARNING_SHARE: Final = 0.5
#: A version younger than this is not examined: no table is cleaned up that soon.
_YOUNG: Final = timedelta(hours=1)


def nearly_lost(log: DeltaLog, version: int, newest: int) -> str | None:
    """Return a warning if the oldest version to read will soon be gone, else ``None``; one HEAD for a young version.

    A version is at risk when it is older than half of ``delta.logRetentionDuration`` (its commit will be removed) or of
    ``delta.deletedFileRetentionDuration`` (files removed since then will be deleted).

    Args:
        log: The table's log.
        version: Oldest version that is not committed.
        newest: Newest version of the table.
    """
    if version > newest:
        return None
    try:
        age = age_of(log, version)
        if age is None or age <= _YOUNG:
            return None
        kept = _kept(log, newest)
    except FdsError:
        # whoever reads the log reports this
        return None
    short = {name: length for name, length in kept.items() if age > length * WARNING_SHARE}
    if not short:
        return None
    words = " and ".join(f"{name} is {format_duration(length)}" for name, length in short.items())
    return (
        f"{log.table_uri}: version {version}, the oldest unread version, is {format_duration(age)} old, and {words}: "
        "its files may be removed soon. Run the stream more often, or raise the property"
    )


def age_of(log: DeltaLog, version: int) -> timedelta | None:
    """Return how long ago a version was committed, by its file's time; ``None`` if the file is gone. One HEAD."""
    commit = log.storage.head(commit_key(version))
    return None if commit is None else timedelta(seconds=max(0.0, time.time() - commit.modified_ms / 1000))


def retention_left(log: DeltaLog, age: timedelta, newest: int) -> timedelta:
    """Return for how long the files of an unread version are safe from log cleanup and VACUUM; zero if no longer.

    Args:
        log: The table's log.
        age: How long ago the version was committed.
        newest: Newest version of the table, whose properties apply.
    """
    return max(timedelta(), min(_kept(log, newest).values()) - age)


def _kept(log: DeltaLog, newest: int) -> dict[str, timedelta]:
    metadata = log.state_at(newest).metadata
    return {kind[0]: retention(metadata, kind) for kind in (LOG_RETENTION, FILE_RETENTION)}


def oldest_commit(position: Offset) -> int:
    """Return the oldest version whose commit must still be read; a frozen snapshot no longer needs its own commit."""
    return position.version + 1 if position.is_initial_snapshot else position.version


def newest_from_position(connected: ConnectedStream, state: StreamState, owner: Owner) -> tuple[StreamState, int]:
    """Return the state to plan from and the newest version, after moving past versions that log cleanup removed.

    This happens only if the log was cleaned up past the position, with ``on_lost_position="earliest"`` or if a person
    skipped all lost versions. The ledger then gets an entry that names them. The epoch stays the same, as the position
    moves forward: anything an old attempt may still write is before it and ordered by its transaction.

    Raises:
        LostPositionError: As :func:`~.source_unchanged.check_position`, but a version after the position is missing
            only once the stream is there; with ``"earliest"``, the table is another one, or it is older than the
            position.
    """
    assert state.position is not None  # noqa: S101  # an open epoch has a position
    position = Offset.from_json(state.position)
    try:
        return state, check_position(connected.log, state)
    except (LogGapError, TornFileError) as error:
        if error.version is None or error.version <= position.version:
            raise
        # what lies before the damage is loaded first; the next run reports it
        check_last_commit(connected.log, state, position)
        return state, error.version - 1
    except LogTruncatedError as error:
        allowed = _allowed_by(connected, state)
        if allowed is None:
            raise
        allowed_by, earliest = allowed
        if state.sink is not None and state.sink.merges:
            stays = "" if state.sink.can_remove_rows else "; a row whose key it does not have stays until you delete it"
            raise LogTruncatedError(
                f"version {error.version} of {connected.log.table_uri} was removed by log cleanup: the oldest "
                f"remaining commit is version {error.earliest_version}. {allowed_by} does not apply "
                "to a sink that merges, because the updates and deletes of the removed versions would be missing "
                f"from the sink {state.sink.target} without a trace. Load the current table instead: `fds rewind "
                f"{state.name}{state.sink.all_rows_option} --to start --why …` without a start option on the "
                f"stream{stays}",
                table=connected.log.table_uri,
                version=error.version,
                earliest_version=error.earliest_version,
            ) from error
        lost = error
    from airflow_provider_fds.source.planned import range_digest

    log = connected.log
    # log cleanup may go on meanwhile: nobody has skipped what it removes now
    earliest = log.earliest() if earliest is None else earliest
    newest = log.verify_position(earliest)
    check_table(log, position)
    reason = (
        f"{allowed_by}: {_versions(position.version, earliest - 1)} removed by log cleanup before "
        "the stream had read them, so their rows are not in the sink"
    )
    logger.warning("stream %s: %s (%s)", state.name, reason, lost)
    state = connected.execute(
        Advanced(
            epoch=state.epoch,
            owner=owner,
            start=state.position,
            end=Offset(position.table_id, earliest).to_json(),
            first_version=position.version,
            last_version=earliest - 1,
            skipped=(Skipped(version=position.version, operation=None, reason=reason),),
            log_digest=range_digest(()),
            last_commit_sha256="",
        )
    )
    return state, newest


def _versions(first: int, last: int) -> str:
    return f"{describe_range(first, last)} {'was' if first == last else 'were'}"


def lost_until(log: DeltaLog, position: Offset) -> int | None:
    """Return the last version from the position on that log cleanup has removed.

    ``None`` if it has removed none that the stream has read nothing of, or if that cannot be known: another table.
    """
    try:
        last = log.earliest() - 1
        check_table(log, position)
    except FdsError:
        return None
    is_begun = position.next_index > 0 or position.is_initial_snapshot
    return None if is_begun or last < position.version else last


def _allowed_by(connected: ConnectedStream, state: StreamState) -> tuple[str, int | None] | None:
    """Return what lets the stream move past lost versions, as the beginning of a message, and to which version.

    The version is ``None`` if that is whatever the log still has. Returns ``None`` if nothing lets the stream move.
    """
    if connected.stream.options.on_lost_position == "earliest":
        return "on_lost_position='earliest'", None
    if state.position is None or state.table_id is None:
        return None
    position = Offset.from_json(state.position)
    words = {word.version: word for word in state.decisions_on(state.table_id) if word.skip}
    last = lost_until(connected.log, position) if position.version in words else None
    if last is None:
        return None
    lost = range(position.version, last + 1)
    if not all(version in words for version in lost):
        return None
    return "; ".join(dict.fromkeys(f"skipped by {words[one].who} ({words[one].why})" for one in lost)), last + 1
