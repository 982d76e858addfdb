"""The steps common to all runs: write the job for Spark, collect the reports, commit batch by batch."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from airflow_provider_fds.batch.spec import JobSpec
from airflow_provider_fds.errors import BatchFailedError
from airflow_provider_fds.ledger.commit_entries import Blocked, Committed
from airflow_provider_fds.ledger.intervals import digest_of_parts
from airflow_provider_fds.stream.attempts import put_job, read_report
from airflow_provider_fds.stream.batch_failure import batch_failure
from airflow_provider_fds.stream.connect import ConnectedStream
from airflow_provider_fds.stream.evidence import ReportedBatch, SinkLog
from airflow_provider_fds.stream.result import Collected, measured, rows_differ
from airflow_provider_fds.stream.retention import purge_stream
from airflow_provider_fds.stream.verifying import check_range_unchanged

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from airflow_provider_fds.batch.report import AttemptReport
    from airflow_provider_fds.batch.spec import BatchSpec
    from airflow_provider_fds.ledger.housekeeping import Retention
    from airflow_provider_fds.ledger.values import PlannedBatch
    from airflow_provider_fds.sinks import Sink
    from airflow_provider_fds.stream.connect import StreamContext
    from airflow_provider_fds.stream.result import LoadResult, RunWork
    from airflow_provider_fds.stream.value import DeltaStream

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Transaction:
    """Planned batches that form one transaction of the sink; the last batch gives it its id."""

    parts: tuple[PlannedBatch, ...]

    @property
    def last(self) -> PlannedBatch:
        """The batch that gives the transaction its id."""
        return self.parts[-1]

    @property
    def digest(self) -> str:
        """Digest of the batches' manifests."""
        return digest_of_parts(self.parts)

    @property
    def num_rows(self) -> int | None:
        """Rows according to the log's statistics, ``None`` if a file has none."""
        rows = [part.num_rows for part in self.parts]
        return None if None in rows else sum(row or 0 for row in rows)


@dataclass(frozen=True, slots=True)
class SessionJob:
    """The contents of a run's job, apart from its attempt.

    Attributes:
        batches: The batches that Spark loads, in order.
        sink: The sink, as Spark reaches it.
        sink_version: Newest version of the sink that the stream wrote, ``None`` if it wrote none.
        folder: Folder of the job in staging.
    """

    batches: tuple[BatchSpec, ...]
    sink: dict[str, Any]
    sink_version: int | None
    folder: str


@dataclass(slots=True)
class CollectedSoFar:
    """The committed batches of attempt ``attempt_id``, and the reports, one per transaction of the sink."""

    attempt_id: str = ""
    committed: list[PlannedBatch] = field(default_factory=list)
    reports: list[AttemptReport] = field(default_factory=list)

    def of(self, work: RunWork) -> CollectedSoFar:
        """Return this object if it belongs to the attempt of ``work``, else an empty one."""
        return self if self.attempt_id == work.attempt_id else CollectedSoFar(work.attempt_id)

    def add(self, batches: Iterable[PlannedBatch], report: AttemptReport) -> None:
        """Add batches that were just committed, and the report they were committed by."""
        for warning in report.warnings:
            logger.warning("%s", warning)
        self.committed += batches
        self.reports.append(report)

    def result(self, failed: AttemptReport | None = None, failure: BatchFailedError | None = None) -> Collected:
        """Return the outcome of the attempt, with the report and the error of the batch that failed, if any."""
        reports = self.reports if failed is None else [*self.reports, failed]
        return Collected(tuple(self.committed), tuple(reports), failure)


