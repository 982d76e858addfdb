"""The run of one stream within a run of its fleet."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_provider_fds.stream.run.collecting import commit_reported, has_done_all

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_provider_fds.fleet.result import FleetOutcome
    from airflow_provider_fds.fleet.value import FleetStream
    from airflow_provider_fds.stream.attempt.result import RunWork
    from airflow_provider_fds.stream.run.batch_commits import Drivers
    from airflow_provider_fds.stream.run.session import StreamSession

logger = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class StreamRun:
    """The run of one stream of a fleet, with work for Spark.

    Attributes:
        stream: The stream with its sink.
        session: The run.
        end: Called once when its run is over, with the error if it failed.
        apart: What an application can have one of, and this stream needs; ``None``: it fits beside every other one.
        spec_uri: URI of the job in hand, as Spark reads it.
        num_reported: Number of reports that were looked for.
        is_resumed: Whether an earlier process of this attempt may have loaded something.
        has_loaded: Whether it has, and nothing is left.
        left: The part of the work on which the driver of an earlier attempt works, which is waited for.
        num_committed: Number of batches of the work in hand that are known to be committed.
    """

    stream: FleetStream
    session: StreamSession
    end: Callable[[Exception | None], object]
    apart: object | None = None
    spec_uri: str = ""
    num_reported: int = 0
    is_resumed: bool = False
    has_loaded: bool = False
    left: RunWork | None = None
    num_committed: int = 0

    def turn(self, work: RunWork | None, drivers: Drivers | None) -> None:
        """Begin with other work, or that part of it on which a driver works already."""
        self.num_reported = self.num_committed = 0
        self.has_loaded = work is None and self.is_resumed and self.session.result() is not None
        self.left = None if work is None or drivers is None else self.session.driver.left(work, drivers)

    def commit_reported(self) -> None:
        """Commit what Spark has reported so far, while it works on the rest."""
        try:
            self.num_committed = len(commit_reported(self.session, self.work).committed)
        except Exception as error:  # noqa: BLE001  # the call after Spark has ended meets it again
            logger.warning("Stream %s: its batches are committed only after Spark has ended: %s", self.name, error)

    def has_rest_of_left(self) -> bool:
        """Commit what the driver has reported that was left, and has ended; whether another one must do the rest."""
        if self.left is None or has_done_all(self.session, self.left):
            return False
        logger.warning("Stream %s: another driver loads what that of the earlier attempt has left.", self.name)
        return True

    @property
    def driver(self) -> tuple[str, str, str] | None:
        """Kind and address of a cluster, and its name of the driver that an earlier attempt has left at the work."""
        submitted = None if self.left is None else self.left.submitted
        return None if submitted is None else (submitted.cluster, submitted.address, submitted.driver)

    @property
    def why_over(self) -> tuple[FleetOutcome, str]:
        """The outcome of a stream with no work left, and the reason."""
        idle = self.session.idle
        if self.session.has_committed or self.has_loaded or idle is None:
            return "loaded", ""
        if idle.status == "up_to_date":
            return ("waiting" if idle.reason else "up_to_date"), idle.reason
        if idle.status == "waiting":
            return "waiting", idle.reason
        return ("finished" if idle.status == "finished" else "paused"), idle.reason

    @property
    def waits(self) -> bool:
        """Whether the stream has data that waits for more or for another stream."""
        return self.session.idle is not None and bool(self.session.idle.reason)

    @property
    def name(self) -> str:
        """Name of the stream."""
        return self.stream.stream.name

    @property
    def work(self) -> RunWork:
        """The work in hand."""
        work = self.left or self.session.work
        assert work is not None  # noqa: S101  # only runs with work are handed out
        return work
