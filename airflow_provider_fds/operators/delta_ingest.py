"""``DeltaIngestOperator``: load what is new in a Delta table into a sink, exactly once, with Spark."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.providers.common.compat.sdk import AirflowException, AirflowSkipException

from airflow_provider_fds.errors import ConfigurationError, StoppedError, StreamBusyError
from airflow_provider_fds.fault_points import reach
from airflow_provider_fds.hooks.backfill import refuse_backfill
from airflow_provider_fds.hooks.data_interval import run_interval
from airflow_provider_fds.hooks.failures import task_failures, words_of
from airflow_provider_fds.hooks.rendering import ValueTemplates
from airflow_provider_fds.hooks.settings import cache_dir, retention
from airflow_provider_fds.operators import asset_event
from airflow_provider_fds.operators.busy import BusyPolicy, give_way
from airflow_provider_fds.operators.collecting import collecting
from airflow_provider_fds.operators.sink import coerce_sink
from airflow_provider_fds.operators.spark_backend import (
    GivenArguments,
    SparkBackend,
    check_backend,
    find_backend,
    prepare_submission,
    submitted,
)
from airflow_provider_fds.operators.spark_connect import ConnectBackend, work_off
from airflow_provider_fds.operators.submit_hook import SubmitHook
from airflow_provider_fds.operators.surroundings import open_interval_session, open_session
from airflow_provider_fds.sinks import DeltaReplaceSink, Sink
from airflow_provider_fds.spark.launch import job_storage
from airflow_provider_fds.stream import DeltaStream
from airflow_provider_fds.stream.result import RunResult, told

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import timedelta

    from airflow_provider_fds.errors import FdsError
    from airflow_provider_fds.spark.connect import ConnectJob
    from airflow_provider_fds.spark.launch import SubmitArguments
    from airflow_provider_fds.stream.interval_session import IntervalSession
    from airflow_provider_fds.stream.result import IntervalResult, RunWork
    from airflow_provider_fds.stream.session import StreamSession

#: Arguments of SparkSubmitOperator that are not the user's here: the application is FDS's own.
_OWN_ARGUMENTS: Final = ("application", "application_args", "java_class")
#: SparkSubmitOperator's default name of an application.
_DEFAULT_NAME: Final = "arrow-spark"


class _Spark(NamedTuple):
    backend: SparkBackend | ConnectBackend
    given: GivenArguments


class DeltaIngestOperator(ValueTemplates, SparkSubmitOperator):
    """Loads everything new in a table into a sink: plans batches, has Spark write them, then moves the offset.

    **Contract.** A run works up to the version that was the newest when it planned first, in as many Spark
    applications as that takes. Each batch is planned and written down before Spark starts, is one transaction of the
    sink, and is committed after its rows are verified to be there; whatever dies in between, the next try works on
    the same rows, and they land once. The batches before a failure stay committed.

    Nothing new, or a stream that is finished: the task is skipped (``on_no_data="succeed"``: it succeeds with
    ``None``), no asset event. Done: the
    XCom is what this run has committed (``stream, epoch, batches, first_batch_id, last_batch_id, start`` (exclusive)
    ``, end`` (inclusive)``, first_version, last_version`` (both inclusive)``, rows, files, bytes, sink_version``), and
    the sink's asset event has the same in ``extra``. A cleared or repeated task of a run that has committed returns
    that result again. Batches before a version that the stream may not pass are a success with a warning; a run that
    finds such a version first fails, and is not retried, nor is any other failure that a retry would find again.

    **Data intervals.** With a stream of ``read="data_interval"`` a run of any kind (scheduled, caught up, cleared,
    backfilled) loads what was committed in its own interval, start inclusive, end exclusive, all of it or nothing; runs
    go in any order and side by side. A cleared run with a ``DeltaReplaceSink`` replaces what it wrote; with a
    ``DeltaTableSink`` it returns its result again. An interval without rows is skipped, except by a sink that
    replaces. The XCom then is ``stream, interval_start`` (inclusive)``, interval_end`` (exclusive)``, generation,
    batches, first_version, last_version, rows, files, bytes, sink_version``.

    **Assets.** Without ``outlets`` the operator has an asset alias as its outlet, whose events name the sink's URI
    (``s3a`` as ``s3``), for mapped tasks too: consumers schedule on ``Asset("s3://…")``. Give ``outlets=[Asset(…)]``
    for an asset with a name of its own.

    **If it is misused.** Two operators with one stream and different sinks: the second is refused. ``retries=0``
    leaves a failed batch to the next run, which takes it over only when this one has ended.
    ``max_active_tis_per_dag`` is 1 unless you say otherwise: two runs of one stream side by side only wait for each
    other, unless they read data intervals. (A mapped task is left alone: it counts all its instances, and would
    serialise different tables.)

    All other arguments are those of ``SparkSubmitOperator``: ``conf``, ``jars``, ``packages``, ``driver_memory``,
    ``env_vars``, ``spark_binary`` and so on, but ``application``, ``application_args``, ``java_class`` and
    ``durable=True``: what a retry does is decided by the ledger here.

    Args:
        stream: The stream, or a dict of its arguments.
        sink: The sink, or a dict as of :meth:`Sink.to_dict`; ``DeltaReplaceSink`` for data intervals only.
        conn_id: Airflow connection: of type ``spark`` for spark-submit, of type ``spark_connect`` for a server that
            runs already, on which batches are worked off from the process of the task (``conf`` is then set on the
            session).
        on_no_data: ``"skip"`` or ``"succeed"``.
        on_busy: While another run still owns the next batches: ``"skip"``, ``"wait"`` (come back in a minute,
            without holding a worker) or ``"fail"`` (a retry may find them free).
        batches_per_run: Batches in one Spark application at most.
        run_time_limit: Start no further batch after this time; the rest is for the next run. ``None``: no limit.

    Example:
        >>> from airflow_provider_fds import DeltaIngestOperator, DeltaStream, DeltaTableSink
        >>> orders = DeltaStream("orders_to_bronze", table="s3://lake/orders")
        >>> ingest = DeltaIngestOperator(task_id="ingest", stream=orders, sink=DeltaTableSink("s3://lake/bronze/orders"))
        >>> ingest.max_active_tis_per_dag
        1
    """

    template_fields: Sequence[str] = (*SparkSubmitOperator.template_fields, "stream", "sink")
    ui_color = "#d9f2e6"

    def __init__(
        self,
        *,
        stream: DeltaStream | Mapping[str, Any],
        sink: Sink | Mapping[str, Any],
        conn_id: str = "spark_default",
        on_no_data: Literal["skip", "succeed"] = "skip",
        on_busy: BusyPolicy = "skip",
        batches_per_run: int = 200,
        run_time_limit: timedelta | None = None,
        **kwargs: Any,
    ) -> None:
        _check_arguments(kwargs, on_no_data, on_busy, batches_per_run)
        _check_reading(stream, sink, run_time_limit)
        kwargs.pop("durable", None)
        if not _reads_by_interval(stream):
            kwargs.setdefault("max_active_tis_per_dag", 1)
        super().__init__(conn_id=conn_id, **kwargs)
        # a job that Airflow would rejoin reports under the name of a try that is over; a new try looks into the sink
        self.durable = False
        self.stream = stream
        self.sink = sink
        self.conn_id = conn_id
        self.on_no_data = on_no_data
        self.on_busy = on_busy
        self.batches_per_run = batches_per_run
        self.run_time_limit = run_time_limit
        self._nothing = ""
        self._connect_job: ConnectJob | None = None
        self._loads_defaults = False
        if not self.outlets:
            self.outlets = [asset_event.default_outlet(self.dag_id, self.task_id)]

    def execute(self, context: Any) -> dict[str, Any] | None:  # type: ignore[override]
        """Load what is new. Returns what this run has committed."""
        with task_failures(self.stream):
            # kept, so that map_index_template may say {{ task.stream.name }} for a dict out of an XCom too
            self.stream = stream = DeltaStream.coerce(self.stream)
            sink = coerce_sink(self.sink)
            _check_reading(stream, sink, self.run_time_limit)
            if not stream.reads_by_interval:
                refuse_backfill(context, stream)
            spark = _Spark(
                find_backend(self.conn_id, deploy_mode=self._deploy_mode, spark_binary=self._spark_binary),
                self._given(),
            )
            if isinstance(spark.backend, ConnectBackend):
                spark.backend.check(self)
            else:
                check_backend(spark.backend, spark.given)
            if self.name == _DEFAULT_NAME:
                self.name = f"fds-{stream.name}"
            session: StreamSession | IntervalSession
            if stream.reads_by_interval:
                session = open_interval_session(context, stream, sink, run_interval(context, stream))
            else:
                session = open_session(context, stream, sink)
            result = self._drain(context, session, sink, spark)
            if result is not None:
                session.keep_house(retention())
        if result is None:
            message = self._nothing or f"Nothing new in table {stream.table} for stream {stream.name!r}."
            if self.on_no_data == "skip":
                raise AirflowSkipException(words_of(message, stream))
            self.log.info(message)
            asset_event.withhold(self)
            return None
        if not isinstance(result, RunResult):
            asset_event.emit(self, context, result.to_dict(), sink.table_uri)
            self.log.info(
                "Stream %s: interval %s to %s, versions %d to %d, %s rows, sink version %s.",
                *(result.stream, result.interval_start, result.interval_end),
                *(result.first_version, result.last_version, result.rows, result.sink_version),
            )
            return result.to_dict()
        extra = asset_event.uncovered(
            self, result.to_dict(), sink.table_uri, epoch_start=session.connected.state.epoch_start
        )
        asset_event.emit(self, context, extra, sink.table_uri)
        self.log.info(
            "Stream %s: committed batches %d to %d of epoch %d, versions %d to %d, %s rows, sink version %s.",
            *(result.stream, result.first_batch_id, result.last_batch_id, result.epoch),
            *(result.first_version, result.last_version, result.rows, result.sink_version),
        )
        return result.to_dict()

    def on_kill(self) -> None:
        """Kill the Spark job, if one was started."""
        if self._connect_job is not None:
            self._connect_job.kill()
        elif self._hook is not None:
            super().on_kill()

    def _get_hook(self) -> SubmitHook:
        return SubmitHook.like(super()._get_hook(), loads_defaults=self._loads_defaults)

    def _given(self) -> GivenArguments:
        """Return the user's own arguments of spark-submit, as rendered."""
        return GivenArguments(
            conf=dict(self.conf or {}),
            jars=self.jars,
            packages=self.packages,
            py_files=self.py_files,
            driver_class_path=self.driver_class_path,
            env_vars=dict(self.env_vars or {}),
            properties_file=self.properties_file,
        )

    def _drain(
        self, context: Any, session: StreamSession | IntervalSession, sink: Sink, spark: _Spark
    ) -> RunResult | IntervalResult | None:
        """Work application after application until the run's target, the time limit or a failure."""
        is_retry = context["ti"].try_number > 1
        limit = self.run_time_limit
        deadline_ms = None if limit is None else int((time.time() + limit.total_seconds()) * 1000)
        has_committed = False
        while True:
            try:
                work = session.begin(sink, max_batches=self.batches_per_run, retry=is_retry)
            except StreamBusyError as busy:
                give_way(self.on_busy, busy)
            except StoppedError as stopped:
                if not has_committed:
                    raise
                self._warn(stopped)
                break
            if work.status == "done":
                self.log.info("This run has committed already what it could, up to version %s.", work.target)
                self._warn(work.warning)
                return work.result
            if work.status == "fence":
                self.log.info("Epoch %d was requested; the ones before it are closed in the sink first.", work.epoch)
                self._work(context, session, sink, work, spark, None)
                continue
            if work.status != "work":
                self._nothing = work.reason
                break
            is_out_of_time = self._work(context, session, sink, work, spark, deadline_ms)
            has_committed = True
            if is_out_of_time:
                self.log.warning("Time limit of %s reached; the rest is left to the next run.", limit)
            self._warn(work.warning)
            if is_out_of_time or not work.is_more:
                break
        return session.result()

    def _warn(self, stopped: FdsError | None) -> None:
        if stopped is not None:
            self.log.warning("Everything before this was delivered; the next run fails here: %s", stopped)

    def _work(
        self,
        context: Any,
        session: StreamSession | IntervalSession,
        sink: Sink,
        work: RunWork,
        spark: _Spark,
        deadline_ms: int | None,
    ) -> bool:
        """Run one Spark application and commit what it has done. Returns whether it stopped at the time limit."""
        if work.batches:
            first, last = work.batches[0], work.batches[-1]
            # an interval in which nothing was committed ends before it begins
            is_empty = last.last_version < first.first_version
            versions = "no versions" if is_empty else f"versions {first.first_version} to {last.last_version}"
            self.log.info("Batches %d to %d, %s, in one Spark application.", first.batch_id, last.batch_id, versions)
        spec_uri = session.job(work, sink, stop_after_ms=deadline_ms)
        spark_error: AirflowException | None = None
        if isinstance(spark.backend, ConnectBackend):
            self._connect_job = spark.backend.job(session, sink, spec_uri, spark.given.conf)
            work_off(self._connect_job, session, work)
        else:
            storage = job_storage(session.connected.places(sink.table_uri), sink)
            made = prepare_submission(
                spark.backend,
                spec_uri,
                given=spark.given,
                storage=storage,
                cache_dir=cache_dir(),
                num_bytes=sum(batch.num_bytes for batch in work.batches),
            )
            reach("submit.before")
            try:
                with submitted(spark.backend, made, cache_dir()) as arguments, collecting(session, work):
                    self._set_submission(arguments, spark.backend)
                    super().execute(context)
                if made.class_archive is not None:
                    made.class_archive.make_in_background()
            except AirflowException as error:
                # what it has done before it failed is committed below
                spark_error = error
            finally:
                # a file with secrets is gone by now
                self.properties_file = spark.given.properties_file
            reach("submit.after")
        collected = session.collect(work)
        if any(report.is_done for report in collected.reports):
            self.log.info("This application: %s.", told(collected.reports))
        is_late = deadline_ms is not None and time.time() * 1000 >= deadline_ms
        if collected.failure is not None:
            was_started = len(collected.reports) > len(collected.committed)
            if spark_error is None and is_late and not was_started:
                return True
            raise collected.failure from spark_error
        if spark_error is not None:
            self.log.warning("Spark ended with an error after all batches were committed: %s", spark_error)
        return is_late and work.is_more

    def _set_submission(self, made: SubmitArguments, backend: SparkBackend) -> None:
        self.application = made.application
        self.application_args = list(made.application_args)
        self.conf = dict(made.conf)
        self.jars = made.jars
        self.packages = None  # they are part of conf now
        self.driver_class_path = made.driver_class_path
        self.py_files = made.py_files
        self.env_vars = dict(made.env_vars) or None
        self.properties_file = made.properties_file
        self._loads_defaults = made.loads_defaults
        if backend.uses_bundled_spark:
            self._spark_binary = made.spark_binary
        self._hook = None  # it would hold the arguments of the application before


