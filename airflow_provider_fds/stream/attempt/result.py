"""What a run returns, as values: its work, its result, and the seconds of its phases."""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Literal

from airflow_provider_fds.batch.version_ranges import describe_covered, describe_range
from airflow_provider_fds.ledger.measures import NONE_YET, Measures, describe_failed
from airflow_provider_fds.sizes import format_bytes, format_count

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from airflow_provider_fds.batch.report import AttemptReport
    from airflow_provider_fds.errors import BatchFailedError, FdsError
    from airflow_provider_fds.ledger.facts import SubmittedFacts
    from airflow_provider_fds.ledger.records import IntervalRecord, RunRecord
    from airflow_provider_fds.ledger.values import EventTime, PlannedBatch
    from airflow_provider_fds.sinks import Sink


#: Phases of a run whose seconds are counted, in order. The phases within ``spark`` are the driver's own.
PHASES: Final = ("plan", "spark", "check", "load", "write", "verify", "commit")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadResult:
    """What a run, or a data interval, has committed.

    Attributes:
        stream: Name of the stream.
        batches: Number of batches.
        first_version: First version of the table (inclusive).
        last_version: Last version (inclusive); less than the first if an interval has no commits.
        rows: Rows written by the sink's commits. Each count is ``None`` if it is unknown for one of the batches.
        files: Files of the source.
        bytes: Bytes of these files.
        sink_version: Version of the sink that holds the last batch.
        rows_read: Rows of the batches.
        rows_rejected: Rows that expectations kept out of the sink.
        failed_rows: By expectation, the number of rows that failed it.
        files_written: Files of the sink.
        bytes_written: Bytes of these files.
        seconds: Wall-clock seconds by phase: those of the driver (``check``, ``load``, ``write``, ``verify``) and,
            unless an earlier attempt did the work, those of the run itself (``plan``, ``spark``, ``commit``).
        warnings: Human-readable warnings about what another writer did to the sink.
        event_time: Event times of the batches; ``None`` if the stream has no ``event_time_column``.
    """

    stream: str
    batches: int
    first_version: int
    last_version: int
    rows: int | None
    files: int
    bytes: int
    sink_version: int | None
    rows_read: int | None = None
    files_written: int | None = None
    bytes_written: int | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    event_time: EventTime | None = None
    rows_rejected: int = 0
    failed_rows: dict[str, int] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return the result as JSON values, flat except for ``seconds`` and ``warnings``.

        With an ``event_time_column`` they are ``event_time_min``, ``event_time_max`` (both inclusive, ISO 8601, UTC,
        or ``None``) and ``event_time_missing`` (why they are ``None``, or ``None``) too.
        """
        found = asdict(replace(self, event_time=None))
        del found["event_time"]
        if not self.failed_rows:
            del found["rows_rejected"], found["failed_rows"]
        if (times := self.event_time) is not None:
            missing = times.missing or (None if times.min else "no row has a value in the column")
            found |= {"event_time_min": times.min or None, "event_time_max": times.max or None}
            found["event_time_missing"] = missing
        return found

    @property
    def _subject(self) -> str:
        """What is committed, in words."""
        raise NotImplementedError

    @property
    def _versions(self) -> str:
        """What the batches cover, in words."""
        return describe_range(self.first_version, self.last_version)

    def describe(self) -> str:
        """Return the result as one line for people."""
        line = (
            f"Stream {self.stream}: {self._subject}, {self._versions}, "
            f"{_number(self.rows_read)} rows in from {_files(self.files, self.bytes)}, "
            f"{_number(self.rows)} rows out in {_files(self.files_written, self.bytes_written)}"
            f"{describe_failed(self.failed_rows, self.rows_rejected)}, "
            f"sink version {self.sink_version}"
        )
        return f"{line}; seconds: {_phases(self.seconds)}." if self.seconds else f"{line}."


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult(LoadResult):
    """What one run has committed: consecutive batches of one epoch.

    Attributes:
        start: Where the first batch starts (exclusive), Delta streaming offset JSON.
        end: Where the last batch ends (inclusive), likewise.
        watermark: The latest event time that the stream has committed, as of the last batch; ``None`` if unknown.
    """

    epoch: int
    first_batch_id: int
    last_batch_id: int
    start: str
    end: str
    watermark: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the result as JSON values; with an ``event_time_column`` with ``watermark`` too."""
        found = LoadResult.to_dict(self)
        if self.event_time is None:
            del found["watermark"]
        return found

    @property
    def _subject(self) -> str:
        first, last = self.first_batch_id, self.last_batch_id
        which = f"batch {first}" if first == last else f"batches {first} to {last}"
        return f"committed {which} of epoch {self.epoch}"

    @property
    def _versions(self) -> str:
        return describe_covered(self.start, self.end, self.first_version, self.last_version)


@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalResult(LoadResult):
    """What has been committed for one data interval.

    Attributes:
        interval_start: Inclusive (ISO 8601, UTC).
        interval_end: Exclusive, likewise.
        generation: How often the interval was loaded.
    """

    interval_start: str
    interval_end: str
    generation: int

    @property
    def _subject(self) -> str:
        return f"interval {self.interval_start} to {self.interval_end}"


def totals_of(record: RunRecord | IntervalRecord) -> dict[str, Any]:
    """Return the numbers of a :class:`LoadResult` from the ledger's record of a run or an interval."""
    return {
        "batches": record.batches,
        "first_version": record.first_version or 0,
        "last_version": record.last_version or 0,
        "rows": record.rows,
        "files": record.num_files,
        "bytes": record.num_bytes,
        "sink_version": record.sink_version,
        "rows_read": record.measures.rows_read,
        "files_written": record.measures.files_written,
        "bytes_written": record.measures.bytes_written,
        "seconds": record.measures.seconds,
        "warnings": list(record.measures.warnings),
        "rows_rejected": record.measures.rows_rejected,
        "failed_rows": dict(record.measures.failed_rows),
        "event_time": record.event_time,
    }


