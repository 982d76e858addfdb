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
#: How long Spark may take to end once it has reported everything.
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


def has_done_all(session: StreamSession, work: RunWork) -> bool:
    """Commit what a driver has reported that an earlier attempt had left and that has ended.

    Returns:
        Whether that is all of ``work``; else its end is recorded, and the next attempt at the batches starts another
        driver.
    """
    if len(session.collect(work, is_running=True).committed) == len(work.batches):
        return True
    session.driver.ended(work)
    return False


@contextmanager
def collecting(
    session: StreamSession,
    work: RunWork,
    tell: Callable[[Collected], object] | None = None,
    *,
    end: Callable[[], object] | None = None,
    poll_seconds: float = POLL_SECONDS,
    grace_seconds: float = GRACE_SECONDS,
) -> Iterator[threading.Event]:
    """Commit each batch of ``work`` as soon as the driver has reported it, while the body waits for Spark.

    The session must not be used elsewhere until the body has ended. Errors do not propagate from here: the caller
    collects once more after Spark has ended and gets them then.

    Args:
        session: The run.
        work: The work that Spark runs.
        tell: Called from a separate thread with the attempt's outcome so far, whenever more batches are committed;
            default: a line in the log.
        end: See :func:`committing`; called once all batches are committed.
        poll_seconds: See :func:`committing`.
        grace_seconds: See :func:`committing`.

    Yields:
        See :func:`committing`.
    """
    if not work.batches:
        yield threading.Event()
        return
    subject = f"Stream {session.stream.name}"

    def say(collected: Collected) -> None:
        done, planned = len(collected.committed), len(work.batches)
        then = "Spark works on the next one" if done < planned else "waiting for Spark to end"
        logger.info("%s: committed %d of %d batches; %s.", subject, done, planned, then)

    count = 0

    def commit() -> bool:
        nonlocal count
        collected = commit_reported(session, work)
        if len(collected.committed) > count:
            count = len(collected.committed)
            (tell or say)(collected)
        return count == len(work.batches)

    with committing(
        commit, subject=subject, end=end, poll_seconds=poll_seconds, grace_seconds=grace_seconds
    ) as was_ended:
        yield was_ended


@contextmanager
def committing(
    commit: Callable[[], bool],
    *,
    subject: str = "Fleet",
    end: Callable[[], object] | None = None,
    poll_seconds: float = POLL_SECONDS,
    grace_seconds: float = GRACE_SECONDS,
) -> Iterator[threading.Event]:
    """Call ``commit`` every ``poll_seconds``, in one separate thread, while the body waits for Spark.

    After an error it is called again: what fails for one stream may work for the others. Once nothing is left to
    report, nothing is lost if Spark does not end by itself: ``end`` then ends it. The body's end waits for a call that
    is running; there is none afterwards.

    Args:
        commit: Commits what is reported so far; returns whether Spark has reported everything.
        subject: What the log calls the work.
        end: Ends the Spark application, and with it the body; called once, from that thread.
        poll_seconds: Time between two calls.
        grace_seconds: How long the body may go on once everything is reported.

    Yields:
        Set if ``end`` was called: what Spark then says about its end is no failure.
    """
    was_ended = threading.Event()
    has_failed = False
    ends_at: float | None = None

    def call() -> bool:
        nonlocal has_failed, ends_at
        if ends_at is None:
            try:
                is_done = commit()
            except Exception:
                if not has_failed:
                    logger.warning(
                        "%s: batches could not be committed while Spark works; FDS tries again.", subject, exc_info=True
                    )
                has_failed = True
                return True
            if is_done:
                ends_at = time.monotonic() + grace_seconds
            return end is not None or not is_done
        if end is None or time.monotonic() < ends_at:
            return True
        logger.warning(
            "%s: Spark has reported everything, but has not ended within %d s. FDS ends it: something keeps its driver "
            "alive, such as a thread of a function or of a library.",
            subject,
            grace_seconds,
        )
        was_ended.set()
        end()
        return False

    with _repeating(call, poll_seconds):
        yield was_ended


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
