"""``DeltaIngestOperator``: load what is new in a Delta table into a sink, exactly once, with Spark."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Literal

from airflow_provider_fds.airflow_version import sdk_exception
from airflow_provider_fds.durations import parse_duration
from airflow_provider_fds.hooks.rendering import ValueTemplates
from airflow_provider_fds.operators.lineage.emits_lineage import EmitsLineage
from airflow_provider_fds.operators.lineage.outlets import add_alert_outlet, add_checkpoint_inlet, default_outlet
from airflow_provider_fds.operators.links import ShowsLinks
from airflow_provider_fds.operators.task.ingest_arguments import (
    check_arguments,
    check_asking,
    check_asset_partitions,
    check_conf_by_size,
    check_linger,
    check_reading,
    reads_by_interval,
)
from airflow_provider_fds.operators.task.one_sink import check_one_sink
from airflow_provider_fds.operators.task.spark_task import SparkTask
from airflow_provider_fds.operators.task.waiting import ARGUMENTS as WAITING_ARGUMENTS
from airflow_provider_fds.operators.task.waiting import Waiting, seconds_of, waiting_problems
from airflow_provider_fds.sinks.options import is_template
from airflow_provider_fds.stream import DeltaStream
from airflow_provider_fds.stream.declaration.sink_needs import coerce_sink

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import timedelta

    from airflow_provider_fds.backends.conf_by_size import ConfBySizeArgument
    from airflow_provider_fds.operators.task.on_busy import BusyPolicy
    from airflow_provider_fds.sinks import Sink
    from airflow_provider_fds.stream.monitoring.alerts import StreamAlerts


class DeltaIngestOperator(ValueTemplates, ShowsLinks, EmitsLineage, SparkTask):
    """Loads everything new in a table into a sink: plans batches, has Spark write them, then moves the offset.

    After a retry, a clear or a killed worker, the same planned rows are loaded again, and each ends up in the sink
    exactly once. One task is enough: with ``wait=True`` it also waits for new data.

    Contract:
        - A run loads up to the version that was the newest when it first planned. It starts as many Spark applications
          as that takes.
        - Each batch is planned and recorded before Spark starts, is one transaction of the sink, and is committed after
          FDS has verified that its rows are there. If a process dies in between, the next attempt works on the same
          rows, which are written exactly once. The batches before a failure stay committed.
        - If nothing is new, or the stream is finished, the task is skipped and emits no asset event. With
          ``on_no_data="succeed"`` it succeeds with ``None`` instead.
        - A cleared or repeated task of a run that has committed returns the same result again.
        - A run that commits batches up to a version that the stream cannot pass succeeds with a warning. If such a
          version comes first, before any batch, the run fails. Errors that a retry cannot fix, such
          as this one, are not retried.

    Result:
        The XCom is what this run has committed: ``stream, epoch, batches, first_batch_id, last_batch_id, start``
        (exclusive)``, end`` (inclusive)``, first_version, last_version`` (both inclusive)``, rows, files, bytes,
        sink_version, rows_read, files_written, bytes_written, seconds, warnings``, see
        :class:`~.result.LoadResult`; with expectations also ``rows_rejected`` and ``failed_rows`` (by expectation).
        If the stream stops before a version after these batches, ``stopped`` has
        the ``reason_code, table, version, operation`` of the error with which the next run fails. The sink's asset
        event has the same fields in ``extra``.

    Data intervals:
        - With a stream of ``read="data_interval"``, a run of any kind (scheduled, catchup, cleared or backfill) loads
          what was committed in its own interval, start inclusive, end exclusive. It loads all of it or nothing. Runs
          may execute in any order and in parallel.
        - A cleared run with a ``DeltaReplaceSink`` replaces what it wrote; with a ``DeltaAppendSink`` it returns its
          result again. An interval without rows is skipped, unless the sink replaces.
        - The XCom is ``stream, interval_start`` (inclusive)``, interval_end`` (exclusive)``, generation, batches,
          first_version, last_version, rows, files, bytes, sink_version, rows_read, files_written, bytes_written,
          seconds, warnings``.

    Asset events:
        Without ``outlets`` the outlet of the operator is an asset alias, whose events name the sink's URI (``s3a`` as
        ``s3``). This also works for mapped tasks: consumers schedule on ``Asset("s3://…")``. Pass
        ``outlets=[Asset(…)]`` for an asset with its own name.

    Waiting:
        - With ``wait=True`` a run that has nothing to do defers itself and holds no worker. The trigger of
          :class:`DeltaTableVersionSensor` wakes it when there is data, and the run loads it. No sensor is needed.
        - A run does not wait if it finds batches of an earlier attempt, if it has already committed, or if its stream
          is finished. A run of a stream that is held or in quarantine waits until someone decides.
        - If the wait times out, the run counts as having no new data, and ``on_no_data`` decides between skip and
          success. A run whose data interval is not complete by then fails, because no other run would load it.
        - A waiting task has planned nothing, so killing it leaves nothing behind. ``execution_timeout`` counts only the
          time on a worker. From Airflow 3.2 on, a waiting task counts towards ``max_active_tis_per_dag``.

    Deferral:
        - With ``deferrable=True`` a run starts Spark's driver in the cluster and defers itself. A trigger polls staging
          for the driver's reports, and wakes the task to commit: when all batches are reported, when the driver has
          ended, and every five minutes if some are reported. The task then goes on as if it had waited.
        - It requires a cluster that runs drivers by itself: ``deploy_mode="cluster"`` on a standalone cluster, on a
          YARN whose ResourceManager is known, or on Kubernetes. Any other connection fails the run before it plans,
          because a driver on the worker ends with its task: a task that silently kept its worker would surprise whoever
          asked for this. For the same reason Airflow's ``[operators] default_deferrable`` has no effect.
        - ``run_time_limit`` and ``execution_timeout`` count from the start of the attempt, over all deferrals.
        - A user who marks or clears the deferred task stops the driver (Airflow 3.3). In older versions, and after any
          other end of the trigger, the driver goes on, and the next attempt waits for it.

    Asking:
        - With the stream's ``on_violation="ask"``, a run that finds the stream in quarantine asks in Airflow's UI what
          to do (human in the loop), and defers itself until somebody has answered there, with ``fds``, or on the page
          "Delta streams". Then it loads what the decision lets it load.
        - An attempt asks once. If the stream then stops again before anything was loaded, the next run asks.

    Misuse:
        - Two operators with one stream and different sinks: the second one is refused.
        - ``retries=0``: a failed batch is left to the next run, which takes it over only after this one has ended.
        - ``max_active_tis_per_dag`` defaults to 1: running two runs of one stream in parallel gains nothing, because
          one waits for the other, unless they read data intervals. The default does not apply to a mapped task, because
          the limit counts all its instances and would serialise different tables.

    All other arguments are those of ``SparkSubmitOperator``: ``conf``, ``jars``, ``packages``, ``driver_memory``,
    ``env_vars``, ``spark_binary`` and so on. ``application``, ``application_args``, ``java_class`` and ``durable=True``
    are not accepted: the ledger decides what a retry does. ``delta_version`` overrides the Delta version that FDS
    chooses for your Spark version; ``"provided"`` means that your own Spark already includes Delta.

    Args:
        stream: The stream, or a dict of its arguments.
        sink: The sink, the URI of a ``DeltaAppendSink``, or a dict as returned by :meth:`Sink.to_dict`.
            ``DeltaReplaceSink`` is for data intervals only.
        conn_id: Airflow connection. Type ``spark`` uses spark-submit. Type ``spark_connect`` uses a running server: the
            task's process runs the batches on it, and ``conf`` is set on the session.
        on_no_data: ``"skip"`` or ``"succeed"``.
        on_busy: What to do while another run still owns the next batches: ``"skip"``, ``"wait"`` (come back in a
            minute, without holding a worker) or ``"fail"`` (a retry may find them free).
        batches_per_application: Maximum number of batches in one Spark application.
        run_time_limit: Once this much time has passed, start no further batch and leave the rest to the next run.
            ``None``: no limit. The time spent waiting does not count.
        conf_by_size: Spark settings by the size of a batch, added to ``conf``: pairs of bytes (inclusive; a number, or
            ``"10g"``) and settings, in rising order, or a function from bytes to settings. Each application gets those
            for its largest batch; the last pair also applies to larger ones. Not for ``spark_connect``.
        asset_partitions: Partition keys for the events of the outlets (Airflow 3.3; ignored in older versions). Either
            a date format, such as ``"%Y-%m-%d"``, for the start of the data interval in the time zone of the DAG's
            timetable; or the name of a partition column of the source, whose values in the loaded versions are the
            keys. Events with keys start only DAGs with a partitioned timetable.
        linger: Once everything is loaded, keep Spark and the worker, poll the table, and load what comes, until nothing
            has come for this long. Each batch is planned, written, verified and committed as otherwise, and moves a
            checkpoint in a Variable; the XCom and the asset event cover all of them when the task ends. It also ends
            at ``run_time_limit``, on a hold, and on a request for another epoch. With ``wait`` the task lingers only
            once it has loaded something. ``None``: the task ends when everything is loaded.
        deferrable: Whether to leave the worker while Spark works, see *Deferral*.
        wait: Whether to wait until there is something to do.
        poll_interval: With ``wait``: time between two polls; default ``[fds] poll_interval``. With ``deferrable`` also
            that between two polls for reports; default at most 10 seconds.
        timeout: With ``wait``: maximum time that one attempt waits; default ``[sensors] default_timeout``, a week.
        grace: With ``wait`` and data intervals: how long after the end of the interval to wait for a commit that proves
            it complete. ``None``: until ``timeout``.
        approvers: With the stream's ``on_violation="ask"``: who may answer: ids of Airflow's users, or dicts with
            ``id`` and ``name``. ``None``: everybody whom Airflow's permissions let answer for the DAG.
        ask_timeout: With ``on_violation="ask"``: how long to wait for an answer; then the task fails, and the stream
            stays in quarantine. ``None``: until there is one.
        alerts: Which notifiers to call, once per incident, when the stream needs attention or lags; see
            :class:`StreamAlerts`. Each run checks at its end, also if it is skipped or fails. ``None``: no alerts.

    Examples:
        >>> from airflow_provider_fds import DeltaIngestOperator, DeltaStream, DeltaAppendSink
        >>> orders = DeltaStream("orders_to_bronze", table="s3://lake/orders")
        >>> ingest = DeltaIngestOperator(task_id="ingest", stream=orders, sink=DeltaAppendSink("s3://lake/bronze/orders"))
        >>> ingest.max_active_tis_per_dag
        1
    """

    template_fields: Sequence[str] = (*SparkTask.template_fields, "stream", "sink")
    ui_color = "#d9f2e6"

    def __init__(
        self,
        *,
        stream: DeltaStream | Mapping[str, Any],
        sink: Sink | str | Mapping[str, Any],
        conn_id: str = "spark_default",
        on_no_data: Literal["skip", "succeed"] = "skip",
        on_busy: BusyPolicy = "skip",
        batches_per_application: int = 200,
        run_time_limit: timedelta | float | None = None,
        linger: timedelta | float | str | None = None,
        deferrable: bool = False,
        conf_by_size: ConfBySizeArgument | None = None,
        asset_partitions: str | None = None,
        wait: bool = False,
        poll_interval: timedelta | float | None = None,
        timeout: timedelta | float | None = None,
        grace: timedelta | float | None = None,
        approvers: Sequence[str | Mapping[str, str]] | None = None,
        ask_timeout: timedelta | float | str | None = None,
        alerts: StreamAlerts | None = None,
        **kwargs: Any,
    ) -> None:
        values = (poll_interval, timeout, grace)
        waiting = dict(zip(WAITING_ARGUMENTS, values, strict=True))
        check_arguments(
            kwargs,
            on_no_data,
            on_busy,
            batches_per_application,
            waiting_problems(waiting, wait=wait, deferrable=deferrable),
        )
        check_conf_by_size(conf_by_size, kwargs)
        DeltaStream.refuse_others(stream)
        if isinstance(sink, str) and not is_template(sink):
            sink = coerce_sink(sink)
        check_reading(stream, sink, run_time_limit, grace)
        check_linger(stream, linger, deferrable=deferrable)
        check_asking(stream, approvers, ask_timeout)
        check_asset_partitions(asset_partitions, stream, kwargs.get("outlets"))
        kwargs.pop("durable", None)
        if not reads_by_interval(stream):
            kwargs.setdefault("max_active_tis_per_dag", 1)
        super().__init__(conn_id=conn_id, **kwargs)
        check_one_sink(f"{self.dag_id}.{self.task_id}", stream, sink)
        self.stream = stream
        add_checkpoint_inlet(self, stream)
        self.sink = sink
        self.conn_id = conn_id
        self.on_no_data = on_no_data
        self.on_busy = on_busy
        self.batches_per_application = batches_per_application
        self.run_time_limit = parse_duration(run_time_limit)
        self.linger = parse_duration(linger)
        self.deferrable = deferrable
        self.report_interval = None if poll_interval is None else seconds_of(poll_interval)
        self.conf_by_size = conf_by_size
        self.asset_partitions = asset_partitions
        self.wait = wait
        self.waiting = Waiting.of(waiting) if wait else None
        self.approvers = approvers
        self.ask_timeout = ask_timeout
        if not self.outlets:
            self.outlets = [default_outlet(self.dag_id, self.task_id)]
        self.alerts = alerts
        add_alert_outlet(self, alerts)

    def execute(self, context: Any) -> dict[str, Any] | None:  # type: ignore[override]
        """Load what is new, or wait until there is something to load. Returns what this run has committed."""
        return self.load(context, deadline=None if self.waiting is None else self.waiting.deadline)

    def execute_complete(
        self, context: Any, event: Mapping[str, Any], deadline: float | None = None
    ) -> dict[str, Any] | None:
        """Resume after the trigger fired: check again, because others may have committed meanwhile, and load.

        Args:
            context: The task's context.
            event: The trigger's event, see :class:`DeltaTableVersionTrigger`.
            deadline: When to stop waiting, in seconds since the epoch; the same across all deferrals. ``None`` under
                ``dag.test()``, which resumes a task with the event alone.
        """
        from airflow_provider_fds.hooks.failures import check_event

        check_event(context, event)
        self.log.info("The trigger saw version %s (%s).", event.get("version"), event.get("reason"))
        if deadline is None and self.waiting is not None:
            deadline = self.waiting.deadline
        return self.load(context, deadline=deadline, was_woken=True)

    def execute_reported(self, context: Any, event: Mapping[str, Any]) -> dict[str, Any] | None:
        """Resume a run whose driver was left in the cluster: commit what it has reported, and go on.

        Args:
            context: The task's context.
            event: The trigger's event, see :class:`DriverReportsTrigger`; what it says is only why the task was woken.
        """
        from airflow_provider_fds.operators.run.ingest_run import IngestRun
        from airflow_provider_fds.operators.run.left_driver import Resumed

        self.log.info("The trigger of the driver's reports fired: %s.", event.get("reason"))
        resumed = Resumed.of(event)
        return IngestRun(self, context, resumed).load(deadline=resumed.deadline)

    def execute_answered(
        self,
        context: Any,
        event: Mapping[str, Any],
        deadline: float | None = None,
        version: int | None = None,
        about: str | None = None,
    ) -> dict[str, Any] | None:
        """Resume after somebody has decided about what the stream stops at: record it, and load.

        Args:
            context: The task's context.
            event: The answer, see :class:`StreamDecisionTrigger`.
            deadline: As in :meth:`execute_complete`.
            version: The version that the question was about; as ``deadline`` missing under ``dag.test()``.
            about: What else it was about; likewise.
        """
        from airflow_provider_fds.operators.run.approval import record_answer

        asked = (event.get("version"), event.get("about")) if version is None else (version, about)
        record_answer(self, context, event, *asked)
        return self.load(context, deadline=deadline)

    def resume_execution(self, next_method: str, next_kwargs: dict[str, Any] | None, context: Any) -> Any:
        """Resume after a deferral. If the wait timed out, check one last time."""
        try:
            return super().resume_execution(next_method, next_kwargs, context)
        except sdk_exception("TaskDeferralTimeout"):
            self.log.info("The wait timed out; polling one last time.")
            return self.load(context, deadline=time.time())

    def load(self, context: Any, *, deadline: float | None, was_woken: bool = False) -> dict[str, Any] | None:
        """Load what is new, or wait; see :meth:`~.ingest_run.IngestRun.load`."""
        from airflow_provider_fds.operators.run.ingest_run import IngestRun

        return IngestRun(self, context).load(deadline=deadline, was_woken=was_woken)
