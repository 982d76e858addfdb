"""One run of a stream: begin, hand the work to Spark, collect the outcome."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from airflow_provider_fds.batch.spec import JobSpec
from airflow_provider_fds.delta.storage.prefetch import AT_ONCE, in_windows
from airflow_provider_fds.errors import BatchFailedError, ConfigurationError, LedgerError
from airflow_provider_fds.ledger.commit_entries import Blocked, Committed
from airflow_provider_fds.ledger.plan_entries import Claimed
from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.stream.attempt.reports import put_job, read_report
from airflow_provider_fds.stream.attempt.result import Collected, measured, rows_differ
from airflow_provider_fds.stream.connected_stream import ConnectedStream
from airflow_provider_fds.stream.epochs import opening
from airflow_provider_fds.stream.epochs.fencing import collect_fence, put_fence_job
from airflow_provider_fds.stream.monitoring.status import StreamStatus, status_of
from airflow_provider_fds.stream.planning.sink_columns import SinkColumns
from airflow_provider_fds.stream.position.changed_start import start_note
from airflow_provider_fds.stream.position.source_unchanged import check_planned, check_range_unchanged
from airflow_provider_fds.stream.run.commit_user_job import commit_user_job
from airflow_provider_fds.stream.run.interval_scope import IntervalScope
from airflow_provider_fds.stream.run.like_source import sink_for_job
from airflow_provider_fds.stream.run.offset_scope import OffsetScope, run_result
from airflow_provider_fds.stream.run.purge import purge_stream
from airflow_provider_fds.stream.sink_record.evidence import ReportedBatch
from airflow_provider_fds.stream.sink_record.live_start import with_known_end
from airflow_provider_fds.stream.sink_record.sink_evidence import evidence_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from airflow_provider_fds.batch.report import AttemptReport
    from airflow_provider_fds.batch.spec import BatchSpec
    from airflow_provider_fds.ledger.housekeeping import Retention
    from airflow_provider_fds.ledger.state import StreamState
    from airflow_provider_fds.ledger.values import PlannedBatch
    from airflow_provider_fds.sinks import DeltaSink, Sink
    from airflow_provider_fds.source.offset import Offset
    from airflow_provider_fds.stream.attempt.result import LoadResult, RunResult, RunWork
    from airflow_provider_fds.stream.connected_stream import StreamContext
    from airflow_provider_fds.stream.declaration.delta_stream import DeltaStream
    from airflow_provider_fds.stream.position.data_interval import DataInterval
    from airflow_provider_fds.stream.run.scope import Scope, Transaction
    from airflow_provider_fds.stream.sink_record.evidence import Evidence

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class CollectedSoFar:
    """The committed batches of attempt ``attempt_id``, and the reports, one per transaction of the sink."""

    attempt_id: str = ""
    committed: list[PlannedBatch] = field(default_factory=list)
    reports: list[AttemptReport] = field(default_factory=list)

    def of(self, work: RunWork) -> CollectedSoFar:
        """Return this object if it belongs to the attempt of ``work``, else an empty one."""
        return self if self.attempt_id == work.attempt_id else CollectedSoFar(work.attempt_id)

    def add(self, stream: str, batches: Iterable[PlannedBatch], report: AttemptReport) -> None:
        """Add batches of a stream that were just committed, and the report they were committed by."""
        for warning in report.warnings:
            logger.warning("Stream %s: %s", stream, warning)
        self.committed += batches
        self.reports.append(report)

    def result(self, failed: AttemptReport | None = None, failure: BatchFailedError | None = None) -> Collected:
        """Return the outcome of the attempt, with the report and the error of the batch that failed, if any."""
        reports = self.reports if failed is None else [*self.reports, failed]
        return Collected(tuple(self.committed), tuple(reports), failure)


class StreamSession:
    """One run of a stream: over whatever is new since the committed offset, or over one data interval.

    The order of calls is :meth:`begin`, :meth:`job`, Spark, :meth:`collect`, repeated until ``begin`` returns no more
    work. Whichever process dies in between, the next session continues with exactly the same batches.

    Args:
        stream: The stream.
        context: Credentials, staging, checkpoint, and who is asking.
        interval: The run's data interval, for a stream with ``read="data_interval"``.

    Raises:
        ConfigurationError: A URI cannot be opened, one of staging and table is inside the other, or only one of stream
            and run has data intervals.
    """

    def __init__(self, stream: DeltaStream, context: StreamContext, interval: DataInterval | None = None) -> None:
        if stream.reads_by_interval and interval is None:
            raise ConfigurationError(
                f"stream {stream.name!r} has read='data_interval', but this request needs a stream that reads by "
                "offset. Use DeltaIngestOperator to load data intervals.",
                table=stream.table,
            )
        if interval is not None and not stream.reads_by_interval:
            raise ConfigurationError(
                f"stream {stream.name!r} reads by offset and has no intervals. Set read='data_interval'.",
                table=stream.table,
            )
        self.stream = stream = with_known_end(stream, context)
        self.context = context
        self.interval = interval
        self.connected = ConnectedStream(stream, context)
        self.scope: Scope = OffsetScope(self.connected) if interval is None else IntervalScope(self.connected, interval)
        #: Called after each commit with its entry and the number of batches; must not raise.
        self.on_committed: Callable[[Committed, int], None] = lambda _committed, _batches: None
        self._so_far = CollectedSoFar()
        self._sink: Sink | None = None
        self._evidence: Evidence | None = None

    def ensure_open(self, sink: Sink | None = None, *, start: Offset | None = None) -> StreamState:
        """Create the stream and resolve its start, or the ends of the interval, if that is not already done.

        Args:
            sink: The intended sink, searched for traces of an earlier stream of the same name.
            start: Where a new stream starts (exclusive), instead of its start options.

        Returns:
            The state; its ``position`` is ``None`` while the start is in the future.

        Raises:
            TableNotFoundError: There is no Delta table at the URI.
            LedgerError: The sink has traces of a stream with this name, but that stream's ledger is gone.
        """
        with self.connected.log.one_answer():
            return self.scope.ensure_open(sink, start=start)

    def begin(
        self,
        sink: Sink | None,
        *,
        max_batches: int = 200,
        user_job: bool = False,
        retry: bool = False,
        take_over: bool = True,
        start: Offset | None = None,
    ) -> RunWork:
        """Determine the work of this run and record it.

        Args:
            sink: Where the batches go; ``None`` with ``user_job``, or to plan without a sink.
            max_batches: Maximum number of batches to plan; in an interval, to hand to one application. An interval that
                is replaced is always written whole.
            user_job: Whether the user job writes the batches.
            retry: Whether this run may have worked before (a later attempt, a cleared task). If it has committed
                everything it saw then, it gets its result again and nothing new is planned.
            take_over: Whether to take over planned batches of another owner; otherwise they are only shown.
            start: Where a new stream starts (exclusive), instead of its start options.

        Raises:
            StreamBusyError: Planned batches belong to a run that is still running.
            LostPositionError: The position, or commits of the interval, no longer exist in the table.
            StoppedError: The next version, or one of the interval, is one the stream cannot pass
                (``on_violation="fail"``).
            ConfigurationError: Sink and stream do not fit together, the position or a planned batch cuts a commit that
                the sink must see whole, or the interval is not over.
            VerificationError: The interval is blocked, and the sink appends.
        """
        with self.connected.log.one_answer():
            scope = self.scope
            scope.check_sink(sink)
            self._sink, self._evidence = sink, None
            state = scope.ensure_open(sink, start=start)
            if (work := scope.before_binding(state, sink)) is not None:
                return work
            opening.ensure_bound(self.connected, sink, user_job=user_job)
            self._register_sink()
            if (
                scope.sink_has_older_epochs(was=state.sink)
                and (work := scope.before_binding(self.connected.state, sink)) is not None
            ):
                return work
            if (work := scope.settled(retry=retry, user_job=user_job)) is not None:
                return work
            scope.warn_about_changed_options()
            if not scope.planned:
                return scope.plan(sink, max_batches, user_job=user_job)
            if scope.record.blocked is None and scope.record.accepted is None:
                # otherwise a person has accepted the batch, or must decide on it
                check_planned(self.connected.log, scope.planned)
            if take_over:
                self._take_over()
                scope.check_whole(sink, user_job=user_job)
            return scope.work(max_batches)

    def job(
        self, work: RunWork, sink: Sink, *, stop_after_ms: int | None = None, linger_seconds: float | None = None
    ) -> str:
        """Write the job of ``work`` to staging and return the URI that Spark reads it from.

        Args:
            work: The result of :meth:`begin`, with status ``work`` or ``fence``.
            sink: The sink the stream is bound to.
            stop_after_ms: No batch is started after this time (milliseconds since the epoch).
            linger_seconds: How long spark-submit waits for the next job after this one; ``None``: it ends.
        """
        with self.connected.log.one_answer():
            if work.status == "fence":
                SinkColumns(self.connected, self.connected.state, sink).check_before_removal()
                return put_fence_job(self.connected, work, sink)
            state = self.connected.state
            sink, batches = self.scope.for_job(sink, self.batch_specs(work))
            sink = sink_for_job(self.connected, sink, batches)
            spec = JobSpec(
                batches=batches,
                sink=sink.located(self.connected.spark_sink).to_dict(),
                sink_table_id=state.sink_table_id,
                sink_version=self.scope.sink_version,
                reports=self.scope.reports_location,
                attempt_id=work.attempt_id,
                stop_after_ms=stop_after_ms,
                tables=state.tables,
                allow_overlap=self.connected.stream.allow_overlap,
                linger_seconds=linger_seconds,
            )
            return put_job(self.connected, self.scope.job_folder(work), spec)

    def batch_specs(self, work: RunWork) -> tuple[BatchSpec, ...]:
        """Return the batches of ``work`` as the Spark side needs them, one for each transaction."""
        return self.scope.specs(work.batches)

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
            with self.connected.log.one_answer():
                collected = self._collect(work, is_running=is_running)
        finally:
            if not is_running:
                self.connected.save_fold()
        if not is_running and collected.committed and collected.failure is None:
            self._register_sink()
        return collected

    def purge_expired(self, retention: Retention) -> None:
        """Remove manifests and reports of old committed batches; see :func:`~.purge.purge_stream`."""
        purge_stream(self.connected, retention)

    def commit_user_job(self, batch: Mapping[str, str], *, verify: DeltaSink | None = None) -> RunResult:
        """Commit a batch that a user job has loaded; see :func:`~.run.commit_user_job.commit_user_job`."""
        owner = commit_user_job(self.connected, batch, verify=verify, on_committed=self.on_committed)
        result = run_result(self.connected, owner)
        if result is None:
            raise LedgerError(
                f"stream {self.stream.name!r}: another run committed the batch",
                table=self.stream.table,
                reason=Reason.BATCH_NOT_PLANNED,
            )
        return result

    def has_batch(self) -> bool:
        """Whether this run has a batch to load or has committed one; if so, it plans no new batch by itself."""
        state = self.connected.load()
        return (bool(state.planned) and state.owner == self.context.owner) or self.result() is not None

    def result(self) -> LoadResult | None:
        """Return what this run has committed, or ``None`` if nothing."""
        return self.scope.result()

    def option_notes(self) -> str | None:
        """Return what was said about options that have no effect (the start), or none yet (of a planned batch)."""
        notes = [note for note in (start_note(self.connected), self.connected.options_note) if note is not None]
        return ". ".join(notes) or None

    def status(self) -> StreamStatus:
        """Return the status of the stream. Writes nothing."""
        return status_of(self.connected)

    def _register_sink(self) -> None:
        if self._sink is not None:
            self.connected.register_sink(self._sink.table_uri)

    def _take_over(self) -> None:
        """Make the planned batches this run's own, if their owner no longer runs."""
        previous = self.scope.stopped_owner()
        if previous is None:
            return
        logger.warning(
            "Stream %s: taking over %s of %s, which is no longer running",
            self.stream.name,
            self.scope.describe_planned(),
            previous.describe(),
        )
        self.connected.execute(
            Claimed(
                epoch=self.scope.record.epoch,
                interval=self.scope.interval,
                owner=self.context.owner,
                previous=previous,
                why="the owner is no longer running",
            )
        )

    def _collect(self, work: RunWork, *, is_running: bool) -> Collected:
        if work.status == "fence":
            return Collected() if is_running else collect_fence(self.connected, work)
        self._so_far = so_far = self._so_far.of(work)
        # the object remembers whether this worker may read the sink's log
        self._evidence = self._evidence or evidence_of(self.connected, self._sink)
        left = self.scope.transactions(work.batches)[len(so_far.reports) :]
        connected = self.connected
        # what a catalog answered is known to this thread only
        is_alone = connected.staging.is_file_system or connected.log.catalog_table_id is not None
        window = 0 if is_alone else 1 if is_running else AT_ONCE
        for transaction, verified in in_windows(left, partial(self._verified, work), window=window):
            try:
                report, problems = verified()
            except BatchFailedError as refused:
                if is_running:
                    break
                return so_far.result(None, refused)
            if is_running and (report is None or not report.is_done):
                break
            if report is None or not (report.is_done or report.outcome == "mismatch"):
                return so_far.result(report, self.scope.failure(work, transaction, report))
            if problems:
                if is_running:
                    break
                # one reason for all problems: a person accepts all of them or none
                self._block(work, transaction, report, "; ".join(problems))
            self._commit(work, transaction, report)
            so_far.add(self.stream.name, transaction.parts, report)
        return so_far.result()

    def _verified(self, work: RunWork, transaction: Transaction) -> tuple[AttemptReport | None, list[str]]:
        """Read the report of a transaction; return also how the sink and the source's log differ from the plan."""
        report = self._report(work, transaction)
        if report is None or not (report.is_done or report.outcome == "mismatch"):
            return report, []
        differs = rows_differ(report, self._sink, transaction.num_rows)
        changed = (check_range_unchanged(self.connected.log, part) for part in transaction.parts)
        return report, list(dict.fromkeys(problem for problem in (differs, *changed) if problem is not None))

    def _report(self, work: RunWork, transaction: Transaction) -> AttemptReport | None:
        uuid, batch_id = self.connected.state.uuid, transaction.last.batch_id
        reported = ReportedBatch(uuid, work.epoch, batch_id, transaction.digest, self.scope.interval)
        return read_report(self.connected, self.scope.reports, reported, work.attempt_id, self._evidence)

    def _commit(self, work: RunWork, transaction: Transaction, report: AttemptReport) -> None:
        """Record that the transaction is in the sink and verified."""
        committed = Committed(
            epoch=work.epoch,
            interval=self.scope.interval,
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
        self.connected.execute(committed)
        self.on_committed(committed, len(transaction.parts))

    def _block(self, work: RunWork, transaction: Transaction, report: AttemptReport, reason: str) -> None:
        """Record that verification failed, and raise; return if a person has already accepted exactly this."""
        blocked = Blocked(
            epoch=work.epoch,
            interval=self.scope.interval,
            batch_id=transaction.last.batch_id,
            owner=self.context.owner,
            attempt_id=work.attempt_id,
            reason=reason,
            rows_planned=transaction.num_rows,
            rows_written=report.rows_written,
            sink_version=report.sink_version,
            sink_table_id=report.sink_table_id,
        )
        self.connected.execute(blocked)
        if self.scope.record.blocked is not None:
            raise self.scope.blocked_error(blocked)
