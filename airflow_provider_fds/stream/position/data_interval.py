"""Data intervals and the versions of a table that belong to them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from airflow_provider_fds.delta.moments import parse_instant
from airflow_provider_fds.delta.reader.timestamps import CommitTimestamps
from airflow_provider_fds.errors import ConfigurationError, LostPositionError
from airflow_provider_fds.ledger.entries.entry import iso_time
from airflow_provider_fds.ledger.intervals import clamped, interval_name, neighbours
from airflow_provider_fds.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow_provider_fds.delta.reader.log import DeltaLog
    from airflow_provider_fds.ledger.intervals import KnownBoundary

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)

#: Between the two times of an interval; names of zones have a slash, too.
_BETWEEN: Final = re.compile(r"/(?=\d{4})")

#: A timetable that gives runs non-empty intervals, for messages.
TIMETABLE: Final = (
    'CronDataIntervalTimetable("0 0 * * *", timezone="UTC") (from airflow.sdk, in Airflow 3.1 from '
    "airflow.timetables.interval)"
)


@dataclass(frozen=True, slots=True)
class DataInterval:
    """The time span that a run loads; both ends have a time zone.

    Attributes:
        start: Inclusive.
        end: Exclusive.

    Raises:
        ConfigurationError: The end is not after the start, or one of the two has no time zone.
    """

    start: datetime
    end: datetime

    def __post_init__(self) -> None:
        if self.start.tzinfo is None or self.end.tzinfo is None:
            raise ConfigurationError(
                f"the data interval {self.start} to {self.end} has no time zone; give it one",
                reason=Reason.DATA_INTERVAL_UNUSABLE,
            )
        if instant_ms(self.end) <= instant_ms(self.start):
            raise ConfigurationError(
                f"the data interval {self.start.isoformat()} to {self.end.isoformat()} is empty, so it contains no "
                "commits. In Airflow 3, cron strings such as schedule='@daily' give empty intervals. Use "
                f"schedule={TIMETABLE}, which gives each run the time since the previous run.",
                reason=Reason.DATA_INTERVAL_UNUSABLE,
            )

    @property
    def name(self) -> str:
        """The interval's name in the ledger: ``<start>/<end>``, UTC, milliseconds."""
        return interval_name(instant_text(self.start), instant_text(self.end))


def instant_ms(instant: datetime) -> int:
    """Return ``instant`` rounded up to a whole millisecond, the unit of commit times."""
    return -((_EPOCH - instant) // _MILLISECOND)


def instant_text(instant: datetime) -> str:
    """Return an instant in the ledger's format."""
    return iso_time(_EPOCH + instant_ms(instant) * _MILLISECOND)


def interval_asked(text: str) -> str:
    """Return the name of the interval that a person writes as ``START/END``, in any zone; UTC without one.

    Raises:
        ConfigurationError: A time cannot be read, or is not one instant.
    """
    times = _BETWEEN.split(text, maxsplit=1)
    if len(times) != 2:  # noqa: PLR2004  # start and end
        # the ledger refuses it
        return text
    start, end = map(parse_instant, times)
    return DataInterval(start, end).name


def version_at(log: DeltaLog, instant: datetime, known: Sequence[KnownBoundary], *, now: datetime) -> int:
    """Return the first version at or after ``instant``.

    If the instant has passed and there is no such commit, return the version after the newest.

    Commit times are those the log gives now; ``known`` boundaries take precedence over them.

    Raises:
        ConfigurationError: No commit has reached the instant, and it is in the future.
        LostPositionError: Log cleanup has removed commits that may belong to either side of the instant.
    """
    text = instant_text(instant)
    lower, upper = neighbours(known, text)
    if lower is not None and upper is not None and lower.version == upper.version:
        return lower.version
    times = CommitTimestamps(log)
    while True:
        # an older answer would give commits from before the instant to the interval that begins with it
        log.renew()
        newest = log.latest()
        found = times.at_or_after(instant_ms(instant))
        if found is not None:
            break
        if now < instant:
            raise ConfigurationError(
                f"the data interval is not over: it ends at {text}, it is now {iso_time(now)}, and the newest "
                f"commit of table {log.table_uri}, version {newest}, is earlier than its end. Let "
                "DeltaTableVersionSensor wait for it (wait_for='interval_complete'), or run later.",
                table=log.table_uri,
                version=newest,
                reason=Reason.DATA_INTERVAL_UNUSABLE,
            )
        log.renew()
        if log.latest() == newest:
            # later commits belong to the interval that begins here, even with a time before the instant
            return clamped(known, text, newest + 1)
    version = clamped(known, text, found)
    if version == 0 or (lower is not None and lower.version >= found):
        return version
    earliest = log.earliest()
    if found > earliest or times.at_or_before(instant_ms(instant)) == found:
        return version
    raise LostPositionError(
        f"{log.table_uri}: the log begins with version {earliest}, which was committed after {text}; it is "
        f"unknown which of the {earliest} versions before it were committed after that time, because log cleanup "
        "has removed them. Start with a later interval (start_date of the DAG), or keep the log for longer "
        "(delta.logRetentionDuration)",
        table=log.table_uri,
        version=earliest,
        earliest_version=earliest,
        reason=Reason.INTERVAL_LOST,
    )
