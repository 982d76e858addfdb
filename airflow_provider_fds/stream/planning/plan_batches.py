"""Plans the batches of a run: plan, write the manifests, describe the batches for the ledger.

From a position as many batches as a run wants are planned; of a data interval all of them or none.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from msgspec import UNSET
from msgspec.structs import replace

from airflow_provider_fds.batch.manifest.manifest import build_manifest
from airflow_provider_fds.batch.manifest.publish import ManifestWriter, manifest_folder
from airflow_provider_fds.batch.transactions import txn_version
from airflow_provider_fds.errors import FdsError
from airflow_provider_fds.ledger.intervals import interval_folder
from airflow_provider_fds.ledger.values import PassedSchema, PlannedBatch, Skipped
from airflow_provider_fds.source.changes.barrier import Allowances
from airflow_provider_fds.source.offset import Offset
from airflow_provider_fds.source.planned import SourceBatch, range_digest
from airflow_provider_fds.source.planning.plan import BatchPlanner
from airflow_provider_fds.source.planning.start import newest_state, starting_state
from airflow_provider_fds.stream.planning.backlog import guard_batches
from airflow_provider_fds.stream.planning.event_times import EventTimes
from airflow_provider_fds.stream.planning.sink_columns import SinkColumns
from airflow_provider_fds.stream.planning.unknown_rows import UnknownRows
from airflow_provider_fds.stream.polling.min_batch import MinBatch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_provider_fds.batch.manifest.manifest import Manifest
    from airflow_provider_fds.delta.reader.log import DeltaLog, TableState
    from airflow_provider_fds.ledger.records import IntervalRecord
    from airflow_provider_fds.ledger.state import StreamState
    from airflow_provider_fds.sinks import Sink
    from airflow_provider_fds.source.planning.drift import HeldBack
    from airflow_provider_fds.stream.connected_stream import ConnectedStream
    from airflow_provider_fds.stream.polling.min_batch import WaitingWork

_NO_COMMITS: Final = ""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class NextBatches:
    """The outcome of planning from a position; not yet in the ledger.

    Attributes:
        batches: Batches whose manifests are written, in order.
        empty: Commits without data that come first; then there are no batches.
        is_more: Whether versions up to the target are left.
        error: The violation that planning stopped before.
        waiting: Work after the batches that is smaller than the stream's minimum and waits for more, or a version that
            waits for another stream.
    """

    batches: tuple[PlannedBatch, ...]
    empty: SourceBatch | None
    is_more: bool
    error: FdsError | None
    waiting: WaitingWork | HeldBack | None = None


def plan_batches(
    connected: ConnectedStream,
    state: StreamState,
    target: int,
    max_batches: int,
    *,
    sink: Sink | None,
    keeps_replaced_rows: bool,
) -> NextBatches:
    """Plan up to ``max_batches`` batches and write their manifests. Writes nothing to the ledger.

    Args:
        connected: The stream.
        state: State of the ledger, open, with nothing planned.
        target: Newest version to read, inclusive.
        max_batches: Maximum number of batches.
        sink: Where the batches go, ``None`` if that is not known.
        keeps_replaced_rows: Whether a commit of the change feed that both adds and removes rows is never cut.

    Raises:
        ConfigurationError: Far too many batches are left, see :func:`~.backlog.guard_batches`.
        LedgerError: The ledger of a stream in ``align_with`` cannot be read.
    """
    assert state.position is not None  # noqa: S101  # an open epoch has a position
    position = Offset.from_json(state.position)
    drift = None
    if connected.stream.options.align_with:
        from airflow_provider_fds.stream.polling.alignment import Alignment

        drift = Alignment(connected.stream, connected.staging, connected.context.open_table).drift(state)
    planner = BatchPlanner(
        connected.log,
        position,
        _known_state(connected.log, position, is_first=state.position == state.epoch_start and not state.continues),
        connected.stream.options,
        target,
        snapshot=connected.frozen_snapshot(),
        snapshot_storage=connected.staging,
        snapshot_timestamp_ms=None if state.snapshot is None else state.snapshot.timestamp_ms,
        allowances=allowances_of(connected, state),
        keeps_replaced_rows=keeps_replaced_rows,
        drift=drift,
    )
    unknown_rows = UnknownRows(connected.stream)
    times = EventTimes(connected)
    minimum = MinBatch.of(connected.stream)
    waiting: WaitingWork | HeldBack | None = None
    batches: list[PlannedBatch] = []
    empty: SourceBatch | None = None
    previous = state.next_prev_txn_version
    columns = SinkColumns(connected, state, sink)
    with ManifestWriter(connected.staging) as writer:
        for batch, manifest in with_manifests(connected, planner, columns):
            if manifest is None:
                empty = None if batches else batch
                break
            # only the last batch can grow: the others ended at a limit or before a version that ends a batch
            if minimum is not None and planner.has_ended and (waiting := minimum.waiting_batch(batch)) is not None:
                break
            if not batches:
                guard_batches(connected, batch, target)
            batch_id = state.next_batch_id + len(batches)
            planned = _written(writer, connected, batch, manifest, times, str(state.epoch), batch_id, previous)
            batches.append(replace(planned, columns=columns.recorded(batch)))
            unknown_rows.see(batches[-1])
            previous = txn_version(state.epoch, batch_id)
            if len(batches) == max_batches:
                break
    unknown_rows.warn()
    times.warn()
    error = planner.outcome.error if planner.outcome is not None else None
    if waiting is None and drift is not None:
        waiting = drift.held
    end = Offset.from_json(batches[-1].end) if batches else (empty.end if empty is not None else None)
    is_more = error is None and waiting is None and end is not None and end.version <= target
    return NextBatches(tuple(batches), empty, is_more, error, waiting)


def _known_state(log: DeltaLog, position: Offset, *, is_first: bool) -> TableState | None:
    """Return the table state to plan with, or ``None`` if the planner must find it itself.

    The first batch uses the schema of its first version; a later batch judges the change. The rest of an initial
    snapshot is read even if log cleanup removed its version, with the newest schema, as Delta's own source does.
    """
    if position.is_initial_snapshot:
        return newest_state(log, position.version)
    return starting_state(log, position) if is_first else None


def with_manifests(
    connected: ConnectedStream, planner: BatchPlanner, columns: SinkColumns
) -> Iterator[tuple[SourceBatch, Manifest | None]]:
    """Yield the batches of ``planner`` with their manifests, not yet written; ``None`` for commits without data.

    A batch for which no manifest can be built, or that does not fit the sink, ends the plan, just like a version that
    cannot be planned: the batches before it are kept, and its error becomes the error of the planner's outcome.

    Raises:
        FdsError: The manifest of the first batch cannot be built, or it does not fit the sink.
    """
    num_batches = 0
    for batch in planner:
        try:
            manifest = _manifest_of(connected, batch)
            if manifest is not None:
                columns.check(batch)
        except FdsError as error:
            for good in _good_batches(connected, planner, batch, error):
                num_batches += 1
                yield good
            if not num_batches:
                raise
            planner.stop(error)
            return
        yield batch, manifest
        num_batches += 1


def _manifest_of(connected: ConnectedStream, batch: SourceBatch) -> Manifest | None:
    if not batch.files:
        return None
    return _built(connected, batch)


def _built(connected: ConnectedStream, batch: SourceBatch) -> Manifest:
    options = connected.stream.options
    return build_manifest(
        batch,
        table_uri=connected.log.table_uri,
        stats=options.keeps_statistics,
        allowed_roots=options.allowed_roots,
        columns=options.columns,
    )


def _good_batches(
    connected: ConnectedStream, planner: BatchPlanner, batch: SourceBatch, error: FdsError
) -> Iterator[tuple[SourceBatch, Manifest | None]]:
    """Plan ``batch`` again and yield the part before the version that ``error`` names."""
    if error.version is None or not batch.start.version < error.version <= batch.last_version:
        return
    for again in planner.before(error.version, batch.start):
        try:
            manifest = _manifest_of(connected, again)
        except FdsError:
            return
        yield again, manifest


@dataclass(frozen=True, slots=True)
class IntervalPlan:
    """All of an interval; not yet in the ledger.

    Attributes:
        batches: Batches whose manifests are written, in order.
        rest: Commits without data after them, or all commits if there are no batches.
    """

    batches: tuple[PlannedBatch, ...]
    rest: SourceBatch | None = None


def plan_interval(
    connected: ConnectedStream, state: StreamState, record: IntervalRecord, *, sink: Sink | None, replaces: bool
) -> IntervalPlan:
    """Plan all versions of an interval and write the manifests. Writes nothing to the ledger.

    Args:
        connected: The stream.
        state: State of the ledger.
        record: The opened interval.
        sink: Where the batches go, ``None`` if that is not known.
        replaces: Whether the sink replaces; it gets a batch without rows if an earlier run may have left some.

    Raises:
        StoppedError: The interval has a version that the stream cannot pass.
        LostPositionError: Commits of the interval are gone.
    """
    place = f"{interval_folder(record.interval)}/{record.generation}"
    empty: SourceBatch | None = None
    unknown_rows = UnknownRows(connected.stream)
    times = EventTimes(connected)
    batches: list[PlannedBatch] = []
    if record.first_version <= record.last_version:
        start = Offset(str(state.table_id), record.first_version)
        planner = BatchPlanner(
            connected.log,
            start,
            starting_state(connected.log, start),
            connected.stream.options,
            record.last_version,
            allowances=allowances_of(connected, state),
        )
        columns = SinkColumns(connected, state, sink, is_one_write=replaces)
        with ManifestWriter(connected.staging) as writer:
            for batch, manifest in with_manifests(connected, planner, columns):
                if manifest is None:
                    empty = batch
                else:
                    if not batches:
                        guard_batches(connected, batch, record.last_version)
                    previous = txn_version(record.generation, len(batches) - 1) if batches else None
                    planned = _written(writer, connected, batch, manifest, times, place, len(batches), previous)
                    batches.append(replace(planned, columns=columns.recorded(batch)))
                    unknown_rows.see(batches[-1])
        if planner.outcome is not None and planner.outcome.error is not None:
            raise planner.outcome.error
    unknown_rows.warn()
    times.warn()
    if batches or not replaces:
        return IntervalPlan(tuple(batches), empty)
    versions = (record.first_version, record.last_version)
    is_first_load = record.generation == 1
    if sink is not None and not sink.may_hold_rows(*versions, is_first_load=is_first_load):
        return IntervalPlan((), empty)
    logger.info(
        "Stream %s: no rows in interval %s; the run only removes rows in the sink.", state.name, record.interval
    )
    empty = empty or _nothing(connected, state, record)
    with ManifestWriter(connected.staging) as writer:
        planned = _written(writer, connected, empty, _built(connected, empty), times, place, 0, None)
    return IntervalPlan((planned,))


def _nothing(connected: ConnectedStream, state: StreamState, record: IntervalRecord) -> SourceBatch:
    """Return a batch without files, for an interval without commits, with the schema the table had."""
    start = Offset(str(state.table_id), record.first_version)
    return SourceBatch(
        start,
        start,
        (),
        newest_state(connected.log, max(record.last_version, 0)),
        (),
        record.first_version,
        record.last_version,
        range_digest(()),
        _NO_COMMITS,
        "whole_files" if connected.stream.options.read_change_feed else None,
    )


def _written(
    writer: ManifestWriter,
    connected: ConnectedStream,
    batch: SourceBatch,
    manifest: Manifest,
    times: EventTimes,
    epoch: str,
    batch_id: int,
    previous: int | None,
) -> PlannedBatch:
    """Have the manifest written to the folder of its epoch, or of its interval's generation; return the batch."""
    # before anything is written: it refuses a column that does not exist
    event_time = times.of(batch)
    key = manifest_folder(epoch, batch_id, manifest.digest)
    writer.write(manifest, connected.folder.below(key))
    return PlannedBatch(
        batch_id=batch_id,
        start=batch.start.to_json(),
        end=batch.end.to_json(),
        first_version=batch.first_version,
        last_version=batch.last_version,
        manifest=key,
        digest=manifest.digest,
        num_files=batch.num_files,
        num_bytes=batch.num_bytes,
        num_rows=batch.num_rows,
        prev_txn_version=previous,
        skipped=skipped_of(batch),
        log_digest=batch.log_digest,
        last_commit_sha256=batch.last_commit_sha256,
        log_checksum=batch.log_checksum,
        log_etags=batch.log_etags,
        schema_changes=schema_changes_of(batch),
        event_time=event_time,
        where=batch.where,
    )


