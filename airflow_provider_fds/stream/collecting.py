"""What has been collected of one try so far: batches are committed while Spark is still at the next ones."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from airflow_provider_fds.errors import FdsError
from airflow_provider_fds.stream.result import Collected

if TYPE_CHECKING:
    from collections.abc import Iterable

    from airflow_provider_fds.batch.spec import TryReport
    from airflow_provider_fds.errors import BatchFailedError
    from airflow_provider_fds.ledger.entries import PlannedBatch
    from airflow_provider_fds.stream.interval_session import IntervalSession
    from airflow_provider_fds.stream.result import RunWork
    from airflow_provider_fds.stream.session import StreamSession

logger = logging.getLogger(__name__)


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
        self.committed += batches
        self.reports.append(report)

    def result(self, failed: TryReport | None = None, failure: BatchFailedError | None = None) -> Collected:
        """Return what came of the try, with report and error of the batch that was not done."""
        reports = self.reports if failed is None else [*self.reports, failed]
        return Collected(tuple(self.committed), tuple(reports), failure)


def commit_reported(session: StreamSession | IntervalSession, work: RunWork) -> int:
    """Commit what is reported so far, while Spark is still at it. Returns how many batches of the try are committed.

    What may pass is left to the call after the end; the rest (the stream was taken away from this run) ends the job,
    because nothing more may be written for it.
    """
    try:
        return len(session.collect(work, is_running=True).committed)
    except FdsError as error:
        if not error.retryable:
            raise
        logger.warning("a batch could not be committed while Spark is at the next one, which is tried again: %s", error)
        return 0


__all__ = ["CollectedSoFar", "commit_reported"]
