"""Where a live stream began, for a backfill that ends before it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.ledger.entries.epoch_entries import Opened
from airflow_provider_fds.ledger.staging.log import Ledger
from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.source.offset import Offset
from airflow_provider_fds.stream.declaration.backfill_range import LIVE_START

if TYPE_CHECKING:
    from airflow_provider_fds.stream.connected_stream import StreamContext
    from airflow_provider_fds.stream.declaration.delta_stream import DeltaStream


def with_known_end(stream: DeltaStream, context: StreamContext) -> DeltaStream:
    """Return the stream with ``end="live_start"`` of a backfill resolved to a version; any other stream as it is.

    The backfill's own ledger records the version when it plans, so that a later rewind of the live stream does not
    change it.

    Raises:
        ConfigurationError: The range has a template that was not rendered; or the live stream has not begun, began at
            the table's first version, or began with a snapshot, which has the rows of all versions before it.
    """
    backfill = stream.backfill_range
    if backfill is None:
        return stream
    if not backfill.is_rendered:
        raise ConfigurationError(
            f"The backfill of stream {backfill.of!r} goes from {backfill.start!r} to {backfill.end!r}, but these "
            "are unrendered templates. Use the stream in an Airflow operator, or set values.",
            table=stream.table,
            reason=Reason.BACKFILL_NOT_AVAILABLE,
        )
    if not backfill.ends_at_live_start or backfill.end_version is not None:
        return stream
    staging = context.open_staging()
    ended = Ledger(staging, stream.name).find().ended
    if ended is not None and ended.instant == LIVE_START:
        return stream.ending_before_live(ended.version + 1)
    starts = starts_of(Ledger(staging, backfill.of))
    # an epoch may have read another table, which was at this place before
    starts = [start for start in starts if start.table_id == starts[-1].table_id]
    subject = f"The backfill of stream {backfill.of!r} ends where that stream began, and "
    if not starts:
        raise ConfigurationError(
            f"{subject}it has not begun: it has no position in {staging.uri}. Run it first, or give the backfill "
            "an explicit end.",
            table=stream.table,
            reason=Reason.BACKFILL_NOT_AVAILABLE,
        )
    first = min(starts, key=lambda start: start.version)
    snapshots = [start for start in starts if start.is_initial_snapshot]
    if snapshots:
        raise ConfigurationError(
            f"{subject}it began with the snapshot of version {snapshots[0].version}, which has the rows of all "
            "earlier versions. There is nothing to backfill. To load the older versions as they were, give the "
            "backfill an explicit end and another sink.",
            table=stream.table,
            version=snapshots[0].version,
            reason=Reason.BACKFILL_NOT_AVAILABLE,
        )
    if first.version == 0:
        raise ConfigurationError(
            f"{subject}it began at version 0, the first version of the table. There is nothing to backfill.",
            table=stream.table,
            version=0,
            reason=Reason.BACKFILL_NOT_AVAILABLE,
        )
    if isinstance(backfill.start, int) and backfill.start >= first.version:
        raise ConfigurationError(
            f"{subject}it began at version {first.version}, which is not after the start of the range, version "
            f"{backfill.start}. There is nothing to backfill.",
            table=stream.table,
            version=first.version,
            reason=Reason.BACKFILL_NOT_AVAILABLE,
        )
    return stream.ending_before_live(first.version)


def starts_of(ledger: Ledger) -> list[Offset]:
    """Return where the epochs of a stream began; empty if it has not begun."""
    state = ledger.find()
    if state.phase == "open" and state.epoch == 1 and state.epoch_start is not None:
        return [Offset.from_json(state.epoch_start)]
    if state.phase == "empty":
        return []
    return [Offset.from_json(entry.action.start) for entry in ledger.entries() if isinstance(entry.action, Opened)]
