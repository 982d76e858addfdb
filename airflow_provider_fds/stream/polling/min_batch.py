"""Waiting for more data: while less than ``min_batch_bytes`` is available, for at most ``max_batch_wait``."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from airflow_provider_fds.durations import format_duration
from airflow_provider_fds.sizes import format_bytes

if TYPE_CHECKING:
    from airflow_provider_fds.source.planned import SourceBatch
    from airflow_provider_fds.stream.declaration.delta_stream import DeltaStream


@dataclass(frozen=True, slots=True)
class MinBatch:
    """The smallest work that a stream plans, and how long smaller work waits.

    Work waits from the time of its oldest commit on. A time that is further from the worker's clock than
    ``wait_seconds``, in either direction, does not wait: so a wrong clock only shortens the wait, or at most doubles
    it.

    Attributes:
        stream: Name of the stream.
        min_bytes: Bytes of data files from which on nothing waits.
        wait_seconds: How long after its oldest commit work may wait.
    """

    stream: str
    min_bytes: int
    wait_seconds: float

    @classmethod
    def of(cls, stream: DeltaStream) -> MinBatch | None:
        """Return the minimum of a stream; ``None`` if it has none, or ends, so that more may never come."""
        options = stream.options
        ends = (options.ending_version, options.ending_timestamp, options.version_as_of, options.timestamp_as_of)
        if options.min_batch_bytes is None or stream.backfill_range is not None or any(end is not None for end in ends):
            return None
        return cls(stream.name, options.min_batch_bytes, options.max_batch_wait.total_seconds())

    def waiting(self, num_bytes: int, oldest_ms: int) -> WaitingWork | None:
        """Return the work as work that waits, or ``None`` if it does not.

        Args:
            num_bytes: Bytes of the data files that are available.
            oldest_ms: Time of the oldest commit among them, milliseconds since the epoch.
        """
        waiting = WaitingWork(self, num_bytes, oldest_ms)
        return waiting if num_bytes < self.min_bytes and waiting.seconds_left > 0 else None

    def waiting_batch(self, batch: SourceBatch) -> WaitingWork | None:
        """Return the last batch up to the newest version as work that waits, or ``None`` if it does not.

        The rest of an initial snapshot, or of a commit, never waits: its first part is in the sink already.
        """
        if not batch.files or batch.start.is_initial_snapshot or batch.start.next_index > 0:
            return None
        return self.waiting(batch.num_bytes, batch.files[0].timestamp_ms)


@dataclass(frozen=True, slots=True)
class WaitingWork:
    """Available work that is smaller than the minimum.

    Attributes:
        minimum: The minimum.
        num_bytes: Bytes of the data files.
        oldest_ms: Time of the oldest commit among them, milliseconds since the epoch.
    """

    minimum: MinBatch
    num_bytes: int
    oldest_ms: int

    @property
    def seconds_left(self) -> float:
        """Seconds until the work no longer waits; 0 if it need not wait."""
        age = time.time() - self.oldest_ms / 1000
        return self.minimum.wait_seconds - age if abs(age) < self.minimum.wait_seconds else 0.0

    def describe(self) -> str:
        """Return how much is there, how old it is, and when it is loaded in any case."""
        age = format_duration(timedelta(seconds=max(0, round(time.time() - self.oldest_ms / 1000))))
        latest = datetime.fromtimestamp(time.time() + self.seconds_left, UTC)
        return (
            f"Stream {self.minimum.stream!r} is waiting for more data: it has {format_bytes(self.num_bytes)} of "
            f"{format_bytes(self.minimum.min_bytes)} (min_batch_bytes), and the oldest commit is {age} old. A run "
            f"after {latest:%Y-%m-%dT%H:%M:%SZ} loads it anyway (max_batch_wait)."
        )
