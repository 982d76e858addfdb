"""Committing batches while Spark is still at work on the next ones."""

from __future__ import annotations

import logging
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from airflow_provider_fds.errors import FdsError
from airflow_provider_fds.stream.result import Collected

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from airflow_provider_fds.stream.base_session import Session
    from airflow_provider_fds.stream.result import RunWork

logger = logging.getLogger(__name__)

#: One request that finds nothing, most of the time.
POLL_SECONDS: Final = 3.0


def commit_reported(session: Session, work: RunWork) -> Collected:
    """Commit what is reported so far, while Spark is still at it. Returns what came of the attempt until now.

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
    session: Session,
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
        tell: Called, from a thread of its own, with what came of the attempt whenever that is more than before;
            default: a line in the log.
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


__all__ = ["POLL_SECONDS", "collecting", "commit_reported"]
