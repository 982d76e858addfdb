"""Plans a data interval: turns its versions into planned batches, all of them or none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from airflow_provider_fds.batch.manifest import build_manifest
from airflow_provider_fds.batch.publish import write_manifest
from airflow_provider_fds.batch.spec import BatchSpec, txn_version
from airflow_provider_fds.errors import LostPositionError
from airflow_provider_fds.ledger.intervals import digest_of_parts, interval_folder
from airflow_provider_fds.source.offset import Offset
from airflow_provider_fds.source.plan import BatchPlanner, SourceBatch, range_digest
from airflow_provider_fds.source.start import starting_state
from airflow_provider_fds.stream.planning import acknowledged_of, describe, with_manifests

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow_provider_fds.batch.manifest import Manifest
    from airflow_provider_fds.delta.log import DeltaLog, TableState
    from airflow_provider_fds.ledger.state import IntervalRecord, StreamState
    from airflow_provider_fds.ledger.values import PlannedBatch
    from airflow_provider_fds.stream.connect import ConnectedStream

_NO_COMMITS: Final = ""


def plan_interval(
    connected: ConnectedStream, state: StreamState, record: IntervalRecord, *, replaces: bool
) -> tuple[PlannedBatch, ...]:
    """Plan all versions of an interval and write the manifests. Writes nothing to the ledger.

    Args:
        connected: The stream.
        state: State of the ledger.
        record: The opened interval.
        replaces: Whether the sink replaces; such a sink needs a batch even if there are no rows.

    Raises:
        StoppedError: The interval has a version that the stream may not pass.
        LostPositionError: Commits of the interval are gone.
    """
    empty: SourceBatch | None = None
    batches: list[PlannedBatch] = []
    if record.first_version <= record.last_version:
        start = Offset(str(state.table_id), record.first_version)
        planner = BatchPlanner(
            connected.log,
            start,
            starting_state(connected.log, start),
            connected.stream.options,
            record.last_version,
            acknowledged=acknowledged_of(state),
        )
        for batch, manifest in with_manifests(connected, planner):
            if manifest is None:
                empty = batch
            else:
                batches.append(_written(connected, record, len(batches), batch, manifest))
        if planner.outcome is not None and planner.outcome.error is not None:
            raise planner.outcome.error
    if batches or not replaces:
        return tuple(batches)
    empty = empty or _nothing(connected, state, record)
    return (_written(connected, record, 0, empty, build_manifest(empty, table_uri=connected.log.table_uri)),)


def interval_spec(
    state: StreamState, record: IntervalRecord, parts: Sequence[PlannedBatch], stream_uri: str
) -> BatchSpec:
    """Return batches of an interval that form one transaction, as the Spark driver needs them.

    Args:
        state: State of the ledger.
        record: The interval.
        parts: One batch for a sink that appends, all batches for one that replaces.
        stream_uri: URI of the stream's folder in staging as Spark reaches it, without a trailing slash.
    """
    rows = [part.num_rows for part in parts]
    manifests = [f"{stream_uri}/{part.manifest}" for part in parts]
    return BatchSpec(
        stream=state.name,
        uuid=state.uuid,
        epoch=record.generation,
        batch_id=parts[-1].batch_id,
        start=parts[0].start,
        end=parts[-1].end,
        after=parts[0].start,
        first_version=parts[0].first_version,
        last_version=parts[-1].last_version,
        manifest=manifests[0],
        manifest_digest=digest_of_parts(parts),
        num_files=sum(part.num_files for part in parts),
        num_bytes=sum(part.num_bytes for part in parts),
        num_rows=None if None in rows else sum(row for row in rows if row is not None),
        prev_txn_version=parts[0].prev_txn_version,
        interval=record.interval,
        more_manifests=tuple(manifests[1:]),
    )


def _written(
    connected: ConnectedStream, record: IntervalRecord, batch_id: int, batch: SourceBatch, manifest: Manifest
) -> PlannedBatch:
    generation = record.generation
    key = f"manifests/{interval_folder(record.interval)}/{generation}/{batch_id}-{manifest.digest}"
    write_manifest(manifest, connected.staging, connected.folder.below(key))
    previous = txn_version(generation, batch_id - 1) if batch_id else None
    return describe(batch, batch_id, key, manifest.digest, previous)


def _nothing(connected: ConnectedStream, state: StreamState, record: IntervalRecord) -> SourceBatch:
    """Return a batch without files, for an interval without commits, with the schema the table had."""
    start = Offset(str(state.table_id), record.first_version)
    return SourceBatch(
        start,
        start,
        (),
        _state_near(connected.log, max(record.last_version, 0)),
        (),
        record.first_version,
        record.last_version,
        range_digest(()),
        _NO_COMMITS,
        "whole_files" if connected.stream.options.read_change_feed else None,
    )


def _state_near(log: DeltaLog, version: int) -> TableState:
    try:
        return log.state_at(version)
    except LostPositionError:
        return log.state_at(log.latest())
