"""What a task of FDS fails with in Airflow: exceptions that callbacks find as ``context["exception"]``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException

if TYPE_CHECKING:
    from collections.abc import Mapping


class TaskInterruptedError(AirflowException):
    """The wait of a task failed with an error that a retry may fix.

    Attributes:
        reason_code: One of :class:`~.reasons.Reason`, as for the two below: see :class:`~.errors.FdsError`.
        table: URI of the source table, if the error concerns one.
        version: Version of that table, if the error concerns one.
        operation: Operation of that version's commit, if the error is about it.
    """

    def __init__(self, message: str, facts: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.reason_code, self.table, self.version, self.operation = _of(facts)


class TaskFailedError(AirflowFailException):
    """A task failed with an error that a retry would only meet again; its cause is the :class:`~.errors.FdsError`.

    Attributes:
        reason_code: One of :class:`~.reasons.Reason`, as for the three below: see :class:`~.errors.FdsError`.
        table: URI of the source table, if the error concerns one.
        version: Version of that table, if the error concerns one.
        operation: Operation of that version's commit, if the error is about it.
    """

    def __init__(self, message: str, facts: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.reason_code, self.table, self.version, self.operation = _of(facts)


def _of(facts: Mapping[str, Any] | None) -> tuple[str | None, str | None, int | None, str | None]:
    known = facts or {}
    return known.get("reason_code"), known.get("table"), known.get("version"), known.get("operation")


__all__ = ["TaskFailedError", "TaskInterruptedError"]
