"""Status files: the last known status of each stream, in a file that a page can read without reading any table.

A status file is a hint: it is written by tasks that work on a stream and by a monitor, the last writer wins, and
nothing reads it to decide anything. It has no storage options and no credentials.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

import msgspec

from airflow_provider_fds.credentials import redacted
from airflow_provider_fds.delta.damage import DAMAGE
from airflow_provider_fds.errors import AccessDeniedError, StorageError
from airflow_provider_fds.ledger.entries import iso_time
from airflow_provider_fds.ledger.layout import status_key
from airflow_provider_fds.source.offset import Offset
from airflow_provider_fds.stream.monitoring.explanation import advice

# structs read the annotation at run time, when they are defined
from airflow_provider_fds.stream.monitoring.status import STUCK, Condition, StreamStatus, condition_of
from airflow_provider_fds.stream.position.unread_files import planned_amount

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_provider_fds.delta.storage.storage import Storage
    from airflow_provider_fds.errors import FdsError
    from airflow_provider_fds.ledger.owner import Actor
    from airflow_provider_fds.ledger.state import StreamState

#: Version of the JSON; a reader ignores files of another one.
STATUS_FORMAT: Final = 1

#: Number of newest samples of the lag that a file keeps.
KEPT_SAMPLES: Final = 200

#: Longest text of a problem, in characters.
_LONGEST: Final = 4_000


class LastBatch(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The last committed batch.

    Attributes:
        seconds: Wall-clock seconds on the Spark driver, all phases.
        committed_at: When it was committed (ISO 8601, UTC); ``None`` if the writer did not see it.
    """

    batch_id: int
    epoch: int
    rows_read: int | None = None
    rows_written: int | None = None
    seconds: float | None = None
    committed_at: str | None = None


class StatusRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A status file without its samples. Fields of the same name are those of :class:`~.status.StreamStatus`.

    Attributes:
        name: Name of the stream.
        written_at: When the file was written: ISO 8601, UTC, milliseconds.
        written_by: A task that worked on the stream, or a monitor.
        next_within_seconds: The writer's next file follows within this time; ``None`` if that is unknown.
        deployment: The Airflow installation that owns the stream.
        dag_id: The DAG whose task worked on the stream last, in that installation.
        problem: Why the stream does not move, or why its last run failed; ``None`` if nothing is known to be wrong.
        what_to_do: The commands that solve the problem, one per line.
        run_problem: Why the last run failed; a monitor keeps it until the stream moves.
        pending_rows: Rows that the stream still has to read; known only if all of them are planned.
        waits_for: What its newest data wait for, as a run or a trigger has seen it: another stream, or more data. A
            monitor keeps it until the stream moves.
    """

    format: int = STATUS_FORMAT
    name: str
    written_at: str
    written_by: Literal["run", "monitor"]
    next_within_seconds: float | None = None
    deployment: str | None = None
    dag_id: str | None = None
    task_id: str | None = None
    run_id: str | None = None
    uuid: str | None = None
    table: str = ""
    sink: dict[str, str] | None = None
    condition: Condition
    problem: str | None = None
    what_to_do: str | None = None
    run_problem: str | None = None
    epoch: int = 0
    position: str | None = None
    newest_version: int | None = None
    lag_versions: int | None = None
    lag_seconds: float | None = None
    retention_left_seconds: float | None = None
    pending_files: int | None = None
    pending_bytes: int | None = None
    pending_rows: int | None = None
    planned_batches: int = 0
    owner: str | None = None
    watermark: str | None = None
    waits_for: str | None = None
    last_batch: LastBatch | None = None


class LagSample(msgspec.Struct, frozen=True, array_like=True):
    """The lag at one time (ISO 8601, UTC)."""

    at: str
    lag_versions: int | None
    lag_seconds: float | None


class StatusFile(StatusRow, frozen=True, kw_only=True, omit_defaults=True):
    """A status file.

    Attributes:
        samples: The lag at the last writes, oldest first.
    """

    samples: tuple[LagSample, ...] = ()


_Row = TypeVar("_Row", bound=StatusRow)

_ENCODER: Final = msgspec.json.Encoder()
_FILE: Final = msgspec.json.Decoder(StatusFile)
_ROW: Final = msgspec.json.Decoder(StatusRow)


def parse_row(data: bytes) -> StatusRow | None:
    """Return the content of a status file, without its samples; ``None`` if it is damaged or has another format."""
    try:
        row = _ROW.decode(data)
    except DAMAGE:
        return None
    return row if row.format == STATUS_FORMAT and _is_time(row.written_at) else None


def _is_time(text: str) -> bool:
    """Whether a text is a time with a zone."""
    try:
        return datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False


def read_status_file(staging: Storage, name: str) -> StatusFile | None:
    """Return the status file of a stream, ``None`` if there is none, or none that this version can read.

    Raises:
        StorageError: Staging did not answer.
    """
    try:
        found = _FILE.decode(staging.get(status_key(name))[0])
    except (FileNotFoundError, *DAMAGE):
        return None
    return found if found.format == STATUS_FORMAT else None


def known_wait(staging: Storage, status: StreamStatus) -> str | None:
    """Return what a stream that is waiting waits for, with the time; ``None`` if no status file says so. One GET.

    Args:
        staging: Root of staging.
        status: Its status. A stream that has moved since the file was written waits for nothing known.
    """
    if status.condition != "waiting":
        return None
    try:
        found = read_status_file(staging, status.name)
    except StorageError:
        return None
    if found is None or found.waits_for is None:
        return None
    if (found.uuid, found.epoch, found.position) != (status.uuid, status.epoch, status.position):
        return None
    return f"{found.waits_for} (as of {found.written_at})"


def write_status_file(
    staging: Storage,
    status: StreamStatus,
    state: StreamState | None,
    *,
    written_by: Literal["run", "monitor"],
    actor: Actor | None = None,
    committed_at: str | None = None,
    error: FdsError | None = None,
    waits_for: str | None = None,
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
        error: Why the run failed.
        waits_for: What the newest data wait for, if the writer knows; a monitor does not.
        next_within_seconds: The next file of this writer follows within this time.
        clock: Returns the time, with a zone.

    Raises:
        StorageError: Staging did not answer, or cannot be written to.
    """
    try:
        before = read_status_file(staging, status.name)
    except AccessDeniedError:
        # as S3 says that an object does not exist to those who may not list the folder
        before = None
    if before is not None and status.uuid is not None and before.uuid not in (None, status.uuid):
        before = None
    now = iso_time(clock())
    deployment = status.deployment or (None if before is None else before.deployment)
    # a DAG of another installation says nothing here
    task = actor if actor is not None and actor.dag_id is not None else None
    origin: Any = task or (before if before is not None and before.deployment == deployment else None)
    run_problem = None if error is None else _text(f"The last run failed: [{error.reason_code}] {error}")
    if (
        written_by == "monitor"
        and before is not None
        and before.position == status.position
        and status.lag_versions != 0
    ):
        # a monitor sees neither a failure of a run nor what a run waits for
        run_problem, waits_for = before.run_problem, before.waits_for
    problem, what_to_do = _problem(status, state)
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
        condition=status.condition,
        problem=problem or run_problem,
        what_to_do=what_to_do,
        run_problem=run_problem,
        epoch=status.epoch,
        position=status.position,
        newest_version=status.newest_version,
        lag_versions=status.lag_versions,
        lag_seconds=status.lag_seconds,
        retention_left_seconds=status.retention_left_seconds,
        pending_files=status.pending_files,
        pending_bytes=status.pending_bytes,
        pending_rows=_pending_rows(status, state),
        planned_batches=status.planned_batches,
        owner=status.owner,
        watermark=status.watermark,
        waits_for=_text(waits_for) if waits_for and status.condition == "waiting" else None,
        last_batch=_last_batch(status, committed_at, before),
        samples=samples,
    )
    staging.put(status_key(status.name), _ENCODER.encode(file))


