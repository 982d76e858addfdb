"""The scope of a run by offset: from the committed offset to the newest version, or to the stream's end."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from airflow_provider_fds.batch.transactions import fence_version, txn_app_id
from airflow_provider_fds.delta.reader.log import DeltaLog
from airflow_provider_fds.delta.reader.replay import transactions
from airflow_provider_fds.errors import (
    BatchFailedError,
    ConfigurationError,
    FdsError,
    LostPositionError,
    SourceFilesGoneError,
    StoppedError,
    VerificationError,
)
from airflow_provider_fds.ledger.entries.plan_entries import Advanced
from airflow_provider_fds.ledger.entries.request_entries import Requested
from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.sizes import format_batches
from airflow_provider_fds.source.offset import Offset
from airflow_provider_fds.stream.attempt.batch_failure import reason_of
from airflow_provider_fds.stream.attempt.batch_versions import describe_versions
from airflow_provider_fds.stream.attempt.result import RunResult, RunWork, totals_of
from airflow_provider_fds.stream.declaration.sink_needs import (
    followed_renames_problem,
    missing_columns_problem,
    whole_commits_problem,
)
from airflow_provider_fds.stream.epochs import opening
from airflow_provider_fds.stream.epochs.fencing import fence_work
from airflow_provider_fds.stream.epochs.fork import refuse_sink_of_origin
from airflow_provider_fds.stream.planning.changed_options import warn_about_changed_options
from airflow_provider_fds.stream.planning.plan_batches import plan_batches, schema_changes_of, skipped_of
from airflow_provider_fds.stream.planning.whole_commits import (
    keeps_replaced_rows,
    refuse_divided_commits,
    with_divisions,
)
from airflow_provider_fds.stream.position.lost_position import nearly_lost, newest_from_position, oldest_commit
from airflow_provider_fds.stream.position.source_unchanged import check_planned
from airflow_provider_fds.stream.position.stream_end import finished_reason, settle_end
from airflow_provider_fds.stream.run.quarantine import paused_work, quarantine, quarantine_lost
from airflow_provider_fds.stream.run.scope import Scope
from airflow_provider_fds.stream.sink_record.overlap import refuse_overlap
from airflow_provider_fds.stream.sink_record.sink_now import sink_now

if TYPE_CHECKING:
    from airflow_provider_fds.batch.report import AttemptReport
    from airflow_provider_fds.batch.spec import BatchSpec
    from airflow_provider_fds.ledger.facts import BlockedFacts
    from airflow_provider_fds.ledger.owner import Owner
    from airflow_provider_fds.ledger.state import StreamState
    from airflow_provider_fds.ledger.values import PlannedBatch, SinkBinding
    from airflow_provider_fds.sinks import Sink
    from airflow_provider_fds.source.planned import SourceBatch
    from airflow_provider_fds.source.planning.end import StreamEnd
    from airflow_provider_fds.stream.connected_stream import ConnectedStream
    from airflow_provider_fds.stream.run.scope import Transaction

logger = logging.getLogger(__name__)

#: The target of a run that lingers: no table reaches this version.
NO_TARGET: Final = 2**63 - 1


class OffsetScope(Scope):
    """The versions after the committed offset; the record of its batches is the stream's own state."""

    @property
    def record(self) -> StreamState:
        """The state of the stream."""
        return self.connected.state

    @property
    def _position(self) -> Offset:
        position = self.connected.state.position
        assert position is not None  # noqa: S101  # callers have checked that the epoch is open
        return Offset.from_json(position)

    def check_sink(self, sink: Sink | None) -> None:
        """Refuse a sink that replaces, and one that the stream's columns or rules do not suit."""
        if sink is None:
            return
        if sink.replaces:
            raise ConfigurationError(
                f"stream {self.stream.name!r} reads by offset: each of its batches would replace the previous "
                "one. A sink that replaces requires read='data_interval'; use one that appends.",
                table=self.stream.table,
            )
        problem = (
            whole_commits_problem(self.stream, sink)
            or missing_columns_problem(self.stream, sink)
            or followed_renames_problem(self.stream, sink, self.connected.context.schema_changes)
        )
        if problem is not None:
            raise ConfigurationError(problem, table=self.stream.table)

    def ensure_open(self, sink: Sink | None, *, start: Offset | None = None) -> StreamState:
        """Create the stream and open its epoch at the resolved start."""
        return opening.ensure_open(self.connected, sink, start=start)

    def before_binding(self, state: StreamState, sink: Sink | None) -> RunWork | None:
        """Return the fence of a requested epoch, or that the start is in the future."""
        if state.needs_fence:
            # a person who requested the epoch and holds the stream may be working on the sink
            held = None if state.held is None else paused_work(state)
            return held or fence_work(state, sink)
        if state.position is not None:
            return None
        self.waits_for = (
            f"Stream {state.name!r} is waiting for start {self.stream.options.starting_timestamp}: no commit of the "
            "table is from then or later."
        )
        return RunWork("waiting", state.epoch, reason=self.waits_for)

    def sink_has_older_epochs(self, *, was: SinkBinding | None) -> bool:
        """Request the next epoch if the sink that was just bound has transactions of an earlier one.

        So it is after a replan back to a sink that the stream has left: its fence is older than the open epoch.

        Args:
            was: The sink before.
        """
        state = self.connected.state
        sink = state.sink
        if sink is None or sink == was or not sink.has_log or state.epoch < 2 or state.next_batch_id:  # noqa: PLR2004
            return False
        log = DeltaLog(self.connected.open_sink(sink.target))
        app_id = txn_app_id(state.uuid)
        try:
            newest = transactions(log, log.latest(), [app_id]).get(app_id)
        except FdsError:
            # there is no table yet, or it cannot be read from here; then the driver finds out
            return False
        if newest is None or newest >= fence_version(state.epoch):
            return False
        self._request_epoch("the stream had left this sink, and epochs since then are not closed in it")
        return True

    def settled(self, *, retry: bool, user_job: bool) -> RunWork | None:
        """Return the result of a run that has nothing left to do, or ``None`` if it must read the table.

        A run of a user job loads one batch; other runs work up to the version they saw when they first planned.
        """
        state, me = self.connected.state, self.connected.context.owner
        if state.planned and state.quarantined is not None:
            return paused_work(state)
        if state.owner == me:
            return None
        record = state.run_of(me)
        if record is None or record.target is None:
            if not retry:
                return None
        elif not (user_job and record.batches) and self._position.version <= record.target:
            return None
        result = self.result()
        target = None if record is None else record.target
        return None if result is None else RunWork("done", state.epoch, target=target, result=result)

    @property
    def planned(self) -> tuple[PlannedBatch, ...]:
        """All batches that are planned and not committed."""
        return self.connected.state.planned

    def check_whole(self, sink: Sink | None, *, user_job: bool) -> None:
        """Refuse planned batches, or a position, that cut a commit which the sink must see whole."""
        if self._keeps_replaced_rows(sink, user_job=user_job):
            refuse_divided_commits(self.connected.state, self.connected.log)

    def _keeps_replaced_rows(self, sink: Sink | None, *, user_job: bool) -> bool:
        return keeps_replaced_rows(self.stream, sink, self.connected.state.sink, user_job=user_job)

    def warn_about_changed_options(self) -> None:
        """Warn if the planned batches were planned with other options."""
        warn_about_changed_options(self.connected)

    def plan(self, sink: Sink | None, max_batches: int, *, user_job: bool) -> RunWork:
        """Plan batches from the position up to the run's target, unless a person must decide first."""
        state, me = self.connected.state, self.connected.context.owner
        if (paused := paused_work(state)) is not None:
            return paused
        self.check_whole(sink, user_job=user_job)
        try:
            state, end = settle_end(self.connected, state)
            if end is not None and end.is_reached(self._position):
                # before the log is checked: a finished stream needs no more versions
                return self._finished(end)
            state, newest = newest_from_position(self.connected, state, me)
        except LostPositionError as error:
            return quarantine_lost(self.connected, error)
        position = self._position
        record = state.run_of(me)
        target = newest if end is None else end.target(position, newest)
        target = target if record is None or record.target is None else min(target, record.target)
        if position.version > target:
            self._warn_if_nearly_lost(position, newest)
            self._check_sink()
            return RunWork("up_to_date", state.epoch, target=target)
        self._check_overlap(sink, end)
        is_whole = self._keeps_replaced_rows(sink, user_job=user_job)
        try:
            found = plan_batches(self.connected, state, target, max_batches, sink=sink, keeps_replaced_rows=is_whole)
        finally:
            # the commits that are planned need not be read twice for the table's properties
            self._warn_if_nearly_lost(position, newest)
        self.waits_for = None if found.waiting is None else found.waiting.describe()
        if found.empty is not None:
            self._advance(state.epoch, found.empty)
        if found.batches:
            self._record_plan(state.epoch, self._fixed_target(target), found.batches)
            return self.work(max_batches, warning=found.error, is_more=found.is_more)
        result = self.result() if record is not None else None
        waits = self.waits_for or ""
        if result is not None:
            # this run has delivered what it could; the next run reports the violation
            return RunWork("done", state.epoch, target=target, result=result, warning=found.error, reason=waits)
        return self._idle(found.error, end, RunWork("up_to_date", state.epoch, target=target, reason=waits))

    def _warn_if_nearly_lost(self, position: Offset, newest: int) -> None:
        if (warning := nearly_lost(self.connected.log, oldest_commit(position), newest)) is not None:
            logger.warning("stream %s: %s", self.stream.name, warning)

    def _fixed_target(self, target: int) -> int:
        """Return the target to record, which stays the same in all plans of a run."""
        record = self.connected.state.run_of(self.connected.context.owner)
        if record is not None and record.target is not None:
            return record.target
        return NO_TARGET if self.is_open_ended else target

    def _check_sink(self) -> None:
        """Refuse to call a stream up to date if its sink no longer has what was loaded."""
        now = sink_now(self.connected, self.connected.state)
        if now.problem is not None:
            raise now.problem
        if now.warning is not None:
            logger.warning("stream %s: %s", self.stream.name, now.warning)

    def _check_overlap(self, sink: Sink | None, end: StreamEnd | None) -> None:
        """Refuse to plan the first batch of an epoch if another stream loads its versions into the same sink."""
        if sink is not None and not self.connected.state.next_batch_id:
            refuse_sink_of_origin(self.connected, sink)
            refuse_overlap(self.connected, self.connected.state, sink, end)

    def _idle(self, error: FdsError | None, end: StreamEnd | None, up_to_date: RunWork) -> RunWork:
        """Return the work of a run that has loaded nothing, or raise the violation that is next in line."""
        if isinstance(error, LostPositionError):
            return quarantine_lost(self.connected, error)
        if error is not None:
            if self.stream.options.on_violation != "fail" and isinstance(error, StoppedError):
                return quarantine(self.connected, error) or up_to_date
            raise error
        if end is not None and end.is_reached(self._position):
            return self._finished(end)
        self._check_sink()
        return up_to_date

    def _advance(self, epoch: int, batch: SourceBatch) -> None:
        """Record that the position moved over commits without data."""
        self.connected.execute(
            Advanced(
                epoch=epoch,
                owner=self.connected.context.owner,
                start=batch.start.to_json(),
                end=batch.end.to_json(),
                first_version=batch.first_version,
                last_version=batch.last_version,
                skipped=skipped_of(batch),
                log_digest=batch.log_digest,
                last_commit_sha256=batch.last_commit_sha256,
                schema_changes=schema_changes_of(batch),
            )
        )

    def _finished(self, end: StreamEnd) -> RunWork:
        reason = end.describe(self.stream.name, self.connected.log.table_uri)
        return RunWork("finished", self.connected.state.epoch, target=end.version, reason=reason)

    def work(self, max_batches: int, *, warning: FdsError | None = None, is_more: bool | None = None) -> RunWork:
        """Return all planned batches as work: those of an earlier plan are not divided either."""
        del max_batches
        state = self.connected.state
        target = None if state.run is None else state.run.target
        if is_more is None:
            is_more = target is None or Offset.from_json(state.planned[-1].end).version <= target
        return self._work(state.planned, target=target, is_more=is_more, warning=warning)

    def specs(self, batches: tuple[PlannedBatch, ...]) -> tuple[BatchSpec, ...]:
        """Return the batches as the Spark side needs them, chained by ``after``."""
        wanted = {batch.batch_id for batch in batches}
        return tuple(spec for spec in self.connected.state.specs(self._stream_uri()) if spec.batch_id in wanted)

    def for_job(self, sink: Sink, specs: tuple[BatchSpec, ...]) -> tuple[Sink, tuple[BatchSpec, ...]]:
        """Return the batches with whether each cuts a commit, if the sink must see commits whole."""
        return sink, with_divisions(specs, self.connected.log) if sink.needs_whole_commits else specs

    @property
    def sink_version(self) -> int | None:
        """Version of the sink that holds the last commit or fence of the stream."""
        return self.connected.state.sink_version

    def result(self) -> RunResult | None:
        """Return what the run has committed; reads old entries only if the state no longer has the run."""
        return run_result(self.connected, self.connected.context.owner)

    def goes_on(self) -> bool:
        """Whether the run lingers: not if an attempt before it has fixed its end, nor if the stream is finished."""
        record = self.connected.state.run_of(self.connected.context.owner)
        is_open = self.is_open_ended and (record is None or record.target in (None, NO_TARGET))
        return is_open and finished_reason(self.connected) is None

    def is_end_fixed(self) -> bool:
        """Whether this run has planned batches in this epoch; a run works up to the version it saw then."""
        record = self.connected.state.run_of(self.connected.context.owner)
        return record is not None and record.target is not None

    def describe_planned(self) -> str:
        """Return how many batches are planned."""
        return format_batches(len(self.planned))

    def busy(self, owner: Owner) -> str:
        """Return that the next batches belong to ``owner``."""
        return (
            f"stream {self.stream.name!r}: its next batches belong to {owner.describe()}, which appears to be running "
            f"({format_batches(len(self.planned))}). Only one run at a time may load them. If it has stopped, "
            + (f"`fds unlock {self.stream.name} --why …`" if owner.kind == "cli" else "mark it failed in Airflow")
        )

    def blocked_error(self, blocked: BlockedFacts) -> VerificationError:
        """Return the error of the next batch, at which the stream stops."""
        batch = self.planned[0]
        return VerificationError(
            f"stream {self.stream.name!r}, batch {batch.batch_id} of {self.connected.log.table_uri} "
            f"({describe_versions([batch], self.connected.state.snapshot)}): {blocked.reason}. The plan has "
            f"{blocked.rows_planned} rows, but the sink's version {blocked.sink_version} has "
            f"{blocked.rows_written}. Nothing more is loaded until this is resolved: compare the sink with "
            f"the source, then run `fds accept {self.stream.name} --batch {batch.batch_id} --why …`",
            table=self.connected.log.table_uri,
            version=batch.last_version,
        )

    def failure(self, work: RunWork, transaction: Transaction, report: AttemptReport | None) -> BatchFailedError:
        """Return the error for a batch that is not done; request a new epoch if a closed one created the sink."""
        if report is not None and reason_of(report) is Reason.SINK_APPEARED:
            return self._request_fence(work, report)
        failure = super().failure(work, transaction, report)
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
            self._request_epoch(
                "a batch of a closed epoch created the sink, which was missing when that epoch was closed"
            )
        return BatchFailedError(
            f"{report.error_message}. Epoch {self.connected.state.epoch} is requested; the next run closes the "
            "earlier epochs in the sink, and continues or reports what you must decide.",
            error_class=report.error_class,
            table=self.stream.table,
            reason=Reason.SINK_APPEARED,
        )

    def _request_epoch(self, why: str) -> None:
        state = self.connected.state
        self.connected.execute(
            Requested(
                reason="sink_appeared",
                why=why,
                closes=state.epoch,
                to={"offset": state.position, "meaning_digest": state.meaning_digest},
                is_automatic=True,
            )
        )


def run_result(connected: ConnectedStream, owner: Owner) -> RunResult | None:
    """Return what a run has committed; reads old entries only if the state no longer has the run."""
    record = connected.ledger.find_run(owner, since=connected.context.run_since)
    if record is None or not record.batches:
        return None
    return RunResult(
        stream=connected.stream.name,
        epoch=record.epoch,
        first_batch_id=record.first_batch_id or 0,
        last_batch_id=record.last_batch_id or 0,
        start=record.start or "",
        end=record.end or "",
        watermark=record.watermark,
        **totals_of(record),
    )
