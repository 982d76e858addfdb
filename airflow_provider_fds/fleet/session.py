"""One run of a fleet: which streams have something to do, the work of each for one Spark application, and its outcome.

Each stream is worked on by one thread at a time. Threads take turns only between the steps of a run.
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING, Any

from airflow_provider_fds.errors import BatchFailedError, FdsError, StreamBusyError
from airflow_provider_fds.fleet.in_threads import THREADS, each
from airflow_provider_fds.fleet.jobs import FleetFiles, left_driver
from airflow_provider_fds.fleet.lingering import LingeringStreams, Purges
from airflow_provider_fds.fleet.outcomes import OUT_OF_TIME, STOPPED, Outcomes, with_last_line
from airflow_provider_fds.fleet.positions import KnownPosition, KnownPositions, position_after
from airflow_provider_fds.fleet.result import FleetResult
from airflow_provider_fds.fleet.stream_run import StreamRun
from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.stream.attempt.result import PhaseSeconds
from airflow_provider_fds.stream.run.limits import Limits
from airflow_provider_fds.stream.run.session import StreamSession

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from airflow_provider_fds.fleet.result import FleetOutcome
    from airflow_provider_fds.fleet.value import FleetStream
    from airflow_provider_fds.ledger.staging.housekeeping import Retention
    from airflow_provider_fds.sinks import Sink
    from airflow_provider_fds.stream.connected_stream import StreamContext
    from airflow_provider_fds.stream.run.batch_commits import Drivers
    from airflow_provider_fds.stream.run.linger import Linger

logger = logging.getLogger(__name__)


class FleetSession:
    """One run of a fleet.

    The order of calls is :meth:`next_work`, :meth:`write_jobs`, Spark (with :meth:`commit_reported` meanwhile),
    :meth:`collect`, repeated until ``next_work`` returns no more work; then :meth:`finish`. The error of a stream ends
    that stream alone. No method raises it: it is in the result.

    Args:
        streams: The streams, with different names.
        context_of: Returns the context of a stream; called once for each, by one thread, before anything is read.
        fleet: Name of the fleet, under which it remembers positions.
        deployment: Name of the Airflow installation.
        retry: Whether this run may have worked before; then all streams are read.
        news: Names of streams that are read even if their tables have no next version.
        resumed: Whether an earlier process of this attempt has worked, and left a driver.
        max_batches: Maximum number of batches of a stream in one Spark application.
        stop_after_ms: No batch is started after this time (milliseconds since the epoch); ``None``: no limit.
        stop_on_failure: Whether a stream that fails ends the run: what runs is finished, nothing else is started.
        retention: How long manifests and reports of the streams that were loaded are kept; ``None``: for ever.
        watch: Called for each stream that is read, before its work begins. Returns a function that is called once when
            its run is over, with the error if it failed. Both are called by threads, and must not raise.
        explain: Returns the error to report for a batch that Spark has not finished, from the error that the reports
            show and the one of the application.
        apart: Returns what an application can have one of, and the stream needs; ``None``: it fits beside every other
            one. Streams that need different ones get different applications, in turns. May raise.
        drivers: The drivers that the run can wait for; it then waits first for one that was left. ``None``: for none.
        linger: How the run stays when it has loaded everything, and loads what comes in rounds; ``None``: it does not.
        threads: Number of streams that are checked or planned at the same time.

    Attributes:
        phases: Wall-clock seconds by phase; the caller adds ``spark``.
        can_leave: Whether :meth:`leave` is possible. A batch that has failed would be tried again by each process.
    """

    def __init__(
        self,
        streams: Sequence[FleetStream],
        context_of: Callable[[FleetStream], StreamContext],
        *,
        fleet: str,
        deployment: str,
        retry: bool = False,
        news: Sequence[str] = (),
        resumed: bool = False,
        max_batches: int = 200,
        stop_after_ms: int | None = None,
        stop_on_failure: bool = False,
        retention: Retention | None = None,
        watch: Callable[[StreamSession], Callable[[Exception | None], object]] = lambda _session: lambda _error: None,
        explain: Callable[[BatchFailedError, Exception | None], FdsError] = with_last_line,
        apart: Callable[[StreamSession, Sink], object | None] = lambda _session, _sink: None,
        drivers: Drivers | None = None,
        linger: Linger | None = None,
        threads: int = THREADS,
    ) -> None:
        self.streams = tuple(streams)
        self.fleet = fleet
        self.phases = PhaseSeconds()
        self.can_leave = True
        self._context_of = context_of
        self._deployment = deployment
        self._retry = retry
        self._resumed = resumed
        self._news = news
        self._limits = Limits(max_batches=max_batches, retry=retry, stop_after_ms=stop_after_ms)
        self._stop_on_failure = stop_on_failure
        self._purges = Purges(retention)
        self._watch = watch
        self._explain = explain
        self._apart = apart
        self._drivers = drivers
        self._threads = threads
        self._positions: KnownPositions | None = None
        self._known: dict[str, KnownPosition] = {}
        self._outcomes = Outcomes()
        self._order = {one.stream.name: number for number, one in enumerate(self.streams)}
        self._runs: dict[str, StreamRun] | None = None
        # what the application in hand has one of, and how often each had a turn
        self._turn_of: object | None = None
        self._turns: Counter[object] = Counter()
        # the driver in hand, if an earlier attempt has left it
        self._driver: tuple[str, str, str] | None = None
        self._files: FleetFiles | None = None
        self._files_before: FleetFiles | None = None
        self._linger = linger
        self._lingering = None if linger is None else LingeringStreams(linger)

    def next_work(self) -> tuple[StreamRun, ...]:
        """Return the streams that have work for Spark, with their work; none if nothing is left to do.

        The first call looks which streams have changed since the last run, and opens only those.
        """
        if self._runs is None:
            self._runs = {}
            with self.phases.phase("check"):
                changed = self._changed()
            with self.phases.phase("plan"):
                each(self._threads, lambda one: self._open(*one), changed)
        else:
            with self.phases.phase("plan"):
                each(self._threads, self._turn, self.runs)
        if self._lingering is not None:
            self._open_arrived(self._lingering)
        if self._is_stopping:
            each(self._threads, lambda run: self._close(run, "left", reason=STOPPED), self._with_work)
        self._driver = left_driver(self._with_work, self.fleet, self._order)
        if self._driver is not None:
            return self.runs
        needs = dict.fromkeys(run.apart for run in self._with_work if run.apart is not None)
        self._turn_of = min(needs, key=lambda need: self._turns[need], default=None)
        self._turns[self._turn_of] += 1
        return self.runs

    def _open_arrived(self, lingering: LingeringStreams) -> None:
        """Open the streams that have something to do again; if none has work in hand, wait for one first."""
        while not self._is_stopping:
            has_work = bool(self._with_work)
            if not has_work and self._linger is not None and self._linger.needs_data and not self._outcomes.has_loaded:
                return
            arrived = lingering.news(waits=not has_work)
            with self.phases.phase("plan"):
                each(self._threads, lambda one: self._open(*one), arrived)
            if not arrived or self._with_work:
                return

    @property
    def runs(self) -> tuple[StreamRun, ...]:
        """The streams that have work in hand for the same application, in the order of the fleet."""
        if self._driver is not None:
            return tuple(run for run in self._with_work if run.driver == self._driver)
        return tuple(run for run in self._with_work if run.apart is None or run.apart is self._turn_of)

    @property
    def _with_work(self) -> tuple[StreamRun, ...]:
        """The streams that have work in hand, in the order of the fleet."""
        return tuple(sorted((self._runs or {}).values(), key=lambda run: self._order[run.name]))

    def write_jobs(self, *, parallelism: int, max_bytes_in_flight: int | None = None) -> str | None:
        """Write the jobs of the work in hand, and the spec of the fleet that names them.

        Args:
            parallelism: Number of batches that Spark works on at the same time.
            max_bytes_in_flight: Planned bytes of these batches; ``None``: no limit.

        Returns:
            The URI of the fleet's spec, as Spark reads it; ``None`` if no job could be written, empty if those of a
            driver that was left are not found.
        """
        if self._driver is not None:
            self._files = FleetFiles.of_left(self.runs, self.fleet)
            return self._files.spec_uri
        each(self._threads, self._write_job, self.runs)
        runs = self.runs
        if not runs:
            return None
        self._files = FleetFiles(runs[0].session.connected, self.fleet)
        return self._files.write(
            runs,
            parallelism=parallelism,
            max_bytes_in_flight=max_bytes_in_flight,
            stop_on_failure=self._stop_on_failure,
            stop_after_ms=self._limits.stop_after_ms,
            linger_seconds=None if self._linger is None else self._linger.driver_seconds,
        )

    @property
    def files(self) -> FleetFiles:
        """The files of the application in hand."""
        assert self._files is not None  # noqa: S101  # write_jobs() has written them
        return self._files

    def commit_reported(self) -> bool:
        """Commit what Spark has reported so far, while it works on the rest. One GET if nothing is reported.

        Returns:
            Whether the work of every stream has ended, also of those that have left the fleet since.
        """
        if self._files is None:
            return False
        progress = self._files.progress()
        if progress is None:
            each(self._threads, StreamRun.commit_reported, self.runs)
            return all(run.num_committed == len(run.work.batches) for run in self.runs)
        reports = progress.reports
        each(
            self._threads,
            StreamRun.commit_reported,
            [run for run in self.runs if reports.get(run.name, 0) > run.num_reported],
        )
        for run in self.runs:
            run.num_reported = max(run.num_reported, reports.get(run.name, 0))
        return all(name in progress.ended for name in self._files.jobs)

    def collect(self, spark_error: Exception | None = None, *, is_final: bool = False) -> None:
        """Commit what Spark has done, and end the streams that failed or have no more time.

        Args:
            spark_error: The error of the application, ``None`` if it ended well.
            is_final: Whether what a driver that was left has not done has failed: the driver is this attempt's own, or
                the run has to end. Otherwise it is work for another one.
        """
        failures: dict[StreamRun, BatchFailedError] = {}
        has_error = spark_error is not None
        with self.phases.phase("commit"):
            each(self._threads, lambda run: self._collect(run, failures, has_error, is_final), self.runs)
            self.can_leave = self.can_leave and not failures
            # for the driver, the batch of a stream that pauses at it has failed
            has_paused = any(one.session.idle is not None and one.session.idle.status == "paused" for one in self.runs)
            is_failure = has_paused or any(one.reason_code != Reason.SPARK_ENDED_EARLY for one in failures.values())
            was_stopped = self._stop_on_failure and not has_error and (self._outcomes.has_failed or is_failure)
            for run, failure in failures.items():
                if was_stopped and failure.reason_code == Reason.SPARK_ENDED_EARLY:
                    self._close(run, "left", reason=STOPPED)
                else:
                    self._close(run, "failed", error=self._explain(failure, spark_error))
        if self._files is not None:
            self._files.remove()
            if self._files_before is not None:
                self._files_before.remove_next()
            self._files_before, self._files = self._files, None

    def leave(self) -> dict[str, Any]:
        """Let go of the streams, whose driver goes on without this process; return what a trigger polls."""
        for run in self._with_work:
            run.end(None)
        return self.files.polled()

    def finish(self) -> FleetResult:
        """Remember the positions for the next run, and return what became of each stream."""
        for run in self._with_work:
            # the caller has not run this work
            self._close(run, "left", reason=STOPPED)
        if self._lingering is not None:
            each(self._threads, lambda one: one.report_end(self._watch), self._lingering.shown_live())
        if self._positions is not None:
            self._positions.save(self._known)
        return FleetResult(
            fleet=self.fleet,
            outcomes=self._outcomes.of(self.streams),
            seconds=self.phases.to_dict(),
        )

    @property
    def _is_stopping(self) -> bool:
        return self._stop_on_failure and self._outcomes.has_failed

    def _changed(self) -> list[tuple[FleetStream, StreamContext]]:
        """Return the streams that must be opened, and end those that are unchanged."""
        contexts: list[tuple[FleetStream, StreamContext]] = []
        for stream in self.streams:
            try:
                contexts.append((stream, self._context_of(stream)))
            except Exception as error:  # noqa: BLE001  # a stream fails alone, whatever its connection raises
                self._outcomes.end(stream, "failed", error=error)
        if not contexts:
            return []
        self._positions = positions = KnownPositions.beside(contexts[0][1], self.fleet, self._deployment)
        positions.begin()
        if self._retry:
            return contexts
        positions.load()
        changed: list[tuple[FleetStream, StreamContext]] = []

        def check(one: tuple[FleetStream, StreamContext]) -> None:
            known = None if one[0].name in self._news else positions.is_unchanged(*one)
            if known is None:
                changed.append(one)
                return
            self._known[one[0].stream.name] = known
            self._outcomes.end(one[0], "unchanged")
            if self._lingering is not None:
                self._lingering.keep(*one, known.offset, known.entry)

        each(self._threads, check, contexts)
        return sorted(changed, key=lambda one: self._order[one[0].stream.name])

    def _open(self, stream: FleetStream, context: StreamContext) -> None:
        if self._is_stopping:
            self._outcomes.end(stream, "left", reason=STOPPED)
            return
        try:
            session = StreamSession(stream.stream, context)
        except Exception as error:  # noqa: BLE001  # a stream fails alone
            self._outcomes.end(stream, "failed", error=error)
            return
        # what ends otherwise than well must be read by the next run
        self._known.pop(stream.stream.name, None)
        session.limit(self._limits)
        session.scope.is_open_ended = self._lingering is not None
        try:
            apart = self._apart(session, stream.sink)
        except Exception as error:  # noqa: BLE001  # a stream fails alone
            self._outcomes.end(stream, "failed", error=error)
            return
        run = StreamRun(stream, session, self._watch(session), apart, is_resumed=self._resumed)
        assert self._runs is not None  # noqa: S101  # the caller has set it
        self._runs[run.name] = run
        self._turn(run)

    def _turn(self, run: StreamRun) -> None:
        """Begin the next work of a stream, or end its run if there is none."""
        try:
            work = None if self._is_stopping else run.session.next_work(run.stream.sink)
            run.turn(work, self._drivers)
        except StreamBusyError as busy:
            self._close(run, "busy", reason=str(busy))
            return
        except Exception as error:  # noqa: BLE001  # a stream fails alone
            self._close(run, "failed", error=error)
            return
        if self._is_stopping:
            self._close(run, "left", reason=STOPPED)
        elif work is None:
            outcome, reason = run.why_over
            self._close(run, outcome, reason=reason)

    def _write_job(self, run: StreamRun) -> None:
        try:
            run.spec_uri = run.session.job(run.work, run.stream.sink)
        except Exception as error:  # noqa: BLE001  # a stream fails alone
            self._close(run, "failed", error=error)

    def _collect(
        self, run: StreamRun, failures: dict[StreamRun, BatchFailedError], spark_failed: bool, is_final: bool
    ) -> None:
        """Commit what Spark has done for a stream; a batch that is not done is added to ``failures``."""
        try:
            if not is_final and run.has_rest_of_left():
                return
            collected = run.session.collect(run.work, spark_failed=spark_failed)
        except Exception as error:  # noqa: BLE001  # a stream fails alone
            self._close(run, "failed", error=error)
            return
        if run.session.is_out_of_time:
            self._close(run, "left", reason=OUT_OF_TIME)
        elif collected.failure is not None:
            failures[run] = collected.failure

    def _close(
        self, run: StreamRun, outcome: FleetOutcome, *, reason: str = "", error: Exception | None = None
    ) -> None:
        """End the run of a stream that was opened, and let go of everything it has read."""
        assert self._runs is not None  # noqa: S101  # the run is one of them
        del self._runs[run.name]
        result = None
        try:
            result = run.session.result()
            if result is not None:
                self._purges.purge(run)
        except Exception as failure:  # noqa: BLE001  # the run ends for its own reason
            logger.warning("Stream %s: %s", run.name, failure)
        session = run.session
        stopped = session.stopped
        if session.idle is not None and session.idle.warning is not None:
            stopped = session.idle.warning
        if outcome in ("loaded", "up_to_date") and stopped is None and not run.waits:
            known = position_after(run.stream, run.session, self._deployment)
            if known is not None:
                self._known[run.name] = known
        run.end(error)
        self._outcomes.end(run.stream, outcome, reason=reason, error=error, result=result, stopped=stopped)
        if self._lingering is not None and outcome in ("loaded", "up_to_date", "waiting") and stopped is None:
            self._lingering.keep_after(run)
