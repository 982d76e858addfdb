"""``DeltaTableVersionSensor``: wait for data in a Delta table, for a stream or without one."""

from __future__ import annotations

import time
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from airflow.providers.common.compat.sdk import (
    AirflowFailException,
    AirflowSensorTimeout,
    AirflowSkipException,
    BaseSensorOperator,
    PokeReturnValue,
    conf,
)

from airflow_provider_fds.delta.moments import moment_text
from airflow_provider_fds.durations import format_duration, parse_duration
from airflow_provider_fds.errors import ConfigurationError, TableNotFoundError
from airflow_provider_fds.hooks.failures import task_failures
from airflow_provider_fds.hooks.rendering import ValueTemplates
from airflow_provider_fds.hooks.settings import poll_interval_seconds
from airflow_provider_fds.sensors.table_condition import SEEN_KEY, TableArguments, seen_by
from airflow_provider_fds.stream import DeltaStream
from airflow_provider_fds.triggers.poll_arguments import grace_problems, removed_problems

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow_provider_fds.stream.polling.poll import PollResult
    from airflow_provider_fds.stream.polling.table_condition import TableCondition
    from airflow_provider_fds.triggers.delta_table_version import DeltaTableVersionTrigger


class DeltaTableVersionSensor(ValueTemplates, BaseSensorOperator):
    """Waits for data that a stream has not committed, for the end of a data interval, or for a stream's watermark.

    With ``table`` instead of ``stream`` it waits for a version of a table, or for commits with data, see below.

    It writes nothing and reserves nothing: success tells the stream's next task that there is something to do, and that
    task checks for itself.

    Event contract:
        - The sensor succeeds when the stream has something to do: data after its committed offset, a version that it
          cannot pass or a position that is lost (the operator then judges it), or a position that would be lost by
          waiting. Before the stream's first run any data counts.
        - Versions without data (OPTIMIZE, empty commits) do not wake it. Neither does data below the stream's
          ``min_batch_bytes``, until ``max_batch_wait`` has passed, or a version that waits for another stream
          (``align_with``).
        - A stream that has read everything up to its end is finished: the sensor is skipped, with the reason, instead
          of waiting forever.
        - The XCom (``return_value``, an ``int``) is the newest version seen, for people to read.
          :class:`DeltaIngestOperator` does not use it.

    Data intervals:
        A stream with ``read="data_interval"`` needs ``wait_for="interval_complete"``. The sensor succeeds when no more
        commits can fall into the run's interval: a commit at or after its end exists, or ``grace`` has passed since the
        end. Later commits belong to the next interval, whatever their timestamp. The sensor also waits for backfills
        and manual runs that have an interval.

    Watermark:
        With ``wait_for="watermark"`` the sensor waits for *another* task: until the runs of the stream have committed
        rows up to the event time ``at``, according to the stream's ledger. It never looks at the table. It also
        succeeds when the stream is finished, because its watermark moves no more. The stream needs an
        ``event_time_column``. Rows that come late may still follow: add the time that they may be late to ``at``.

    Without a stream:
        ``table`` needs no stream and no staging folder. A table that does not exist yet is waited for, with a warning
        in the log. A commit has data if it adds or removes files that change data (OPTIMIZE does not). Give one of:

        - ``version``: the table has this version, or has had it.
        - ``committed_after``: a commit with data was made at this time or later (inclusive). The time of a commit is
          its in-commit timestamp if the table has them, otherwise the time of its file.
        - ``changed_since="last_run"``: there is a commit with data after the newest version that this task saw in the
          DAG's previous successful run (exclusive), from that run's XCom ``fds_seen``. The previous run is the one with
          the next lower logical date, as in ``prev_start_date_success``; a run without a logical date is an error.
          Without such a run or its XCom, or if the log no longer has that version as it was, any commit with data
          counts. No commit is missed; one that is made while the previous run is working counts for the next run, too.

    Misuse:
        - If no operator commits the stream, the sensor succeeds at once, every time. With ``schedule="@continuous"``
          the DAG then runs without pause.
        - If two DAGs wait on the same stream, both wake up, and one of them finds nothing.
        - A downstream task that reads "the version in the XCom" instead of the stream's batch loses rows when commits
          arrive faster than runs.

    There are three ways to wait: ``deferrable=True`` holds no worker (a triggerer must run), ``mode="reschedule"``
    holds one only while it polls, ``mode="poke"`` holds it all the time. All three first poll once on the worker, so a
    table that has data costs no deferral. ``timeout``, ``soft_fail`` and similar arguments are Airflow's own.

    Args:
        stream: The stream, or a dict of its arguments. Required, unless there is a ``table``.
        wait_for: ``"new_data"``, ``"interval_complete"`` for streams with ``read="data_interval"``, or
            ``"watermark"``.
        at: With ``"watermark"``: the event time to be reached (inclusive), a ``datetime`` or a string, in UTC if it
            names no zone; a template such as ``"{{ data_interval_end }}"``.
        grace: With ``"interval_complete"``: how long after the end of the interval to wait for a commit that proves it
            complete. ``None``: until ``timeout``.
        table: Instead of ``stream``: URI of the table, or its name in a catalog.
        storage_conn_id: With ``table``: its connection; default: the environment's credentials.
        catalog_conn_id: With a name: the connection of the catalog.
        version: With ``table``: the version to wait for, an integer or a template of one.
        changed_since: With ``table``: ``"last_run"``.
        committed_after: With ``table``: a ``datetime`` or a string, in UTC if it names no zone; a template such as
            ``"{{ data_interval_end }}"``.
        deferrable: Whether to wait in the triggerer; default ``[operators] default_deferrable``.
        poll_interval: Time between two polls, for all three ways; default ``[fds] poll_interval``.

    Examples:
        >>> from airflow_provider_fds import DeltaStream, DeltaTableVersionSensor
        >>> orders = DeltaStream("orders_to_bronze", table="s3://lake/orders")
        >>> DeltaTableVersionSensor(task_id="wait", stream=orders, deferrable=True).stream.name
        'orders_to_bronze'
    """

    template_fields: Sequence[str] = (
        "stream",
        "at",
        "table",
        "storage_conn_id",
        "catalog_conn_id",
        "version",
        "committed_after",
    )
    ui_color = "#d9f2e6"
    #: What the sensor waits for without a stream; known once it has polled.
    _condition: TableCondition | None = None

    def __init__(
        self,
        *,
        stream: DeltaStream | Mapping[str, Any] | None = None,
        wait_for: Literal["new_data", "interval_complete", "watermark"] = "new_data",
        at: datetime | str | None = None,
        grace: timedelta | float | None = None,
        table: str | None = None,
        storage_conn_id: str | None = None,
        catalog_conn_id: str | None = None,
        version: int | str | None = None,
        changed_since: Literal["last_run"] | None = None,
        committed_after: datetime | str | None = None,
        deferrable: bool | None = None,
        poll_interval: timedelta | float | None = None,
        **kwargs: Any,
    ) -> None:
        if poll_interval is not None:
            kwargs["poke_interval"] = poll_interval
        else:
            kwargs.setdefault("poke_interval", poll_interval_seconds())
        without = TableArguments(table, storage_conn_id, catalog_conn_id, version, changed_since, committed_after)
        _check_arguments(stream, wait_for, grace, at, without)
        if problems := removed_problems(kwargs):
            raise ConfigurationError(*problems, subject=f"sensor {kwargs.get('task_id')!r}")
        super().__init__(**kwargs)
        self.stream = stream
        self.wait_for = wait_for
        self.at = at
        self.grace = parse_duration(grace)
        self.table = table
        self.storage_conn_id = storage_conn_id
        self.catalog_conn_id = catalog_conn_id
        self.version = version
        self.changed_since = changed_since
        self.committed_after = committed_after
        if deferrable is None:
            deferrable = conf.getboolean("operators", "default_deferrable", fallback=False)
        self.deferrable = deferrable

    def poke(self, context: Any) -> PokeReturnValue:
        """Poll once, on the worker."""
        found = self._poll(context)
        if found is None:
            return PokeReturnValue(is_done=False)
        return PokeReturnValue(is_done=True, xcom_value=found.newest_version)

    def execute(self, context: Any) -> int | None:
        """Poll once; if there is nothing, wait in the chosen way. Returns the newest version seen."""
        if not self.deferrable:
            version: int | None = super().execute(context)
            return version
        return self._poll_or_defer(context, deadline=time.time() + self.timeout)

    def execute_complete(self, context: Any, event: Mapping[str, Any], deadline: float | None = None) -> int | None:
        """Resume after the trigger fired: poll again, because others may have committed meanwhile.

        Args:
            context: The task's context.
            event: The trigger's event, see :class:`DeltaTableVersionTrigger`.
            deadline: When the sensor times out, in seconds since the epoch; the same across all deferrals. ``None``
                under ``dag.test()``, which resumes a task with the event alone.
        """
        from airflow_provider_fds.hooks.failures import check_event

        check_event(context, event)
        self.log.info("The trigger saw version %s (%s).", event.get("version"), event.get("reason"))
        return self._poll_or_defer(context, deadline=deadline or time.time() + self.timeout)

    def _poll_or_defer(self, context: Any, *, deadline: float) -> int | None:
        try:
            done = self.poke(context)
        except AirflowFailException as error:
            # BaseSensorOperator does this for its own loop, which a deferrable sensor does not enter
            if self.soft_fail or self.never_fail:
                raise AirflowSkipException(str(error)) from error
            raise
        if done:
            version: int | None = done.xcom_value
            return version
        return self._defer(context, deadline)

    def _defer(self, context: Any, deadline: float) -> NoReturn:
        remaining = deadline - time.time()
        if remaining <= 0:
            message = f"{self._timed_out()} after {format_duration(timedelta(seconds=self.timeout))}."
            raise AirflowSkipException(message) if self.soft_fail else AirflowSensorTimeout(message)
        self.defer(
            trigger=self._trigger(context),
            method_name="execute_complete",
            kwargs={"deadline": deadline},
            timeout=timedelta(seconds=remaining),
        )

    def _timed_out(self) -> str:
        if self._condition is not None:
            return f"Table {self.table} has not had {self._condition.describe()}"
        ended = {"new_data": "No new data in", "interval_complete": "The interval is not over in"}
        what = ended.get(self.wait_for, f"The watermark of stream {self._stream.name!r} has not reached {self.at} in")
        return f"{what} table {self._stream.table}"

    def _trigger(self, context: Any) -> DeltaTableVersionTrigger:
        from airflow_provider_fds.triggers.deferral import waiting_trigger
        from airflow_provider_fds.triggers.delta_table_condition import DeltaTableConditionTrigger

        if self.table is not None and self._condition is not None:
            return DeltaTableConditionTrigger(
                table=self.table,
                storage_conn_id=self.storage_conn_id,
                catalog_conn_id=self.catalog_conn_id,
                condition=self._condition.to_dict(),
                poll_interval=self.poke_interval,
            )
        at = None if self.at is None else moment_text(self.at)
        return waiting_trigger(context, self._stream, grace=self.grace, at=at, poll_interval=self.poke_interval)

    @property
    def _stream(self) -> DeltaStream:
        if self.stream is None:
            raise ConfigurationError("The stream of DeltaTableVersionSensor is None; expected a DeltaStream.")
        return DeltaStream.coerce(self.stream)

    def _poll(self, context: Any) -> PollResult | None:
        from airflow_provider_fds.hooks.data_interval import refuse_backfill
        from airflow_provider_fds.hooks.position import read_standing
        from airflow_provider_fds.hooks.stream_context import reading_context
        from airflow_provider_fds.stream.polling.alignment import table_poller

        if self.stream is None:
            with task_failures(context):
                return self._poll_table(context)
        with task_failures(context, self._stream):
            stream = self._stream
            _check_arguments(stream, self.wait_for, self.grace, self.at, self._without_stream)
            if self.at is not None:
                return self._poll_watermark(stream, moment_text(self.at))
            if stream.reads_by_interval:
                return self._poll_data_interval(context, stream)
            refuse_backfill(context, stream)
            stream_context = reading_context(stream)
            standing = read_standing(stream, stream_context)
            if standing.pause is not None:
                self.log.warning("Waiting: %s", standing.pause)
                return None
            poller = table_poller(stream, stream_context, standing.position, standing.table)
            found = standing.found or poller.check()
        if found is not None and found.is_finished:
            raise AirflowSkipException(found.reason)
        if found is None:
            waiting = poller.waiting or poller.held
            self.log.info("%s", f"Nothing new in table {stream.table}." if waiting is None else waiting.describe())
        else:
            self.log.info("Table %s is at version %d: %s.", stream.table, found.newest_version, found.reason)
        return found

    @property
    def _without_stream(self) -> TableArguments:
        return TableArguments(**{name: getattr(self, name) for name in TableArguments._fields})

    def _poll_table(self, context: Any) -> PollResult | None:
        from airflow_provider_fds.hooks.places import open_table
        from airflow_provider_fds.stream.polling.table_condition import ConditionPoller

        arguments = self._without_stream
        _check_arguments(None, self.wait_for, self.grace, self.at, arguments)
        table = str(self.table)
        try:
            storage = open_table(self.storage_conn_id, table, self.catalog_conn_id)
        except TableNotFoundError as error:
            self._condition = arguments.condition(context, None)
            self.log.warning("Waiting for the table: %s.", error)
            return None
        self._condition = arguments.condition(context, storage)
        poller = ConditionPoller(storage, self._condition)
        found = poller.check()
        if found is None and poller.absence is not None:
            self.log.warning("Waiting for the table: %s.", poller.absence)
        elif found is None:
            self.log.info(
                "Table %s is at version %d; waiting for %s.", table, poller.newest, self._condition.describe()
            )
        else:
            self.log.info("Table %s is at version %d: %s.", table, found.newest_version, found.reason)
            if self.changed_since is not None:
                context["ti"].xcom_push(key=SEEN_KEY, value=seen_by(storage, found.newest_version))
        return found

    def _poll_watermark(self, stream: DeltaStream, at: str) -> PollResult | None:
        from airflow_provider_fds.triggers.deferral import poll_watermark

        found, watermark = poll_watermark(stream, at)
        if found is None:
            self.log.info("The watermark of stream %s is %s; waiting for %s.", stream.name, watermark or "unknown", at)
        else:
            self.log.info("Stream %s has committed version %d: %s.", stream.name, found.newest_version, found.reason)
        return found

    def _poll_data_interval(self, context: Any, stream: DeltaStream) -> PollResult | None:
        from airflow_provider_fds.hooks.data_interval import run_interval
        from airflow_provider_fds.triggers.deferral import poll_data_interval

        interval = run_interval(context, stream)
        found = poll_data_interval(context, stream, self.grace)
        if found is None:
            self.log.info("Interval %s of table %s may still get commits.", interval.name, stream.table)
        else:
            self.log.info("Interval %s of table %s is complete: %s.", interval.name, stream.table, found.reason)
        return found


