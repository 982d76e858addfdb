"""What a task still reports when Airflow ends it: by SIGTERM, or after its ``execution_timeout``."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from airflow_provider_fds.errors import BatchFailedError
from airflow_provider_fds.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    from airflow_provider_fds.errors import FdsError

#: How long an ending task waits for its report. Airflow kills a task 5 seconds after its SIGTERM.
BOUND_SECONDS: Final = 4.0

_KILLED: Final = (
    "Airflow killed the task: someone marked or cleared it, the scheduler gave it up, or its worker was stopped. The "
    "next attempt or run checks the sink first and works on the same rows"
)


@contextmanager
def reporting_interruption(report: Callable[[FdsError], object]) -> Iterator[None]:
    """Report if the body is interrupted; an error that the body raises by itself is left to the caller.

    A SIGTERM is reported at once, in a thread, before the handler of Airflow goes on: Spark can take longer to stop
    than Airflow waits before it kills the process. A timeout of Airflow, which is no ``Exception``, is reported before
    it leaves the body. Neither takes longer than :data:`BOUND_SECONDS`.

    Args:
        report: Called with the reason, in a thread; must not raise, nor ask Airflow anything.
    """
    threads: list[threading.Thread] = []

    def begin(message: str) -> None:
        error = BatchFailedError(message, reason=Reason.TASK_KILLED)
        threads.append(threading.Thread(target=report, args=(error,), daemon=True))
        threads[-1].start()

    try:
        with _on_sigterm(lambda: begin(_KILLED)):
            yield
    except Exception:
        raise
    except BaseException as error:
        if not threads:
            begin(f"The task was ended by {type(error).__name__}: {error}")
        raise
    finally:
        for thread in threads:
            thread.join(BOUND_SECONDS)


@contextmanager
def _on_sigterm(begin: Callable[[], None]) -> Iterator[None]:
    """Call ``begin`` at a SIGTERM, before the handler that is installed; without one, as in a terminal, never."""
    before = signal.getsignal(signal.SIGTERM)
    if not callable(before) or threading.current_thread() is not threading.main_thread():
        yield
        return
    process = os.getpid()

    def handle(number: int, frame: FrameType | None) -> None:
        if os.getpid() == process:
            begin()
        before(number, frame)

    signal.signal(signal.SIGTERM, handle)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGTERM) is handle:
            signal.signal(signal.SIGTERM, before)