@dataclass(frozen=True, slots=True)
class RunWork:
    """What a run has to do now.

    Attributes:
        status: ``work``: there are batches. ``up_to_date``: nothing new. ``waiting``: the start of the stream is in the
            future. ``done``: this run has committed everything it saw, and ``result`` describes it. ``finished``: the
            stream has an end, and everything up to it is committed; ``reason`` says so. ``paused``: the stream is in
            quarantine or held by a person; ``reason`` says why. ``fence``: a new epoch was requested, and Spark must
            close the earlier ones in the sink before the run asks again.
        batches: The batches to load, in order.
        epoch: Epoch of the batches, or the epoch to be fenced.
        attempt_id: Name of this attempt, unique within the stream.
        target: Newest version that the run saw when it first planned; it works up to there and no further.
        is_more: Whether the target is past these batches, or is not known yet (batches that were taken over).
        warning: The violation after the batches: the batches are delivered, then the stream stops.
        result: The result, for ``done``.
        reason: A sentence, for ``finished`` and ``paused``; for ``up_to_date`` and ``done`` if data is left that is
            waiting for more or for another stream, or if a data interval has none.
        found_driver: The attempt whose driver in a cluster had these batches when this one began, or ``None``.
        submitted: The driver in a cluster that an earlier attempt has started for these batches, if it is waited for.
    """

    status: Literal["work", "up_to_date", "waiting", "done", "finished", "paused", "fence"]
    epoch: int = 0
    batches: tuple[PlannedBatch, ...] = ()
    attempt_id: str = ""
    target: int | None = None
    is_more: bool = False
    warning: FdsError | None = None
    result: LoadResult | None = None
    reason: str = ""
    found_driver: str | None = None
    submitted: SubmittedFacts | None = None


@dataclass(frozen=True, slots=True)
class Collected:
    """The outcome of an attempt: committed batches, reports, and the first failure; for a fence only the failure.

    ``paused`` is in place of the failure if the stream is in quarantine for it.
    """

    committed: tuple[PlannedBatch, ...] = ()
    reports: tuple[AttemptReport, ...] = ()
    failure: BatchFailedError | None = None
    paused: RunWork | None = None


class PhaseSeconds:
    """Wall-clock seconds by phase, summed over the applications of a run."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Add the time of the body to the phase ``name``, however the body ends."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.add({name: time.monotonic() - began})

    def add(self, seconds: Mapping[str, float]) -> None:
        """Add seconds by phase, of a process that has worked for the run before."""
        for name, took in seconds.items():
            self._seconds[name] = self._seconds.get(name, 0.0) + took

    def to_dict(self) -> dict[str, float]:
        """Return the seconds by phase, rounded to milliseconds, in the order in which the phases first began."""
        return {name: round(took, 3) for name, took in self._seconds.items()}


def describe_reports(reports: Sequence[AttemptReport]) -> str:
    """Return a log line on what attempts have done: rows in and out, files, bytes, seconds by phase.

    Rows in are ``unknown`` if a file has no statistics and the sink does not write every row as it is.
    """
    done = [report for report in reports if report.is_done]
    measures = NONE_YET
    for report in done:
        measures = measures.plus(measured(report))
    total = sum(report.seconds.get("total", 0.0) for report in done)
    written = [report.rows_written for report in done]
    rows = None if None in written else sum(count or 0 for count in written)
    return (
        f"{_number(measures.rows_read)} rows in, {_number(rows)} rows "
        f"out in {_files(measures.files_written, measures.bytes_written)}"
        f"{describe_failed(measures.failed_rows, measures.rows_rejected)}, {total:.1f} s in "
        f"Spark ({_phases(measures.seconds)})"
    )


def rows_differ(report: AttemptReport, sink: Sink | None, planned: int | None) -> str | None:
    """Return a sentence if the sink's rows differ from the batch, or ``None`` if they match or need not match.

    Args:
        report: The driver's report of the batch.
        sink: The sink, which knows whether it writes every row as it is, but those that expectations reject.
        planned: Rows of the batch according to the log's statistics, or ``None`` if a file has no statistics.
    """
    is_counted = sink is not None and sink.writes_rows_as_they_are and planned is not None
    expected = None if planned is None else planned - report.rows_rejected
    if report.outcome == "mismatch" or (is_counted and report.rows_written != expected):
        return "the sink's row count differs from the log's"
    return None


def measured(report: AttemptReport, warnings: Sequence[str] = ()) -> Measures:
    """Return the driver's measures of a batch, as the ledger keeps them, with earlier warnings."""
    return Measures(
        rows_read=report.rows_read,
        files_written=report.files_written,
        bytes_written=report.bytes_written,
        seconds={phase: took for phase, took in report.seconds.items() if phase != "total"},
        warnings=list(dict.fromkeys((*warnings, *report.warnings))),
        rows_rejected=report.rows_rejected,
        failed_rows=dict(report.failed_rows),
    )


def _phases(seconds: Mapping[str, float]) -> str:
    return ", ".join(f"{phase} {seconds[phase]:.1f}" for phase in PHASES if phase in seconds)


def _number(count: int | None) -> str:
    return "unknown" if count is None else f"{count:,}"


def _files(number: int | None, num_bytes: int | None) -> str:
    files = "unknown files" if number is None else format_count(number, "file")
    return f"{files} of {'unknown bytes' if num_bytes is None else format_bytes(num_bytes)}"
