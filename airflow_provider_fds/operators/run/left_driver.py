"""A task that leaves the driver of its batches in the cluster: it defers itself until a trigger wakes it."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from airflow.providers.common.compat.sdk import AirflowTaskTimeout

from airflow_provider_fds.durations import format_duration
from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.hooks.settings import poll_interval_seconds
from airflow_provider_fds.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from airflow_provider_fds.backends.base import Application, Outcome
    from airflow_provider_fds.backends.fleet_application import FleetApplication
    from airflow_provider_fds.stream.attempt.result import PhaseSeconds
    from airflow_provider_fds.stream.run.session import StreamSession

#: Seconds between two polls for reports, unless the task has an interval of its own: a HEAD in staging.
_POLL_SECONDS: Final = 10.0
#: How long the reports on some batches wait for those on the others, before the task is woken to commit them.
COMMIT_SECONDS: Final = 300.0


@dataclass(frozen=True, slots=True)
class Resumed:
    """What a process of an attempt hands to the next one, across the trigger.

    Attributes:
        began: When the first process of the attempt began, in seconds since the epoch.
        own_attempt: Name under which this attempt knows its driver, see ``own_name`` of the application; empty: it is
            that of an earlier attempt.
        stop_after_ms: As in :class:`~airflow_provider_fds.stream.run.limits.Limits`.
        deadline: When to stop waiting for data, in seconds since the epoch.
        left_at: When the driver was left, in seconds since the epoch.
        seconds: Seconds by phase so far.
        silent_seconds: For how long the cluster has not told the driver's state.
        is_reported: Whether there is a report on each batch, as far as the trigger has seen.
    """

    began: float
    own_attempt: str = ""
    stop_after_ms: int | None = None
    deadline: float | None = None
    left_at: float = 0.0
    seconds: Mapping[str, float] = field(default_factory=dict)
    silent_seconds: float = 0.0
    is_reported: bool = False

    @classmethod
    def of(cls, event: Mapping[str, Any]) -> Resumed:
        """Return what the trigger has brought back, see :class:`~.driver_reports.WatchesDriver`."""
        known = {name: value for name, value in event.get("resume", {}).items() if name in cls.__slots__}
        silent, is_reported = float(event.get("silent_seconds", 0.0)), event.get("reason") == "reported"
        return cls(**{"began": time.time(), **known, "silent_seconds": silent, "is_reported": is_reported})


class LeftDriver:
    """Starts the driver of each application of a run, and leaves it while it works.

    Args:
        operator: The task's operator, rendered, with its backend.
        wait: Has the backend run an application, and waits for its end.
        resumed: What an earlier process of this attempt has handed over; ``None``: this is the first one.
        phases: The run's seconds by phase.
    """

    def __init__(
        self, operator: Any, wait: Callable[[Any], Outcome], resumed: Resumed | None, phases: PhaseSeconds
    ) -> None:
        cluster = operator.spark.cluster_of_drivers()
        if cluster is None:
            raise ConfigurationError(
                f"deferrable=True requires a cluster that runs Spark's driver without the task, but connection "
                f"{operator.conn_id!r} does not name one. Set deploy_mode='cluster' with a master spark://…, with yarn "
                "whose ResourceManager is known and wants no Kerberos, or with k8s://… whose token is in a file, or "
                "omit deferrable",
                reason=Reason.SPARK_UNUSABLE,
            )
        self._operator = operator
        self._wait = wait
        self._cluster: dict[str, Any] = cluster
        self._phases = phases
        self._resumed = resumed or Resumed(time.time())
        self._is_first = resumed is None
        self._application: Application | FleetApplication | None = None
        if resumed is not None:
            phases.add(resumed.seconds)
            phases.add({"spark": max(0.0, time.time() - resumed.left_at)})

    @property
    def has_left(self) -> bool:
        """Whether a driver works on without the task."""
        return self._application is not None

    def keep_limit(self, stop_after_ms: int | None) -> int | None:
        """Keep when the run's limit of time is over; return that of the first process of this attempt."""
        if not self._is_first:
            return self._resumed.stop_after_ms
        self._resumed = replace(self._resumed, stop_after_ms=stop_after_ms)
        return stop_after_ms

    def is_own(self, name: str) -> bool:
        """Whether this attempt has started the driver of an application with that ``own_name``."""
        return name == self._resumed.own_attempt

    def run(self, application: Application | FleetApplication) -> Outcome | None:
        """Have a driver work on an application: return how it ended, ``None`` if it is left.

        Raises:
            ClusterLostError: The driver was not started, or the cluster does not tell its state for too long.
            AirflowTaskTimeout: The task's ``execution_timeout`` is over; the driver is stopped.
        """
        operator = self._operator
        is_new = application.left is None
        if is_new:
            if (failed := operator.spark.start(application)) is not None:
                return failed  # type: ignore[no-any-return]
            application = application.started()
            assert application.left is not None  # noqa: S101  # the ledger has the driver
        elif self._is_over(application):
            return self._wait(application)
        if operator.was_killed:
            # it ends, too
            return self._wait(application)
        self._check_time()
        is_own = is_new or self.is_own(application.own_name)
        self._resumed = replace(self._resumed, own_attempt=application.own_name if is_own else "")
        self._application = application
        return None

    def _is_over(self, application: Application | FleetApplication) -> bool:
        """Commit what a driver has reported; return whether it has ended, or will by itself, within seconds."""
        is_done, reports_no_more = application.commit(), self._resumed.is_reported
        # only for the driver that the trigger has watched
        self._resumed = replace(self._resumed, is_reported=False)
        return is_done or reports_no_more or not self._operator.spark.works(application, self._resumed.silent_seconds)

    def defer(self, session: StreamSession, *, deadline: float | None) -> None:
        """Defer the task until the driver that was left for a stream has reported, or has ended.

        Args:
            session: The run.
            deadline: When to stop waiting for data, in seconds since the epoch.
        """
        from airflow_provider_fds.triggers.driver_reports import DriverReportsTrigger

        work = self._application.work  # type: ignore[union-attr]  # the caller has left one of a stream
        planned = {batch.batch_id for batch in session.scope.planned}
        ids = [one.last.batch_id for one in session.scope.transactions(work.batches)]
        self.defer_to(
            DriverReportsTrigger,
            deadline=deadline,
            staging=session.context.staging_uri,
            storage_conn_id=session.stream.storage_conn_id,
            reports=session.scope.reports,
            epoch=work.epoch,
            batch_ids=[each for each in ids if each in planned],
            attempt_id=work.attempt_id,
        )

    def defer_to(self, trigger: Callable[..., Any], *, deadline: float | None, **polls: Any) -> None:
        """Defer the task to a trigger that watches the driver that was left.

        Args:
            trigger: Its class.
            deadline: As for :meth:`defer`.
            polls: Its arguments that say where to poll.
        """
        application, operator = self._application, self._operator
        assert application is not None  # noqa: S101  # the caller has asked
        left = application.left
        assert left is not None  # noqa: S101  # likewise
        now = time.time()
        resume = replace(
            self._resumed,
            deadline=deadline,
            left_at=now,
            seconds=self._phases.to_dict(),
            silent_seconds=0.0,
        )
        operator.log.info("Driver %s is at work; the task leaves its worker until the driver reports.", left.driver)
        operator.defer(
            trigger=trigger(
                **polls,
                cluster=self._cluster,
                address=left.address,
                driver=left.driver,
                poll_interval=operator.report_interval or min(_POLL_SECONDS, poll_interval_seconds()),
                commit_after=now + COMMIT_SECONDS,
                until=self._until,
                resume=asdict(resume),
            ),
            method_name="execute_reported",
        )

    @property
    def _until(self) -> float | None:
        limit = self._operator.execution_timeout
        return None if limit is None else self._resumed.began + limit.total_seconds()

    def _check_time(self) -> None:
        """Stop the driver once the task's ``execution_timeout`` is over; Airflow counts the time on a worker only."""
        if self._until is None or time.time() < self._until:
            return
        self._operator.on_kill()
        limit = format_duration(self._operator.execution_timeout)
        raise AirflowTaskTimeout(f"The execution_timeout of {limit} is over; the cluster was asked to stop the driver.")
