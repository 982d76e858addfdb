"""What a stream answers: the work of a run, its result, and the status, as values."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

from airflow_provider_fds.errors import EXIT_OK
from airflow_provider_fds.ledger.measures import NONE_YET, Measures

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow_provider_fds.batch.spec import TryReport
    from airflow_provider_fds.errors import BatchFailedError, FdsError
    from airflow_provider_fds.ledger.entries import PlannedBatch
    from airflow_provider_fds.sinks import Sink


#: Phases of a run in which seconds are counted, in order. Those within ``spark`` are the driver's own.
PHASES: Final = ("plan", "spark", "look", "load", "write", "verify", "commit")


@dataclass(frozen=True, slots=True)
class RunResult:
    """What one run has committed: a gapless stretch of one epoch.

    ``start`` is exclusive, ``end`` inclusive (Delta streaming offset JSON); ``first_version`` and ``last_version``
    are inclusive. ``files`` and ``bytes`` are of the source, ``files_written`` and ``bytes_written`` of the sink.
    ``rows_read`` are the rows of the batches, ``rows`` those that the sink's commits brought. ``seconds`` has
    wall-clock seconds by phase: of the driver (``look``, ``load``, ``write``, ``verify``), of the run itself
    (``plan``, ``spark``, ``commit``) where this is not what an earlier try has done. A number is ``None`` where
    nobody knows it of one of the batches. ``warnings`` are sentences for a person: what another writer did to the sink.
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
    rows_read: int | None = None
    files_written: int | None = None
    bytes_written: int | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Return the result as JSON values, flat but for ``seconds`` and ``warnings``."""
        return asdict(self)

    def words(self) -> str:
        """Return the result as one line for people."""
        return (
            f"Stream {self.stream}: committed batches {self.first_batch_id} to {self.last_batch_id} of epoch "
            f"{self.epoch}, versions {self.first_version} to {self.last_version}, {_counted(self)}"
        )


@dataclass(frozen=True, slots=True)
class IntervalResult:
    """What is committed of one data interval.

    ``interval_start`` is inclusive, ``interval_end`` exclusive (ISO 8601, UTC); ``first_version`` and
    ``last_version`` are inclusive, the last is below the first where the interval has no commits. The numbers are
    those of :class:`RunResult`.
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
    rows_read: int | None = None
    files_written: int | None = None
    bytes_written: int | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Return the result as JSON values, flat but for ``seconds`` and ``warnings``."""
        return asdict(self)

    def words(self) -> str:
        """Return the result as one line for people."""
        return (
            f"Stream {self.stream}: interval {self.interval_start} to {self.interval_end}, versions "
            f"{self.first_version} to {self.last_version}, {_counted(self)}"
        )


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
        last_commit: What was measured of the last committed batch: ``epoch``, ``batch_id``, ``rows`` and, where they
            are known, ``rows_read``, ``files_written``, ``bytes_written``, ``seconds``.
        planned_batches: Batches that are planned and not committed.
        owner: The run that owns them, in words.
        finished: That the stream has read everything up to its end, in a sentence; ``None`` if not, or if it has no
            end.
        problem: Why the stream cannot go on, or the table cannot be read; ``None`` if it can. Then the lag is unknown.
        exit_code: What `fds status` exits with: that of the problem, else 0.
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
    last_commit: dict[str, Any] | None = None
    planned_batches: int = 0
    owner: str | None = None
    sink: dict[str, str] | None = None
    sink_version: int | None = None
    blocked: str | None = None
    finished: str | None = None
    entries: int = 0
    problem: str | None = None
    exit_code: int = EXIT_OK
    extra: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return the status as JSON values, what is wrong first."""
        found = asdict(self)
        return {"problem": found.pop("problem"), **found}


def told(reports: Sequence[TryReport]) -> str:
    """Return in words what tries have done, for a line in the log: rows in and out, files, bytes, seconds by phase.

    Rows in are ``unknown`` where a file has no statistics and the sink does not write every row as it is.
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
        f"out in {_number(measures.files_written)} files of {_number(measures.bytes_written)} bytes, {total:.1f} s in "
        f"Spark ({_phases(measures.seconds)})"
    )


def rows_differ(report: TryReport, sink: Sink | None, planned: int | None) -> str | None:
    """Return that the sink has other rows than the batch, ``None`` if it has the same or need not have.

    Args:
        report: What the driver says of the batch.
        sink: The sink, which says whether it writes every row as it is.
        planned: Rows of the batch by the log's statistics, ``None`` if a file has none.
    """
    is_counted = sink is not None and sink.writes_rows_as_they_are and planned is not None
    if report.outcome == "mismatch" or (is_counted and report.rows_written != planned):
        return "the sink has other rows than the log counts"
    return None


def measured(report: TryReport) -> Measures:
    """Return what the driver measured of a batch, as the ledger keeps it."""
    return Measures(
        rows_read=report.rows_read,
        files_written=report.files_written,
        bytes_written=report.bytes_written,
        seconds={phase: took for phase, took in report.seconds.items() if phase != "total"},
        warnings=list(report.warnings),
    )


def _counted(result: RunResult | IntervalResult) -> str:
    """Return rows in and out, files and bytes of both sides, the sink's version and the seconds in words."""
    line = (
        f"{_number(result.rows_read)} rows in from {result.files:,} files of {result.bytes:,} bytes, "
        f"{_number(result.rows)} rows out in {_number(result.files_written)} files of "
        f"{_number(result.bytes_written)} bytes, sink version {result.sink_version}"
    )
    return f"{line}; seconds: {_phases(result.seconds)}." if result.seconds else f"{line}."


def _phases(seconds: Mapping[str, float]) -> str:
    return ", ".join(f"{phase} {seconds[phase]:.1f}" for phase in PHASES if phase in seconds)


def _number(count: int | None) -> str:
    return "unknown" if count is None else f"{count:,}"
