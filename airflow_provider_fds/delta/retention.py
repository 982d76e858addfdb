"""Table properties that are durations (Delta's ``interval 30 days``)."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from airflow_provider_fds.delta.actions import Metadata

#: Property -> its default.
LOG_RETENTION: Final = ("delta.logRetentionDuration", timedelta(days=30))
FILE_RETENTION: Final = ("delta.deletedFileRetentionDuration", timedelta(days=7))

_UNITS: Final = {
    "week": timedelta(weeks=1),
    "day": timedelta(days=1),
    "hour": timedelta(hours=1),
    "minute": timedelta(minutes=1),
    "second": timedelta(seconds=1),
    "millisecond": timedelta(milliseconds=1),
    "microsecond": timedelta(microseconds=1),
}
_PART: Final = re.compile(r"([+-]?[0-9]+(?:\.[0-9]+)?)\s*([a-z]+)", re.ASCII)
_WHOLE: Final = re.compile(rf"(?:interval\s+)?{_PART.pattern}(?:\s+{_PART.pattern})*", re.ASCII)


def parse_interval(text: str) -> timedelta:
    """Parse a duration as in Delta's table properties: ``interval 1 week 2 days``, in units from weeks down.

    Months and years are not durations, and Delta does not accept them either.

    Raises:
        ValueError: ``text`` is not a duration.

    >>> parse_interval("interval 1 week 12 hours")
    datetime.timedelta(days=7, seconds=43200)
    """
    lowered = text.strip().lower()
    if not _WHOLE.fullmatch(lowered):
        raise ValueError(f"{text!r} is not a duration such as 'interval 30 days'")
    total = timedelta()
    for number, word in _PART.findall(lowered.removeprefix("interval")):
        unit = word.removesuffix("s")
        if unit not in _UNITS or ("." in number and unit != "second"):
            raise ValueError(f"{text!r} is not a duration such as 'interval 30 days': {number} {unit}")
        total += float(number) * _UNITS[unit] if "." in number else int(number) * _UNITS[unit]
    return total


def retention(metadata: Metadata, kind: tuple[str, timedelta]) -> timedelta:
    """Return :data:`LOG_RETENTION` or :data:`FILE_RETENTION` of a table; the default if its text is invalid."""
    name, default = kind
    text = metadata.property(name)
    if text is None:
        return default
    try:
        return max(parse_interval(text), timedelta())
    except (ValueError, OverflowError):
        return default
