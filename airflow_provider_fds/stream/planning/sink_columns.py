"""Whether batches fit the columns of the sink, found when they are planned: before Spark starts.

The driver checks again, because the sink can change in between, and because a worker may not be allowed to read it. The
rules are those of ``batch/column_fit.py`` and ``batch/column_meaning.py``.
"""

from __future__ import annotations

from datetime import date, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from airflow_provider_fds.batch.column_fit import column_fit, describe_misfit, widening_of
from airflow_provider_fds.batch.column_meaning import (
    SinkChange,
    column_ids,
    column_types,
    fed_after,
    may_be_moved,
    moved_columns,
    moved_problem,
    renamed_in_sink,
)
from airflow_provider_fds.batch.manifest_columns import CHANGE_TYPE
from airflow_provider_fds.batch.version_ranges import describe_range
from airflow_provider_fds.delta.actions import Metadata  # noqa: TC001 - of a NamedTuple
from airflow_provider_fds.delta.reader.log import DeltaLog
from airflow_provider_fds.delta.schema import is_mapped
from airflow_provider_fds.errors import FdsError, LostPositionError, SchemaMismatchError
from airflow_provider_fds.sinks import DeltaSink
from airflow_provider_fds.sinks.constants import PROVENANCE
from airflow_provider_fds.sinks.merge import VALIDITY
from airflow_provider_fds.source.offset import Offset
from airflow_provider_fds.source.planning.start import newest_state
from airflow_provider_fds.stream.epochs.opening import start_before_fence

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_provider_fds.ledger.state import StreamState
    from airflow_provider_fds.sinks import Sink
    from airflow_provider_fds.sinks.constants import Constant
    from airflow_provider_fds.source.planned import SourceBatch
    from airflow_provider_fds.stream.connected_stream import ConnectedStream

_PROVENANCE_TYPES = {"_source_version": "long", "_source_timestamp": "timestamp"}


