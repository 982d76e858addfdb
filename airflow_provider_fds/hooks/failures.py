"""How errors of FDS end a task: with another attempt, or without one."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from airflow_provider_fds.errors import FdsError, with_staging
from airflow_provider_fds.hooks.settings import staging_uri
from airflow_provider_fds.stream.value import DeltaStream

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


@contextmanager
def task_failures(stream: DeltaStream | str | Mapping[str, Any] | None = None) -> Iterator[None]:
    """Let retryable errors of FDS through, and make all others fail the task without a retry.

    A retry after a missing connection, a bad commit or a lost position would only fail later with the same error.

    Args:
        stream: The stream, as given to the task: a message that names commands of ``fds`` then also names the staging
            folder.

    Raises:
        AirflowFailException: With class and message of an error that is not retryable.
    """
    try:
        yield
    except FdsError as error:
        if error.retryable:
            raise
        from airflow.providers.common.compat.sdk import AirflowFailException

        raise AirflowFailException(f"{type(error).__name__}: {_with_staging(str(error), stream)}") from error


def with_staging_of(reason: str, stream: DeltaStream) -> str:
    """Return the reason of a skip, with the staging folder for the commands of ``fds`` in it."""
    return _with_staging(reason, stream)


def _with_staging(message: str, stream: DeltaStream | str | Mapping[str, Any] | None) -> str:
    if stream is None:
        return message
    with suppress(FdsError):
        if not isinstance(stream, str):
            stream = DeltaStream.coerce(stream)
        uri = staging_uri(None, stream) if isinstance(stream, str) else staging_uri(stream.staging, stream.name)
        return with_staging(message, uri)
    return message
