"""How far a stream may read ahead of others in event time: where ``max_drift`` ends a plan."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from airflow_provider_fds.delta.actions import Cdc
from airflow_provider_fds.delta.moments import time_text
from airflow_provider_fds.durations import format_duration
from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.source.event_time import TimeColumn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from airflow_provider_fds.delta.actions import Add, Metadata, Remove
    from airflow_provider_fds.source.options.options import SourceOptions

#: The watermark of a stream that has none yet: before every event time.
NO_WATERMARK: Final = -(2**63)


@dataclass(frozen=True)
class OtherStream:
    """A stream that this one is aligned with.

    Attributes:
        name: Its name.
        watermark_us: Its watermark, microseconds since the epoch, or :data:`NO_WATERMARK`.
        is_idle: Returns whether it has nothing to load, so that nobody waits for it. Called at most once.
        why: Why it has no watermark, for messages.
    """

    name: str
    watermark_us: int
    is_idle: Callable[[], bool]
    why: str = ""


@dataclass(frozen=True, slots=True)
class HeldBack:
    """A version that must wait for another stream.

    Attributes:
        stream: Name of the stream.
        version: The version.
        time_us: Its latest event time, microseconds since the epoch.
        other: The slowest of the other streams.
        max_drift: How much later than its watermark event times may be.
    """

    stream: str
    version: int
    time_us: int
    other: OtherStream
    max_drift: timedelta

    def describe(self) -> str:
        """Return which version waits for which stream, and why."""
        other = self.other
        where = f"which {other.why}" if other.why else f"whose watermark is {time_text(other.watermark_us)}"
        return (
            f"Stream {self.stream!r} is waiting for stream {other.name!r}, {where}: version {self.version} has event "
            f"times up to {time_text(self.time_us)}, and max_drift is {format_duration(self.max_drift)}. It continues "
            "when that stream has committed later rows or is idle."
        )


class Drift:
    """Decides, version by version, which versions of one plan or poll may be read.

    A version may be read if its latest event time is at most ``max_drift`` after the watermark of the slowest other
    stream. So that streams never wait for each other in a circle, the slowest stream of all always goes on: while
    nothing later than the other watermarks is committed or admitted, the next version may be read whatever its times
    are. A version whose files have no statistics may be read.

    Args:
        stream: Name of the stream.
        options: Its options, with ``event_time_column`` and ``max_drift``.
        watermark_us: Its own watermark, or :data:`NO_WATERMARK`.
        others: The streams it is aligned with.
        table: URI of its table.

    Attributes:
        held: The version that was refused, or ``None``.
        seen_us: The latest event time that is committed or admitted.
    """

    def __init__(
        self, stream: str, options: SourceOptions, watermark_us: int, others: Iterable[OtherStream], table: str
    ) -> None:
        assert options.event_time_column is not None  # noqa: S101  # the options require it
        assert options.max_drift is not None  # noqa: S101  # the options require it
        self.held: HeldBack | None = None
        self.seen_us = watermark_us
        self._stream = stream
        self._column = options.event_time_column
        self._max_drift = options.max_drift
        self._others = sorted(others, key=lambda other: other.watermark_us)
        self._table = table

    def admits(self, version: int, files: Iterable[Add | Remove | Cdc], metadata: Metadata) -> bool:
        """Whether a version may be read; if not, :attr:`held` says why.

        Args:
            version: The version.
            files: The files of it that the stream reads.
            metadata: Metadata of the table at that version.
        """
        return not self._others or self.admits_time(version, self._latest(files, metadata))

    def admits_time(self, version: int, time_us: int | None) -> bool:
        """Whether a version may be read whose latest event time is known; ``None``: it has none."""
        if time_us is None:
            return True
        while self._others:
            slowest = self._others[0]
            limit = slowest.watermark_us + self._max_drift // timedelta(microseconds=1)
            if time_us <= limit or self.seen_us <= slowest.watermark_us:
                break
            if not slowest.is_idle():
                self.held = HeldBack(self._stream, version, time_us, slowest, self._max_drift)
                return False
            del self._others[0]
        self.seen_us = max(self.seen_us, time_us)
        return True

    def _latest(self, files: Iterable[Add | Remove | Cdc], metadata: Metadata) -> int | None:
        try:
            column = TimeColumn.find(metadata, self._column, table=self._table)
        except ConfigurationError:
            # the plan reports it
            return None
        if column is None:
            return None
        found: int | None = None
        for file in files:
            if isinstance(file, Cdc):
                # change files have no statistics
                continue
            try:
                times = column.times_of(file)
            except LookupError:
                continue
            if times is not None:
                found = times.seen_us if found is None else max(found, times.seen_us)
        return found
