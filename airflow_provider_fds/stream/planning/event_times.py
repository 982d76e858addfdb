"""The event times of the batches of one plan."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from airflow_provider_fds.delta.moments import time_text
from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.ledger.values import EventTime
from airflow_provider_fds.source.event_time import TimeColumn, times_of

if TYPE_CHECKING:
    from airflow_provider_fds.source.planned import SourceBatch
    from airflow_provider_fds.stream.connected_stream import ConnectedStream

logger = logging.getLogger(__name__)


class EventTimes:
    """Finds the event times of batches, if the stream names a column of them. Call :meth:`warn` once, at the end."""

    def __init__(self, connected: ConnectedStream) -> None:
        self._connected = connected
        self._name = connected.stream.options.event_time_column
        self._missing: dict[str, int] = {}

    def of(self, batch: SourceBatch) -> EventTime | None:
        """Return the times of a batch, ``None`` without ``event_time_column``.

        Raises:
            ConfigurationError: Neither the batch nor the newest version of the table has such a column, or its type has
                no times.
        """
        if self._name is None:
            return None
        found = self._found(batch, self._name)
        if found.missing:
            self._missing[found.missing] = self._missing.get(found.missing, 0) + 1
        return found

    def _found(self, batch: SourceBatch, name: str) -> EventTime:
        log = self._connected.log
        column = TimeColumn.find(batch.state.metadata, name, table=log.table_uri)
        if column is None:
            self._check_newest(name)
            return EventTime(missing=f"the table has no column {name} at version {batch.last_version}")
        times = times_of(batch.files, column)
        if times.unknown:
            return EventTime(missing=f"{times.unknown} of {times.files} files have no statistics of column {name}")
        if times.range is None:
            return EventTime()
        found = times.range
        return EventTime(min=time_text(found.min_us), max=time_text(found.max_us), seen=time_text(found.seen_us))

    def _check_newest(self, name: str) -> None:
        """Refuse a column that the table has never had, or has no longer; it may have been added later."""
        log = self._connected.log
        newest = log.latest()
        if TimeColumn.find(log.state_at(newest).metadata, name, table=log.table_uri) is None:
            raise ConfigurationError(
                f"{log.table_uri}: version {newest} has no column {name!r}, which event_time_column of stream "
                f"{self._connected.stream.name!r} names. Name an existing column, with dots for a nested one, or omit "
                "the option.",
                table=log.table_uri,
                version=newest,
            )

    def warn(self) -> None:
        """Log one warning if batches have no event times."""
        for why, batches in list(self._missing.items())[:1]:
            logger.warning(
                "stream %s: %d planned batches have no event times, and the watermark does not move with them: %s.",
                self._connected.stream.name,
                sum(self._missing.values()),
                why if batches == sum(self._missing.values()) else f"{why}, among others",
            )
