"""How errors of FDS end a task: with another attempt, or without one."""

from __future__ import annotations

import logging
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

from airflow_provider_fds.errors import FdsError
from airflow_provider_fds.hooks.settings import staging_uri
from airflow_provider_fds.stream.declaration.delta_stream import DeltaStream

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

log = logging.getLogger(__name__)

#: XCom key under which a failed task says why: ``error``, ``reason_code``, ``table``, ``version``, ``operation``.
ERROR_KEY: Final = "fds_error"


@contextmanager
def task_failures(context: Any, stream: DeltaStream | str | Mapping[str, Any] | None = None) -> Iterator[None]:
    """Let retryable errors of FDS through, and make all others fail the task without a retry.

    A retry after a missing connection, a bad commit or a lost position would only fail later with the same error. One
    after another error comes after a delay that grows (:mod:`~.hooks.retries`).
    Either way the exception has the facts of the error as attributes, its last line names them, and the XCom
    ``fds_error`` of the task has them. It has no cause: the task's log ends with the message, once, and not with the
    tracebacks of what it was made from, which are in the log at level DEBUG.

    Args:
        context: The task's context.
        stream: The stream, as given to the task: a message that names commands of ``fds`` then also names the staging
            folder.

    Raises:
        TaskFailedError: With class and message of an error that is not retryable, which is its ``error``.
    """
    try:
        yield
    except FdsError as error:
        push_error(context, {"error": type(error).__name__, **error.facts()})
        log.debug("The task fails with this error:", exc_info=error)
        text = f"{_with_staging(str(error), stream)}\n{error.describe_facts()}"
        if error.retryable:
            _back_off(context, error.reason_code)
            error.args = (text,)
            raise error.with_traceback(None) from None
        from airflow_provider_fds.hooks.exceptions import TaskFailedError

        raise TaskFailedError(f"{type(error).__name__}: {text}", error.facts(), error) from None


def check_event(context: Any, event: Mapping[str, Any]) -> None:
    """Raise the error of the trigger, if its event reports one; the task's XCom ``fds_error`` then says which.

    Raises:
        TaskFailedError: A retry would meet the same error again.
        TaskInterruptedError: A retry may help.
    """
    if event.get("status") == "error":
        from airflow_provider_fds.hooks.exceptions import TaskFailedError, TaskInterruptedError

        facts = {name: event.get(name) for name in ("reason_code", "table", "version", "operation")}
        push_error(context, {"error": event.get("error"), **facts})
        known = " ".join(f"{name}={value}" for name, value in facts.items() if value is not None)
        message = f"{event.get('error')}: {event.get('message')}\n{known}".rstrip()
        if event.get("retryable"):
            _back_off(context, facts["reason_code"])
            raise TaskInterruptedError(message, facts)
        raise TaskFailedError(message, facts)


def push_error(context: Any, error: Mapping[str, Any]) -> None:
    """Write why the task fails to its XCom ``fds_error``, if Airflow accepts it."""
    try:
        context["ti"].xcom_push(key=ERROR_KEY, value=dict(error))
    except Exception:  # the task fails in any case, and its own error matters
        log.debug("Cannot write the XCom %s.", ERROR_KEY, exc_info=True)


def _back_off(context: Any, reason_code: str | None) -> None:
    # most tasks do not fail
    from airflow_provider_fds.hooks.retries import back_off

    back_off(context, reason_code)


def with_staging_of(reason: str, stream: DeltaStream) -> str:
    """Return the reason of a skip, with the staging folder for the commands of ``fds`` in it."""
    return _with_staging(reason, stream)


def _with_staging(message: str, stream: DeltaStream | str | Mapping[str, Any] | None) -> str:
    if stream is None:
        return message
    # most tasks do not fail
    from airflow_provider_fds.command_hints import with_staging, with_stream

    with suppress(FdsError):
        if not isinstance(stream, str):
            stream = DeltaStream.coerce(stream)
        name, own = (stream, None) if isinstance(stream, str) else (stream.name, stream.staging)
        message = with_stream(message, name)
        return with_staging(message, staging_uri(own, name))
    return message