def with_state(row: _Row, state: StreamState) -> _Row:
    """Return a row updated with a newer state of the ledger; values that only the table provides stay the same.

    Args:
        row: A row of a status file.
        state: The stream's state, read later.
    """
    is_same_place = (row.epoch, row.position) == (state.epoch, state.position)
    lag = row.lag_versions if is_same_place else None
    if lag is None and row.newest_version is not None and state.position is not None:
        lag = max(0, row.newest_version + 1 - Offset.from_json(state.position).version)
    condition = condition_of(state, None, lag=lag, is_finished=is_same_place and row.condition == "finished")
    if is_same_place and row.condition in ("lost_position", "unreadable") and state.retired is None:
        return row
    stub = StreamStatus(name=row.name, table=row.table, phase=state.phase, condition=condition, position=state.position)
    problem, what_to_do = _problem(stub, state)
    run_problem = row.run_problem if is_same_place and condition == row.condition else None
    if row.epoch != state.epoch:
        # what is read again was not counted
        row = msgspec.structs.replace(
            row, pending_files=None, pending_bytes=None, pending_rows=None, retention_left_seconds=None
        )
    return msgspec.structs.replace(
        row,
        condition=condition,
        problem=problem or run_problem,
        what_to_do=what_to_do,
        run_problem=run_problem,
        epoch=state.epoch,
        position=state.position,
        lag_versions=lag,
        lag_seconds=row.lag_seconds if is_same_place else None,
        planned_batches=len(state.planned),
        owner=None if state.owner is None else state.owner.describe(),
        waits_for=row.waits_for if is_same_place and condition == "waiting" else None,
    )


def update_status_file(staging: Storage, name: str, state: StreamState) -> None:
    """Update a status file, if there is one, with a newer state of the ledger: one GET and one PUT.

    Its time stays, because the table was not looked at.

    Raises:
        StorageError: Staging did not answer, or cannot be written to.
    """
    before = read_status_file(staging, name)
    if before is not None:
        staging.put(status_key(name), _ENCODER.encode(with_state(before, state)))


def _problem(status: StreamStatus, state: StreamState | None) -> tuple[str | None, str | None]:
    """Return what is wrong, and what to do about it."""
    if status.problem is not None:
        # the message names what to run
        return _text(f"[{status.reason_code}] {status.problem}"), None
    if state is None or (status.condition not in STUCK and status.condition != "held"):
        return None, None
    cause, commands = advice(state, status)
    return _text(cause), _text("\n".join(f"{command}: {effect}" for command, effect in commands)) or None


def _text(message: str) -> str:
    return redacted(message)[:_LONGEST]


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


__all__ = [
    "KEPT_SAMPLES",
    "LagSample",
    "LastBatch",
    "StatusFile",
    "StatusRow",
    "known_wait",
    "parse_row",
    "read_status_file",
    "update_status_file",
    "with_state",
    "write_status_file",
]
