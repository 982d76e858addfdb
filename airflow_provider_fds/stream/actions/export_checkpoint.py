"""Hands a stream over to a Structured Streaming query, which continues at the stream's committed position."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from airflow_provider_fds.batch.location import hadoop_path
from airflow_provider_fds.batch.manifest_columns import CHANGE_TYPE, COMMIT_TIMESTAMP, COMMIT_VERSION
from airflow_provider_fds.delta.storage.open import open_storage
from airflow_provider_fds.errors import ConfigurationError, LostPositionError
from airflow_provider_fds.ledger.entries.operator_entries import Held, Retired
from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.source.filters.row_filter import RowFilter
from airflow_provider_fds.source.offset import Offset
from airflow_provider_fds.source.streaming_checkpoint import read_streaming_checkpoint, write_streaming_checkpoint
from airflow_provider_fds.stream.connected_stream import lie_inside_each_other
from airflow_provider_fds.stream.position.source_unchanged import check_position

if TYPE_CHECKING:
    from airflow_provider_fds.delta.storage.storage import Storage
    from airflow_provider_fds.ledger.state import StreamState
    from airflow_provider_fds.source.options.options import SourceOptions
    from airflow_provider_fds.stream.connected_stream import ConnectedStream

#: Options that a query has too, by their names there.
_OF_DELTA: Final = {
    "max_files_per_batch": "maxFilesPerTrigger",
    "max_bytes_per_batch": "maxBytesPerTrigger",
    "ignore_deletes": "ignoreDeletes",
    "ignore_changes": "ignoreChanges",
    "skip_change_commits": "skipChangeCommits",
    "exclude_regex": "excludeRegex",
    "read_change_feed": "readChangeFeed",
}

#: Options that decide which rows are read, and that a query does not have.
_UNKNOWN_TO_DELTA: Final = (
    "skip_operations",
    "ending_version",
    "ending_timestamp",
    "version_as_of",
    "timestamp_as_of",
)


@dataclass(frozen=True, slots=True)
class ExportedCheckpoint:
    """A checkpoint that was written for a query.

    Attributes:
        offset: Everything up to and including it is committed; the query reads what follows.
        options: The options that the query must have to read what the stream would read, by Delta's names.
        where: The predicate that the query must have, or ``None``.
        columns: The columns that the query must select; empty: all.
    """

    offset: Offset
    options: dict[str, str]
    where: str | None
    columns: tuple[str, ...] = ()

    def describe(self, table: str, checkpoint: str) -> str:
        """Return the beginning of the query in Python, for the URIs of the table and of the checkpoint."""
        options = "".join(f".option({name!r}, {value!r})" for name, value in self.options.items())
        where = "" if self.where is None else f".where({self.where!r})"
        names = ", ".join(repr("`" + name.replace("`", "``") + "`") for name in self.columns)
        columns = f".select({names})" if names else ""
        return (
            f"spark.readStream.format('delta'){options}.load({hadoop_path(table)!r}){where}{columns}.writeStream"
            f".option('checkpointLocation', {hadoop_path(checkpoint)!r})…"
        )


def export_checkpoint(
    connected: ConnectedStream, checkpoint: Storage, *, any_options: bool = False
) -> ExportedCheckpoint:
    """Write a checkpoint with which a query continues after the last committed batch, and record this in the ledger.

    Args:
        connected: The stream, with the options that it has.
        checkpoint: The query's new checkpoint folder.
        any_options: Whether to accept options that are not those of the stream's last plan.

    Raises:
        ConfigurationError: The folder is not empty, the stream may still load batches, or a query cannot read what the
            stream would read.
        LostPositionError: The table no longer has the position.
    """
    state, options = connected.load(), connected.stream.options
    _refuse_used(connected, checkpoint)
    offset = _resting_position(connected, state)
    _refuse_other_options(state, options, is_within=_is_within(offset), any_options=any_options)
    _refuse_unknown(connected, state, options, offset)
    check_position(connected.log, state)
    metadata = connected.log.state_at(connected.log.latest()).metadata
    table_id = metadata.id
    offset.ensure_table(table_id, table=connected.log.table_uri)
    where = None
    if options.where is not None:
        where = RowFilter(options.where).bind(metadata, table=connected.log.table_uri).sql
    if offset.is_initial_snapshot:
        _check_snapshot(connected, state, offset)
    _record(connected, state, checkpoint.uri)
    write_streaming_checkpoint(checkpoint, offset)
    found = read_streaming_checkpoint(checkpoint, table_id)
    if found.offset != offset:
        raise AssertionError(f"{checkpoint.uri} has {found.offset.to_json()} instead of {offset.to_json()}")
    added = (CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIMESTAMP) if options.read_change_feed and options.columns else ()
    return ExportedCheckpoint(offset, _query_options(options), where, (*options.columns, *added))


def _record(connected: ConnectedStream, state: StreamState, uri: str) -> None:
    """Record that a query may continue from here, before it can: from then on the stream is not resumed by itself."""
    if state.retired is not None:
        connected.execute(Retired(why=state.retired.why, exported_to=uri))
    elif state.held is not None:
        connected.execute(Held(why=state.held.why, exported_to=uri))


def _is_within(offset: Offset) -> bool:
    return offset.next_index > 0 and not offset.is_initial_snapshot


def _refuse_used(connected: ConnectedStream, checkpoint: Storage) -> None:
    for own in (connected.table.uri, connected.staging.uri):
        if lie_inside_each_other(checkpoint.uri, own):
            raise ConfigurationError(f"the checkpoint {checkpoint.uri} overlaps {own}. Use a separate folder")
    if next(iter(checkpoint.list_after("")), None) is not None or checkpoint.list_folders(""):
        raise ConfigurationError(
            f"{checkpoint.uri} exists and is not empty. Name a folder that does not exist: the command never "
            "overwrites a checkpoint"
        )


def _resting_position(connected: ConnectedStream, state: StreamState) -> Offset:
    """Return the position of a stream that loads nothing more."""
    name = state.name
    problem = None
    if state.reads_by_interval:
        problem = "reads data intervals and has no position. Start a query with startingVersion instead"
    elif state.held is None and state.retired is None:
        problem = (
            "may continue, and its rows would then be in the sink twice. Stop it first: `fds hold "
            f"{name} --why …`, or `fds retire {name} --why …`"
        )
    elif state.position is None:
        problem = (
            f"has no position: epoch {state.epoch} was requested and has not begun. Resume it and run it once, then "
            "hold it again"
        )
    elif state.planned:
        problem = (
            f"has {len(state.planned)} planned batches, which may be in the sink already. Resume it, run it until they "
            "are committed, then hold it again"
        )
    if problem is not None:
        raise ConfigurationError(
            f"stream {name!r} {problem}.", table=connected.table.uri, reason=Reason.EXPORT_NOT_AVAILABLE
        )
    assert state.position is not None  # noqa: S101  # checked above
    return Offset.from_json(state.position)


def _refuse_other_options(state: StreamState, options: SourceOptions, *, is_within: bool, any_options: bool) -> None:
    is_other_meaning = is_within and state.meaning_digest not in (None, options.meaning_digest())
    if not is_other_meaning and (any_options or state.options_digest in (None, options.digest())):
        return
    given = json.dumps(options.to_dict()) if options.to_dict() else "none"
    raise ConfigurationError(
        f"the options of the stream's last plan differ from those given here ({given}). A query must have the "
        "same ones to read the same rows: repeat the options of the stream as --option KEY=VALUE"
        + ("." if is_other_meaning else ", or use --any-options if they were changed on purpose."),
        subject=f"stream {state.name!r}",
        reason=Reason.EXPORT_NOT_AVAILABLE,
    )


def _refuse_unknown(connected: ConnectedStream, state: StreamState, options: SourceOptions, offset: Offset) -> None:
    """Refuse what a query cannot do: to end, or to leave out versions that a person or an option skips."""
    values = options.to_dict()
    problems = [f"option {name}" for name in _UNKNOWN_TO_DELTA if name in values]
    if any(last >= offset.version for _, last in options.skip_versions):
        problems.append("option skip_versions")
    skipped = sorted(word.version for word in state.acknowledged if word.skip and word.version >= offset.version)
    if skipped:
        problems.append(f"skipped version {skipped[0]} (`fds skip`)")
    if problems:
        raise ConfigurationError(
            f"stream {state.name!r} uses features that a query does not have: {', '.join(problems)}. The query would "
            "read rows that the stream would not. First let the stream pass these versions, or write the query "
            "yourself.",
            table=connected.table.uri,
            reason=Reason.EXPORT_NOT_AVAILABLE,
        )


def _check_snapshot(connected: ConnectedStream, state: StreamState, offset: Offset) -> None:
    """Make sure that a query, which reads the snapshot from the log, counts its files as the frozen one does."""
    from airflow_provider_fds.delta.reader.scratch import scratch_folder
    from airflow_provider_fds.delta.reader.snapshot import freeze_snapshot

    lead = f"stream {state.name!r} is inside the initial snapshot of version {offset.version}, "
    advice = "Resume the stream until it is past the snapshot, then export it."
    try:
        with scratch_folder("fds-export-") as folder:
            found = freeze_snapshot(connected.log, offset.version, open_storage(folder), "snapshot")
    except LostPositionError as error:
        raise ConfigurationError(
            f"{lead}which a query would read from the table's log, but the log no longer has it ({error}). {advice}",
            table=connected.table.uri,
            version=offset.version,
            reason=Reason.EXPORT_NOT_AVAILABLE,
        ) from error
    if state.snapshot is not None and found.digest != state.snapshot.digest:
        raise ConfigurationError(
            f"{lead}but the files of that version in the log are no longer those of the frozen snapshot. {advice}",
            table=connected.table.uri,
            version=offset.version,
            reason=Reason.EXPORT_NOT_AVAILABLE,
        )


def _query_options(options: SourceOptions) -> dict[str, str]:
    values: dict[str, Any] = {name: value for name, value in options.to_dict().items() if name in _OF_DELTA}
    return {
        _OF_DELTA[name]: str(value).lower() if isinstance(value, bool) else str(value) for name, value in values.items()
    }
