"""The data interval of a run, for streams that read by it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.stream.data_interval import TIMETABLE, DataInterval

if TYPE_CHECKING:
    from airflow_provider_fds.stream import DeltaStream


def run_interval(context: Any, stream: DeltaStream) -> DataInterval:
    """Return the data interval of the run, start inclusive, end exclusive.

    Every kind of run has an interval if the DAG's timetable provides one: scheduled, caught up, cleared, backfilled, or
    started by hand with a logical date.

    Raises:
        ConfigurationError: The run has no interval, or an empty one; the message names the timetable that works.
    """
    start, end = context.get("data_interval_start"), context.get("data_interval_end")
    run_id = context["dag_run"].run_id
    subject = f"Stream {stream.name!r} of {stream.table!r} reads the data interval of each run, and run {run_id!r}"
    if start is None or end is None:
        raise ConfigurationError(
            f"{subject} has none: it was started by an asset, or by hand without a logical date. Use a DAG with "
            f"schedule={TIMETABLE}; or read='offset', which reads what is new whatever started the run.",
            table=stream.table,
        )
    try:
        return DataInterval(_plain(start), _plain(end))
    except ConfigurationError as error:
        raise ConfigurationError(f"{subject} is of no use: {error}", table=stream.table) from None


def _plain(moment: datetime) -> datetime:
    """Return an Airflow time as a Python datetime in UTC: differences of pendulum times do not divide correctly."""
    moment = moment.astimezone(UTC)
    return datetime(*moment.timetuple()[:6], moment.microsecond, tzinfo=UTC)
