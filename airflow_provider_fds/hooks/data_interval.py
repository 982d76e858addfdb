"""The data interval of a run, and the refusal of runs and operators that do not fit how a stream reads."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.hooks.partition import partition_interval, partition_key
from airflow_provider_fds.reasons import Reason

if TYPE_CHECKING:
    from airflow_provider_fds.stream import DeltaStream
    from airflow_provider_fds.stream.position.data_interval import DataInterval


def run_interval(context: Any, stream: DeltaStream) -> DataInterval:
    """Return the data interval of the run, start inclusive, end exclusive.

    Every kind of run has an interval if the DAG's timetable provides one: scheduled, caught up, cleared, backfilled, or
    started by hand with a logical date. A partitioned run without one reads the time span of its partition.

    Raises:
        ConfigurationError: The run has no interval, or an empty one; the message names the timetable that works.
    """
    # not for a run by offset, which only refuses a backfill
    from airflow_provider_fds.stream.position.data_interval import TIMETABLE, DataInterval

    start, end = context.get("data_interval_start"), context.get("data_interval_end")
    run_id = context["dag_run"].run_id
    subject = f"Stream {stream.name!r} of {stream.table!r} reads the data interval of each run, but"
    key = partition_key(context)
    if key is not None and (start is None or end is None or start == end):
        try:
            start, end = partition_interval(context, key)
        except ConfigurationError as error:
            raise ConfigurationError(
                f"{subject} run {run_id!r} has no data interval, and its {error}",
                table=stream.table,
                reason=Reason.DATA_INTERVAL_UNUSABLE,
            ) from None
    if start is None or end is None:
        raise ConfigurationError(
            f"{subject} run {run_id!r} has no data interval: it was started by an asset, or by hand without a "
            f"logical date. Use a DAG with schedule={TIMETABLE}, or use read='offset', which reads new commits no "
            "matter what started the run.",
            table=stream.table,
            reason=Reason.DATA_INTERVAL_UNUSABLE,
        )
    try:
        return DataInterval(_plain(start), _plain(end))
    except ConfigurationError as error:
        raise ConfigurationError(
            f"{subject} that of run {run_id!r} cannot be used: {error}",
            table=stream.table,
            reason=Reason.DATA_INTERVAL_UNUSABLE,
        ) from None


def refuse_backfill(context: Any, stream: DeltaStream) -> None:
    """Refuse to run in a backfill of Airflow, which would take rows away from the stream's scheduled runs.

    A stream with an offset reads what is new since the last run, whatever the run's date is. The check uses both the
    run's type and its id. Note that ``airflow backfill create --reprocess-behavior`` turns existing scheduled runs into
    backfill runs: they are refused too, and the batches that they have committed stay committed.

    Raises:
        ConfigurationError: The DAG run is a backfill run.
    """
    if stream.backfill_range is not None:
        # its range has a position of its own, whatever started the run
        return
    dag_run = context["dag_run"]
    run_type = getattr(dag_run.run_type, "value", dag_run.run_type)
    if run_type == "backfill" or str(dag_run.run_id).startswith("backfill__"):
        from airflow_provider_fds.stream.position.data_interval import TIMETABLE

        raise ConfigurationError(
            f"Run {dag_run.run_id!r} is a backfill, but stream {stream.name!r} of table {stream.table!r} "
            "continues from its last committed offset: a backfill would load the newest rows, not the rows of the "
            "run's date, and move the offset of the scheduled runs. To load a range once, use "
            f"stream.backfill(start=…, end=…) or `fds backfill {stream.name} --start TIME`; to read from an earlier "
            f"version again, use `fds rewind {stream.name} --to N --why …`. "
            "For backfills by Airflow, use a "
            f"stream with another name and read='data_interval', schedule={TIMETABLE}, and a sink that replaces.",
            table=stream.table,
            reason=Reason.BACKFILL_RUN_REFUSED,
        )


def refuse_intervals(stream: DeltaStream, what: str) -> None:
    """Refuse a stream that reads data intervals in an operator that hands out batches by offset.

    Raises:
        ConfigurationError: The stream has ``read="data_interval"``.
    """
    if stream.reads_by_interval:
        raise ConfigurationError(
            f"{what} hands out batches of a stream with an offset, but stream {stream.name!r} has "
            "read='data_interval'. Use DeltaIngestOperator for it, or read='offset'.",
            table=stream.table,
        )


def _plain(moment: datetime) -> datetime:
    """Return an Airflow time as a Python datetime in UTC: differences of pendulum times do not divide correctly."""
    moment = moment.astimezone(UTC)
    return datetime(*moment.timetuple()[:6], moment.microsecond, tzinfo=UTC)
