"""What an error of FDS means for a task: another try, or the end."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from airflow_provider_fds.errors import FdsError

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def task_failures() -> Iterator[None]:
    """Let retryable errors of FDS through, and make all others fail the task for good.

    A retry of a missing connection, a bad commit or a lost position finds the same again, only later.

    Raises:
        AirflowFailException: With class and message of an error that is not retryable.
    """
    try:
        yield
    except FdsError as error:
        if error.retryable:
            raise
        from airflow.providers.common.compat.sdk import AirflowFailException

        raise AirflowFailException(f"{type(error).__name__}: {error}") from error
