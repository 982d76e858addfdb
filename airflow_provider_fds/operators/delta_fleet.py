"""``DeltaFleetOperator``: load what is new in many Delta tables, in one Spark application."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

from airflow_provider_fds.airflow_version import sdk_exception
from airflow_provider_fds.durations import parse_duration
from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.fleet.table_pattern import TablePattern
from airflow_provider_fds.fleet.value import FleetStream, problems_between
from airflow_provider_fds.hooks.rendering import ValueTemplates
from airflow_provider_fds.operators.lineage.emits_lineage import EmitsFleetLineage
from airflow_provider_fds.operators.lineage.outlets import add_alert_outlet, add_checkpoint_inlet, default_outlet
from airflow_provider_fds.operators.links import ShowsLinks
from airflow_provider_fds.operators.task.ingest_arguments import (
    argument_problems,
    check_conf_by_size,
    deferral_problems,
    time_problems,
)
from airflow_provider_fds.operators.task.one_sink import check_one_sink
from airflow_provider_fds.operators.task.spark_task import SparkTask
from airflow_provider_fds.operators.task.waiting import ARGUMENTS as WAITING_ARGUMENTS
from airflow_provider_fds.operators.task.waiting import Waiting, seconds_of, waiting_problems

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import timedelta

    from airflow_provider_fds.backends.conf_by_size import ConfBySizeArgument
    from airflow_provider_fds.stream.monitoring.alerts import StreamAlerts

FailurePolicy = Literal["fail_at_end", "continue", "fail_fast"]

_POLICIES: Final = ("fail_at_end", "continue", "fail_fast")
_ON_GONE: Final = ("alert", "fail", "retire")


class DeltaFleetOperator(ValueTemplates, ShowsLinks, EmitsFleetLineage, SparkTask):
    """Loads everything new in many tables, each into its own sink, in one Spark application.

    For each stream, what :class:`DeltaIngestOperator` says about batches, retries and exactly-once holds unchanged. A
    stream can move between the two operators: its position is its own.

    Contract:
        - A run opens only the streams that have changed: one HEAD request for each of the others. It plans them side
          by side, and Spark works on ``parallelism`` batches at the same time, in order for each stream.
        - Each stream has a fate of its own. One that fails, pauses or is in quarantine does not hold back the others.
          Streams that are done are committed while others run, so a driver or task that dies loses only what ran.
        - A stream whose next batches another run owns is passed over and named.
        - A retry works only on what is not done.
        - If no stream has anything new, the task is skipped, or waits with ``wait=True``.

    Result:
        The XCom has ``fleet, counts`` (streams by outcome)``, rows, files, bytes, seconds, streams, warnings``. For
        each stream that is not unchanged, ``streams`` has by its name the ``outcome``, the fields of
        :class:`~.result.LoadResult` if it has committed something, and ``reason``, ``error`` or ``stopped`` if
        there is one. Outcomes are ``loaded``, ``unchanged``, ``up_to_date``, ``waiting``, ``finished``, ``paused``,
        ``busy``, ``left``, ``gone`` and ``failed``. A task that fails has the same in the XCom ``fds_fleet``.

    Asset events:
        One for each stream that has loaded something, with its entry of ``streams`` in ``extra``. As Airflow emits
        events only for tasks that succeed, streams that were loaded by a run that failed have theirs when they are
        loaded next by a run that succeeds; use ``on_stream_failure="continue"`` if consumers must not wait for that.

    All other arguments are those of ``SparkSubmitOperator``, as for :class:`DeltaIngestOperator`.

    Args:
        streams: The streams with their sinks: :class:`FleetStream` or dicts of its arguments. They read by offset.
        patterns: Tables that are found when a run begins: :class:`TablePattern` or dicts of its arguments.
        conn_id: Airflow connection of type ``spark`` or ``spark_connect``.
        parallelism: Number of batches that Spark works on at the same time.
        on_stream_failure: What a stream that fails means for the task. ``"fail_at_end"``: the others are loaded, then
            the task fails; it is retried if a retry may help one of the failed streams. ``"continue"``: the task
            succeeds, unless all streams failed. ``"fail_fast"``: nothing more is started, and the task fails.
        on_gone: What a table of a pattern that was loaded and is gone means for the task. Each run logs it and calls
            the notifiers of ``alerts`` once. ``"alert"``: nothing more, so that the events of the other streams go
            out. ``"fail"``: it counts as a failed stream, to which ``on_stream_failure`` applies. ``"retire"``: its
            stream ends permanently, without an alert, unless the pattern finds no table at all.
        on_no_data: What to do if no stream has loaded anything: ``"skip"`` or ``"succeed"``.
        max_bytes_in_flight: Planned bytes of the batches that Spark works on at the same time; a larger batch runs
            alone. ``None``: no limit.
        batch_timeout: The longest time that Spark may take for one batch, for streams without a timeout of their own.
        run_time_limit: Once this much time has passed, start no further batch and leave the rest to the next run.
        batches_per_application: Maximum number of batches of a stream in one Spark application.
        conf_by_size: See :class:`DeltaIngestOperator`; the largest batch of all streams decides.
        wait: Whether to wait, without a worker, until a stream has something to do.
        poll_interval: With ``wait``: time between two polls of all tables, one HEAD each; default
            ``[fds] poll_interval``. With ``deferrable`` also that between two polls for reports; default at most 10
            seconds.
        timeout: With ``wait``: maximum time that one attempt waits; default ``[sensors] default_timeout``, a week.
        linger: Once everything is loaded, keep Spark and the worker, poll all tables, and load what comes, until
            nothing has come for this long. A stream that fails, is held or is finished leaves the others at work. The
            task ends earlier at ``run_time_limit``. With ``wait`` it lingers only once it has loaded something.
        deferrable: Whether to leave the worker while a cluster runs Spark's driver, as for
            :class:`DeltaIngestOperator`. A trigger polls the driver's note of its progress, one HEAD per poll. Once a
            batch has failed, the task stays with the driver of the other streams.
        alerts: Which notifiers to call, once per incident of a stream; see :class:`StreamAlerts`. Streams that are
            unchanged are not checked.

    Raises:
        ConfigurationError: Reports all problems at once.

    Examples:
        >>> from airflow_provider_fds import DeltaFleetOperator, DeltaStream, DeltaAppendSink
        >>> load = DeltaFleetOperator(
        ...     task_id="load",
        ...     streams=[
        ...         {"stream": DeltaStream(name, table=f"s3://lake/{name}"), "sink": DeltaAppendSink(f"s3://bronze/{name}")}
        ...         for name in ("orders", "customers")
        ...     ],
        ... )
        >>> [one.name for one in load.streams]
        ['orders', 'customers']
    """

    template_fields: Sequence[str] = (*SparkTask.template_fields, "streams")

    def __init__(
        self,
        *,
        streams: Sequence[FleetStream | Mapping[str, Any]] = (),
        patterns: Sequence[TablePattern | Mapping[str, Any]] = (),
        conn_id: str = "spark_default",
        parallelism: int = 8,
        on_stream_failure: FailurePolicy = "fail_at_end",
        on_gone: Literal["alert", "fail", "retire"] = "alert",
        on_no_data: Literal["skip", "succeed"] = "skip",
        max_bytes_in_flight: int | None = None,
        batch_timeout: timedelta | float | str | None = None,
        run_time_limit: timedelta | float | str | None = None,
        batches_per_application: int = 200,
        conf_by_size: ConfBySizeArgument | None = None,
        wait: bool = False,
        poll_interval: timedelta | float | None = None,
        timeout: timedelta | float | None = None,
        linger: timedelta | float | str | None = None,
        deferrable: bool = False,
        alerts: StreamAlerts | None = None,
        **kwargs: Any,
    ) -> None:
        waiting = {**dict.fromkeys(WAITING_ARGUMENTS), "poll_interval": poll_interval, "timeout": timeout}
        problems = [
            *argument_problems(kwargs, on_no_data, batches_per_application, type(self).__name__),
            *waiting_problems(waiting, wait=wait, deferrable=deferrable),
            *deferral_problems(linger, deferrable=deferrable),
            *_number_problems(parallelism, max_bytes_in_flight),
            *time_problems(batch_timeout=batch_timeout, run_time_limit=run_time_limit, linger=linger),
        ]
        if on_stream_failure not in _POLICIES:
            problems.append(f"on_stream_failure must be one of {', '.join(map(repr, _POLICIES))}.")
        if on_gone not in _ON_GONE:
            problems.append(f"on_gone must be {' or '.join(map(repr, _ON_GONE))}, got {on_gone!r}.")
        if isinstance(streams, (list, tuple)):
            coerced = tuple(FleetStream.coerce(one) for one in streams)
            streams = coerced
            problems += problems_between(coerced)
            if not streams and not patterns:
                problems.append("a fleet needs streams or patterns, got neither.")
        if problems:
            raise ConfigurationError(*problems, subject=type(self).__name__)
        check_conf_by_size(conf_by_size, kwargs)
        kwargs.pop("durable", None)
        kwargs.setdefault("max_active_tis_per_dag", 1)
        super().__init__(conn_id=conn_id, **kwargs)
        if isinstance(streams, tuple):
            for one in coerced:
                check_one_sink(f"{self.dag_id}.{self.task_id}", one.stream, one.sink)
                add_checkpoint_inlet(self, one.stream)
        self.streams = streams
        self.patterns = tuple(TablePattern.coerce(one) for one in patterns)
        self.conn_id = conn_id
        self.parallelism = parallelism
        self.on_stream_failure = on_stream_failure
        self.on_gone = on_gone
        self.on_no_data = on_no_data
        self.max_bytes_in_flight = max_bytes_in_flight
        self.batch_timeout = parse_duration(batch_timeout)
        self.run_time_limit = parse_duration(run_time_limit)
        self.batches_per_application = batches_per_application
        self.conf_by_size = conf_by_size
        self.wait = wait
        self.waiting = Waiting.of(waiting) if wait else None
        if not self.outlets:
            self.outlets = [default_outlet(self.dag_id, self.task_id)]
        self.linger = parse_duration(linger)
        self.deferrable = deferrable
        self.report_interval = None if poll_interval is None else seconds_of(poll_interval)
        self.alerts = alerts
        add_alert_outlet(self, alerts)

    def render_template(self, content: Any, *args: Any, **kwargs: Any) -> Any:
        """Render a template field, also the streams and sinks in those of a fleet."""
        if not isinstance(content, FleetStream):
            return super().render_template(content, *args, **kwargs)
        stream, sink = (
            super(DeltaFleetOperator, self).render_template(one, *args, **kwargs)
            for one in (content.stream, content.sink)
        )
        return (
            content
            if (stream, sink) == (content.stream, content.sink)
            else FleetStream(stream, sink, content.batch_timeout)
        )

    def execute(self, context: Any) -> dict[str, Any] | None:  # type: ignore[override]
        """Load what is new, or wait until there is something to load. Returns what this run has committed."""
        return self._run(context, deadline=None if self.waiting is None else self.waiting.deadline)

    def execute_complete(
        self, context: Any, event: Mapping[str, Any], deadline: float | None = None
    ) -> dict[str, Any] | None:
        """Resume after the trigger fired: check again, because others may have committed meanwhile, and load.

        Args:
            context: The task's context.
            event: The trigger's event, see :class:`DeltaFleetTrigger`.
            deadline: When to stop waiting, in seconds since the epoch; the same across all deferrals. ``None`` under
                ``dag.test()``, which resumes a task with the event alone.
        """
        self.log.info("The trigger saw: %s.", event.get("reason"))
        if deadline is None and self.waiting is not None:
            deadline = self.waiting.deadline
        return self._run(context, deadline=deadline, news=event.get("streams") or ())

    def execute_reported(self, context: Any, event: Mapping[str, Any]) -> dict[str, Any] | None:
        """Resume a run whose driver was left in the cluster: commit what it has reported, and go on.

        Args:
            context: The task's context.
            event: The trigger's event, see :class:`FleetReportsTrigger`; what it says is only why the task was woken.
        """
        from airflow_provider_fds.operators.run.fleet_run import FleetRun
        from airflow_provider_fds.operators.run.left_driver import Resumed

        self.log.info("The trigger of the driver's reports fired: %s.", event.get("reason"))
        resumed = Resumed.of(event)
        return FleetRun(self, context, resumed).run(deadline=resumed.deadline)

    def resume_execution(self, next_method: str, next_kwargs: dict[str, Any] | None, context: Any) -> Any:
        """Resume after a deferral. If the wait timed out, check one last time."""
        try:
            return super().resume_execution(next_method, next_kwargs, context)
        except sdk_exception("TaskDeferralTimeout"):
            self.log.info("The wait timed out; polling one last time.")
            return self._run(context, deadline=0.0)

    def _run(self, context: Any, *, deadline: float | None, news: Sequence[str] = ()) -> dict[str, Any] | None:
        from airflow_provider_fds.operators.run.fleet_run import FleetRun

        return FleetRun(self, context).run(deadline=deadline, news=news)


def _number_problems(parallelism: object, max_bytes_in_flight: object) -> list[str]:
    given = {"parallelism": parallelism}
    if max_bytes_in_flight is not None:
        given["max_bytes_in_flight"] = max_bytes_in_flight
    return [
        f"{name} must be an integer of at least 1, got {value!r}."
        for name, value in given.items()
        if not isinstance(value, int) or isinstance(value, bool) or value < 1
    ]
