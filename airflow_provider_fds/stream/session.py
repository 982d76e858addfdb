"""One run of a stream: begin, hand the work to Spark, collect the outcome."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from airflow_provider_fds.batch.location import hadoop_path, spark_uri
from airflow_provider_fds.errors import (
    BatchFailedError,
    ConfigurationError,
    FdsError,
    LedgerError,
    SourceFilesGoneError,
    StoppedError,
    StreamBusyError,
    VerificationError,
)
from airflow_provider_fds.ledger.epoch_entries import Requested
from airflow_provider_fds.ledger.plan_entries import Advanced, Claimed, Planned
from airflow_provider_fds.sinks import DeltaSink, DeltaTableSink, ForeachBatchSink
from airflow_provider_fds.source.offset import Offset
from airflow_provider_fds.stream import opening
from airflow_provider_fds.stream.attempts import new_attempt_id, put_job
from airflow_provider_fds.stream.base_session import Session, SessionJob, Transaction
from airflow_provider_fds.stream.epoch import fence_job, fence_of, fence_report
from airflow_provider_fds.stream.late_writes import refuse_late_writes
from airflow_provider_fds.stream.lost_position import nearly_lost, newest_from_position, oldest_commit
from airflow_provider_fds.stream.planning import plan_batches, skipped_of
from airflow_provider_fds.stream.poll import TablePoller
from airflow_provider_fds.stream.quarantine import paused_work, quarantine
from airflow_provider_fds.stream.result import Collected, RunResult, RunWork, StreamStatus
from airflow_provider_fds.stream.stream_end import finished_reason, settle_end
from airflow_provider_fds.stream.user_job import commit_user_job
from airflow_provider_fds.stream.verifying import check_planned
from airflow_provider_fds.stream.whole_commits import (
    keeps_replaced_rows,
    refuse_divided_commits,
    whole_commits_problem,
    with_divisions,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_provider_fds.batch.report import AttemptReport
    from airflow_provider_fds.batch.spec import BatchSpec
    from airflow_provider_fds.ledger.state import StreamState
    from airflow_provider_fds.ledger.values import SinkBinding
    from airflow_provider_fds.sinks import Sink
    from airflow_provider_fds.source.end import StreamEnd
    from airflow_provider_fds.stream.connect import StreamContext
    from airflow_provider_fds.stream.value import DeltaStream

logger = logging.getLogger(__name__)

#: Error class of an attempt report: the sink was missing when the epoch began, and a batch of a closed epoch has
#: created it since.
_SINK_APPEARED = "SinkAppeared"


class StreamSession(Session):
    """A run of a stream that reads by offset.

    Args:
        stream: The stream.
        context: Credentials, staging, checkpoint, and who is asking.

    Raises:
        ConfigurationError: A URI cannot be opened, staging and table are inside each other, or the stream reads data
            intervals.
    """

    def __init__(self, stream: DeltaStream, context: StreamContext) -> None:
        if stream.reads_by_interval:
            raise ConfigurationError(
                f"stream {stream.name!r} has read='data_interval', and what is asked here is for streams with an "
                "offset. Data intervals are loaded by DeltaIngestOperator.",
                table=stream.table,
            )
        super().__init__(stream, context)

    def ensure_open(self, sink: Sink | None = None, *, start: Offset | None = None) -> StreamState:
        """Create the stream and resolve its start, if that is not already done.

        Args:
            sink: The intended sink, searched for traces of an earlier stream of the same name.
            start: Where a new stream starts (exclusive), instead of its start options.

        Returns:
            The state; its ``position`` is ``None`` while the start is in the future.

        Raises:
            TableNotFoundError: There is no Delta table at the URI.
            LedgerError: The sink knows a stream of this name whose ledger is gone.
        """
        return opening.ensure_open(self.connected, sink, start=start)

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
            max_batches: Maximum number of batches to plan.
            user_job: Whether the user job writes the batches.
            retry: Whether this run may have worked before (a later attempt, a cleared task). If it has committed
                everything it saw then, it gets its result again and nothing new is planned.
            take_over: Whether to take over planned batches of another owner; otherwise they are only shown.
            start: Where a new stream starts (exclusive), instead of its start options.

        Raises:
            StreamBusyError: Planned batches belong to a run that still runs.
            LostPositionError: The position no longer exists in the table.
            StoppedError: The next version is one the stream may not pass (``on_violation="fail"``).
            ConfigurationError: Sink and stream do not fit together, or the position or a planned batch cuts a commit
                that the sink must see whole.
        """
        if sink is not None and sink.replaces:
            raise ConfigurationError(
                f"stream {self.stream.name!r} reads by offset: each of its batches would replace the one before. "
                "DeltaReplaceSink goes with read='data_interval'; use DeltaTableSink.",
                table=self.stream.table,
            )
        if sink is not None and (problem := whole_commits_problem(self.stream, sink)) is not None:
            raise ConfigurationError(problem, table=self.stream.table)
        self._sink, self._log = sink, None
        state = opening.ensure_open(self.connected, sink, start=start)
        if state.needs_fence:
            # a person who requested the epoch and holds the stream may be working on the sink
            held = None if state.held is None else paused_work(state)
            return held or self._fence(state, sink)
        if state.position is None:
            return RunWork("waiting", state.epoch)
        state = opening.ensure_bound(self.connected, sink, user_job=user_job)
        is_at_work = state.owner == self.context.owner
        if not is_at_work and (done := self._done(state, retry=retry, user_job=user_job)) is not None:
            return done
        is_whole = keeps_replaced_rows(self.stream, sink, state.sink, user_job=user_job)
        if state.planned:
            self._check_planned(state)
            state = self._take_over(state) if take_over else state
            if is_whole and take_over:
                refuse_divided_commits(state, self.connected.log)
            return self._work(state, warning=None)
        if (paused := paused_work(state)) is not None:
            return paused
        if is_whole:
            refuse_divided_commits(state, self.connected.log)
        return self._plan(state, max_batches, keeps_replaced_rows=is_whole)

    def job(self, work: RunWork, sink: Sink, *, stop_after_ms: int | None = None) -> str:
        """Write the job of ``work``, including that of a fence, to staging; see :meth:`Session.job`."""
        if work.status != "fence":
            return super().job(work, sink, stop_after_ms=stop_after_ms)
        state = self.connected.state
        assert state.fence_sink is not None  # noqa: S101  # what needs a fence has a sink
        if state.request is not None and state.request.removal is not None:
            # how rows are removed depends on the sink as the run declares it
            opening.check_binding(self.connected, sink)
        fenced = self._fenced(sink, state.fence_sink)
        spec = fence_job(self.connected, state, fenced, work.attempt_id, stays=self._is_at(sink, state.fence_sink))
        return put_job(self.connected, self.connected.folder.fence_jobs(work.epoch), spec)

    def _job(self, work: RunWork, sink: Sink) -> SessionJob:
        described = sink.located(self._place).to_dict()
        batches = self.batch_specs(work)
        if sink.needs_whole_commits:
            batches = with_divisions(batches, self.connected.log)
        # the folder of the first batch: retention removes the job together with that batch
        folder = self.connected.folder.job_specs(work.epoch, work.batches[0].batch_id)
        return SessionJob(batches, described, self.connected.state.sink_version, folder)

    @property
    def _reports(self) -> str:
        return self.connected.folder.attempts

    def _fenced(self, sink: Sink, fenced: SinkBinding) -> Sink:
        """Return what is to be fenced, as Spark reaches it: the tables of a function, or a sink's one table."""
        if fenced.is_function:
            return ForeachBatchSink(fenced.target, writes=fenced.tables).located(self._place)
        return self._located(sink, fenced.target)

    def _is_at(self, sink: Sink, bound: SinkBinding) -> bool:
        """Whether the run's sink is the table of ``bound``."""
        return sink.table_uri is not None and self.connected.open_sink(sink.table_uri).uri == bound.target

    def _place(self, uri: str) -> str:
        return spark_uri(self.connected.open_sink(uri).uri)

    def _located(self, sink: Sink, uri: str) -> DeltaSink:
        """Return the sink at ``uri``, as Spark reaches it; a plain table sink if the run's own sink is not a table."""
        if not isinstance(sink, DeltaSink):
            sink = DeltaTableSink(uri)
        return replace(sink, uri=self._place(uri))

    def batch_specs(self, work: RunWork) -> tuple[BatchSpec, ...]:
        """Return the batches of ``work`` as the Spark side needs them, chained by ``after``."""
        wanted = {batch.batch_id for batch in work.batches}
        specs = self.connected.state.specs(hadoop_path(self.connected.staging_location(self.stream.name)))
        return tuple(spec for spec in specs if spec.batch_id in wanted)

    def _collect(self, work: RunWork, *, is_running: bool) -> Collected:
        if work.status != "fence":
            return super()._collect(work, is_running=is_running)
        return Collected() if is_running else self._collect_fence(work)

    def _fence(self, state: StreamState, sink: Sink | None) -> RunWork:
        if sink is None:
            why = "" if state.request is None else f" by a {state.request.reason} ({state.request.why})"
            raise LedgerError(
                f"stream {state.name!r}: epoch {state.epoch} was requested{why}. It begins with a run that has Spark "
                "and the sink, which closes the epochs before it there: run the stream's DAG, or `fds run`",
                table=state.table,
            )
        return RunWork("fence", state.epoch, attempt_id=new_attempt_id())

    def _collect_fence(self, work: RunWork) -> Collected:
        report = fence_report(self.connected, work.epoch, work.attempt_id)
        if isinstance(report, BatchFailedError):
            return Collected(failure=report)
        state = self.connected.load()
        if state.phase == "requested" and state.epoch == work.epoch:
            refuse_late_writes(self.connected, state)
            opening.open_epoch(self.connected, state, fence=fence_of(report, state), report=report)
            for warning in self.connected.state.sink_warnings:
                logger.warning("stream %s: %s", state.name, warning)
        return Collected()

    def _failure(self, work: RunWork, transaction: Transaction, report: AttemptReport | None) -> BatchFailedError:
        if report is not None and report.error_class == _SINK_APPEARED:
            return self._request_fence(work, report)
        failure = super()._failure(work, transaction, report)
        if isinstance(failure, SourceFilesGoneError):
            # checks whether the files are gone together with the table
            check_planned(self.connected.log, transaction.parts)
        return failure

    def _request_fence(self, work: RunWork, report: AttemptReport) -> BatchFailedError:
        """Request the next epoch, because a batch of a closed one created the sink that was missing at the fence.

        The new epoch continues at the position of this one, because nothing of this one is in the sink.
        """
        state = self.connected.load()
        if state.phase == "open" and state.epoch == work.epoch:
            self.connected.execute(
                Requested(
                    reason="sink_appeared",
                    why="a batch of a closed epoch made the sink, which was missing when that epoch was closed",
                    closes=state.epoch,
                    to={"offset": _position(state), "meaning_digest": state.meaning_digest},
                    is_automatic=True,
                )
            )
        return BatchFailedError(
            f"{report.error_message}. Epoch {self.connected.state.epoch} is requested; the next run closes the epochs "
            "before it in the sink, and continues or says what a person has to decide.",
            error_class=report.error_class,
            table=self.stream.table,
        )

    def commit_user_job(self, batch: Mapping[str, str], *, verify: DeltaSink | None = None) -> RunResult:
        """Commit a batch that a user job has loaded; see :func:`~.user_job.commit_user_job`."""
        owner = commit_user_job(self.connected, batch, verify=verify)
        result = opening.run_result(self.connected, owner)
        if result is None:
            raise FdsError(f"stream {self.stream.name!r}: the batch was committed, but not by this run")
        return result

    def has_batch(self) -> bool:
        """Whether this run has a batch to load or has committed one; if so, it plans no new batch by itself."""
        state = self.connected.load()
        return (bool(state.planned) and state.owner == self.context.owner) or self.result() is not None

    def has_planned(self) -> bool:
        """Whether this run has planned batches in this epoch; if so, the version it works up to is fixed."""
        record = self.connected.state.run_of(self.context.owner)
        return record is not None and record.target is not None

    def result(self) -> RunResult | None:
        """Return what this run has committed, ``None`` if nothing. Reads the ledger backwards only as needed."""
        return opening.run_result(self.connected, self.context.owner)

    def poller(self) -> TablePoller:
        """Return a poller of the table at the committed position."""
        position = self.connected.state.position
        return TablePoller(
            self.stream, self.connected.table, Offset.from_json(position) if position is not None else None
        )

    def status(self) -> StreamStatus:
        """Return the status of the stream. Writes nothing."""
        return opening.status_of(self.connected)

    def finished_reason(self) -> str | None:
        """Return a sentence if the stream has read everything up to its end, ``None`` if it has not or has no end."""
        return finished_reason(self.connected)

    def _plan(self, state: StreamState, max_batches: int, *, keeps_replaced_rows: bool) -> RunWork:
        state, end = settle_end(self.connected, state)
        if end is not None and end.is_reached(Offset.from_json(_position(state))):
            # before the log is checked: a finished stream needs no more versions
            return self._finished(state, end)
        state, newest = newest_from_position(self.connected, state, self.context.owner)
        position = Offset.from_json(_position(state))
        if (warning := nearly_lost(self.connected.log, oldest_commit(position), newest)) is not None:
            logger.warning("stream %s: %s", state.name, warning)
        record = state.run_of(self.context.owner)
        target = newest if end is None else end.target(position, newest)
        target = target if record is None or record.target is None else min(target, record.target)
        if position.version > target:
            return RunWork("up_to_date", state.epoch, target=target)
        found = plan_batches(self.connected, state, target, max_batches, keeps_replaced_rows=keeps_replaced_rows)
        if found.empty is not None:
            batch = found.empty
            self.connected.execute(
                Advanced(
                    epoch=state.epoch,
                    owner=self.context.owner,
                    start=batch.start.to_json(),
                    end=batch.end.to_json(),
                    first_version=batch.first_version,
                    last_version=batch.last_version,
                    skipped=skipped_of(batch),
                    log_digest=batch.log_digest,
                    last_commit_sha256=batch.last_commit_sha256,
                )
            )
        if not found.batches:
            result = self.result() if record is not None else None
            if found.error is not None and result is None:
                if self.stream.options.on_violation == "quarantine" and isinstance(found.error, StoppedError):
                    return quarantine(self.connected, found.error) or RunWork("up_to_date", state.epoch, target=target)
                raise found.error
            if result is not None:
                # this run has delivered what it could; the next run reports the violation
                return RunWork("done", state.epoch, target=target, result=result, warning=found.error)
            if end is not None and end.is_reached(Offset.from_json(_position(self.connected.state))):
                return self._finished(state, end)
            return RunWork("up_to_date", state.epoch, target=target)
        state = self.connected.execute(
            Planned(
                epoch=state.epoch,
                owner=self.context.owner,
                target=target,
                batches=found.batches,
                options_digest=self.stream.options.digest(),
                meaning_digest=self.stream.options.meaning_digest(),
            )
        )
        return replace(self._work(state, warning=found.error), is_more=found.is_more)

    def _finished(self, state: StreamState, end: StreamEnd) -> RunWork:
        reason = end.describe(self.stream.name, self.connected.log.table_uri)
        return RunWork("finished", state.epoch, target=end.version, reason=reason)

    def _done(self, state: StreamState, *, retry: bool, user_job: bool) -> RunWork | None:
        """Return the result of a run that has nothing left to do, ``None`` if it must read the table.

        A run of a user job loads one batch; other runs work up to the version they saw when they first planned.
        """
        record = state.run_of(self.context.owner)
        if record is None or record.target is None:
            if not retry:
                return None
        elif not (user_job and record.batches) and Offset.from_json(_position(state)).version <= record.target:
            return None
        result = self.result()
        target = None if record is None else record.target
        return None if result is None else RunWork("done", state.epoch, target=target, result=result)

    def _check_planned(self, state: StreamState) -> None:
        """Refuse planned batches of another table, unless a person has accepted the batch or must decide on it."""
        if state.blocked is None and state.accepted is None:
            check_planned(self.connected.log, state.planned)

    def _take_over(self, state: StreamState) -> StreamState:
        """Make the planned batches this run's own, if their owner no longer runs."""
        owner = state.owner
        if owner is None or owner == self.context.owner:
            return state
        if self.context.owner_is_running(owner):
            raise StreamBusyError(
                f"stream {self.stream.name!r}: its next {len(state.planned)} batches belong to {owner.describe()}, "
                "which appears to be running. Only one run at a time may load them. If it has stopped, "
                + ("call `fds run` with --take-over" if owner.kind == "cli" else "mark it failed in Airflow"),
                owner=owner.describe(),
            )
        logger.warning(
            "stream %s: taking over %d planned batches of %s, which does not run any more",
            self.stream.name,
            len(state.planned),
            owner.describe(),
        )
        return self.connected.execute(
            Claimed(epoch=state.epoch, owner=self.context.owner, previous=owner, why="the owner does not run any more")
        )

    def _work(self, state: StreamState, *, warning: FdsError | None) -> RunWork:
        run = state.run
        target = None if run is None else run.target
        end = Offset.from_json(state.planned[-1].end)
        return RunWork(
            "work",
            state.epoch,
            state.planned,
            attempt_id=new_attempt_id(),
            target=target,
            is_more=target is None or end.version <= target,
            warning=warning,
        )

    def _check_not_blocked(self, transaction: Transaction, report: AttemptReport, reason: str) -> None:
        if self.connected.state.blocked is None:
            return
        batch = transaction.last
        raise VerificationError(
            f"stream {self.stream.name!r}, batch {batch.batch_id} (versions {batch.first_version} to "
            f"{batch.last_version} of {self.connected.log.table_uri}): {reason}. Planned {batch.num_rows} rows, the "
            f"sink's version {report.sink_version} has {report.rows_written}. Nothing more is loaded until a person "
            f"has looked: compare the sink with the source, then run `fds accept {self.stream.name} --batch "
            f"{batch.batch_id} --why …`",
            table=self.connected.log.table_uri,
            version=batch.last_version,
        )


def _position(state: StreamState) -> str:
    assert state.position is not None  # noqa: S101  # callers have checked that the epoch is open
    return state.position
