"""What a task or a trigger reports about a stream: metrics through Airflow's own statistics, and its status file.

Metrics go to StatsD, Datadog or OpenTelemetry, as ``[metrics]`` configures them. What makes a status is imported when
there is one to report: a task does so after its rows are in the sink.
"""

from __future__ import annotations

import inspect
import logging
import sys
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from airflow_provider_fds.errors import FdsError
from airflow_provider_fds.hooks.interruption import reporting_interruption
from airflow_provider_fds.ledger.entries.entry import iso_time
from airflow_provider_fds.stream.connected_stream import ConnectedStream

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from airflow_provider_fds.ledger.entries.commit_entries import Committed
    from airflow_provider_fds.stream.monitoring.metrics import Sample
    from airflow_provider_fds.stream.monitoring.run_failure import RunEnd
    from airflow_provider_fds.stream.monitoring.status import StreamStatus
    from airflow_provider_fds.stream.position.unread_files import UnreadFiles
    from airflow_provider_fds.stream.run.session import StreamSession

logger = logging.getLogger(__name__)

#: Where Airflow has its statistics: from 3.2 on, and before. The lowest common.compat that FDS allows has none.
_PLACES: Final = ("airflow.sdk.observability.stats", "airflow.stats")

_SWITCHES: Final = ("statsd_on", "otel_on", "statsd_datadog_enabled")


def are_on() -> bool:
    """Whether this installation sends metrics. Never raises."""
    try:
        from airflow.providers.common.compat.sdk import conf

        return any(conf.getboolean("metrics", switch, fallback=False) for switch in _SWITCHES)
    except Exception:  # an invalid setting of Airflow; it reports that itself
        logger.debug("The section [metrics] cannot be read.", exc_info=True)
        return False


def send(samples: Callable[[], Iterable[Sample]]) -> None:
    """Send samples, if the installation sends metrics. Never raises: a metric is never a reason to fail.

    Args:
        samples: Makes them; called only if they are sent. May read storage.
    """
    if not are_on():
        return
    try:
        stats = _stats()
        for sample in samples():
            _send_one(stats, sample)
    except Exception as error:  # noqa: BLE001  # whatever goes wrong, the run goes on
        logger.warning("Metrics were not sent: %s: %s", type(error).__name__, error)


def send_status(connect: Callable[[], ConnectedStream], unread: UnreadFiles | None = None) -> None:
    """Send the gauges of a stream. Reads its ledger and its table's log, but only if the installation sends metrics.

    Args:
        connect: Returns the stream.
        unread: Counts the files of its unread commits; ``None``: all are read.
    """

    def samples() -> Iterable[Sample]:
        from airflow_provider_fds.stream.monitoring.metrics import status_samples
        from airflow_provider_fds.stream.monitoring.status import status_of
        from airflow_provider_fds.stream.position.unread_files import UnreadFiles

        return status_samples(status_of(connect(), unread or UnreadFiles()))

    send(samples)


def write_wait(connect: Callable[[], ConnectedStream], waits_for: str, next_within_seconds: float) -> None:
    """Write the status file of a stream whose newest data wait. Never raises.

    Args:
        connect: Returns the stream.
        waits_for: What they wait for.
        next_within_seconds: The next file follows within this time.
    """
    from airflow_provider_fds.stream.monitoring.status import status_of
    from airflow_provider_fds.stream.monitoring.status_file import write_status_file

    try:
        connected = connect()
        status = status_of(connected, seen_waiting=waits_for)
        write_status_file(
            connected.staging, status, connected.state, written_by="run", next_within_seconds=next_within_seconds
        )
    except Exception as failure:  # noqa: BLE001  # whatever goes wrong, the wait goes on
        logger.warning("The status of the stream was not reported: %s: %s", type(failure).__name__, failure)


@contextmanager
def sending_status(
    session: StreamSession, context: Any, *observers: Callable[[ConnectedStream, StreamStatus | None], None]
) -> Iterator[None]:
    """Send the gauges of a run's stream and write its status file after the body, also if it fails.

    If Airflow ends the task, only the status file is written, see :func:`~.interruption.reporting_interruption`.
    See :func:`report_at_end`.
    """
    report = report_at_end(session, context, *observers)
    try:
        with reporting_interruption(report.interrupted):
            yield
    except Exception as error:
        report(error)
        raise
    report(None)


def report_at_end(
    session: StreamSession, context: Any, *observers: Callable[[ConnectedStream, StreamStatus | None], None]
) -> RunReport:
    """Send the counters of a run at each commit, and return what reports its end: the gauges and the status file.

    Args:
        session: The run.
        context: The context of its task.
        observers: Called with the same status, whether or not the installation sends metrics; with ``None`` if the run
            was refused from a stream of another table or deployment. An error is a warning.

    Returns:
        A function to be called when the run is over, with the error if it failed.
    """
    return RunReport(session, context, observers)


