"""One run of a ``DeltaFleetOperator``."""

from __future__ import annotations

import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from airflow.providers.common.compat.sdk import AirflowSkipException

from airflow_provider_fds.backends.fleet_application import FleetApplication, FleetPart
from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.fleet.discovery import describe_left_out, find_tables
from airflow_provider_fds.fleet.result import FleetResult, StreamOutcome
from airflow_provider_fds.fleet.retirement import retire_gone
from airflow_provider_fds.fleet.session import FleetSession
from airflow_provider_fds.fleet.value import FleetStream, problems_between
from airflow_provider_fds.hooks import lineage
from airflow_provider_fds.hooks.catalogs import catalog_of
from airflow_provider_fds.hooks.data_interval import refuse_backfill
from airflow_provider_fds.hooks.failures import task_failures
from airflow_provider_fds.hooks.interruption import reporting_interruption
from airflow_provider_fds.hooks.places import open_folder
from airflow_provider_fds.hooks.settings import deployment, retention, staging_uri
from airflow_provider_fds.hooks.stats import report_at_end
from airflow_provider_fds.hooks.storage import connections_looked_up_once
from airflow_provider_fds.operators.lineage import asset_event
from airflow_provider_fds.operators.lineage.gathered_lineage import gathered
from airflow_provider_fds.operators.lineage.lineage_values import Lineage
from airflow_provider_fds.operators.run.alerting import Alerting
from airflow_provider_fds.operators.run.sessions import session_context
from airflow_provider_fds.operators.run.spark_failure import explained, without_command
from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.sinks import DeltaSink
from airflow_provider_fds.spark.runtime.settings import FLEET_CONF
from airflow_provider_fds.stream.attempt.result import PhaseSeconds
from airflow_provider_fds.stream.monitoring.alerts import find_alerts
from airflow_provider_fds.stream.monitoring.all_statuses import unreadable
from airflow_provider_fds.stream.run.linger import Linger
from airflow_provider_fds.stream.run.session import STOPPED

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from airflow_provider_fds.backends.base import Outcome
    from airflow_provider_fds.checkpoint.store import CheckpointStore
    from airflow_provider_fds.delta.storage.storage import Storage
    from airflow_provider_fds.errors import BatchFailedError, FdsError, TableNotFoundError
    from airflow_provider_fds.fleet.stream_run import StreamRun
    from airflow_provider_fds.hooks.stats import RunReport
    from airflow_provider_fds.ledger.owner import Owner
    from airflow_provider_fds.ledger.position import Checkpoint
    from airflow_provider_fds.operators.run.left_driver import LeftDriver, Resumed
    from airflow_provider_fds.sinks import Sink
    from airflow_provider_fds.stream.connected_stream import ConnectedStream, StreamContext
    from airflow_provider_fds.stream.monitoring.status import StreamStatus
    from airflow_provider_fds.stream.run.session import StreamSession

log = logging.getLogger(__name__)

#: SparkSubmitOperator's default name of an application.
_DEFAULT_NAME: Final = "arrow-spark"
#: Status files that an interrupted task writes at the same time.
_REPORTS_AT_ONCE: Final = 16
#: XCom key of the result of a task that fails.
FLEET_KEY: Final = "fds_fleet"


