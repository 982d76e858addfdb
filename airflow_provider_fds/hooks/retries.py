"""How long Airflow waits before it repeats a task that failed with an error which a retry may fix."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

from airflow_provider_fds.errors import FdsError

#: The wait before the first retry; each following one is twice as long, up to the longest.
FIRST: Final = timedelta(seconds=30)
LONGEST: Final = timedelta(minutes=10)
#: Airflow's own delay, which a task has if nobody has set another one.
_AIRFLOWS: Final = timedelta(minutes=5)


def delay_before(retry: int) -> timedelta:
    """Return the wait before a retry, counted from 1."""
    delay = FIRST
    for _ in range(1, min(retry, 10)):
        delay *= 2
    return min(delay, LONGEST)


def back_off(context: Any, reason_code: str | None) -> None:
    """Let Airflow 3.3 and newer retry the task after a delay that grows, unless the task says when.

    The retry policy is set on the task that is failing, because only then the reason is known; Airflow asks for it
    after the task has failed. Older versions of Airflow have no policies, and use their own delay.

    Args:
        context: The task's context.
        reason_code: Why the task fails.
    """
    ti = context.get("ti")
    task = getattr(ti, "task", None)
    # the attribute is missing in older versions
    if getattr(task, "retry_policy", task) is not None or task is None:
        return
    if task.retry_delay != _AIRFLOWS or task.retry_exponential_backoff:
        return
    from airflow.sdk import ExceptionRetryPolicy, RetryAction, RetryRule

    from airflow_provider_fds.hooks.exceptions import TaskInterruptedError

    task.retry_policy = ExceptionRetryPolicy(
        [
            RetryRule(
                exception=[FdsError, TaskInterruptedError],
                action=RetryAction.RETRY,
                retry_delay=delay_before(ti.try_number),
                reason=reason_code,
            )
        ]
    )