class SinkColumns:
    """Compares the batches of one plan with the sink, in order.

    Args:
        connected: The stream.
        state: Its state before the plan.
        sink: Where the batches go; ``None``: a user job takes them. Only tables that FDS writes are compared, and not
            with a ``transform``, because only the function knows which columns it returns.
    """

    def __init__(
        self, connected: ConnectedStream, state: StreamState, sink: Sink | None, *, is_one_write: bool = False
    ) -> None:
        self._connected = connected
        self._state = state
        self._sink = sink if isinstance(sink, DeltaSink) and sink.transform is None else None
        #: What feeds the sink's columns under the names that it had at a version.
        self._fed = self._recorded = state.columns
        self._since = state.sink_version if state.columns_since is None else state.columns_since
        self._before: Metadata | None = None
        self._is_first = self._is_first_recorded = state.next_batch_id == 0
        # since the last batch, the position may have passed a change of the schema without data
        self._is_moved = state.position != state.last_txn_end
        self._is_one_write = is_one_write
        self._together: dict[str, str] = {}
        self._found: _SinkState | None = None
        self._is_read = False
        self._has_no_columns = False
        #: The columns with which the first batch creates the sink.
        self._created: dict[str, Any] | None = None

    def check(self, batch: SourceBatch) -> None:
        """Refuse a batch that does not fit, if this worker can read the sink.

        Most batches are like the one before them, and cost nothing: the sink is read for the first one of an epoch, for
        one with another schema, for the first one after commits without data, and for one whose columns may be others
        than the sink's. A sink that the plan creates has the columns of the first batch.

        Raises:
            SchemaMismatchError: The sink lacks columns, cannot hold all values of a column, or has another column under
                a name.
        """
        sink = self._sink
        if sink is None:
            return
        if not self._fed and (is_mapped(batch.state.metadata) or batch.schema_changes):
            self._fed = self._fed_before(sink)
        self._before = batch.state.metadata
        columns = self._columns(batch, sink)
        if self._is_one_write:
            self._check_together(batch, sink, columns)
        # an epoch may read again from before a move that the sink has made, too
        if self._is_first or may_be_moved(self._fed, columns, by_key=sink.needs_keys):
            self._check_meaning(batch, sink, columns)
        if self._is_first or self._is_moved or batch.schema_changes:
            self._check_types(batch, sink)
        self._is_first = self._is_moved = False

    def check_before_removal(self) -> None:
        """Refuse to remove rows from the sink if it cannot take those that are loaded first after that.

        Raises:
            FdsError: The epoch cannot begin.
            SchemaMismatchError: The sink lacks columns, or cannot hold all values of a column.
        """
        request, log = self._state.request, self._connected.log
        if request is None or request.removal is None:
            return
        start = start_before_fence(self._connected, self._state)
        if start is None or self._sink is None or self._sink_state(self._sink) is None:
            return
        metadata = newest_state(log, min(start.version, log.latest())).metadata
        if text := self._misfit(metadata, self._sink, is_feed=self._connected.stream.options.read_change_feed):
            raise SchemaMismatchError(
                f"stream {self._state.name!r} is not loaded again, and no row of the sink was removed: {text}",
                table=self._sink.table_uri,
            )

    def recorded(self, batch: SourceBatch) -> dict[str, str] | msgspec.UnsetType:
        """Return what the ledger must record of a planned batch that was checked."""
        if self._sink is None:
            return msgspec.UNSET
        columns = self._columns(batch, self._sink)
        if not is_mapped(batch.state.metadata):
            # without column mapping, a name that is added again later is another column
            columns |= dict.fromkeys((path for path in self._fed if path not in columns), "")
            if not self._recorded and "" not in columns.values():
                return msgspec.UNSET
        is_first, self._is_first_recorded = self._is_first_recorded, False
        if columns.items() <= self._recorded.items() and not (is_first and columns):
            return msgspec.UNSET
        self._follow_renames(self._sink)
        self._fed = fed_after(self._fed, columns, by_key=self._sink.needs_keys)
        self._recorded = fed_after(self._recorded, columns, by_key=self._sink.needs_keys)
        return columns

    def _columns(self, batch: SourceBatch, sink: DeltaSink) -> dict[str, str]:
        """Return which column of the source feeds which of the sink; nothing if names cannot have moved."""
        if not self._fed and not is_mapped(batch.state.metadata):
            return {}
        return column_ids(self._source_schema(batch.state.metadata, sink))

    def _fed_before(self, sink: DeltaSink) -> dict[str, str]:
        """Return what fed the sink before this was recorded: the source's columns in the batch before, or then."""
        if self._before is not None:
            return column_ids(self._source_schema(self._before, sink))
        state = self._state
        position = None if state.position is None else Offset.from_json(state.position)
        if state.sink_version is None or position is None:
            return {}
        if position.is_initial_snapshot and not state.next_batch_id:
            return {}
        try:
            before = self._connected.log.state_at(max(position.version - 1, 0))
        except LostPositionError:
            return {}
        return column_ids(self._source_schema(before.metadata, sink))

    def _source_schema(self, metadata: Metadata, sink: DeltaSink) -> dict[str, Any]:
        """Return the source's columns that the sink writes."""
        schema: dict[str, Any] = _schema(metadata)
        for chosen in (self._connected.stream.options.columns, sink.columns):
            if chosen:
                names = {name.lower() for name in chosen}
                schema["fields"] = [field for field in schema["fields"] if field["name"].lower() in names]
        return schema

    def _check_types(self, batch: SourceBatch, sink: DeltaSink) -> None:
        if text := self._misfit(batch.state.metadata, sink, is_feed=batch.feed is not None):
            raise self._refused(batch, sink, text)

    def _misfit(self, metadata: Metadata, sink: DeltaSink, *, is_feed: bool) -> str | None:
        """Return in words why the sink cannot take rows of a source, ``None`` if it can."""
        found = self._sink_state(sink)
        theirs = self._created if found is None else _schema(found.metadata)
        ours = self._source_schema(metadata, sink)
        added = {name: _constant_type(value) for name, value in sink.constant_columns.items()}
        if is_feed and not sink.needs_keys and not sink.columns:
            added[CHANGE_TYPE] = "string"
        if sink.provenance:
            added |= {name: _PROVENANCE_TYPES[name] for name in PROVENANCE.values()}
        if sink.keeps_history:
            there = column_types(theirs or ours)
            added |= {name: kind for name, kind in VALIDITY.items() if name in there}
        ours["fields"] += [_field(name, kind) for name, kind in added.items()]
        if theirs is None:
            self._created = ours if self._has_no_columns and not self._is_one_write else None
            return None
        properties = sink.properties if found is None else found.metadata.configuration or {}
        widening = widening_of(properties, merge_schema=sink.merge_schema)
        problems = column_fit(ours, theirs, widening).problems(adds=sink.merge_schema)
        return describe_misfit(ours, theirs, problems, sink.describe(), type(sink).__name__) if problems else None

    def _check_together(self, batch: SourceBatch, sink: DeltaSink, columns: dict[str, str]) -> None:
        if moved := moved_columns(self._together, columns, self._together, by_key=False):
            raise self._refused(
                batch,
                sink,
                f"from version {batch.first_version} on, the source has another column as {', '.join(moved)}, but the "
                "interval is written in one transaction, which would mix the two. Leave the column out (columns=… of "
                f"the {type(sink).__name__}), or resolve it in a ForeachBatchSink",
            )
        self._together.update(columns)

    def _check_meaning(self, batch: SourceBatch, sink: DeltaSink, columns: dict[str, str]) -> None:
        found = self._sink_state(sink)
        if found is None:
            return
        try:
            changes = list(self._changes(found))
        except FdsError:
            # its commits are gone; the driver decides by those that are left
            return
        problem = moved_problem(
            self._fed,
            changes,
            columns,
            _schema(found.metadata),
            column_types(_schema(batch.state.metadata)),
            path=sink.describe(),
            by_key=sink.needs_keys,
            keeps_history=sink.keeps_history,
            keys=getattr(sink, "keys", ()),
        )
        if problem is not None:
            raise self._refused(batch, sink, problem)

    def _follow_renames(self, sink: DeltaSink) -> None:
        """Take the names that the sink has by now: a batch that is planned lands after them."""
        if (found := self._sink_state(sink)) is None:
            return
        try:
            self._fed = renamed_in_sink(self._fed, self._changes(found))
        except FdsError:
            # as in _check_meaning
            return
        self._since = found.version

    def _changes(self, found: _SinkState) -> Iterator[SinkChange]:
        first = 0 if self._since is None else self._since + 1
        for commit in found.log.commits(first, found.version) if first <= found.version else ():
            info = commit.info
            if info is not None:
                sets_schema = any(action.metaData is not None for action in commit.actions)
                yield SinkChange(info.operation or "", info.operationParameters or {}, sets_schema)

    def _sink_state(self, sink: DeltaSink) -> _SinkState | None:
        """Return the sink as it is now, or ``None`` if it does not exist or cannot be read from here."""
        if not self._is_read:
            self._is_read = True
            if self._state.sink_table_id is None and sink.table_uri in self._connected.missing:
                self._has_no_columns = True
                return None
            try:
                log = DeltaLog(self._connected.open_sink(sink.table_uri))
                version = log.latest()
                metadata = log.state_at(version).metadata
            except FdsError:
                return None
            # a table without columns takes those of the first write
            self._has_no_columns = not _schema(metadata)["fields"]
            if not self._has_no_columns:
                self._found = _SinkState(log, version, metadata)
        return self._found

    def _refused(self, batch: SourceBatch, sink: DeltaSink, text: str) -> SchemaMismatchError:
        return SchemaMismatchError(
            f"stream {self._connected.stream.name!r}, {describe_range(batch.first_version, batch.last_version)} of "
            f"{self._connected.log.table_uri}: {text}",
            table=sink.table_uri,
        )


class _SinkState(NamedTuple):
    log: DeltaLog
    version: int
    metadata: Metadata


def _schema(metadata: Metadata) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "struct", "fields": []}
    if metadata.schemaString:
        schema = msgspec.json.decode(metadata.schemaString)
    return schema


def _field(name: str, kind: str) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": True, "metadata": {}}


def _constant_type(value: Constant) -> str:
    """Return the type of a constant's column."""
    # a bool is an int, and a time is a date
    kinds = {bool: "boolean", int: "long", float: "double", datetime: "timestamp", date: "date"}
    return next((kind for of, kind in kinds.items() if isinstance(value, of)), "string")
