"""One run of ``DeltaIngestOperator``: polls, plans, has Spark load, commits, and tells what was committed."""

from __future__ import annotations

import time
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from airflow.providers.common.compat.sdk import AirflowSkipException

from airflow_provider_fds.backends.base import Application
from airflow_provider_fds.durations import format_duration
from airflow_provider_fds.errors import StreamBusyError
from airflow_provider_fds.hooks.data_interval import refuse_backfill, run_interval
from airflow_provider_fds.hooks.failures import push_error, task_failures, with_staging_of
from airflow_provider_fds.hooks.settings import retention
from airflow_provider_fds.hooks.stats import send_status, sending_status
from airflow_provider_fds.operators.lineage.gathered_lineage import gathering
from airflow_provider_fds.operators.run.sessions import session_context
from airflow_provider_fds.operators.run.spark_failure import explained, without_command
from airflow_provider_fds.operators.task.ingest_arguments import check_asking, check_linger, check_reading
from airflow_provider_fds.operators.task.on_busy import give_way
from airflow_provider_fds.stream import DeltaStream
from airflow_provider_fds.stream.attempt.batch_versions import describe_plan
from airflow_provider_fds.stream.attempt.result import PhaseSeconds, RunResult
from airflow_provider_fds.stream.declaration.sink_needs import coerce_sink
from airflow_provider_fds.stream.run.limits import Limits
from airflow_provider_fds.stream.run.session import STOPPED, StreamSession

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow_provider_fds.operators.run.alerting import Alerting
    from airflow_provider_fds.operators.run.left_driver import LeftDriver, Resumed
    from airflow_provider_fds.sinks import Sink
    from airflow_provider_fds.stream.attempt.result import LoadResult, RunWork
    from airflow_provider_fds.stream.run.linger import Linger

#: SparkSubmitOperator's default name of an application.
_DEFAULT_NAME: Final = "arrow-spark"


