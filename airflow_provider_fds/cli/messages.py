"""How a command ends: the message of an error, and the last object of ``--output json``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from airflow_provider_fds.command_hints import with_staging, with_stream
from airflow_provider_fds.credentials import redacted

if TYPE_CHECKING:
    import argparse

    from airflow_provider_fds.errors import FdsError

#: What a command without ``--staging`` lacks.
STAGING_NEEDED: Final = "--staging (or AIRFLOW__FDS__STAGING, or `airflow fds`, which takes it from airflow.cfg)"


def shown(error: FdsError, arguments: argparse.Namespace) -> str:
    """Return reason code and message of an error, its commands with the stream's name and the staging folder."""
    message = str(error)
    if stream := getattr(arguments, "stream", None):
        message = with_stream(message, stream)
    if staging := getattr(arguments, "staging", None):
        message = with_staging(message, staging)
    return f"[{error.reason_code}] {redacted(message)}"


def end_of(
    error: FdsError | None,
    *,
    is_more: bool = False,
    is_finished: bool = False,
    note: str | None = None,
    waiting: str = "",
) -> dict[str, object]:
    """Return the last object of ``--output json``: the state reached, and the error that stopped the command.

    Args:
        error: What stopped the command.
        is_more: Whether it left work because of a limit.
        is_finished: Whether the stream has reached its end.
        note: What is said about start options that have no effect.
        waiting: What is said about data that is waiting for more.
    """
    more: dict[str, object] = {} if note is None else {"warnings": [note]}
    if waiting:
        more["waiting"] = waiting
    if error is None:
        return {"status": "finished" if is_finished else "more" if is_more else "up_to_date", "error": None, **more}
    return {
        **more,
        "status": "stopped",
        "error": {
            "type": type(error).__name__,
            "message": redacted(str(error)),
            **error.facts(),
        },
    }
