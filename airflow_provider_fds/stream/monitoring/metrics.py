"""The metrics of FDS: their names and meanings, and their values from a status or a committed batch.

One table for Airflow's metrics, ``fds status --output prometheus`` and ``fds monitor``; docs/metrics.md shows it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from airflow_provider_fds.ledger.entries.commit_entries import Committed
    from airflow_provider_fds.stream.monitoring.status import StreamStatus


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric.

    Attributes:
        name: Its name in StatsD and OpenTelemetry; with ``_`` for ``.``, that in Prometheus.
        kind: ``gauge``: a value of the stream's status. ``counter``: what was added. ``timer``: a duration.
        unit: Its unit, ``1`` for yes and no.
        meaning: One sentence.
        tags: Names of its tags, ``stream`` first.
    """

    name: str
    kind: Literal["gauge", "counter", "timer"]
    unit: str
    meaning: str
    tags: tuple[str, ...] = ("stream",)

    @property
    def prometheus_name(self) -> str:
        """The name in Prometheus."""
        return self.name.replace(".", "_")


@dataclass(frozen=True, slots=True)
class Sample:
    """A value of a metric, for one stream; that of a timer is in seconds."""

    metric: Metric
    value: float
    tags: Mapping[str, str]


#: All metrics, the gauges first.
METRICS: Final = (
    Metric("fds.lag_versions", "gauge", "versions", "Versions of the table that are not committed."),
    Metric("fds.lag_seconds", "gauge", "seconds", "Age of the oldest version that is not committed."),
    Metric("fds.pending_files", "gauge", "files", "Data files that are not committed, before the stream's filters."),
    Metric("fds.pending_bytes", "gauge", "bytes", "Bytes of these files."),
    Metric(
        "fds.retention_left_seconds",
        "gauge",
        "seconds",
        "How long the oldest version that is not committed is safe from the retention of the table.",
    ),
    Metric("fds.planned_batches", "gauge", "batches", "Batches that are planned and not committed."),
    Metric("fds.failed_runs", "gauge", "runs", "Runs that have failed in a row; 0 if the last one has not failed."),
    Metric(
        "fds.needs_attention",
        "gauge",
        "1",
        "1 if the stream needs attention, else 0; the tag state has its state.",
        ("stream", "state"),
    ),
    Metric("fds.batches", "counter", "batches", "Batches committed."),
    Metric("fds.rows_read", "counter", "rows", "Rows of these batches, if known."),
    Metric("fds.rows_written", "counter", "rows", "Rows that the sink's commits have written, if known."),
    Metric("fds.rows_rejected", "counter", "rows", "Rows that expectations kept out of the sink."),
    Metric(
        "fds.batch_seconds",
        "timer",
        "seconds",
        "Duration of a batch on the Spark driver, by phase: check, load, write, verify.",
        ("stream", "phase"),
    ),
    Metric("fds.poll_errors", "counter", "polls", "Polls by triggers that storage or Airflow refused."),
)

_BY_NAME: Final = {metric.name: metric for metric in METRICS}


def status_samples(status: StreamStatus) -> Iterator[Sample]:
    """Yield the gauges of a stream, without those that are unknown."""
    tags = {"stream": status.name}
    values: dict[str, float | None] = {
        "fds.lag_versions": status.lag_versions,
        "fds.lag_seconds": status.lag_seconds,
        "fds.pending_files": status.pending_files,
        "fds.pending_bytes": status.pending_bytes,
        "fds.retention_left_seconds": status.retention_left_seconds,
        "fds.planned_batches": status.planned_batches,
        "fds.failed_runs": status.failed_runs,
        "fds.needs_attention": int(status.needs_attention),
    }
    for name, value in values.items():
        if value is not None:
            metric = _BY_NAME[name]
            more = {"state": status.condition} if "state" in metric.tags else {}
            yield Sample(metric, value, tags | more)


def batch_samples(stream: str, committed: Committed, batches: int) -> Iterator[Sample]:
    """Yield the counters and timers of a commit, without those that are unknown.

    Args:
        stream: Name of the stream.
        committed: The entry that was just written.
        batches: Number of batches that it commits.
    """
    measures = committed.measures
    counts = {
        "fds.batches": batches,
        "fds.rows_read": None if measures is None else measures.rows_read,
        "fds.rows_written": committed.rows,
        "fds.rows_rejected": measures.rows_rejected if measures is not None and measures.failed_rows else None,
    }
    for name, count in counts.items():
        if count is not None:
            yield Sample(_BY_NAME[name], count, {"stream": stream})
    for phase, took in ({} if measures is None else measures.seconds).items():
        yield Sample(_BY_NAME["fds.batch_seconds"], took, {"stream": stream, "phase": phase})


def poll_error(stream: str) -> Sample:
    """Return the count of one refused poll."""
    return Sample(_BY_NAME["fds.poll_errors"], 1, {"stream": stream})


def exposition(statuses: Iterable[StreamStatus]) -> str:
    """Return the gauges of streams in Prometheus' text format, with the labels ``stream`` and ``table``.

    What is unknown has no sample.
    """
    lines: dict[str, list[str]] = {metric.name: [] for metric in METRICS if metric.kind == "gauge"}
    for status in statuses:
        for sample in status_samples(status):
            metric = sample.metric
            labels = {**sample.tags, "table": status.table}
            shown = ",".join(f'{key}="{_escaped(label)}"' for key, label in labels.items())
            lines[metric.name].append(f"{metric.prometheus_name}{{{shown}}} {sample.value}")
    text: list[str] = []
    for name, samples in lines.items():
        metric = _BY_NAME[name]
        head = f"# HELP {metric.prometheus_name} {metric.meaning}", f"# TYPE {metric.prometheus_name} gauge"
        text += [*head, *samples]
    return "\n".join(text) + "\n"


def _escaped(label: str) -> str:
    return label.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
