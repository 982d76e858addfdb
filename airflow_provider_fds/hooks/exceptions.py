"""What a task of FDS fails with in Airflow: exceptions that callbacks find as ``context["exception"]``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_provider_fds.errors import FdsError


class _TaskError(AirflowException):
    """An exception with the facts of an :class:`~.errors.FdsError`.

    Attributes:
        reason_code: One of :class:`~.reasons.Reason`.
        table: URI of the source table, if the error concerns one.
        version: Version of that table, if the error concerns one.
        operation: Operation of that version's commit, if the error is about it.
        error: The error of FDS itself, ``None`` if a trigger reported it. It is not the ``__cause__``, with which
            Airflow would log each message twice.
    """

    def __init__(self, message: str, facts: Mapping[str, Any] | None = None, error: FdsError | None = None) -> None:
        super().__init__(message)
        self.error = error
        known = facts or {}
        self.reason_code: str | None = known.get("reason_code")
        self.table: str | None = known.get("table")
        self.version: int | None = known.get("version")
        self.operation: str | None = known.get("operation")


class TaskInterruptedError(_TaskError):
    """The wait of a task failed with an error that a retry may fix."""


class TaskFailedError(_TaskError, AirflowFailException):
    """A task failed with an error that a retry would only meet again."""
