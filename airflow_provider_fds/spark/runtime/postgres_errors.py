"""Errors of PostgreSQL in the terms of a report: what it is, and whether the same batch may succeed later.

Standard library and pyspark, Python 3.9 syntax.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import Iterator, Tuple

from airflow_provider_fds.batch.sink.postgres_connection import NoPsycopgError, UnknownConnectionError
from airflow_provider_fds.credentials import redacted
from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.spark.runtime.failures import RefusalError

#: How SQLSTATE begins if the same statement may succeed later.
_TEMPORARY = ("08", "25P", "40", "53", "57", "58", "XX")
#: SQLSTATE, or the beginning of it, of what does not go away by itself: reason, and what to do.
_LASTING: Tuple[Tuple[str, Reason, str], ...] = (
    (
        "22",
        Reason.SINK_SCHEMA_MISMATCH,
        "The table does not take a value. Change the column, or the value in transform",
    ),
    ("23", Reason.SINK_SCHEMA_MISMATCH, "A constraint of the table refuses a row. Change it, or leave such rows out"),
    ("3F", Reason.SINK_MISSING, "Create the schema"),
    ("42501", Reason.SINK_UNSUITABLE, "Grant it, as the page on sinks says"),
    ("42", Reason.SINK_SCHEMA_MISMATCH, "The table does not have what the batch needs"),
    ("0A", Reason.SINK_UNSUITABLE, "The table does not allow it"),
    ("28", Reason.SINK_UNSUITABLE, "Correct the login of the connection"),
    ("3D", Reason.SINK_UNSUITABLE, "Correct the database of the connection"),
    ("P0", Reason.SINK_SCHEMA_MISMATCH, "A trigger of the table refuses a row. Change it, or leave such rows out"),
    ("54", Reason.SINK_SCHEMA_MISMATCH, "A value is too long for the table or an index. Cut it, or drop the index"),
    ("", Reason.SINK_UNSUITABLE, "Change what it names in the database"),
)
#: How SQLSTATE begins if it is the connection that is refused.
_AT_LOGIN = ("28", "3D")
#: What libpq finds itself has no SQLSTATE, and neither has the server's error where libpq does not trace it: words of
#: both, and what to do. In another language it counts as lost.
_REFUSED: Tuple[Tuple[Tuple[str, ...], str], ...] = (
    (
        ("certificate verify failed", "does not match host name", "root certificate file", "does not support SSL"),
        "Correct sslmode and sslrootcert of the connection, or the certificate of the server",
    ),
    (
        ("password authentication failed", "no pg_hba.conf entry"),
        "Correct the login of the connection",
    ),
)
#: Waits for a lock that took too long, and deadlocks.
_BUSY = ("55P03", "40P01", "40001")
_FULL = "53100"


@contextmanager
def refusals(what: str) -> Iterator[None]:
    """Raise what the server says in the body as a :class:`RefusalError` if it is not temporary.

    Args:
        what: The batch or fence, for the message.
    """
    try:
        yield
    except (NoPsycopgError, UnknownConnectionError) as error:
        raise RefusalError(Reason.SINK_UNSUITABLE, f"{what}: {error}") from error
    except Exception as error:
        if not type(error).__module__.startswith("psycopg"):
            raise
        # of an error that the client has found itself, there is none
        state = getattr(error, "sqlstate", None) or ""
        text = redacted(str(error).strip())
        if state in _BUSY:
            raise RefusalError(
                Reason.SINK_BUSY,
                f"{what}: another transaction holds the stream or the table in the database ({state}: {text}). Nothing "
                "was written; a retry tries again",
                retryable=True,
            ) from error
        if state == _FULL:
            raise RefusalError(
                Reason.SINK_FULL,
                f"{what}: a disk of the database is full ({state}: {text}). Free space there; a retry asks the account "
                "what it has, and continues",
                retryable=True,
            ) from error
        if state and not state.startswith(_TEMPORARY):
            reason, advice = next((why, do) for beginning, why, do in _LASTING if state.startswith(beginning))
            refuses = "cannot be connected to" if state.startswith(_AT_LOGIN) else "refuses it"
            raise RefusalError(
                reason, f"{what}: the database {refuses} ({state}: {text}). Nothing was written. {advice}"
            ) from error
        for words, advice in _REFUSED:
            if not state and any(word in text for word in words):
                raise RefusalError(
                    Reason.SINK_UNSUITABLE, f"{what}: the database cannot be connected to ({text}). {advice}"
                ) from error
        raise RefusalError(
            Reason.SINK_CONNECTION_LOST,
            f"{what}: the database does not answer, or ended the connection ({state or type(error).__name__}: {text}). "
            "A retry asks the account for the batch first",
            retryable=True,
        ) from error
