"""One run of a stream: begin, hand the work to Spark, collect the outcome."""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from airflow_provider_fds.batch.spec import JobSpec
from airflow_provider_fds.errors import ConfigurationError, LedgerError, LostPositionError, StoppedError
from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.stream.attempt.reports import put_job
from airflow_provider_fds.stream.attempt.result import Collected, describe_reports
from airflow_provider_fds.stream.connected_stream import ConnectedStream
from airflow_provider_fds.stream.epochs import opening
from airflow_provider_fds.stream.epochs.fencing import collect_fence, put_fence_job
from airflow_provider_fds.stream.planning.sink_columns import SinkColumns
from airflow_provider_fds.stream.position.changed_start import start_note
from airflow_provider_fds.stream.position.source_unchanged import check_planned
from airflow_provider_fds.stream.run.batch_commits import BatchCommits, DriverRecord
from airflow_provider_fds.stream.run.like_source import sink_for_job
from airflow_provider_fds.stream.run.limits import Limits
from airflow_provider_fds.stream.run.offset_scope import OffsetScope, run_result
from airflow_provider_fds.stream.run.quarantine import quarantine_lost
from airflow_provider_fds.stream.sink_record.live_start import with_known_end

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from airflow_provider_fds.batch.spec import Expectations
    from airflow_provider_fds.errors import FdsError
    from airflow_provider_fds.ledger.state import StreamState
    from airflow_provider_fds.sinks import DeltaSink, Sink
    from airflow_provider_fds.source.offset import Offset
    from airflow_provider_fds.stream.attempt.result import LoadResult, RunResult, RunWork
    from airflow_provider_fds.stream.connected_stream import StreamContext
    from airflow_provider_fds.stream.declaration.delta_stream import DeltaStream
    from airflow_provider_fds.stream.monitoring.status import StreamStatus
    from airflow_provider_fds.stream.position.data_interval import DataInterval
    from airflow_provider_fds.stream.run.scope import Scope

logger = logging.getLogger(__name__)

#: What a task logs of :attr:`StreamSession.stopped`.
STOPPED: Final = "Stream %s: everything before this version was delivered; the stream stops here: %s"


