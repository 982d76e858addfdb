"""What has been collected of one try so far: batches are committed while Spark is still at the next ones."""

from __future__ import annotations

import logging
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from airflow_provider_fds.errors import FdsError
from airflow_provider_fds.stream.result import Collected

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from airflow_provider_fds.batch.spec import TryReport
    from airflow_provider_fds.errors import BatchFailedError
    from airflow_provider_fds.ledger.entries import PlannedBatch
    from airflow_provider_fds.stream.interval_session import IntervalSession
    from airflow_provider_fds.stream.result import RunWork
    from airflow_provider_fds.stream.session import StreamSession

logger = logging.getLogger(__name__)

#: One request that finds nothing, most of the time.
POLL_SECONDS: Final = 3.0


@dataclass(slots=True)
class CollectedSoFar:
    """Of the try ``try_id``: what was committed, and the reports by which it was, one per transaction of the sink."""

    try_id: str = ""
    committed: list[PlannedBatch] = field(default_factory=list)
    reports: list[TryReport] = field(default_factory=list)

    def of(self, work: RunWork) -> CollectedSoFar:
        """Return this, if it is about the try of ``work``, else an empty one."""
        return self if self.try_id == work.try_id else CollectedSoFar(work.try_id)

    def add(self, batches: Iterable[PlannedBatch], report: TryReport) -> None:
        """Note what was committed just now, and the report that it was committed by."""
        for warning in report.warnings:
            logger.warning("%s", warning)
        self.committed += batches
        self.reports.append(report)

    def result(self, failed: TryReport | None = None, failure: BatchFailedError | None = None) -> Collected:
        """Return what came of the try, with report and error of the batch that was not done."""
        reports = self.reports if failed is None else [*self.reports, failed]
        return Collected(tuple(self.committed), tuple(reports), failure)


def commit_reported(session: StreamSession | IntervalSession, work: RunWork) -> Collected:
    """Commit what is reported so far, while Spark is still at it. Returns what came of the try until now.

    What may pass is left to the call after the end; the rest (the stream was taken away from this run) ends the job,
    because nothing more may be written for it.
    """
    try:
        return session.collect(work, is_running=True)
    except FdsError as error:
        if not error.retryable:
            raise
        logger.warning("a batch could not be committed while Spark is at the next one, which is tried again: %s", error)
        return Collected()


@contextmanager
def collecting(
    session: StreamSession | IntervalSession,
    work: RunWork,
    tell: Callable[[Collected], object] | None = None,
    *,
    poll_seconds: float = POLL_SECONDS,
) -> Iterator[None]:
    """Commit each batch of ``work`` as soon as the driver has reported it, while the body waits for Spark.

    The session belongs to this until the body is through. What goes wrong here goes no further: the caller collects
    once more after the end of Spark, and meets it then.

    Args:
        session: The run.
        work: What Spark is at.
        tell: Called, from a thread of its own, with what came of the try whenever that is more than before; default:
            a line in the log.
        poll_seconds: Time between two looks.
    """
    if len(work.batches) < 2:  # noqa: PLR2004 - with one batch there is nothing to commit before the end
        yield
        return
    ended = threading.Event()

    def say(collected: Collected) -> None:
        done, planned = len(collected.committed), len(work.batches)
        logger.info("Committed %d of %d batches; Spark is at the next one.", done, planned)

    def collect() -> None:
        count = 0
        while not ended.wait(poll_seconds):
            try:
                collected = commit_reported(session, work)
            except Exception:
                logger.warning("Batches are committed when Spark has ended, not before.", exc_info=True)
                return
            if len(collected.committed) > count:
                count = len(collected.committed)
                (tell or say)(collected)

    # a process that is told to end does not wait for it
    thread = threading.Thread(target=collect, name="fds-collect", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


__all__ = ["POLL_SECONDS", "CollectedSoFar", "collecting", "commit_reported"]