def _reads_by_interval(stream: object) -> bool:
    """Whether the runs of a stream stand in nobody's way; a stream out of an XCom is not known when the DAG is read."""
    if isinstance(stream, DeltaStream):
        return stream.reads_by_interval
    return isinstance(stream, dict) and stream.get("read") == "data_interval"


def _check_reading(stream: object, sink: object, run_time_limit: timedelta | None) -> None:
    """Refuse what does not go with the way the stream reads, as far as stream and sink are known."""
    problems = []
    if _reads_by_interval(stream) and run_time_limit is not None:
        problems.append(
            "run_time_limit does not go with read='data_interval': an interval is loaded whole, and no later run would "
            "load the rest. Leave it out; Airflow's execution_timeout ends a task that takes too long."
        )
    if isinstance(stream, DeltaStream) and not stream.reads_by_interval and isinstance(sink, DeltaReplaceSink):
        problems.append(
            f"stream {stream.name!r} reads by offset: each of its batches would replace the one before. "
            "DeltaReplaceSink goes with read='data_interval'; use DeltaTableSink."
        )
    if _reads_by_interval(stream) and isinstance(sink, Sink) and sink.needs_order:
        problems.append(
            f"read='data_interval' goes with sinks that take intervals in any order; {type(sink).__name__} goes by the "
            "order of the source's commits. Read by offset (leave read=… out), or use DeltaReplaceSink."
        )
    if problems:
        raise ConfigurationError(*problems, subject="DeltaIngestOperator")


def _check_arguments(kwargs: Mapping[str, Any], on_no_data: str, on_busy: str, batches_per_run: int) -> None:
    problems = [
        f"{name} is not an argument of DeltaIngestOperator: it runs FDS's own job. For a job of your own use "
        "DeltaPlanOperator, SparkSubmitOperator and DeltaCommitOperator."
        for name in _OWN_ARGUMENTS
        if name in kwargs
    ]
    if kwargs.get("durable"):
        problems.append(
            "durable=True is not available: a retry looks into ledger and sink for what is done, rather than rejoin a "
            "job. Leave it away."
        )
    if on_no_data not in ("skip", "succeed"):
        problems.append(f"on_no_data must be 'skip' or 'succeed', got {on_no_data!r}.")
    if on_busy not in ("skip", "wait", "fail"):
        problems.append(f"on_busy must be 'skip', 'wait' or 'fail', got {on_busy!r}.")
    if not isinstance(batches_per_run, int) or batches_per_run < 1:
        problems.append(f"batches_per_run must be a whole number of at least 1, got {batches_per_run!r}.")
    if problems:
        raise ConfigurationError(*problems, subject="DeltaIngestOperator")
