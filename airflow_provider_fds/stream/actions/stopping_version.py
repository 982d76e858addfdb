"""Which version a person may decide on: one that the log has, whose change is of the decision's kind."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from airflow_provider_fds.batch.version_ranges import describe_range
from airflow_provider_fds.delta.schema import schema_change
from airflow_provider_fds.delta.statistics import num_rows_of
from airflow_provider_fds.errors import ConfigurationError, LostPositionError
from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.sizes import format_count
from airflow_provider_fds.source.changes.classify import CommitContent
from airflow_provider_fds.source.offset import Offset, describe_position

if TYPE_CHECKING:
    from collections.abc import Iterable

    from airflow_provider_fds.delta.actions import Action
    from airflow_provider_fds.delta.reader.log import DeltaLog
    from airflow_provider_fds.ledger.state import StreamState


def check_accepted(state: StreamState, log: DeltaLog | None, version: int) -> str:
    """Refuse to accept the schema of a version that does not stop the stream, or not by its schema.

    Returns which rows the version adds, as :func:`check_skipped`.

    Args:
        state: State of the stream.
        log: The table's log, ``None`` if it cannot be reached from here.
        version: The version.

    Raises:
        ConfigurationError: Names the version that stops the stream, or the decision that it needs.
    """
    if not state.reads_by_interval:
        _check_next(state, version)
    if state.quarantined is not None and state.quarantined.version == version:
        if state.quarantined.ways_on == ("skip",):
            raise _refusal(
                state, f"version {version} stops the stream by its rows, not by its schema. {_skip(state, version)}"
            )
        if log is None:
            return ""
    log = _known(state, log, version, version)
    try:
        actions = log.commit(version).actions
    except LostPositionError:
        return ""
    content = CommitContent.of(version, actions, table=log.table_uri)
    if not _changes_schema(log, content):
        if content.adds and not content.removes:
            raise _refusal(state, f"version {version} only adds rows, which needs no word: run the stream")
        raise _refusal(state, f"version {version} does not change the schema. {_skip(state, version)}")
    return _describe_rows(version, version, [actions])


def check_skipped(state: StreamState, log: DeltaLog | None, first: int, last: int) -> str:
    """Refuse to skip versions that the log does not have yet, or a single one that changes no rows.

    Returns in words which rows the versions add, and which files they remove, or how many of them log cleanup has
    removed; nothing if the log cannot be read from here.

    Args:
        state: State of the stream.
        log: The table's log, ``None`` if it cannot be reached from here.
        first: The first version.
        last: The last version (inclusive).

    Raises:
        ConfigurationError: The versions cannot be skipped.
    """
    stop = state.quarantined
    if log is None and stop is not None and stop.version == first == last and stop.ways_on != ("accept",):
        return ""
    log = _known(state, log, first, last)
    try:
        if first < last:
            return _describe_rows(first, last, (log.commit(version).actions for version in range(first, last + 1)))
        actions = log.commit(first).actions
    except LostPositionError:
        return _describe_lost(log, first, last)
    content = CommitContent.of(first, actions, table=log.table_uri)
    if not (content.adds or content.removes or content.change_files) and content.metadata:
        raise _refusal(
            state,
            f"version {first} changes only the schema and has no rows to skip. To go on with the new schema: "
            f"`fds accept {state.name} --version {first} --why …`",
        )
    return _describe_rows(first, last, [actions])


def _describe_rows(first: int, last: int, commits: Iterable[Iterable[Action]]) -> str:
    """Return which rows commits add, counted by the statistics of the files, without deleted ones."""
    rows: int | None = 0
    added = removed = changed = 0
    for action in chain.from_iterable(commits):
        if action.add is not None and action.add.changes_data:
            added += 1
            found = num_rows_of(action.add)
            rows = None if rows is None or found is None else rows + found
        removed += action.remove is not None and action.remove.changes_data
        changed += action.cdc is not None
    in_rows = "an unknown number of rows" if rows is None else format_count(rows, "row")
    verb = "adds" if first == last else "add"
    which = describe_range(first, last)
    words = f"{which[0].upper()}{which[1:]} {verb} {in_rows} in {format_count(added, 'file')}"
    if removed:
        words += f", and remove{'s' * (first == last)} {format_count(removed, 'file')}"
    return words + (f"; the change feed has {format_count(changed, 'file')}." if changed else ".")


def _describe_lost(log: DeltaLog, first: int, last: int) -> str:
    """Return how many of the versions the log no longer has: nobody can tell which rows they had.

    Of the versions that it still has, return what they add.
    """
    try:
        until = min(last, log.earliest() - 1)
    except LostPositionError:
        return ""
    if until < first:
        return ""
    lost = until - first + 1
    was = "was" if lost == 1 else "were"
    text = (
        f"{format_count(lost, 'version')} ({describe_range(first, until)}) {was} removed by log cleanup: how many rows "
        "are in there is unknown, and none of them is loaded."
    )
    if until == last:
        return text
    try:
        rows = _describe_rows(until + 1, last, (log.commit(version).actions for version in range(until + 1, last + 1)))
    except LostPositionError:
        return f"{text} Of {describe_range(until + 1, last)}, some are missing in the log, too."
    return f"{text} {rows}"


def _check_next(state: StreamState, version: int) -> None:
    """Refuse a version that the stream does not stop before: one that it has passed, or has not come to."""
    stop = None if state.quarantined is None else state.quarantined.version
    if stop is not None and stop != version:
        raise _refusal(state, f"the stream stops before version {stop}, not before version {version}")
    if state.position is None:
        raise _refusal(
            state,
            f"epoch {state.epoch} has not begun, so it is unknown where the stream stops. Run it first, then use the "
            "version in the message of the run that stopped",
        )
    position = Offset.from_json(state.position)
    following = position.version + position.is_initial_snapshot
    if version != following:
        where = "already past" if version < following else "not yet before"
        raise _refusal(
            state,
            f"the stream is at {describe_position(state.position)}, {where} version {version}. Use the version in the "
            "message of the run that stopped",
        )


def _known(state: StreamState, log: DeltaLog | None, first: int, last: int) -> DeltaLog:
    """Return the log. Refuses versions that it does not have yet."""
    if log is None:
        raise _refusal(
            state,
            f"the log of {state.table} cannot be read from here, so it is unknown what {describe_range(first, last)} "
            "changes. Repeat the command where the table can be read",
        )
    if last > (newest := log.latest()):
        raise _refusal(state, f"version {last} does not exist yet; the newest version of {state.table} is {newest}")
    return log


def _changes_schema(log: DeltaLog, content: CommitContent) -> bool:
    if content.metadata is None or not content.version:
        return False
    try:
        before = log.state_at(content.version - 1)
    except LostPositionError:
        return True
    return bool(schema_change(before.metadata, content.metadata, content.protocol or before.protocol).columns)


def _skip(state: StreamState, version: int) -> str:
    return f"To go on without its rows: `fds skip {state.name} --version {version} --why …`"


def _refusal(state: StreamState, problem: str) -> ConfigurationError:
    return ConfigurationError(
        f"stream {state.name!r}: {problem}. Nothing was done", table=state.table, reason=Reason.ACTION_REFUSED
    )
