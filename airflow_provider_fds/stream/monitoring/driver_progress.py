"""What a driver that a cluster runs has done, by what it leaves in staging: no task has to be at work to know it."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec.structs import asdict, replace

from airflow_provider_fds.credentials import redacted
from airflow_provider_fds.delta.damage import DAMAGE
from airflow_provider_fds.errors import StorageError
from airflow_provider_fds.ledger.entries.entry import iso_time
from airflow_provider_fds.ledger.intervals import interval_folder
from airflow_provider_fds.ledger.layout import StreamFolder
from airflow_provider_fds.ledger.state import working_driver

if TYPE_CHECKING:
    from airflow_provider_fds.batch.report import AttemptReport
    from airflow_provider_fds.delta.storage.storage import ObjectMeta, Storage
    from airflow_provider_fds.ledger.facts import SubmittedFacts
    from airflow_provider_fds.ledger.state import ScopeRecord, StreamState
    from airflow_provider_fds.ledger.values import PlannedBatch

_MOST_CHARACTERS: Final = 200


class DriverProgress(msgspec.Struct, frozen=True, kw_only=True):
    """A driver. All but its name is unknown until it has begun its first batch.

    Attributes:
        cluster: Kind of the cluster.
        driver: The cluster's name of it.
        batch_id: The batch that it works on; ``None`` if it has begun none, or has reported the last one that it began.
        batches: Number of batches of its job.
        batches_done: Number of those that are in the sink, committed by a task or not.
        rows: Rows that it has written in them; ``None`` if it does not know.
        since: When it began its job (ISO 8601, UTC).
        stage: What Spark was doing then; ``None`` in the first half minute of a batch, and for a driver of a fleet.
        noted_at: When the driver wrote that (ISO 8601, UTC): half a minute ago at most, if it works on a long batch.
        log_url: The page with its log; Kubernetes has none.
    """

    cluster: str
    driver: str
    batch_id: int | None = None
    batches: int | None = None
    batches_done: int | None = None
    rows: int | None = None
    since: str | None = None
    stage: str | None = None
    noted_at: str | None = None
    log_url: str | None = None


def read_driver(staging: Storage, state: StreamState) -> DriverProgress | None:
    """Return what the driver of the planned batches has done; ``None``, without a request, if there is none.

    Of several data intervals with a driver, the one that has changed last counts. A store that does not answer is as a
    driver that has begun nothing.

    Args:
        staging: Root of staging.
        state: The stream's state.
    """
    found = _working(state)
    if found is None:
        return None
    from airflow_provider_fds.batch.report import AttemptReport, decode, report_name, started_name

    left, planned = found
    driver = DriverProgress(cluster=left.cluster, driver=left.driver)
    ids = [batch.batch_id for batch in planned if batch.batch_id <= left.batch_id]
    folder = StreamFolder(state.name).attempts
    if left.interval is not None:
        folder = f"{folder}/{interval_folder(left.interval)}"
        # the last batch names the one transaction of a sink that replaces
        ids = ids[-1:] if state.sink is not None and state.sink.replaces else ids
    keys = [f"{folder}/{started_name(left.epoch, batch_id, left.attempt_id)}" for batch_id in ids]
    try:
        newest = _newest(staging, keys)
        if newest is None:
            return driver
        begun = _read(driver, ids[newest], *staging.get(keys[newest]))
        report = f"{folder}/{report_name(left.epoch, ids[newest], left.attempt_id)}"
        try:
            return _after(begun, decode(AttemptReport, staging.get(report)[0]))
        except FileNotFoundError:
            return begun
    except (FileNotFoundError, StorageError, *DAMAGE):
        return driver


def known_driver(before: DriverProgress | None, state: StreamState) -> DriverProgress | None:
    """Return what is known of the driver without a request, if it is that of an earlier look, what was known then."""
    found = _working(state)
    if found is None:
        return None
    left, _ = found
    if before is not None and (before.cluster, before.driver) == (left.cluster, left.driver):
        return before
    return DriverProgress(cluster=left.cluster, driver=left.driver)


def _working(state: StreamState) -> tuple[SubmittedFacts, tuple[PlannedBatch, ...]] | None:
    """Return the driver that is at work, and the planned batches of its scope."""
    records: tuple[ScopeRecord, ...] = (state, *reversed(state.intervals))
    for record in records:
        if (left := working_driver(record)) is not None:
            return left, record.planned
    return None


def _newest(staging: Storage, keys: list[str]) -> int | None:
    """Return the position of the last key that exists; none exists after one that does not.

    The first ones are the most likely: whoever commits is at most minutes behind.
    """
    there, step = -1, 1
    missing = len(keys)
    while missing - there > 1:
        probed = min(there + step, missing - 1)
        if staging.head(keys[probed]) is None:
            missing, step = probed, max(1, (probed - there) // 2)
        else:
            there, step = probed, step * 2
    return there if there >= 0 else None


def _read(driver: DriverProgress, batch_id: int, data: bytes, meta: ObjectMeta) -> DriverProgress:
    """Return the progress that the marker of a batch tells. Raises one of ``DAMAGE``."""
    marker: dict[str, Any] = json.loads(data)
    job = marker.get("job") or {}
    url, stage = marker.get("log_url"), marker.get("stage")
    is_page = isinstance(url, str) and url.startswith(("http://", "https://"))
    told = {
        **asdict(driver),
        "batch_id": batch_id,
        "batches": job.get("batches"),
        "batches_done": job.get("done"),
        "rows": job.get("rows"),
        "since": _time(job.get("began_ms", marker["started_ms"])),
        "noted_at": _time(meta.modified_ms),
        "stage": redacted(str(stage))[:_MOST_CHARACTERS] if stage else None,
        "log_url": url if is_page else None,
    }
    return msgspec.convert(told, DriverProgress)


def _time(milliseconds: int) -> str:
    return iso_time(datetime.fromtimestamp(milliseconds / 1000, UTC))


def _after(begun: DriverProgress, report: AttemptReport) -> DriverProgress:
    """Return the progress once the batch is reported."""
    ended = replace(begun, batch_id=None, stage=None)
    if not report.is_done or begun.batches_done is None:
        return ended
    is_known = begun.rows is not None and report.rows_written is not None
    rows = (begun.rows or 0) + (report.rows_written or 0) if is_known else None
    return replace(ended, batches_done=begun.batches_done + 1, rows=rows)
