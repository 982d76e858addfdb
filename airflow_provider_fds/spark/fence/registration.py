"""The registration of a stream in its sink: a commit without rows, under the stream's name, before its first batch.

Two streams of one name, each with its own ledger, load the same rows. Each looks for commits of the other before it
writes, and finds none if both begin at the same moment; appends of two transaction application ids do not conflict.
Registrations share one id, so Delta admits them one after the other: the first one counts, and the other stream sees
it. A table that does not exist yet needs none, because only one of the streams can create it. Standard library and
pyspark, Python 3.9 syntax.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Optional, Sequence
from uuid import UUID

from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.spark.fence.empty_append import append_nothing
from airflow_provider_fds.spark.runtime.failures import RefusalError, is_conflict

if TYPE_CHECKING:
    from airflow_provider_fds.spark.sink_log.history import SinkLog

#: A registration that lost against another commit is looked up and tried again.
_MOST_ATTEMPTS = 5


def registration_app_id(stream: str) -> str:
    """Return the transaction application id of all registrations of streams with this name."""
    return f"fds-stream:{stream}"


def registration_version(uuid: str) -> int:
    """Return the transaction version of a stream's registration: the upper 60 bits of its uuid."""
    return UUID(uuid).int >> 68


def ensure_registered(spark: Any, log: SinkLog, path: str, *, stream: str, uuid: str, others: Sequence[str]) -> None:
    """Register a stream in a sink, unless it is registered there or has written to it.

    Args:
        spark: The session.
        log: The log of the sink, which exists.
        path: The sink.
        stream: Name of the stream.
        uuid: Its uuid.
        others: UUIDs of streams of the same name that load other rows; their registrations are ignored.

    Raises:
        RefusalError: Another stream of the same name is registered there; or, retryable, other writers keep changing
            the table.
    """
    app_id, mine = registration_app_id(stream), registration_version(uuid)
    metadata = json.dumps({"fds_registration": 1, "stream": stream, "uuid": uuid})
    allowed = [registration_version(other) for other in others]
    has_appended = False
    for _ in range(_MOST_ATTEMPTS):
        history = log.history(None)
        commits = () if history is None else history.commits
        if any((commit.metadata or {}).get("uuid") == uuid for commit in commits):
            return
        first = next((c for c in reversed(commits) if c.transactions.get(app_id) not in (None, *allowed)), None)
        if first is not None:
            if first.transactions[app_id] == mine:
                return
            raise _refusal(path, stream, uuid, first.version, _uuid_in(log, first.version))
        if has_appended:
            # Delta skips a transaction below an allowed one, or below one whose commit log cleanup has removed
            return
        try:
            append_nothing(spark, path, app_id, mine, metadata)
        except Exception as error:
            if not is_conflict(error):
                raise
        else:
            has_appended = True
    raise RefusalError(
        Reason.SINK_BUSY,
        f"stream {stream!r} is not registered in the sink {path} after {_MOST_ATTEMPTS} attempts, because other "
        "writers keep committing. A retry tries again",
        retryable=True,
    )


def _uuid_in(log: SinkLog, version: int) -> Optional[str]:
    """Return the uuid that a registration names, or ``None`` if it names none."""
    for line in log.content(version).splitlines():
        if b'"commitInfo"' in line:
            try:
                return str(UUID(json.loads(json.loads(line)["commitInfo"]["userMetadata"])["uuid"]))
            except (KeyError, TypeError, ValueError, RecursionError):
                return None
    return None


def _refusal(path: str, stream: str, uuid: str, version: int, other_uuid: Optional[str]) -> RefusalError:
    other = "" if other_uuid is None else f" (uuid {other_uuid})"
    allow = "" if other_uuid is None else f": other_streams=['{other_uuid}']"
    return RefusalError(
        Reason.SINK_OF_NAMESAKE,
        f"stream {stream!r} (uuid {uuid}): version {version} of the sink {path} is the registration of another "
        f"stream of the same name{other}, whose ledger is in another staging folder. Both would load the same "
        "rows. Use one staging folder for both, or give this stream another name and sink; if the other stream "
        f"loads different rows, or was abandoned before it loaded any, declare it on this sink{allow}",
    )
