"""The content of status files, and how they are read: the last known status of each stream.

A status file is a hint: it is written by tasks that work on a stream and by a monitor, the last writer wins, and
nothing that protects rows is decided by it. It has no storage options and no credentials.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from airflow_provider_fds.delta.damage import DAMAGE
from airflow_provider_fds.errors import StorageError
from airflow_provider_fds.ledger.layout import STATUS_FOLDER, status_key

# structs read the annotation at run time, when they are defined
from airflow_provider_fds.stream.monitoring.condition import Condition, needs_attention
from airflow_provider_fds.stream.monitoring.driver_progress import DriverProgress  # noqa: TC001
from airflow_provider_fds.stream.monitoring.run_failure import RunFailure  # noqa: TC001

if TYPE_CHECKING:
    from airflow_provider_fds.delta.storage.storage import Storage
    from airflow_provider_fds.ledger.state import StreamState

_SUFFIX: Final = ".json"

#: Version of the JSON; a reader ignores files of another one.
STATUS_FORMAT: Final = 1


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
        failures: Why its last runs failed, the newest last, until something is committed or moved.
        pending_rows: Rows that the stream still has to read; known only if all of them are planned.
        driver: As of the time of the file.
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
    failures: tuple[RunFailure, ...] = ()
    epoch: int = 0
    position: str | None = None
    newest_version: int | None = None
    last_version: int | None = None
    lag_versions: int | None = None
    lag_seconds: float | None = None
    retention_left_seconds: float | None = None
    pending_files: int | None = None
    pending_bytes: int | None = None
    pending_rows: int | None = None
    planned_batches: int = 0
    owner: str | None = None
    driver: DriverProgress | None = None
    watermark: str | None = None
    waits_for: str | None = None
    last_batch: LastBatch | None = None

    @property
    def failure(self) -> RunFailure | None:
        """Why the last run of a failing stream failed; ``None`` if no run has, and the next one would."""
        return self.failures[-1] if self.failures and self.condition == "failing" else None

    @property
    def needs_attention(self) -> bool:
        """Whether the condition lasts until someone acts."""
        return needs_attention(self.condition, is_retried=self.failure is not None and self.failure.will_retry)


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


def list_rows(staging: Storage) -> dict[str, object]:
    """Return the streams with a status file, each with what identifies the content of the file. One listing.

    Raises:
        StorageError: Staging did not answer.
    """
    return {
        meta.key.rsplit("/", 1)[-1].removesuffix(_SUFFIX): (meta.etag, meta.size_bytes, meta.modified_ms)
        for meta in staging.list_after(STATUS_FOLDER)
        if meta.key.endswith(_SUFFIX)
    }


def known_row(staging: Storage, state: StreamState) -> StatusFile | None:
    """Return the status file of a stream if it is about this stream; ``None`` too if staging does not answer. One GET.

    Args:
        staging: Root of staging.
        state: The stream's state.
    """
    try:
        found = read_status_file(staging, state.name)
    except StorageError:
        return None
    return found if found is not None and found.uuid == state.uuid else None


def is_live(row: StatusRow | None, now: datetime) -> bool:
    """Return whether a run of the stream lingers according to its status file, which such a run writes in time."""
    if row is None or row.condition != "live" or row.next_within_seconds is None:
        return False
    return (now - datetime.fromisoformat(row.written_at)).total_seconds() <= row.next_within_seconds


def waits_for(row: StatusRow | None, state: StreamState) -> str | None:
    """Return what the newest data of a stream wait for according to its status file, unless it has moved since."""
    if row is None or (row.epoch, row.position) != (state.epoch, state.position):
        return None
    return row.waits_for