class StreamSession:
    """One run of a stream: over whatever is new since the committed offset, or over one data interval.

    The order of calls is :meth:`next_work`, :meth:`job`, Spark, :meth:`collect`, repeated until ``next_work`` returns
    no more work: up to the version that was the newest when the run first planned. Whichever process dies in between,
    the next session continues with exactly the same batches.

    Args:
        stream: The stream.
        context: Credentials, staging, checkpoint, and who is asking.
        interval: The run's data interval, for a stream with ``read="data_interval"``.

    Attributes:
        work: The work in hand, or the last one.
        idle: The work of a turn that found nothing to do, which says why; ``None`` if there was no such turn.
        stopped: The error with which the next run fails or pauses, if the stream stops before a version after what was
            loaded.
        has_committed: Whether batches were committed.
        on_caught_up: Called each time that everything is loaded, before a run that lingers waits for more.
        is_out_of_time: Whether the limit of time ended the run before everything was loaded.

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
        self.scope: Scope = (
            OffsetScope(self.connected) if interval is None else _interval_scope(self.connected, interval)
        )
        self.commits = BatchCommits(self.scope)
        self.driver = DriverRecord(self.scope)
        self.work: RunWork | None = None
        self.idle: RunWork | None = None
        self.stopped: FdsError | None = None
        self.has_committed = False
        self.is_out_of_time = False
        self.on_caught_up: Callable[[], object] = lambda: None
        self._sink: Sink | None = None
        self._num_committed = 0
        self._is_over = False
        # whether it is over only until something new comes
        self._has_caught_up = False
        self._done: LoadResult | None = None
        self.limits = Limits()

    def limit(self, limits: Limits) -> None:
        """Say how far the run works off the stream, before its first work."""
        self.limits = limits
        self.scope.is_open_ended = limits.linger is not None

    def next_work(self, sink: Sink) -> RunWork | None:
        """Return the next work for Spark, with status ``work`` or ``fence``, or ``None`` if nothing is left.

        Args:
            sink: Where the batches go.

        Raises:
            StreamBusyError: Another run owns the next batches.
            FdsError: As :meth:`begin`. A version that the stream cannot pass is an error only if nothing was loaded
                before it; else it is :attr:`stopped`.
        """
        in_vain = 0
        linger = self.limits.linger
        while True:
            work = None if self._is_over else self._turn(sink)
            if work is not None or linger is None or not self._has_caught_up or not self.scope.goes_on():
                return work
            if linger.needs_data and not self.has_committed:
                return None
            self.on_caught_up()
            if not linger.wait(self.connected, in_vain=in_vain):
                return None
            in_vain += 1
            self._is_over = self._has_caught_up = False
            self.idle = None

    def _turn(self, sink: Sink) -> RunWork | None:
        name, limits = self.stream.name, self.limits
        most = limits.max_batches
        if limits.max_in_all is not None:
            most = min(most, limits.max_in_all - self._num_committed)
        try:
            work = self.begin(sink, max_batches=most, retry=limits.retry)
        except StoppedError as stopped:
            if not self.has_committed:
                raise
            self._end(stopped)
            return None
        if work.status == "fence" and limits.linger is not None and self.has_committed:
            # Spark is working for the epoch before
            self._end(None)
            return None
        if work.status in ("work", "fence"):
            if work.status == "fence":
                said = "Stream %s: epoch %d was requested; the earlier epochs are closed in the sink first."
                logger.info(said, name, work.epoch)
            self.work = work
            return work
        if work.status == "done":
            if limits.linger is None:
                logger.info("Stream %s: this run has already committed everything up to version %s.", name, work.target)
                # a run that lingers may commit more
                self._done = work.result
            self._end(work.warning, has_caught_up=limits.linger is not None)
            return None
        self.idle = work
        self._end(None, has_caught_up=work.status in ("up_to_date", "waiting"))
        return None

    def _end(self, stopped: FdsError | None, *, has_caught_up: bool = False) -> None:
        self._is_over, self._has_caught_up = True, has_caught_up and stopped is None
        self.stopped = stopped or self.stopped

    @property
    def is_more(self) -> bool:
        """Whether the run ended before everything was loaded that it found when it planned last."""
        return self.idle is None and self.work is not None and self.work.is_more

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
            max_batches: Maximum number to plan; of an interval, to hand to one application, unless it is replaced.
            user_job: Whether the user job writes the batches.
            retry: Whether this run may have worked before (a later attempt, a cleared task). If it has committed
                everything it saw then, it gets its result again and nothing new is planned.
            take_over: Whether to take over planned batches of another owner; otherwise they are only shown.
            start: Where a new stream starts (exclusive), instead of its start options.

        Raises:
            StreamBusyError: Planned batches belong to a run that is still running.
            LostPositionError: The table no longer has the position, commits of the interval, or what was planned.
            StoppedError: The stream cannot pass a version; it, and the one above, with ``on_violation="fail"``.
            ConfigurationError: Sink and stream do not fit together, the position or a planned batch cuts a commit that
                the sink must see whole, or the interval is not over.
            VerificationError: The interval is blocked, and the sink appends.
        """
        with self.connected.log.one_answer():
            scope = self.scope
            scope.check_sink(sink)
            self._sink = sink
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
                try:
                    check_planned(self.connected.log, scope.planned)
                except LostPositionError as error:
                    return quarantine_lost(self.connected, error)
            if take_over:
                scope.take_over()
                scope.check_whole(sink, user_job=user_job)
            return scope.work(max_batches)

    def job(self, work: RunWork, sink: Sink) -> str:
        """Write the job of ``work`` to staging and return the URI that Spark reads it from.

        Args:
            work: The result of :meth:`begin`, with status ``work`` or ``fence``.
            sink: The sink the stream is bound to.
        """
        linger = self.limits.linger
        with self.connected.log.one_answer():
            if work.status == "fence":
                SinkColumns(self.connected, self.connected.state, sink).check_before_removal()
                return put_fence_job(self.connected, work, sink)
            state = self.connected.state
            sink, batches = self.scope.for_job(sink, self.scope.specs(work.batches))
            sink = sink_for_job(self.connected, sink, batches)
            spec = JobSpec(
                batches=batches,
                sink=sink.located(self.connected.spark_sink).to_dict(),
                sink_table_id=state.sink_table_id,
                sink_version=self.scope.sink_version,
                reports=self.scope.reports_location,
                attempt_id=work.attempt_id,
                stop_after_ms=self.limits.stop_after_ms,
                tables=state.tables,
                allow_overlap=self.connected.stream.allow_overlap,
                linger_seconds=None if linger is None else linger.driver_seconds,
                expectations=self._expectations(),
            )
            return put_job(self.connected, self.scope.job_folder(work), spec)

    def _expectations(self) -> Expectations | None:
        """Return the stream's expectations, with the location of rejected rows as Spark reaches it."""
        found = self.connected.stream.expectations
        if found is None or found.rejects is None:
            return found
        return replace(found, rejects=self.connected.spark_sink(found.rejects))

    def collect(self, work: RunWork, *, is_running: bool = False, spark_failed: bool = False) -> Collected:
        """Read the attempt's reports and commit, in order, the batches that are in the sink and verified.

        May be called repeatedly for the same work: each call continues where the last one ended and returns the outcome
        of all calls. The ``failure`` is for the caller to raise; if the time was up before the batch was started,
        :attr:`is_out_of_time` is set, and it is none.

        Args:
            work: The work in hand.
            is_running: Whether Spark is still running. Then a batch without a report has not failed, and problems are
                left to the call after Spark has ended.
            spark_failed: Whether the Spark application ended with an error.

        Raises:
            VerificationError: The sink holds other rows of a batch than planned, or the source's log no longer matches
                the plan. The batch is blocked; the batches before it are committed.
        """
        try:
            with self.driver.lock, self.connected.log.one_answer():
                if work.status != "fence":
                    collected = self.commits.collect(work, self._sink, is_running=is_running)
                else:
                    collected = Collected() if is_running else collect_fence(self.connected, work)
        finally:
            if not is_running:
                self.driver.ended(work)
                self.connected.save_fold()
        if not is_running:
            if collected.committed and collected.failure is None and collected.paused is None:
                self._register_sink()
            self._take_account(work, collected, spark_failed=spark_failed)
        return collected

    def _take_account(self, work: RunWork, collected: Collected, *, spark_failed: bool) -> None:
        """Find out whether the run is over after an application."""
        if any(report.is_done for report in collected.reports):
            logger.info("Stream %s, this application: %s.", self.stream.name, describe_reports(collected.reports))
        if (paused := collected.paused) is not None:
            self.has_committed = self.has_committed or bool(collected.committed)
            self.idle, self.stopped, self._is_over = paused, paused.warning, True
            return
        stop_after_ms, max_in_all = self.limits.stop_after_ms, self.limits.max_in_all
        is_late = stop_after_ms is not None and time.time() * 1000 >= stop_after_ms
        if collected.failure is not None:
            was_started = len(collected.reports) > len(collected.committed)
            if work.status == "fence":
                was_started = collected.failure.reason_code != Reason.SPARK_ENDED_EARLY
            if spark_failed or not is_late or was_started:
                self._is_over = True
                return
        elif work.status == "fence":
            return
        self.has_committed = True
        self._num_committed += len(collected.committed)
        is_full = self._num_committed == max_in_all
        self.stopped = work.warning or self.stopped
        self.is_out_of_time = is_late and (collected.failure is not None or work.is_more)
        self._is_over = self.is_out_of_time or not work.is_more or is_full
        is_loaded = not self.is_out_of_time and not work.is_more and not is_full
        self._has_caught_up = is_loaded and self.stopped is None

    def commit_user_job(self, batch: Mapping[str, str], *, verify: DeltaSink | None = None) -> RunResult:
        """Commit a batch that a user job has loaded; see :func:`~.run.commit_user_job.commit_user_job`."""
        from airflow_provider_fds.stream.run.commit_user_job import commit_user_job

        owner = commit_user_job(self.connected, batch, verify=verify, on_committed=self.commits.on_committed)
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
        return self._done or self.scope.result()

    def option_notes(self) -> str | None:
        """Return what was said about options that have no effect (the start), or none yet (of a planned batch)."""
        notes = [note for note in (start_note(self.connected), self.connected.options_note) if note is not None]
        return ". ".join(notes) or None

    def status(self) -> StreamStatus:
        """Return the status of the stream. Writes nothing."""
        from airflow_provider_fds.stream.monitoring.status import status_of

        return status_of(self.connected)

    def _register_sink(self) -> None:
        if self._sink is not None:
            self.connected.register_sink(self._sink.table_uri)


def _interval_scope(connected: ConnectedStream, interval: DataInterval) -> Scope:
    # a run by offset starts without it, and a resumed task starts anew for each commit
    from airflow_provider_fds.stream.run.interval_scope import IntervalScope

    return IntervalScope(connected, interval)