class IngestRun:
    """An attempt of a task to load what is new.

    Args:
        operator: The :class:`DeltaIngestOperator`, rendered.
        context: The task's context.
        resumed: What an earlier process of this attempt has handed over, if it has left a driver in the cluster.
    """

    def __init__(self, operator: Any, context: Any, resumed: Resumed | None = None) -> None:
        self._operator = operator
        self._context = context
        self._log = operator.log
        self._phases = PhaseSeconds()
        self._resumed = resumed
        self._left_driver: LeftDriver | None = None

    def load(self, *, deadline: float | None, was_woken: bool = False) -> dict[str, Any] | None:
        """Load what is new, or defer the task until there is something to load.

        Args:
            deadline: When to stop waiting, in seconds since the epoch; ``None``: do not wait.
            was_woken: Whether a trigger has just reported that there is something to do.

        Returns:
            What this run has committed, as the task's XCom.
        """
        operator, context = self._operator, self._context
        operator.show_links({})
        with task_failures(context, operator.stream):
            # stored so that map_index_template can use {{ task.stream.name }} even for a dict from an XCom
            operator.stream = stream = DeltaStream.coerce(operator.stream)
            sink = coerce_sink(operator.sink)
            waiting = operator.waiting
            check_reading(stream, sink, operator.run_time_limit, None if waiting is None else waiting.grace)
            check_asking(stream, operator.approvers, operator.ask_timeout)
            if not stream.reads_by_interval:
                refuse_backfill(context, stream)
            self._find_spark(stream, sink)
            interval = run_interval(context, stream) if stream.reads_by_interval else None
            session = StreamSession(stream, session_context(context, stream, sink), interval)
            if interval is not None and waiting is not None and deadline is not None:
                waiting.wait_for_interval(operator, context, session, deadline=deadline)
            if operator.asset_partitions is not None:
                from airflow_provider_fds.operators.lineage.asset_partitions import check_source

                check_source(operator.asset_partitions, session)
            alerting = None if operator.alerts is None else _alerting(operator, context)
            with (
                sending_status(session, context, *(() if alerting is None else alerting.observers)),
                operator.showing_links(session, sink),
                gathering(operator, session, sink),
            ):
                result = self._work_off(session, sink)
            leaving = self._left_driver
            if leaving is not None and leaving.has_left:
                leaving.defer(session, deadline=deadline)
            if result is not None:
                _purge(session)
            elif self._must_ask(session):
                self._ask(session, deadline=deadline)
                # this attempt has asked before, and the next run asks again
                deadline = None
            if result is None and self._may_come(session) and deadline is not None:
                self._wait(session, deadline=deadline, was_woken=was_woken)
        if result is None:
            self._end_without_data(session)
        told = None if result is None else self._tell(session, sink, result)
        if alerting is not None:
            alerting.emit()
        return told

    def work(self, session: StreamSession, sink: Sink, work: RunWork) -> bool:
        """Run one Spark application and commit what it has done; return ``False`` if its driver is left at work.

        Raises:
            BatchFailedError: A batch is not done.
        """
        operator = self._operator
        application = Application.of_work(
            session,
            sink,
            work,
            operator.spark,
            name=str(operator.name),
            context=self._context,
            conf=operator.agent_settings,
        )
        work = application.work
        if work.batches:
            plan = describe_plan(work.batches, session.connected.state.snapshot)
            self._log.info("Loading %s into %s: %s.", session.connected.table.uri, sink.describe(), plan)
        with self._phases.phase("spark"):
            # a fence is short
            leaving = self._left_driver if work.batches else None
            outcome = operator.run_spark(application) if leaving is None else leaving.run(application)
        if outcome is None:
            return False
        spark_error = outcome.error
        with self._phases.phase("commit"):
            if self._is_of_others(work) and not operator.was_killed and application.has_rest_of_left(spark_error):
                return True
            collected = session.collect(work, spark_failed=spark_error is not None)
        if collected.failure is not None and not session.is_out_of_time:
            raise explained(collected.failure, spark_error, was_killed=operator.was_killed)
        if spark_error is not None and collected.paused is None:
            ending = without_command(spark_error)
            self._log.warning("Spark ended with an error after all batches were committed: %s", ending)
        return True

    def _is_of_others(self, work: RunWork) -> bool:
        """Whether an earlier attempt has started the driver of ``work``."""
        leaving = self._left_driver
        return work.submitted is not None and not (leaving is not None and leaving.is_own(work.attempt_id))

    def _find_spark(self, stream: DeltaStream, sink: Sink) -> None:
        """Set the operator's backend, checked."""
        operator = self._operator
        operator.spark = operator.find_spark(operator.conn_id)
        if operator.deferrable:
            # most tasks stay with their driver
            from airflow_provider_fds.operators.run.left_driver import LeftDriver

            self._left_driver = LeftDriver(operator, operator.run_spark, self._resumed, self._phases)
        operator.spark.check()
        operator.set_agent_settings(self._context, sink)
        if operator.name == _DEFAULT_NAME:
            operator.name = f"fds-{stream.name}"

    def _work_off(self, session: StreamSession, sink: Sink) -> LoadResult | None:
        """Run one application after another until the run's target, the time limit or a failure, or leave a driver."""
        operator, limit = self._operator, self._operator.run_time_limit
        stop_after_ms = None if limit is None else int((time.time() + limit.total_seconds()) * 1000)
        if self._left_driver is not None:
            stop_after_ms = self._left_driver.keep_limit(stop_after_ms)
        linger = None if operator.linger is None else self._linger(session, stop_after_ms)
        session.limit(
            Limits(
                max_batches=operator.batches_per_application,
                retry=self._context["ti"].try_number > 1,
                stop_after_ms=stop_after_ms,
                linger=linger,
            )
        )
        with nullcontext() if linger is None else operator.lingering():
            while True:
                try:
                    with self._phases.phase("plan"):
                        work = session.next_work(sink)
                except StreamBusyError as busy:
                    give_way(operator.on_busy, busy)
                if work is None:
                    return session.result()
                if not self.work(session, sink, work):
                    return None
                if session.is_out_of_time and limit is not None:
                    left = "The time limit of %s is reached; the next run loads the rest."
                    self._log.warning(left, format_duration(limit))
                elif work.is_more:
                    send_status(lambda: session.connected)

    def _linger(self, session: StreamSession, stop_after_ms: int | None) -> Linger | None:
        # a task that does not linger starts without them
        from airflow_provider_fds.stream.run.linger import Hourly, Linger

        # the stream may come from an XCom, which is not known while the DAG is parsed
        check_linger(session.stream, self._operator.linger)
        session.on_caught_up = Hourly(lambda: _purge(session))
        waits = self._operator.waiting is not None
        return Linger.of(self._operator.linger, ends_at_ms=stop_after_ms, needs_data=waits)

    def _must_ask(self, session: StreamSession) -> bool:
        """Whether the stream is in quarantine, and a person shall be asked what to do."""
        state = session.connected.state
        is_paused = session.idle is not None and session.idle.status == "paused"
        is_stopped = is_paused and state.held is None and state.quarantined is not None
        return is_stopped and session.stream.options.on_violation == "ask"

    def _ask(self, session: StreamSession, *, deadline: float | None) -> None:
        # most streams ask nobody
        from airflow_provider_fds.operators.run.approval import ask

        ask(self._operator, self._context, session, deadline=deadline)

    def _may_come(self, session: StreamSession) -> bool:
        """Whether this run should wait for new data after it has found nothing to do."""
        is_finished = session.idle is not None and session.idle.status == "finished"
        # the version up to which a run works is fixed when it plans: later versions are for the next run
        return self._operator.waiting is not None and not is_finished and not session.scope.is_end_fixed()

    def _wait(self, session: StreamSession, *, deadline: float, was_woken: bool) -> None:
        """Defer the task, unless the time to wait is over."""
        waiting = self._operator.waiting
        assert waiting is not None  # noqa: S101  # the caller has checked it
        stream, idle = session.stream, session.idle
        if idle is not None and idle.reason:
            self._log.warning("Waiting: %s", with_staging_of(idle.reason, stream))
        else:
            self._log.info("Nothing new in table %s.", stream.table)
        waiting.wait(self._operator, self._context, stream, deadline=deadline, was_in_vain=was_woken)

    def _end_without_data(self, session: StreamSession) -> None:
        """Skip the task, or let it succeed without an event."""
        operator, stream, idle = self._operator, session.stream, session.idle
        reason = "" if idle is None else idle.reason
        message = reason or f"Nothing new in table {stream.table} for stream {stream.name!r}."
        if (note := session.option_notes()) is not None:
            message = f"{message} {note}"
        if idle is not None and idle.warning is not None:
            push_error(self._context, {"error": type(idle.warning).__name__, **idle.warning.facts()})
        if operator.on_no_data == "skip":
            raise AirflowSkipException(with_staging_of(message, stream))
        from airflow_provider_fds.operators.lineage.asset_event import withhold

        self._log.info(message)
        withhold(operator)

    def _tell(self, session: StreamSession, sink: Sink, result: LoadResult) -> dict[str, Any]:
        """Report to the log and the asset event what this run has committed, and return it."""
        # only when the rows are there
        from airflow_provider_fds.operators.lineage.asset_event import emit, uncovered
        from airflow_provider_fds.operators.lineage.asset_partitions import partition_keys

        operator = self._operator
        note = session.option_notes()
        result = replace(
            result,
            seconds={**self._phases.to_dict(), **result.seconds},
            warnings=result.warnings if note is None else [*result.warnings, note],
        )
        self._log.info("%s", result.describe())
        told = result.to_dict()
        if session.stopped is not None:
            self._log.warning(STOPPED, session.stream.name, session.stopped)
            told["stopped"] = session.stopped.facts()
        extra: dict[str, Any] | None = told
        # an interval that was just loaded has had no event, and those of all other intervals would be read to see that
        if isinstance(result, RunResult) or not session.has_committed:
            epoch_start = session.connected.state.epoch_start
            extra = uncovered(operator, told, sink.table_uri, epoch_start=epoch_start)
        keys: Sequence[str] = ()
        if extra is not None:
            with task_failures(self._context, operator.stream):
                keys = partition_keys(operator.asset_partitions, self._context, session, extra, told)
        emit(operator, self._context, extra, sink.table_uri, keys)
        return told


def _purge(session: StreamSession) -> None:
    # only when the rows are there
    from airflow_provider_fds.stream.run.purge import purge_stream

    purge_stream(session.connected, retention())


def _alerting(operator: Any, context: Any) -> Alerting:
    from airflow_provider_fds.operators.run.alerting import Alerting

    return Alerting(operator, context, operator.alerts)
