"""Committing batches while spark-submit is still at the next ones."""

from __future__ import annotations

import logging
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from airflow_provider_fds.stream.collecting import commit_reported

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_provider_fds.stream.interval_session import IntervalSession
    from airflow_provider_fds.stream.result import RunWork
    from airflow_provider_fds.stream.session import StreamSession

log = logging.getLogger(__name__)

#: One request that finds nothing, most of the time.
POLL_SECONDS: Final = 3.0


@contextmanager
def collecting(session: StreamSession | IntervalSession, work: RunWork) -> Iterator[None]:
    """Commit each batch of ``work`` as soon as the driver has reported it, while the body waits for Spark.

    The session belongs to this until the body is through. What goes wrong here goes no further: the caller collects
    once more after the end of Spark, and meets it then.
    """
    if len(work.batches) < 2:  # noqa: PLR2004 - with one batch there is nothing to commit before the end
        yield
        return
    ended = threading.Event()

    def collect() -> None:
        count = 0
        while not ended.wait(POLL_SECONDS):
            try:
                committed = commit_reported(session, work)
            except Exception:
                log.warning("Batches are committed when Spark has ended, not before.", exc_info=True)
                return
            if committed > count:
                count = committed
                log.info("Committed %d of %d batches; Spark is at the next one.", count, len(work.batches))

    # a process that is told to end does not wait for it
    thread = threading.Thread(target=collect, name="fds-collect", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
