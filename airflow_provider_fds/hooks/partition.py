"""Partitions of Airflow 3.2 and 3.3: the time span of a partitioned run, and the key of a time span."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any, Final

from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.reasons import Reason

_PERIODS: Final = re.compile(r"(?P<year>\d{4})(?:-(?P<month>\d\d)(?:-(?P<day>\d\d)(?:[T ](?P<hour>\d\d))?)?)?")


def partition_key(context: Any) -> str | None:
    """Return the partition key of the run, ``None`` if it has none, as in Airflow 3.1."""
    key = context.get("partition_key") or getattr(context["dag_run"], "partition_key", None)
    return None if key is None else str(key)


def partition_interval(context: Any, key: str) -> tuple[datetime, datetime]:
    """Return the time span of a partition: start inclusive, end exclusive.

    With ``CronPartitionTimetable`` it reaches from the partition's date to the next date of the cron expression. In any
    other DAG, such as one with ``PartitionedAssetTimetable``, the key itself must name a year, month, day or hour in
    UTC, such as ``2026-01-31``.

    Raises:
        ConfigurationError: The key names no time span.
    """
    timetable = getattr(context.get("dag"), "timetable", None)
    key_format = _attribute(timetable, "key_format")
    if key_format is not None:
        zone = _key_zone(context, timetable)
        given = context.get("partition_date")
        start = given or _parsed(key, key_format, zone)
        # of a run that was started by hand, Airflow knows the key only, which may lack the time of day
        date = _next_date(timetable, start - timedelta(seconds=1))
        if date > start and date.astimezone(zone).strftime(key_format) == key:
            start = date
        end = _next_date(timetable, start)
        if given is None:
            _refuse_repeated(key, start, end, zone, key_format)
        return start, end
    found = _PERIODS.fullmatch(key)
    if found is None:
        raise _unusable(
            f"partition key {key!r} does not name a year, month, day or hour. Use keys such as 2026-01-31: "
            'CronPartitionTimetable(…, key_format="%Y-%m-%d") in the DAG that creates them, or a partition mapper.'
        )
    return _period(key, found)


def formatted_key(context: Any, start: datetime, key_format: str) -> str:
    """Return the partition key of the time span that begins at ``start``, in the time zone of the DAG's timetable."""
    return start.astimezone(_zone(getattr(context.get("dag"), "timetable", None))).strftime(key_format)


def _period(key: str, found: re.Match[str]) -> tuple[datetime, datetime]:
    parts = {name: int(value) for name, value in found.groupdict().items() if value is not None}
    try:
        start = datetime(parts["year"], parts.get("month", 1), parts.get("day", 1), parts.get("hour", 0), tzinfo=UTC)
        if "hour" in parts:
            return start, start + timedelta(hours=1)
        if "day" in parts:
            return start, start + timedelta(days=1)
        if "month" in parts:
            return start, start.replace(year=start.year + start.month // 12, month=start.month % 12 + 1)
        return start, start.replace(year=start.year + 1)
    except (ValueError, OverflowError) as error:
        raise _unusable(f"partition key {key!r} is not a date: {error}.") from error


def _parsed(key: str, key_format: str, zone: tzinfo) -> datetime:
    try:
        naive = datetime.strptime(key, key_format)  # noqa: DTZ007  # the zone follows
    except ValueError as error:
        raise _unusable(
            f"partition key {key!r} does not match the timetable's key_format {key_format!r}: {error}."
        ) from error
    return (naive if naive.tzinfo is not None else naive.replace(tzinfo=zone)).astimezone(UTC)


def _refuse_repeated(key: str, start: datetime, end: datetime, zone: tzinfo, key_format: str) -> None:
    """Refuse a key that two partitions have, one after the other, because the clocks were set back between them."""
    first, second = start.astimezone(zone), end.astimezone(zone)
    if first.utcoffset() != second.utcoffset() and second.strftime(key_format) == key:
        raise _unusable(
            f"partition key {key!r} names two partitions, because the clocks are set back: those of "
            f"{start.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ} and {end.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}. Start the run "
            'with a partition date, add %z to key_format, or use timezone="UTC".'
        )


def _next_date(timetable: Any, start: datetime) -> datetime:
    """Return the first date of the timetable's cron expression after ``start``."""
    from airflow.timetables.base import DataInterval, TimeRestriction
    from airflow.timetables.interval import CronDataIntervalTimetable
    from pendulum import instance

    cron: Any = CronDataIntervalTimetable(
        _attribute(timetable, "expression"), timezone=_attribute(timetable, "timezone")
    )
    long_ago = instance(start - timedelta(days=4000))
    info = cron.next_dagrun_info(
        last_automated_data_interval=DataInterval(long_ago, instance(start)),
        restriction=TimeRestriction(None, None, catchup=True),
    )
    end: datetime = info.data_interval.end
    return end


def _key_zone(context: Any, timetable: Any) -> tzinfo:
    """Return the zone of the timetable's keys: UTC in Airflow 3.2, which does not pass the partition's date."""
    return _zone(timetable) if "partition_date" in context else UTC


def _zone(timetable: Any) -> tzinfo:
    zone = _attribute(timetable, "timezone")
    if isinstance(zone, str):
        from pendulum import timezone

        zone = timezone(zone)
    return zone if isinstance(zone, tzinfo) else UTC


def _attribute(timetable: Any, name: str) -> Any:
    """Return an attribute of a timetable of airflow.sdk, or of Airflow's core, which prefixes its name with ``_``."""
    return getattr(timetable, name, None) or getattr(timetable, f"_{name}", None)


def _unusable(text: str) -> ConfigurationError:
    return ConfigurationError(text, reason=Reason.DATA_INTERVAL_UNUSABLE)
