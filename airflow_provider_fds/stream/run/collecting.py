"""Commits batches while Spark still runs the next ones."""

from __future__ import annotations

import logging
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from airflow_provider_fds.errors import FdsError
from airflow_provider_fds.stream.attempt.result import Collected

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from airflow_provider_fds.stream.attempt.result import RunWork
    from airflow_provider_fds.stream.run.session import StreamSession

logger = logging.getLogger(__name__)

#: Each poll costs one request, which usually finds nothing.
POLL_SECONDS: Final = 3.0
#: How long Spark may take to end once all batches of its work are committed.
GRACE_SECONDS: Final = 90.0


def commit_reported(session: StreamSession, work: RunWork) -> Collected:
    """Commit the batches reported so far while Spark still runs; return the attempt's outcome so far.

    Retryable errors are left to the call after Spark has ended. Any other error (another run has taken over the stream)
    ends the job, because the job may write nothing more.
    """
    try:
        return session.collect(work, is_running=True)
    except FdsError as error:
        if not error.retryable:
            raise
        logger.warning(
            "Stream %s: a batch could not be committed while Spark works on the next one; FDS tries again: %s",
            session.stream.name,
            error,
        )
        return Collected()


@contextmanager
def collecting(
    session: StreamSession,
    work: RunWork,
    tell: Callable[[Collected], object] | None = None,
    *,
    end: Callable[[], object] | None = None,
    poll_seconds: float = POLL_SECONDS,
    grace_seconds: float = GRACE_SECONDS,
) -> Iterator[None]:
    """Commit each batch of ``work`` as soon as the driver has reported it, while the body waits for Spark.

    Once all are committed, nothing is lost if Spark does not end by itself: ``end`` then ends it.

    The session must not be used elsewhere until the body has ended. Errors do not propagate from here: the caller
    collects once more after Spark has ended and gets them then.

    Args:
        session: The run.
        work: The work that Spark runs.
        tell: Called from a separate thread with the attempt's outcome so far, whenever more batches are committed;
            default: a line in the log.
        end: Ends the Spark application, and with it the body; called once, from that thread.
        poll_seconds: Time between two polls.
        grace_seconds: How long the body may go on once all batches are committed.
    """
    if not work.batches:
        yield
        return

    def say(collected: Collected) -> None:
        done, planned = len(collected.committed), len(work.batches)
        then = "Spark works on the next one" if done < planned else "waiting for Spark to end"
        logger.info("Stream %s: committed %d of %d batches; %s.", session.stream.name, done, planned, then)

    count = 0
    ends_at: float | None = None

    def collect() -> bool:
        nonlocal count, ends_at
        if ends_at is not None:
            if end is None or time.monotonic() < ends_at:
                return end is not None
            logger.warning(
                "Stream %s: all batches are committed, but Spark has not ended within %d s. FDS ends it: something "
                "keeps its driver alive, such as a thread of a function or of a library.",
                session.stream.name,
                grace_seconds,
            )
            end()
            return False
        try:
            collected = commit_reported(session, work)
        except Exception:
            logger.warning(
                "Stream %s: batches are committed only after Spark has ended.", session.stream.name, exc_info=True
            )
            return False
        if len(collected.committed) > count:
            count = len(collected.committed)
            (tell or say)(collected)
        if count == len(work.batches):
            ends_at = time.monotonic() + grace_seconds
        return True

    with _repeating(collect, poll_seconds):
        yield


@contextmanager
def committing(commit: Callable[[], object], *, poll_seconds: float = POLL_SECONDS) -> Iterator[None]:
    """Call ``commit`` every ``poll_seconds``, in one separate thread, while the body waits for Spark.

    After an error it is called again: it is about many streams, and what fails for one may work for the others. The
    body's end waits for a call that is running; there is none afterwards.
    """
    has_failed = False

    def call() -> bool:
        nonlocal has_failed
        try:
            commit()
        except Exception:
            if not has_failed:
                logger.warning("Some batches could not be committed while Spark works; FDS tries again.", exc_info=True)
            has_failed = True
        return True

    with _repeating(call, poll_seconds):
        yield


@contextmanager
def _repeating(call: Callable[[], bool], seconds: float) -> Iterator[None]:
    """Call a function again and again in a separate thread, until it returns ``False`` or the body ends."""
    ended = threading.Event()

    def repeat() -> None:
        while not ended.wait(seconds) and call():
            pass

    # a daemon, so that a process that must end does not wait for it
    thread = threading.Thread(target=repeat, name="fds-collect", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


__all__ = ["GRACE_SECONDS", "POLL_SECONDS", "collecting", "commit_reported", "committing"]
