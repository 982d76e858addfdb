"""The turns of one run on its stream: what to hand to Spark next, and what to make of what Spark did."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Final

from airflow_provider_fds.errors import StoppedError
from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.stream.attempt.result import describe_reports

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_provider_fds.errors import FdsError
    from airflow_provider_fds.sinks import Sink
    from airflow_provider_fds.stream.attempt.result import Collected, LoadResult, RunWork
    from airflow_provider_fds.stream.run.linger import Linger
    from airflow_provider_fds.stream.run.session import StreamSession

logger = logging.getLogger(__name__)

#: What a task logs of :attr:`Drain.stopped`.
STOPPED: Final = "Stream %s: everything before this version was delivered; the stream stops here: %s"


class Drain:
    """Works off a stream up to the run's target: :meth:`next_work`, Spark, :meth:`collect`, until nothing is left.

    Args:
        session: The run.
        sink: Where its batches go.
        max_batches: Maximum number of batches in one Spark application.
        max_in_all: Maximum number of batches of the run; ``None``: no limit.
        retry: Whether the run may have worked before; see :meth:`StreamSession.begin`.
        stop_after_ms: No batch is started after this time (milliseconds since the epoch); ``None``: no limit.
        linger: How the run waits for more when it has loaded everything; ``None``: it does not.

    Attributes:
        work: The work in hand, or the last one.
        idle: The work of a turn that found nothing to do, which says why; ``None`` if there was no such turn.
        stopped: The error with which the next run fails or pauses, if the stream stops before a version after what was
            loaded.
        has_committed: Whether a turn has committed batches.
        on_caught_up: Called each time that everything is loaded, before a run that lingers waits for more.
        is_out_of_time: Whether the limit of time ended the run before everything was loaded.
    """

    def __init__(
        self,
        session: StreamSession,
        sink: Sink,
        *,
        max_batches: int = 200,
        max_in_all: int | None = None,
        retry: bool = False,
        stop_after_ms: int | None = None,
        linger: Linger | None = None,
    ) -> None:
        self.session = session
        if linger is not None:
            session.scope.is_open_ended = True
        self._name = session.stream.name
        self.sink = sink
        self.work: RunWork | None = None
        self.idle: RunWork | None = None
        self.stopped: FdsError | None = None
        self.has_committed = False
        self.is_out_of_time = False
        self.on_caught_up: Callable[[], object] = lambda: None
        self._max_batches = max_batches
        self._left = max_in_all
        self._retry = retry
        self._stop_after_ms = stop_after_ms
        self._linger = linger
        self._is_over = False
        # whether it is over only until something new comes
        self._has_caught_up = False
        self._done: LoadResult | None = None

    def next_work(self) -> RunWork | None:
        """Return the next work for Spark, with status ``work`` or ``fence``, or ``None`` if nothing is left.

        Raises:
            StreamBusyError: Another run owns the next batches.
            FdsError: As :meth:`StreamSession.begin`. A version that the stream cannot pass is an error only if nothing
                was loaded before it; else it is :attr:`stopped`.
        """
        in_vain = 0
        while True:
            work = self._next_work()
            linger = self._linger
            if work is not None or linger is None or not self._has_caught_up or not self.session.scope.goes_on():
                return work
            if linger.needs_data and not self.has_committed:
                return None
            self.on_caught_up()
            if not linger.wait(self.session, in_vain=in_vain):
                return None
            in_vain += 1
            self._is_over = self._has_caught_up = False
            self.idle = None

    def _next_work(self) -> RunWork | None:
        if self._is_over:
            return None
        try:
            most = self._max_batches if self._left is None else min(self._max_batches, self._left)
            work = self.session.begin(self.sink, max_batches=most, retry=self._retry)
        except StoppedError as stopped:
            if not self.has_committed:
                raise
            self._end(stopped)
            return None
        if work.status == "fence" and self._linger is not None and self.has_committed:
            # Spark is working for the epoch before
            self._end(None)
            return None
        if work.status in ("work", "fence"):
            if work.status == "fence":
                logger.info(
                    "Stream %s: epoch %d was requested; the earlier epochs are closed in the sink first.",
                    self._name,
                    work.epoch,
                )
            self.work = work
            return work
        if work.status == "done":
            if self._linger is None:
                logger.info(
                    "Stream %s: this run has already committed everything up to version %s.", self._name, work.target
                )
            self._done = work.result
            self._end(work.warning, has_caught_up=self._linger is not None)
            return None
        self.idle = work
        self._end(None, has_caught_up=work.status in ("up_to_date", "waiting"))
        return None

    def job(self) -> str:
        """Write the job of the work in hand to staging and return its URI."""
        assert self.work is not None  # noqa: S101  # the caller has begun it
        linger = None if self._linger is None else self._linger.driver_seconds
        return self.session.job(self.work, self.sink, stop_after_ms=self._stop_after_ms, linger_seconds=linger)

    def collect(self, *, spark_failed: bool) -> Collected:
        """Commit what Spark has done of the work in hand, and return it.

        Its ``failure`` is for the caller to raise. A batch that was not started because the time was up is no failure;
        then :attr:`is_out_of_time` is set.

        Args:
            spark_failed: Whether the Spark application ended with an error.

        Raises:
            VerificationError: As :meth:`StreamSession.collect`.
        """
        work = self.work
        assert work is not None  # noqa: S101  # the caller has begun it
        collected = self.session.collect(work)
        if any(report.is_done for report in collected.reports):
            logger.info("Stream %s, this application: %s.", self._name, describe_reports(collected.reports))
        is_late = self._stop_after_ms is not None and time.time() * 1000 >= self._stop_after_ms
        if collected.failure is not None:
            was_started = len(collected.reports) > len(collected.committed)
            if work.status == "fence":
                was_started = collected.failure.reason_code != Reason.SPARK_ENDED_EARLY
            if spark_failed or not is_late or was_started:
                self._is_over = True
                return collected
        if work.status == "fence" and collected.failure is None:
            return collected
        self.has_committed = True
        if self._left is not None:
            self._left -= len(collected.committed)
        self.is_out_of_time = is_late and (collected.failure is not None or work.is_more)
        if self.is_out_of_time or not work.is_more or self._left == 0:
            self._is_over = True
            self._has_caught_up = not self.is_out_of_time and not work.is_more and self._left != 0
        self.stopped = work.warning or self.stopped
        self._has_caught_up = self._has_caught_up and self.stopped is None
        return collected

    @property
    def is_more(self) -> bool:
        """Whether the run ended before everything was loaded that it found when it planned last."""
        return self.idle is None and self.work is not None and self.work.is_more

    def result(self) -> LoadResult | None:
        """Return what the run has committed, or ``None`` if nothing."""
        # a run that lingers may have committed more since
        return (None if self._linger else self._done) or self.session.result()

    def _end(self, stopped: FdsError | None, *, has_caught_up: bool = False) -> None:
        self._is_over, self._has_caught_up = True, has_caught_up and stopped is None
        self.stopped = stopped or self.stopped


__all__ = ["STOPPED", "Drain"]