class Session(ABC):
    """A run of a stream, either by offset or on one data interval.

    The order of calls is :meth:`begin`, :meth:`job`, Spark, :meth:`collect`, repeated until ``begin`` returns no more
    work. Whatever process dies in between, the next session continues with exactly the same batches.

    Args:
        stream: The stream.
        context: Credentials, staging, checkpoint, and who is asking.

    Raises:
        ConfigurationError: A URI cannot be opened, or staging and table are inside each other.
    """

    def __init__(self, stream: DeltaStream, context: StreamContext) -> None:
        self.stream = stream
        self.context = context
        self.connected = ConnectedStream(stream, context)
        self._so_far = CollectedSoFar()
        self._sink: Sink | None = None
        self._log: SinkLog | None = None

    @abstractmethod
    def begin(self, sink: Sink, *, max_batches: int = 200, retry: bool = False) -> RunWork:
        """Determine the work of this run and record it.

        Args:
            sink: Where the batches go.
            max_batches: Maximum number of batches to plan.
            retry: Whether this run may have worked before (a later attempt, a cleared task).
        """

    @abstractmethod
    def result(self) -> LoadResult | None:
        """Return what is committed, ``None`` if nothing."""

    @abstractmethod
    def _job(self, work: RunWork, sink: Sink) -> SessionJob:
        """Return the contents of the job of ``work``."""

    @property
    @abstractmethod
    def _reports(self) -> str:
        """Folder of the reports in staging."""

    @property
    def _interval(self) -> str | None:
        """Name of the data interval, ``None`` for an offset."""
        return None

    def _transactions(self, work: RunWork) -> list[Transaction]:
        """Return the transactions of the sink that the batches of ``work`` form, in order."""
        return [Transaction((batch,)) for batch in work.batches]

    @abstractmethod
    def _check_not_blocked(self, transaction: Transaction, report: AttemptReport, reason: str) -> None:
        """Raise ``VerificationError`` if the stream, or the interval, is blocked because of ``reason``."""

    def job(self, work: RunWork, sink: Sink, *, stop_after_ms: int | None = None) -> str:
        """Write the job of ``work`` to staging and return the URI that Spark reads it from.

        Args:
            work: The result of :meth:`begin`, with status ``work``.
            sink: The sink the stream is bound to.
            stop_after_ms: No batch is started after this time (milliseconds since the epoch).
        """
        job = self._job(work, sink)
        spec = JobSpec(
            batches=job.batches,
            sink=job.sink,
            sink_table_id=self.connected.state.sink_table_id,
            sink_version=job.sink_version,
            reports=self.reports_location(),
            attempt_id=work.attempt_id,
            stop_after_ms=stop_after_ms,
            tables=self.connected.state.tables,
        )
        return put_job(self.connected, job.folder, spec)

    def reports_location(self) -> str:
        """Return the URI of the folder for reports, as Spark reads it."""
        return self.connected.staging_location(self._reports)

    def collect(self, work: RunWork, *, is_running: bool = False) -> Collected:
        """Read the attempt's reports and commit, in order, the batches that are in the sink and verified.

        May be called repeatedly for the same work: each call continues where the last one ended and returns the outcome
        of all calls.

        Args:
            work: The result of :meth:`begin`.
            is_running: Whether Spark is still running. Then a batch without a report has not failed, and problems are
                left to the call after Spark has ended.

        Raises:
            VerificationError: The sink holds other rows of a batch than planned, or the source's log no longer matches
                the plan. The batch is blocked; the batches before it are committed.
        """
        try:
            return self._collect(work, is_running=is_running)
        finally:
            if not is_running:
                # lets the next run start with few requests
                self.connected.ledger.save_fold()

    def purge_expired(self, retention: Retention) -> None:
        """Remove manifests and reports of old committed batches; see :func:`~.retention.purge_stream`."""
        purge_stream(self.connected, retention)

    def _collect(self, work: RunWork, *, is_running: bool) -> Collected:
        self._so_far = so_far = self._so_far.of(work)
        for transaction in self._transactions(work)[len(so_far.reports) :]:
            try:
                report = self._report(work, transaction)
            except BatchFailedError as refused:
                if is_running:
                    break
                return so_far.result(None, refused)
            if is_running and (report is None or not report.is_done):
                break
            if report is None or not (report.is_done or report.outcome == "mismatch"):
                return so_far.result(report, self._failure(work, transaction, report))
            if problems := self._problems(transaction, report):
                if is_running:
                    break
                # one reason for all problems: a person accepts all of them or none
                self._block(work, transaction, report, "; ".join(problems))
            self._commit(work, transaction, report)
            so_far.add(transaction.parts, report)
        return so_far.result()

    def _report(self, work: RunWork, transaction: Transaction) -> AttemptReport | None:
        state, last = self.connected.state, transaction.last
        reported = ReportedBatch(state.uuid, work.epoch, last.batch_id, transaction.digest, self._interval)
        return read_report(self.connected, self._reports, reported, work.attempt_id, self._sink_log())

    def _problems(self, transaction: Transaction, report: AttemptReport) -> list[str]:
        """Return how the sink differs from the plan, and how the source's log differs from the planned one."""
        differs = rows_differ(report, self._sink, transaction.num_rows)
        changed = (check_range_unchanged(self.connected.log, part) for part in transaction.parts)
        return list(dict.fromkeys(problem for problem in (differs, *changed) if problem is not None))

    def _commit(self, work: RunWork, transaction: Transaction, report: AttemptReport) -> None:
        """Record that the transaction is in the sink and verified."""
        self.connected.execute(
            Committed(
                epoch=work.epoch,
                interval=self._interval,
                batch_id=transaction.last.batch_id,
                owner=self.context.owner,
                attempt_id=work.attempt_id,
                outcome="written" if report.outcome == "written" else "verified",
                digest=transaction.digest,
                sink_version=report.sink_version,
                sink_table_id=report.sink_table_id,
                rows=report.rows_written,
                measures=measured(report, self.connected.state.sink_warnings),
                tables=dict(report.tables),
            )
        )

    def _block(self, work: RunWork, transaction: Transaction, report: AttemptReport, reason: str) -> None:
        """Record that verification failed, and raise; return if a person has already accepted exactly this."""
        self.connected.execute(
            Blocked(
                epoch=work.epoch,
                interval=self._interval,
                batch_id=transaction.last.batch_id,
                owner=self.context.owner,
                attempt_id=work.attempt_id,
                reason=reason,
                rows_planned=transaction.num_rows,
                rows_written=report.rows_written,
                sink_version=report.sink_version,
                sink_table_id=report.sink_table_id,
            )
        )
        self._check_not_blocked(transaction, report, reason)

    def _failure(self, work: RunWork, transaction: Transaction, report: AttemptReport | None) -> BatchFailedError:
        """Return the error for a transaction that is not done."""
        del work
        return batch_failure(self.stream.name, self.stream.table, transaction.last, report)

    def _sink_log(self) -> SinkLog | None:
        """Return the log of the run's sink; the object remembers whether this worker may read it."""
        self._log = self._log or SinkLog.of(self.connected, self._sink)
        return self._log
