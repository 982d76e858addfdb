"""Alignment with other streams: reads their watermarks from their ledgers in the same staging folder."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from airflow_provider_fds.delta.moments import microseconds_of
from airflow_provider_fds.errors import ConfigurationError, FdsError
from airflow_provider_fds.ledger.position import watermark_at
from airflow_provider_fds.ledger.staging.log import Ledger
from airflow_provider_fds.places import Place
from airflow_provider_fds.source.offset import Offset
from airflow_provider_fds.source.planning.drift import NO_WATERMARK, Drift, OtherStream
from airflow_provider_fds.stream.declaration.delta_stream import DeltaStream
from airflow_provider_fds.stream.known_tables import check_not_managed
from airflow_provider_fds.stream.polling.poll import TablePoller

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_provider_fds.delta.storage.storage import Storage
    from airflow_provider_fds.ledger.state import StreamState
    from airflow_provider_fds.stream.connected_stream import StreamContext

logger = logging.getLogger(__name__)

#: Newest entries of a ledger in which its last commit is looked for.
_ENTRIES: Final = 20
#: A stream that has committed nothing for this long holds nobody back, unless its table has something for it.
_IDLE_AFTER: Final = timedelta(minutes=15)
_ENDS: Final = ("ending_version", "ending_timestamp", "version_as_of", "timestamp_as_of")


class Alignment:
    """The streams that a stream is aligned with. Writes nothing.

    Args:
        stream: The stream, with ``align_with``.
        staging: Storage of the staging folder.
        open_table: Opens the table of another stream, if it may be idle.
    """

    def __init__(self, stream: DeltaStream, staging: Storage, open_table: Callable[[str], Storage]) -> None:
        self._stream = stream
        self._staging = staging
        self._open_table = open_table

    def drift(self, own: StreamState | None = None) -> Drift:
        """Read the watermarks and return what they admit.

        Args:
            own: State of the stream itself; ``None``: read its ledger too.

        Raises:
            ConfigurationError: One of the streams reads data intervals.
            LedgerError: A ledger cannot be read.
            StorageError: Staging does not answer.
        """
        stream = self._stream
        own = Ledger(self._staging, stream.name).find() if own is None else own
        watermark = NO_WATERMARK if own.watermark is None else microseconds_of(own.watermark)
        found = (self._other(name) for name in stream.options.align_with)
        return Drift(stream.name, stream.options, watermark, [one for one in found if one is not None], stream.table)

    def _other(self, name: str) -> OtherStream | None:
        """Return another stream, or ``None`` if it holds nobody back."""
        ledger = Ledger(self._staging, name)
        state = ledger.find()
        if state.phase == "empty":
            return OtherStream(name, NO_WATERMARK, lambda: False, f"does not exist in staging {self._staging.uri}")
        if state.reads_by_interval:
            raise ConfigurationError(
                f"stream {self._stream.name!r} has align_with={name!r}, but that stream has read='data_interval' and "
                "no watermark: its intervals are loaded in any order. Omit it from align_with.",
                table=self._stream.table,
            )
        if state.retired is not None:
            return None
        watermark = watermark_at(state.position, state.watermark)
        if watermark is not None:
            return OtherStream(name, microseconds_of(watermark), lambda: self._is_idle(ledger))
        if state.watermark is None and state.last_batch_id is not None:
            logger.warning(
                "stream %s: stream %s has committed batches but has no watermark, so nothing waits for it. It needs "
                "event_time_column, and statistics of that column.",
                self._stream.name,
                name,
            )
            return None
        return OtherStream(name, NO_WATERMARK, lambda: self._is_idle(ledger), "has no watermark yet")

    def _is_idle(self, ledger: Ledger) -> bool:
        """Whether a stream has committed nothing for :data:`_IDLE_AFTER`, and its table has nothing new for it."""
        state = ledger.state
        position = None if state.position is None else Offset.from_json(state.position)
        if position is None or position.is_initial_snapshot or state.planned:
            return False
        newest = list(ledger.entries(max(0, ledger.n + 1 - _ENTRIES)))
        last = next((one for one in reversed(newest) if one.action.kind == "committed"), newest[0])
        if datetime.now(UTC) - datetime.fromisoformat(last.time) < _IDLE_AFTER:
            return False
        if state.ended is not None and position.version > state.ended.version:
            return True
        ends = {name: value for name, value in (state.range_options or {}).items() if name in _ENDS}
        known, own = state.catalog, self._stream.catalog_conn_id
        try:
            if known is not None and known.connection == own:
                table = self._open_table(known.name)
            else:
                # what only its catalog shows would be no news
                check_not_managed(ledger, Place(state.table))
                table = self._open_table(state.table)
            found = TablePoller(DeltaStream(state.name, state.table, **ends), table, position).check()
        except FdsError as error:
            logger.warning(
                "stream %s: whether stream %s is idle is unknown, because its table cannot be read: %s",
                self._stream.name,
                state.name,
                error,
            )
            return False
        return found is None or found.is_finished or found.reason == "position is old"


def table_poller(
    stream: DeltaStream, context: StreamContext, position: Offset | None, storage: Storage | None = None
) -> TablePoller:
    """Return the poller of a stream's table from a position; ``storage`` is that of the table, if it is open."""
    storage = storage or context.open_table(stream.table)
    if not stream.options.align_with:
        return TablePoller(stream, storage, position)
    alignment = Alignment(stream, context.open_staging(), context.open_table)
    return TablePoller(stream, storage, position, alignment.drift)