def allowances_of(connected: ConnectedStream, state: StreamState) -> Allowances:
    """Return what people, with who and why, and the installation let the stream pass."""
    words = {"schema": "accepted", "rows": "skipped"}
    said = {
        id(one): f"{words['rows'] if one.skip else words.get(str(one.of), 'acknowledged')} by {one.who}: {one.why}"
        for one in state.acknowledged
    }
    return Allowances(
        accepted={one.version: said[id(one)] for one in state.acknowledged if one.of != "rows"},
        left_out={one.version: said[id(one)] for one in state.acknowledged if one.skip},
        refused={one.version: said[id(one)] for one in state.acknowledged if one.of is UNSET},
        schema_changes=connected.context.schema_changes,
    )


def skipped_of(batch: SourceBatch) -> tuple[Skipped, ...]:
    """Return the batch's skipped commits as the ledger records them."""
    return tuple(Skipped(version=s.version, operation=s.operation, reason=s.reason) for s in batch.skipped)


def schema_changes_of(batch: SourceBatch) -> tuple[PassedSchema, ...]:
    """Return the batch's changes of the schema as the ledger records them."""
    return tuple(
        PassedSchema(version=one.version, changes=one.changes, allowed_by=one.allowed_by)
        for one in batch.schema_changes
    )