class FleetRun:
    """One run of the task: it finds the streams, has Spark load them, and reports what became of each.

    Args:
        operator: The :class:`DeltaFleetOperator`, rendered.
        context: The task's context.
        resumed: What an earlier process of this attempt has handed over, if it has left a driver in the cluster.
    """

    def __init__(self, operator: Any, context: Any, resumed: Resumed | None = None) -> None:
        self._operator = operator
        self._resumed = resumed
        self._context = context
        ti = context["ti"]
        mapped = "" if ti.map_index < 0 else f".{ti.map_index}"
        self._fleet = f"{ti.dag_id}.{ti.task_id}{mapped}"
        self._alerting = Alerting(operator, context, operator.alerts)
        # Airflow answers one question of a task after the other, and not all its versions allow several threads to ask
        self._airflow = threading.Lock()
        self._epoch_starts: dict[str, str | None] = {}
        #: The streams of this run that are not done.
        self._open: dict[str, RunReport] = {}
        self._warnings: list[str] = []
        self._sinks: dict[str, FleetStream] = {}

    def run(self, *, deadline: float | None, news: Sequence[str] = ()) -> dict[str, Any] | None:
        """Load what is new, and return what the task returns.

        Args:
            deadline: Until when to wait if there is nothing to load, in seconds since the epoch; ``None``: not at all.
            news: Names of streams for which a trigger has resumed the task, or some of them.
        """
        operator = self._operator
        with task_failures(self._context), operator.showing_spark():
            operator.spark = operator.find_spark(operator.conn_id)
            operator.spark.check()
            with connections_looked_up_once():
                streams, gone = self._streams()
                for declared in streams:
                    refuse_backfill(self._context, declared.stream)
                result = self._load(streams, deadline, news)
            result = replace(result, outcomes=(*result.outcomes, *gone))
            log.info("%s", result.describe())
            for one in result.loaded:
                if one.stopped is not None:
                    log.warning(STOPPED, one.stream, one.stopped)
            told = {**result.to_dict(), "warnings": self._warnings}
            if (error := self._error(result)) is not None:
                self._context["ti"].xcom_push(key=FLEET_KEY, value=told)
                raise error
        if not result.loaded:
            if deadline is not None:
                self._wait(streams, result, deadline=deadline, was_woken=bool(news))
            if operator.on_no_data == "skip" and not result.of("failed"):
                raise AirflowSkipException(result.describe())
            asset_event.withhold(operator)
            self._alerting.emit()
            return told
        self._emit(result)
        self._alerting.emit()
        return told

    def _streams(self) -> tuple[tuple[FleetStream, ...], list[StreamOutcome]]:
        """Return the streams of this run, and what became of tables that are gone."""
        operator = self._operator
        declared = FleetStream.coerce_all(operator.streams)
        if problems := problems_between(declared):
            # a parsed DAG file does not know streams that another task returns
            raise ConfigurationError(*problems, subject=f"task {operator.task_id!r}", reason=Reason.INVALID_OPTION)
        gone: list[StreamOutcome] = []
        self._warnings = []
        for pattern in operator.patterns:
            # one by one, because each has a connection of its own
            open_below = partial(open_folder, pattern.storage_conn_id)
            staging = open_below(staging_uri(pattern.staging, self._fleet))
            retire = (
                None if operator.on_gone != "retire" else lambda one: retire_gone(one.stream, self._context_of(one))
            )
            found = find_tables(
                [pattern], declared, open_below, staging, self._fleet, catalogs=catalog_of, retire=retire
            )
            declared = found.streams
            if found.left_out and (names := found.left_out[0]):
                log.info("%s", describe_left_out(pattern.tables, names))
            self._warnings += found.messages()
            gone += self._gone(found.gone_errors(), staging)
            gone += [StreamOutcome(stream=name, outcome="gone", reason="retired") for name, _ in found.retired]
        for message in self._warnings:
            log.warning("%s", message)
        if operator.batch_timeout is not None:
            declared = tuple(
                one if one.batch_timeout is not None else replace(one, batch_timeout=operator.batch_timeout)
                for one in declared
            )
        self._sinks = {one.name: one for one in declared}
        if lineage.is_on():
            operator.lineages = {one.name: Lineage.planned(one.stream, one.sink) for one in declared}
        return declared, gone

    def _gone(self, errors: Mapping[str, TableNotFoundError], staging: Storage) -> list[StreamOutcome]:
        """Alert about tables that are gone, by the name of their stream, and return what that means for the task."""
        if self._alerting.observers:
            alerts = self._operator.alerts
            found = {
                name: find_alerts(unreadable(name, str(error.table), error), alerts) for name, error in errors.items()
            }
            self._alerting.tell_all(staging, found)
        if self._operator.on_gone == "fail":
            return [StreamOutcome(stream=name, outcome="failed", error=error) for name, error in errors.items()]
        return [StreamOutcome(stream=name, outcome="gone", reason=str(error)) for name, error in errors.items()]

    def _load(self, streams: tuple[FleetStream, ...], deadline: float | None, news: Sequence[str]) -> FleetResult:
        """Run one application after another until no stream has anything left to do, or defer the task."""
        operator, limit = self._operator, self._operator.run_time_limit
        stop_after_ms = None if limit is None else int((time.time() + limit.total_seconds()) * 1000)
        phases = PhaseSeconds()
        leaving = self._leaving(phases)
        if leaving is not None:
            stop_after_ms = leaving.keep_limit(stop_after_ms)
        linger = Linger.of(operator.linger, ends_at_ms=stop_after_ms, needs_data=operator.waiting is not None)
        session = FleetSession(
            streams,
            self._context_of,
            fleet=self._fleet,
            deployment=deployment(),
            retry=self._context["ti"].try_number > 1,
            news=news,
            resumed=self._resumed is not None,
            max_batches=operator.batches_per_application,
            stop_after_ms=stop_after_ms,
            stop_on_failure=operator.on_stream_failure == "fail_fast",
            retention=retention(),
            watch=self._watch,
            explain=self._explain,
            apart=operator.apart,
            drivers=operator.spark,
            linger=linger,
        )
        session.phases = phases
        stays = nullcontext() if linger is None else operator.lingering()
        with reporting_interruption(self._report_interruption), stays:
            while session.next_work():
                spec_uri = session.write_jobs(
                    parallelism=operator.parallelism, max_bytes_in_flight=operator.max_bytes_in_flight
                )
                if spec_uri is None:
                    continue
                application = self._application(session, spec_uri)
                is_own = leaving is not None and leaving.is_own(application.own_name)
                is_left = False
                with phases.phase("spark"):
                    is_late = stop_after_ms is not None and time.time() * 1000 >= stop_after_ms
                    if leaving is None or is_late or not session.can_leave or not application.can_be_left:
                        outcome = operator.run_fleet(application)
                    else:
                        outcome = leaving.run(application)
                        is_left = leaving.has_left
                if is_left:
                    break
                session.collect(_told(outcome), is_final=is_own or operator.was_killed)
            else:
                return session.finish()
        assert leaving is not None  # noqa: S101  # it has left a driver
        from airflow_provider_fds.triggers.fleet_reports import FleetReportsTrigger

        leaving.defer_to(FleetReportsTrigger, deadline=deadline, **session.leave())
        raise AssertionError  # it has deferred the task

    def _leaving(self, phases: PhaseSeconds) -> LeftDriver | None:
        if not self._operator.deferrable:
            return None
        # most tasks stay with their driver
        from airflow_provider_fds.operators.run.left_driver import LeftDriver

        return LeftDriver(self._operator, self._operator.run_fleet, self._resumed, phases)

    def _application(self, session: FleetSession, spec_uri: str) -> FleetApplication:
        operator = self._operator
        runs = session.runs
        parts = tuple(FleetPart(one.session, one.stream.sink, one.work, one.spec_uri) for one in runs)
        batches = sum(len(one.work.batches) for one in runs)
        log.info("Loading %d batches of %d streams, %d at a time.", batches, len(runs), operator.parallelism)
        name = f"fds-{self._fleet}" if operator.name == _DEFAULT_NAME else str(operator.name)
        operator.set_agent_settings(self._context, self._sink_for_agent(runs))
        return FleetApplication(
            parts,
            spec_uri,
            session.commit_reported,
            session.files.folder,
            parallelism=operator.parallelism,
            name=name,
            context=self._context,
            conf={**FLEET_CONF, **operator.agent_settings},
        )

    @staticmethod
    def _sink_for_agent(runs: tuple[StreamRun, ...]) -> Sink:
        """Return the sink whose settings OpenLineage's agent gets: what users' functions write must be reported."""
        sinks = [one.stream.sink for one in runs]
        return next((sink for sink in sinks if not isinstance(sink, DeltaSink)), sinks[0])

    def _context_of(self, one: FleetStream) -> StreamContext:
        """Return the context of a stream; what it asks Airflow, it asks while no other thread does."""
        context = session_context(self._context, one.stream, one.sink)
        is_running = context.owner_is_running

        def locked(owner: Owner) -> bool:
            with self._airflow:
                return is_running(owner)

        checkpoints = context.checkpoints
        return replace(
            context,
            owner_is_running=locked,
            checkpoints=None if checkpoints is None else _Locked(checkpoints, self._airflow),
        )

    def _watch(self, session: StreamSession) -> Callable[[Exception | None], None]:
        """Report a stream as a task of its own would: metrics, status file and alerts."""

        def alert(connected: ConnectedStream, status: StreamStatus | None) -> None:
            with self._airflow:
                for observer in self._alerting.observers:
                    observer(connected, status)

        report = report_at_end(session, self._context, *([alert] if self._alerting.observers else []))

        name = session.stream.name
        self._open[name] = report

        def end(error: Exception | None) -> None:
            self._open.pop(name, None)
            report(error)
            self._gather(session, reads_schemas=error is None)
            self._epoch_starts[name] = session.connected.state.epoch_start

        return end

    def _report_interruption(self, error: FdsError) -> None:
        """Write the status files of the streams that are not done."""
        with ThreadPoolExecutor(_REPORTS_AT_ONCE) as threads:
            list(threads.map(lambda report: report.interrupted(error), list(self._open.values())))

    def _gather(self, session: StreamSession, *, reads_schemas: bool) -> None:
        """Keep what a stream has committed for OpenLineage, while its session is open."""
        name, lineages = session.stream.name, self._operator.lineages
        if name in lineages:
            sink = self._sinks[name].sink
            lineages[name] = gathered(session, sink, reads_schemas=reads_schemas) or lineages[name]

    def _explain(self, failure: BatchFailedError, spark_error: Exception | None) -> FdsError:
        return explained(failure, spark_error, was_killed=self._operator.was_killed)

    def _error(self, result: FleetResult) -> FdsError | None:
        """Return the error with which the task fails by its policy, or ``None``."""
        error = result.error()
        if self._operator.on_stream_failure == "continue" and len(result.of("failed")) < len(result.outcomes):
            return None
        return error

    def _emit(self, result: FleetResult) -> None:
        """Attach an event for each stream that has loaded something."""
        extras: dict[str, list[dict[str, Any]]] = {}
        loaded = {one.stream: one for one in result.loaded}
        for name, stream in self._sinks.items():
            if (sink_uri := stream.sink.table_uri) is None:
                continue
            found = extras.setdefault(asset_event.asset_uri(sink_uri), [])
            if (one := loaded.get(name)) is not None:
                extra = {"stream": name, **one.to_dict()}
                epoch_start = self._epoch_starts.get(name)
                event = asset_event.uncovered(None, extra, sink_uri, epoch_start=epoch_start)
                if event is not None:
                    found.append(event)
        asset_event.emit_streams(self._operator, self._context, extras)

    def _wait(self, streams: tuple[FleetStream, ...], result: FleetResult, *, deadline: float, was_woken: bool) -> None:
        """Defer the task until a stream has something to do, unless the time to wait is over, or all are finished."""
        from airflow_provider_fds.triggers.delta_fleet import DeltaFleetTrigger

        over = {one.stream for one in result.outcomes if one.outcome in ("failed", "finished")}
        waiting = [one.to_dict() for one in streams if one.name not in over]
        options = self._operator.waiting
        # the task may wait no longer since it was deferred
        if options is None or not waiting or (remaining := deadline - time.time()) <= 0:
            return
        log.info("Nothing to load; the task waits for any of %d tables.", len(waiting))
        self._operator.defer(
            trigger=DeltaFleetTrigger(
                streams=waiting,
                fleet=self._fleet,
                staging=staging_uri(streams[0].stream.staging, streams[0].name),
                deployment=deployment(),
                poll_interval=options.poll_interval,
                pauses_first=was_woken,
            ),
            method_name="execute_complete",
            kwargs={"deadline": deadline},
            timeout=timedelta(seconds=remaining),
        )


def _told(outcome: Outcome) -> Exception | None:
    """Return how Spark ended, after a warning if that is an error."""
    if outcome.error is not None:
        log.warning("Spark ended with an error; what is in the sinks is committed: %s", without_command(outcome.error))
    return outcome.error


class _Locked:
    """A checkpoint store that is asked while no other thread asks Airflow."""

    def __init__(self, checkpoints: CheckpointStore, lock: threading.Lock) -> None:
        self._checkpoints = checkpoints
        self._lock = lock

    def __getattr__(self, name: str) -> Any:
        return getattr(self._checkpoints, name)

    def read(self) -> Checkpoint | None:
        with self._lock:
            return self._checkpoints.read()

    def write(self, checkpoint: Checkpoint) -> None:
        with self._lock:
            self._checkpoints.write(checkpoint)