def _check_arguments(stream: object, wait_for: str, grace: object, at: object, without_stream: TableArguments) -> None:
    """Refuse arguments that do not fit together. A stream from an XCom is checked only when the task runs."""
    pairs = (("wait_for", wait_for != "new_data"), ("grace", grace is not None), ("at", at is not None))
    problems = without_stream.problems(
        has_stream=stream is not None, with_stream=[name for name, is_given in pairs if is_given]
    )
    if problems:
        raise ConfigurationError(*problems, subject="DeltaTableVersionSensor")
    if stream is None:
        return
    DeltaStream.refuse_others(stream)
    if wait_for not in ("new_data", "interval_complete", "watermark"):
        problems.append(f"wait_for must be 'new_data', 'interval_complete' or 'watermark', got {wait_for!r}.")
    problems += grace_problems(grace)
    if grace is not None and wait_for in ("new_data", "watermark"):
        problems.append(f"grace has no effect with wait_for={wait_for!r}. Omit it.")
    if (at is not None) is not (wait_for == "watermark"):
        problems.append(
            "wait_for='watermark' needs at, the event time to be reached, such as at='{{ data_interval_end }}'."
            if at is None
            else f"at has no effect with wait_for={wait_for!r}. Omit it."
        )
    if wait_for == "watermark":
        if isinstance(stream, DeltaStream):
            options = stream.options
            problem = _watermark_problem(
                has_column=options.event_time_column is not None, by_interval=stream.reads_by_interval
            )
            problems += [] if problem is None else [f"stream {stream.name!r} {problem}."]
    elif isinstance(stream, DeltaStream) and stream.reads_by_interval is not (wait_for == "interval_complete"):
        problems.append(
            f"stream {stream.name!r} has read={stream.read!r}, which requires "
            f"wait_for={'interval_complete' if stream.reads_by_interval else 'new_data'!r}; got {wait_for!r}."
        )
    if problems:
        raise ConfigurationError(*problems, subject="DeltaTableVersionSensor")


def _watermark_problem(*, has_column: bool, by_interval: bool) -> str | None:
    """Return why a stream never has a watermark, or ``None`` if it may have one."""
    if by_interval:
        return "has read='data_interval' and no watermark: its intervals are loaded in any order"
    return None if has_column else "has no event_time_column, so it has no watermark"