class RunReport:
    """Reports the end of a run, see :func:`report_at_end`."""

    def __init__(
        self,
        session: StreamSession,
        context: Any,
        observers: Sequence[Callable[[ConnectedStream, StreamStatus | None], None]],
    ) -> None:
        self._session = session
        self._context = context
        self._observers = observers
        self._committed_at: str | None = None
        self._is_interrupted = False
        session.commits.on_committed = self._count

    def __call__(self, error: Exception | None) -> None:
        """Read the status once, for the metrics, the status file and all observers."""
        from airflow_provider_fds.stream.monitoring.metrics import status_samples
        from airflow_provider_fds.stream.run.reporting import is_refused

        status = self._status(None if self._is_interrupted else self._end(error))
        if is_refused(self._session.connected):
            self._tell(self._observers, None)
            return
        if status is None:
            return
        send(lambda: status_samples(status))
        self._tell((self._write, *self._observers), status)

    def _status(self, end: RunEnd | None) -> StreamStatus | None:
        from airflow_provider_fds.stream.position.unread_files import UnreadFiles

        try:
            return _status(self._session.connected, UnreadFiles() if are_on() else None, end)
        except Exception as failure:  # noqa: BLE001  # whatever goes wrong, the run ends for its own reason
            logger.warning("The status of the stream cannot be read: %s: %s", type(failure).__name__, failure)
            return None

    def _tell(self, observers: Sequence[Callable[..., None]], status: StreamStatus | None) -> None:
        for observer in observers:
            try:
                observer(self._session.connected, status)
            except Exception as failure:  # noqa: BLE001
                logger.warning("The status of the stream was not reported: %s: %s", type(failure).__name__, failure)

    def interrupted(self, error: FdsError) -> None:
        """Write the status file of a run that is being ended, beside what its thread is doing. Never raises.

        Args:
            error: Why it is ended.
        """
        from airflow_provider_fds.stream.monitoring.status import status_of

        self._is_interrupted = True
        try:
            # the run's own connection is in use; the checkpoint may be in Airflow, which this thread cannot ask
            connected = ConnectedStream(self._session.stream, replace(self._session.context, checkpoints=None))
            self._write(connected, status_of(connected, end=self._end(error)))
        except Exception as failure:  # noqa: BLE001  # whatever goes wrong, the run ends for its own reason
            logger.warning("The status of the stream was not reported: %s: %s", type(failure).__name__, failure)

    def _end(self, error: Exception | None) -> RunEnd:
        from airflow_provider_fds.stream.monitoring.run_failure import RunEnd

        scope = self._session.scope
        may_retry = error is not None and not (isinstance(error, FdsError) and not error.retryable)
        will_retry = may_retry and _has_attempts_left(self._context)
        return RunEnd(error, will_retry=will_retry, interval=scope.interval, waits_for=scope.waits_for)

    def _count(self, committed: Committed, batches: int) -> None:
        self._committed_at = iso_time(datetime.now(UTC))

        def samples() -> Iterable[Sample]:
            from airflow_provider_fds.stream.monitoring.metrics import batch_samples

            return batch_samples(self._session.stream.name, committed, batches)

        send(samples)

    def _write(self, connected: ConnectedStream, status: StreamStatus) -> None:
        from airflow_provider_fds.stream.monitoring.status_file import write_status_file

        write_status_file(
            connected.staging,
            status,
            connected.state,
            written_by="run",
            actor=connected.context.actor,
            committed_at=self._committed_at,
        )


def _has_attempts_left(context: Any) -> bool:
    """Whether Airflow starts another attempt if this one fails."""
    ti = context["ti"]
    return bool(ti.try_number <= ti.max_tries)


def _status(connected: ConnectedStream, unread: UnreadFiles | None, end: RunEnd | None) -> StreamStatus:
    """Return the status; of a stream whose ledger cannot be read, what a monitor says of it, too."""
    from airflow_provider_fds.stream.monitoring.all_statuses import find_ledger, unreadable
    from airflow_provider_fds.stream.monitoring.status import status_of

    try:
        return status_of(connected, unread, end=end)
    except FdsError as error:
        if error.retryable:
            raise
        problem = find_ledger(connected.staging, connected.stream.name)
        if not isinstance(problem, FdsError):
            # the ledger is in order, and the run fails for a reason of its own
            raise
        return unreadable(connected.stream.name, connected.table.uri, problem)


def _send_one(stats: Any, sample: Sample) -> None:
    metric, tags = sample.metric, dict(sample.tags)
    if metric.kind == "counter":
        stats.incr(metric.name, int(sample.value), tags=tags)
    elif metric.kind == "gauge":
        stats.gauge(metric.name, sample.value, tags=tags)
    else:
        stats.timing(metric.name, timedelta(seconds=sample.value), tags=tags)


def _stats() -> Any:
    """Return Airflow's statistics, initialized."""
    stats: Any = None
    for place in _PLACES:
        try:
            stats = import_module(place).Stats
        except ImportError:
            continue
        break
    # 3.1 initializes itself. Later, a triggerer initializes the statistics of Airflow's core, which are not those of
    # the SDK: these drop everything until somebody initializes them.
    is_class_state = hasattr(stats, "factory")
    factory = stats.factory if is_class_state else getattr(sys.modules[stats.__module__], "_factory", None)
    if factory is None:
        _initialize(stats)
    return stats


def _initialize(stats: Any) -> None:
    from airflow.providers.common.compat.sdk import conf

    utils = import_module("airflow.sdk.observability.metrics.stats_utils")
    of_class = inspect.signature(utils.get_stats_factory).parameters
    factory = utils.get_stats_factory(stats) if of_class else utils.get_stats_factory()
    more = {}
    if "export_legacy_names" in inspect.signature(stats.initialize).parameters:
        more["export_legacy_names"] = conf.getboolean("metrics", "legacy_names_on", fallback=True)
    stats.initialize(factory=factory, **more)
