"""What a stream answers: the work of a run, its result, and the status, as values."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from airflow_provider_fds.batch.spec import TryReport
    from airflow_provider_fds.errors import BatchFailedError, FdsError
    from airflow_provider_fds.ledger.entries import PlannedBatch


@dataclass(frozen=True, slots=True)
class RunResult:
    """What one run has committed: a gapless stretch of one epoch.

    ``start`` is exclusive, ``end`` inclusive (Delta streaming offset JSON); ``first_version`` and ``last_version``
    are inclusive. ``rows`` is ``None`` where a batch was committed by a job that did not report its rows.
    """

    stream: str
    epoch: int
    batches: int
    first_batch_id: int
    last_batch_id: int
    start: str
    end: str
    first_version: int
    last_version: int
    rows: int | None
    files: int
    bytes: int
    sink_version: int | None

    def to_dict(self) -> dict[str, int | str | None]:
        """Return the result as flat JSON values."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class IntervalResult:
    """What is committed of one data interval.

    ``interval_start`` is inclusive, ``interval_end`` exclusive (ISO 8601, UTC); ``first_version`` and
    ``last_version`` are inclusive, the last is below the first where the interval has no commits.
    """

    stream: str
    interval_start: str
    interval_end: str
    generation: int
    batches: int
    first_version: int
    last_version: int
    rows: int | None
    files: int
    bytes: int
    sink_version: int | None

    def to_dict(self) -> dict[str, int | str | None]:
        """Return the result as flat JSON values."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class RunWork:
    """What a run has to do now.

    Attributes:
        status: ``work``: there are batches. ``up_to_date``: nothing new. ``waiting``: the start of the stream lies
            in the future. ``done``: this run has committed all it saw; ``result`` says what. ``finished``: the stream
            has an end, and all up to it is committed; ``reason`` says so. ``paused``: the stream is in quarantine
            or held by a person; ``reason`` says why. ``fence``: a new epoch was requested, and Spark has to close the
            ones before it in the sink; then ask again.
        batches: The batches to work off, in order.
        epoch: Epoch of the batches, or to be fenced.
        try_id: Name of this try, unique within the stream.
        target: Newest version the run saw when it planned first; it works up to there and no further.
        is_more: Whether the target lies beyond these batches, or is still to be found (batches that were taken over).
        warning: The bad version behind the batches: they are delivered, then the stream stops.
        result: For ``done``.
        reason: For ``finished`` and ``paused``, a sentence.
    """

    status: Literal["work", "up_to_date", "waiting", "done", "finished", "paused", "fence"]
    epoch: int = 0
    batches: tuple[PlannedBatch, ...] = ()
    try_id: str = ""
    target: int | None = None
    is_more: bool = False
    warning: FdsError | None = None
    result: RunResult | IntervalResult | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Collected:
    """What came of a try: the batches it has committed, the reports, and the first failure; of a fence only that."""

    committed: tuple[PlannedBatch, ...] = ()
    reports: tuple[TryReport, ...] = ()
    failure: BatchFailedError | None = None


@dataclass(frozen=True, slots=True)
class StreamStatus:
    """Where a stream stands. Read without writing anything.

    Attributes:
        position: Committed offset (Delta streaming offset JSON), ``None`` before the stream was opened.
        newest_version: Newest version of the table, ``None`` if the table could not be read (``problem`` says why).
        lag_versions: Versions of the table that are not yet committed, up to the stream's end if it has one; ``None``
            if unknown.
        planned_batches: Batches that are planned and not committed.
        owner: The run that owns them, in words.
        finished: That the stream has read everything up to its end, in a sentence; ``None`` if not, or if it has no
            end.
    """

    name: str
    table: str
    phase: str
    uuid: str | None = None
    deployment: str | None = None
    epoch: int = 0
    position: str | None = None
    newest_version: int | None = None
    lag_versions: int | None = None
    last_batch_id: int | None = None
    planned_batches: int = 0
    owner: str | None = None
    sink: dict[str, str] | None = None
    sink_version: int | None = None
    blocked: str | None = None
    finished: str | None = None
    entries: int = 0
    problem: str | None = None
    extra: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return the status as JSON values."""
        return asdict(self)


def told(reports: Sequence[TryReport]) -> str:
    """Return in words what tries have done, for a line in the log: rows in and out, files, bytes, seconds by phase.

    Rows in are those that the source's log counts, ``unknown`` where a file has no statistics.
    """
    done = [report for report in reports if report.is_done]
    seconds: dict[str, float] = {}
    for report in done:
        for phase, took in report.seconds.items():
            seconds[phase] = seconds.get(phase, 0.0) + took
    total = seconds.pop("total", 0.0)
    phases = ", ".join(f"{phase} {took:.1f}" for phase, took in seconds.items())
    return (
        f"{_sum(report.rows_planned for report in done)} rows in, {_sum(report.rows_written for report in done)} rows "
        f"out in {_sum(report.files_written for report in done)} files of "
        f"{_sum(report.bytes_written for report in done)} bytes, {total:.1f} s in Spark ({phases})"
    )


def _sum(numbers: Iterable[int | None]) -> str:
    values = list(numbers)
    known = [value for value in values if value is not None]
    return f"{sum(known):,}" if len(known) == len(values) else "unknown"
