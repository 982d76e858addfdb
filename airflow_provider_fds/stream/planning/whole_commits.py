"""Keeps commits whole for sinks that decide per key.

A change feed describes an overwrite as rows removed and rows added. A sink that applies the rows key by key must see
both together; otherwise the later batch deletes a key that still exists. For such a sink, a commit of the feed that
both adds and removes rows is therefore planned into one batch, and a batch that was planned otherwise is not handed to
it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from airflow_provider_fds.errors import ConfigurationError, LostPositionError
from airflow_provider_fds.ledger.rewind_options import sink_rows_option
from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.sinks import needs_whole_commits
from airflow_provider_fds.source.changes.classify import CommitContent
from airflow_provider_fds.source.offset import Offset

if TYPE_CHECKING:
    from collections.abc import Iterable

    from airflow_provider_fds.batch.spec import BatchSpec
    from airflow_provider_fds.delta.reader.log import DeltaLog
    from airflow_provider_fds.ledger.state import StreamState
    from airflow_provider_fds.ledger.values import SinkBinding
    from airflow_provider_fds.sinks import Sink
    from airflow_provider_fds.stream.declaration.delta_stream import DeltaStream


def keeps_replaced_rows(
    stream: DeltaStream, sink: Sink | None, bound: SinkBinding | None, *, user_job: bool = False
) -> bool:
    """Whether commits of the change feed that both add and remove rows are planned into one batch.

    Args:
        stream: The stream.
        sink: The sink of the run, or ``None`` if it is unknown or the user job writes.
        bound: The sink that the stream is bound to.
        user_job: Whether the user job writes.

    Returns:
        True for a sink that decides per key, or that may do so, unless the stream says otherwise.
    """
    options = stream.options
    if not options.read_change_feed or options.whole_commits is False:
        return False
    if user_job:
        return True
    if sink is not None:
        return sink.needs_whole_commits
    return bound is None or needs_whole_commits(bound.kind, bound.target)


def refuse_divided_commits(state: StreamState, log: DeltaLog) -> None:
    """Refuse planned batches, or a position, that cut a commit which the stream's sink must see whole.

    They come from a plan made for another sink, under other options, or before FDS kept such commits whole. If the log
    no longer has the commit, the driver refuses the batch.

    Raises:
        ConfigurationError: Says what to do.
    """
    commits = _Commits(log)
    why = "adds rows and removes rows, and its sink decides per key"
    unless = (
        ""
        if state.sink is not None and not state.sink.is_user_defined
        else " If the writer of the rows does not decide per key, set whole_commits=False on the stream."
    )
    rows = sink_rows_option(state.sink)
    position = None if state.position is None else Offset.from_json(state.position)
    if position is not None and commits.are_divided_at(position):
        version = position.version
        raise ConfigurationError(
            f"stream {state.name!r} is at {position.describe()}, inside version {version} of {log.table_uri}, which "
            f"{why}: the rest of the version alone can delete keys that still exist. Read the version again from "
            f"its beginning with `fds rewind {state.name} --to {version}{rows} --why …`.{unless}",
            table=log.table_uri,
            version=version,
            reason=Reason.POSITION_INSIDE_COMMIT,
        )
    for batch in state.planned:
        end = Offset.from_json(batch.end)
        if commits.are_divided_at(end):
            raise ConfigurationError(
                f"stream {state.name!r}: batch {batch.batch_id} was planned to end inside version {end.version} "
                f"of {log.table_uri}, which {why}: the rest of the version can delete keys that still exist. This "
                f"run handed nothing of it to the sink; plan again with `fds replan {state.name} --why …`.{unless}",
                table=log.table_uri,
                version=end.version,
                reason=Reason.POSITION_INSIDE_COMMIT,
            )


def with_divisions(specs: Iterable[BatchSpec], log: DeltaLog) -> tuple[BatchSpec, ...]:
    """Return the specs of batches, completed with whether each cuts a commit, according to the source's log."""
    commits = _Commits(log)
    result = []
    for spec in specs:
        ends = {commits.are_divided_at(Offset.from_json(text)) for text in (spec.start, spec.end)}
        result.append(replace(spec, divides_commit=True in ends or (None if None in ends else False)))
    return tuple(result)


def is_inside_commit(offset: Offset) -> bool:
    """Whether files of a commit were delivered before the offset, so that more of its files may follow."""
    return offset.next_index > 0 and not offset.is_initial_snapshot


class _Commits:
    """What the source's log shows of commits that are cut; reads each commit once."""

    def __init__(self, log: DeltaLog) -> None:
        self._log = log
        self._contents: dict[int, CommitContent | None] = {}

    def are_divided_at(self, offset: Offset) -> bool | None:
        """Whether the offset is inside a commit that adds and removes rows; ``None`` if the log lacks the commit."""
        if not is_inside_commit(offset):
            return False
        content = self._content(offset.version)
        if content is None:
            return None
        count = content.change_files or content.adds + content.removes
        return content.replaces_rows and offset.next_index < count

    def _content(self, version: int) -> CommitContent | None:
        if version not in self._contents:
            try:
                commit = self._log.commit(version)
            except LostPositionError:
                self._contents[version] = None
            else:
                self._contents[version] = CommitContent.of(version, commit.actions, table=self._log.table_uri)
        return self._contents[version]
