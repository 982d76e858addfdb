"""The status of a stream as readable text."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from airflow_provider_fds.durations import format_duration
from airflow_provider_fds.ledger.measures import describe_failed
from airflow_provider_fds.sizes import format_bytes, format_count

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_provider_fds.stream.monitoring.driver_progress import DriverProgress
    from airflow_provider_fds.stream.monitoring.status import StreamStatus

_DELIVERY: Final = {
    "transaction": "a repeated batch lands once (transaction)",
    "token": "a repeated batch lands once (token)",
    "at_least_once": "a repeated batch may land again (at least once)",
}


def describe_status(found: StreamStatus) -> list[tuple[str, str]]:
    """Return labels and texts, the problem first; what has nothing to report is left out. A text may have lines."""
    return [(label, text) for label, text in _lines(found) if text]


def _lines(found: StreamStatus) -> Iterator[tuple[str, str]]:
    yield "problem", found.problem or ""
    yield "reason code", found.reason_code or ""
    yield "stream", found.name
    yield "state", found.condition.replace("_", " ")
    yield "waits for", found.waits_for or ""
    yield "table", found.table
    yield "sink", describe_sink(found.sink)
    yield "position", _position(found.position)
    yield "newest version", "" if found.newest_version is None else str(found.newest_version)
    yield "lag", _lag(found)
    yield "to read", _pending(found)
    yield "retention left", describe_age(found.retention_left_seconds)
    yield "planned", format_count(found.planned_batches, "batch", "batches") if found.planned_batches else ""
    yield "owner", found.owner or ""
    if found.driver is not None:
        yield "driver", describe_driver(found.driver)
        yield "driver log", found.driver.log_url or ""
    yield "last batch", _last_batch(found)
    yield "sink version", "" if found.sink_version is None else str(found.sink_version)
    yield "watermark", found.watermark or ""
    yield "blocked", found.blocked or ""
    yield "finished", found.finished or ""
    for label, value in found.extra.items():
        texts = value if isinstance(value, list) else [value]
        yield label, "\n".join(map(str, texts))
    epoch = "" if found.phase == "open" else f", {found.phase}"
    yield "epoch", f"{found.epoch}{epoch}"
    yield "deployment", found.deployment or ""
    yield "uuid", found.uuid or ""
    yield "ledger", format_count(found.entries, "entry", "entries")


def describe_age(seconds: float | None) -> str:
    """Return a duration in words, and nothing for an unknown one."""
    return "" if seconds is None else format_duration(timedelta(seconds=seconds))


def describe_driver(driver: DriverProgress) -> str:
    """Return in words what a driver in a cluster has done."""
    name = f"{driver.driver} on {driver.cluster}"
    if driver.since is None:
        return f"{name}, has begun no batch"
    said = [f"{name}, since {driver.since}"]
    if driver.batches is not None and driver.batches_done is not None:
        said.append(f"{driver.batches_done:,} of {format_count(driver.batches, 'batch', 'batches')} done")
    if driver.rows:
        said.append(f"{format_count(driver.rows, 'row')} out")
    if driver.batch_id is not None:
        stage = "" if driver.stage is None else f": {driver.stage}"
        said.append(f"at batch {driver.batch_id}{stage} (as of {driver.noted_at})")
    return ", ".join(said)


def describe_sink(sink: dict[str, str] | None) -> str:
    """Return kind and target of a sink, and what happens to a repeated batch."""
    if sink is None:
        return ""
    name = f"{sink['kind']} {sink['target']}".rstrip()
    delivery = sink.get("delivery")
    return name if delivery is None else f"{name}; {_DELIVERY.get(delivery, delivery)}"


def _position(position: str | None) -> str:
    from airflow_provider_fds.source.offset import describe_position

    return "" if position is None else describe_position(position)


def _lag(found: StreamStatus) -> str:
    if found.lag_versions is None:
        return "unknown" if found.problem is not None else ""
    if not found.lag_versions:
        return "none"
    age = f", the oldest {describe_age(found.lag_seconds)} old" if found.lag_seconds else ""
    return format_count(found.lag_versions, "version") + age


def _pending(found: StreamStatus) -> str:
    if not found.pending_files:
        return ""
    size = "" if found.pending_bytes is None else f" of {format_bytes(found.pending_bytes)}"
    return format_count(found.pending_files, "file") + size


def _last_batch(found: StreamStatus) -> str:
    if found.last_commit is None:
        return "" if found.last_batch_id is None else f"batch {found.last_batch_id}"
    last: dict[str, Any] = found.last_commit
    said = [f"batch {last['batch_id']} of epoch {last['epoch']}"]
    if last.get("rows_read") is not None:
        said.append(f"{format_count(last['rows_read'], 'row')} in")
    if last["rows"] is not None:
        out = f"{format_count(last['rows'], 'row')} out"
        if last.get("files_written") is not None:
            out += f" in {format_count(last['files_written'], 'file')}"
        out += describe_failed(last.get("failed_rows") or {}, last.get("rows_rejected") or 0)
        said.append(out if last.get("bytes_written") is None else f"{out} of {format_bytes(last['bytes_written'])}")
    if last.get("seconds"):
        said.append(describe_age(sum(last["seconds"].values())))
    return ", ".join(said)
