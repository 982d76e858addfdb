"""Rows of the page "Delta streams": the contents of a stream's status file, and their age."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import asdict

from airflow_provider_fds.errors import FdsError
from airflow_provider_fds.sizes import format_count
from airflow_provider_fds.source.offset import Offset
from airflow_provider_fds.stream.monitoring.status_file import aged
from airflow_provider_fds.stream.monitoring.stream_id import StreamId

if TYPE_CHECKING:
    from airflow_provider_fds.stream.monitoring.status_row import LastBatch, StatusRow

#: Age at which a status is stale, if its writer did not say when the next one follows.
_STALE_SECONDS: Final = 900.0


def row_of(status: StatusRow, staging_uri: str, now: datetime) -> dict[str, Any]:
    """Return a stream's row of the list as JSON values.

    Args:
        status: Its status file.
        staging_uri: URI of the staging folder.
        now: The time, with a zone.
    """
    age = max(0.0, (now - datetime.fromisoformat(status.written_at)).total_seconds())
    promised = status.next_within_seconds
    last = status.last_batch
    # no writer counts the time that passes after it
    lag, left = aged(status.lag_versions, status.lag_seconds, status.retention_left_seconds, age)
    failure = status.failure
    return {
        "id": str(StreamId.of(staging_uri, status.name)),
        "name": status.name,
        "staging": staging_uri,
        "table": status.table,
        "sink": status.sink,
        "condition": status.condition,
        "needs_attention": status.needs_attention,
        "since": None if failure is None else failure.since,
        "failed_runs": 0 if failure is None else failure.runs,
        "will_retry": failure is not None and failure.will_retry,
        "problem": status.problem,
        "what_to_do": status.what_to_do,
        "waits_for": status.waits_for,
        "lag_versions": status.lag_versions,
        "lag_seconds": lag,
        "pending_files": status.pending_files,
        "pending_bytes": status.pending_bytes,
        "pending_rows": status.pending_rows,
        "retention_left_seconds": left,
        "newest_version": status.newest_version,
        "position": describe_committed(status.position),
        "planned_batches": status.planned_batches,
        "last_batch": None if last is None else _batch(last),
        "rows_per_second": None if last is None else _rate(last),
        "dag_id": status.dag_id,
        "task_id": status.task_id,
        "run_id": status.run_id,
        "owner": status.owner,
        "driver": None if status.driver is None else asdict(status.driver),
        "observed_at": status.written_at,
        "last_run_at": status.written_at if status.written_by == "run" else None,
        "age_seconds": round(age, 3),
        "stale": age > (_STALE_SECONDS if promised is None else 2 * promised),
    }


def describe_committed(position: str | None) -> str:
    """Return in words what is committed at a position (Delta streaming offset JSON)."""
    if position is None:
        return "nothing yet"
    try:
        offset = Offset.from_json(position)
    except (FdsError, RecursionError):
        return "not known"
    files = format_count(offset.next_index, "file")
    if offset.is_initial_snapshot:
        return f"{files} of the initial snapshot of version {offset.version}"
    if offset.next_index > 0:
        return f"{files} of version {offset.version}"
    return f"version {offset.version - 1}" if offset.version > 0 else "nothing yet"


def _batch(last: LastBatch) -> dict[str, Any]:
    return {name: getattr(last, name) for name in last.__struct_fields__}


def _rate(last: LastBatch) -> float | None:
    rows = last.rows_written if last.rows_read is None else last.rows_read
    return None if rows is None or not last.seconds else round(rows / last.seconds, 3)
