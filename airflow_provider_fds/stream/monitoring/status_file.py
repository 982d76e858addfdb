"""Writes status files: what a task or a monitor leaves for the page, for ``fds status`` and for the next run's count.

See :mod:`~.status_row` for their content.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

import msgspec

from airflow_provider_fds.credentials import redacted
from airflow_provider_fds.errors import AccessDeniedError
from airflow_provider_fds.ledger.entries.entry import iso_time
from airflow_provider_fds.ledger.layout import status_key
from airflow_provider_fds.source.offset import Offset
from airflow_provider_fds.stream.monitoring.condition import ATTENTION, Evidence, hidden_by
from airflow_provider_fds.stream.monitoring.driver_progress import known_driver
from airflow_provider_fds.stream.monitoring.run_failure import LONGEST, failure_of
from airflow_provider_fds.stream.monitoring.status import StreamStatus, lag_of, said_of
from airflow_provider_fds.stream.monitoring.status_row import (
    LagSample,
    LastBatch,
    StatusFile,
    StatusRow,
    is_live,
    read_status_file,
    waits_for,
)
from airflow_provider_fds.stream.position.unread_files import planned_amount

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_provider_fds.delta.storage.storage import Storage
    from airflow_provider_fds.ledger.owner import Actor
    from airflow_provider_fds.ledger.staging.log import Ledger
    from airflow_provider_fds.ledger.state import StreamState

#: Number of newest samples of the lag that a file keeps.
KEPT_SAMPLES: Final = 200

_Row = TypeVar("_Row", bound=StatusRow)

_ENCODER: Final = msgspec.json.Encoder()


def write_status_file(
    staging: Storage,
    status: StreamStatus,
    state: StreamState | None,
    *,
    written_by: Literal["run", "monitor"],
    actor: Actor | None = None,
    committed_at: str | None = None,
    next_within_seconds: float | None = None,
    clock: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> None:
    """Write the status file of a stream: one GET of the file before, and one PUT.

    Args:
        staging: Root of staging.
        status: The status.
        state: The state that it describes; ``None`` if the ledger cannot be read.
        written_by: Who writes.
        actor: The task that worked on the stream; ``None`` keeps the one that the file has.
        committed_at: When this writer committed the last batch; ``None`` keeps the time that the file has.
        next_within_seconds: The next file of this writer follows within this time.
        clock: Returns the time, with a zone.

    Raises:
        StorageError: Staging did not answer, or cannot be written to.
    """
    try:
        before = read_status_file(staging, status.name)
    except AccessDeniedError:
        # as S3 says that an object does not exist to those who cannot list the folder
        before = None
    if before is not None and status.uuid is not None and before.uuid not in (None, status.uuid):
        before = None
    now = iso_time(clock())
    deployment = status.deployment or (None if before is None else before.deployment)
    # a DAG of another installation says nothing here
    task = actor if actor is not None and actor.dag_id is not None else None
    origin: Any = task or (before if before is not None and before.deployment == deployment else None)
    samples = () if before is None else before.samples
    if status.lag_versions is not None:
        samples = (*samples, LagSample(now, status.lag_versions, status.lag_seconds))[-KEPT_SAMPLES:]
    file = StatusFile(
        name=status.name,
        written_at=now,
        written_by=written_by,
        next_within_seconds=next_within_seconds,
        deployment=deployment,
        dag_id=None if origin is None else origin.dag_id,
        task_id=None if origin is None else origin.task_id,
        run_id=None if origin is None else origin.run_id,
        uuid=status.uuid,
        table=redacted(status.table),
        sink=status.sink,
        epoch=status.epoch,
        position=status.position,
        newest_version=status.newest_version,
        last_version=status.last_version,
        lag_versions=status.lag_versions,
        lag_seconds=status.lag_seconds,
        retention_left_seconds=status.retention_left_seconds,
        pending_files=status.pending_files,
        pending_bytes=status.pending_bytes,
        pending_rows=_pending_rows(status, state),
        planned_batches=status.planned_batches,
        owner=status.owner,
        driver=status.driver,
        watermark=status.watermark,
        failures=status.failures,
        last_batch=_last_batch(status, committed_at, before),
        samples=samples,
        **_shown(status),
    )
    staging.put(status_key(status.name), _ENCODER.encode(file))


def with_state(row: _Row, state: StreamState, entry: int) -> _Row:
    """Return a row updated with a newer state of the ledger; values that only the table provides stay the same.

    Args:
        row: A row of a status file.
        state: The stream's state, read later.
        entry: Number of its newest entry.
    """
    is_same_place = (row.epoch, row.position) == (state.epoch, state.position)
    if is_same_place and row.condition in ("lost_position", "unreadable") and state.retired is None:
        return row
    lag = row.lag_versions if is_same_place else None
    if lag is None and row.last_version is not None and state.position is not None:
        lag = lag_of(Offset.from_json(state.position), row.last_version)
    failure = failure_of(row.failures, state, entry)
    evidence = Evidence(
        state=state,
        lag=lag,
        finished="" if is_same_place and row.condition == "finished" else None,
        failure=failure,
        waits_for=waits_for(row, state),
        is_live=is_live(row, datetime.now(UTC)),
    )
    if row.epoch != state.epoch:
        # what is read again was not counted
        row = msgspec.structs.replace(
            row, pending_files=None, pending_bytes=None, pending_rows=None, retention_left_seconds=None
        )
    status = StreamStatus(name=row.name, table=row.table, phase=state.phase, **said_of(evidence))
    if (
        is_same_place
        and row.condition == "failing"
        and row.failure is None
        and "failing" not in hidden_by(status.condition, is_retried=False)
    ):
        # its sink was seen to be wrong, and a ledger does not show whether it still is
        return row
    return msgspec.structs.replace(
        row,
        epoch=state.epoch,
        position=state.position,
        lag_versions=lag,
        lag_seconds=row.lag_seconds if is_same_place else None,
        planned_batches=len(state.planned),
        owner=None if state.owner is None else state.owner.describe(),
        driver=known_driver(row.driver, state),
        **_shown(status),
    )


def update_status_file(staging: Storage, ledger: Ledger) -> None:
    """Update a status file, if there is one, with a newer state of the ledger: one GET and one PUT.

    Its time stays, because the table was not looked at.

    Raises:
        StorageError: Staging did not answer, or cannot be written to.
    """
    name = ledger.state.name
    before = read_status_file(staging, name)
    if before is not None:
        staging.put(status_key(name), _ENCODER.encode(with_state(before, ledger.state, ledger.n)))


def older(status: StreamStatus, seconds: float) -> StreamStatus:
    """Return the status of an unchanged stream after some time."""
    lag, left = aged(status.lag_versions, status.lag_seconds, status.retention_left_seconds, seconds)
    return replace(status, lag_seconds=lag, retention_left_seconds=left)


def aged(
    lag_versions: int | None, lag_seconds: float | None, retention_left: float | None, seconds: float
) -> tuple[float | None, float | None]:
    """Return the age of the oldest unread version, and the retention left to it, after so many seconds."""
    lag = round(lag_seconds + seconds, 3) if lag_seconds and lag_versions else lag_seconds
    return lag, None if retention_left is None else round(max(0.0, retention_left - seconds), 3)


def _shown(status: StreamStatus) -> dict[str, Any]:
    """Return what a row says of the condition: problem and advice only if something is wrong, or waits for a person."""
    is_wrong = status.condition in ATTENTION or status.condition == "held"
    advice = "\n".join(f"{command}: {effect}" for command, effect in status.commands) if is_wrong else ""
    wrong = status.cause or status.problem
    return {
        "condition": status.condition,
        "problem": _text(wrong) if is_wrong and wrong else None,
        "what_to_do": _text(advice) or None,
        "waits_for": None if status.waits_for is None else _text(status.waits_for),
    }


def _text(message: str) -> str:
    return redacted(message)[:LONGEST]


def _pending_rows(status: StreamStatus, state: StreamState | None) -> int | None:
    if status.lag_versions == 0:
        return 0
    if state is None or status.newest_version is None or planned_amount(state, status.newest_version) is None:
        return None
    rows = [batch.num_rows for batch in state.planned]
    return None if None in rows else sum(count or 0 for count in rows)


def _last_batch(status: StreamStatus, committed_at: str | None, before: StatusFile | None) -> LastBatch | None:
    last = status.last_commit
    if last is None:
        return None
    known = None if before is None else before.last_batch
    if (
        committed_at is None
        and known is not None
        and (known.epoch, known.batch_id) == (last["epoch"], last["batch_id"])
    ):
        committed_at = known.committed_at
    seconds = last.get("seconds") or {}
    return LastBatch(
        batch_id=last["batch_id"],
        epoch=last["epoch"],
        rows_read=last.get("rows_read"),
        rows_written=last.get("rows"),
        seconds=round(sum(seconds.values()), 3) if seconds else None,
        committed_at=committed_at,
    )
