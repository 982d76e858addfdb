"""The run of one stream within a run of its fleet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_provider_fds.fleet.value import FleetStream
    from airflow_provider_fds.stream.attempt.result import RunWork
    from airflow_provider_fds.stream.run.drain import Drain
    from airflow_provider_fds.stream.run.session import StreamSession


@dataclass(slots=True, eq=False)
class StreamRun:
    """The run of one stream of a fleet, with work for Spark.

    Attributes:
        stream: The stream with its sink.
        drain: Its turns.
        end: Called once when its run is over, with the error if it failed.
        apart: What an application can have one of, and this stream needs; ``None``: it fits beside every other one.
        spec_uri: URI of the job in hand, as Spark reads it.
        num_reported: Number of reports that were looked for.
    """

    stream: FleetStream
    drain: Drain
    end: Callable[[Exception | None], object]
    apart: object | None = None
    spec_uri: str = ""
    num_reported: int = 0

    @property
    def name(self) -> str:
        """Name of the stream."""
        return self.stream.stream.name

    @property
    def session(self) -> StreamSession:
        """The run's session."""
        return self.drain.session

    @property
    def work(self) -> RunWork:
        """The work in hand."""
        assert self.drain.work is not None  # noqa: S101  # only runs with work are handed out
        return self.drain.work


__all__ = ["StreamRun"]
