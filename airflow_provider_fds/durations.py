"""Durations as people write them and as messages show them. Standard library only, Python 3.9 syntax."""

from __future__ import annotations

import math
import re
from datetime import timedelta
from typing import Final

_MINUTE: Final = 60
_HOUR: Final = 60 * _MINUTE
_DAY: Final = 24 * _HOUR

#: Seconds that a ``timedelta`` can hold.
_LONGEST: Final = timedelta.max.total_seconds() // 2

_SPAN: Final = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,6})?)\s*([a-z]*)", re.ASCII)

#: Units by all their spellings, in seconds.
_UNITS: Final = {
    spelling: seconds
    for seconds, spellings in (
        (1, ("", "s", "sec", "second", "seconds")),
        (_MINUTE, ("m", "min", "minute", "minutes")),
        (_HOUR, ("h", "hour", "hours")),
        (_DAY, ("d", "day", "days")),
    )
    for spelling in spellings
}


def parse_duration(value: object) -> timedelta | None:
    """Return the duration that a value stands for, or ``None`` if it is not a duration.

    Args:
        value: A ``timedelta``, a number of seconds of at least 0, or a string with a unit such as ``"90s"``.

    >>> parse_duration("1.5h"), parse_duration(90)
    (datetime.timedelta(seconds=5400), datetime.timedelta(seconds=90))
    """
    if isinstance(value, timedelta):
        return value
    if isinstance(value, (int, float)):
        # nan and inf fail the comparison
        return timedelta(seconds=value) if not isinstance(value, bool) and 0 <= value <= _LONGEST else None
    match = _SPAN.fullmatch(value.strip().lower()) if isinstance(value, str) else None
    unit = None if match is None else _UNITS.get(match[2])
    return None if match is None or unit is None else parse_duration(float(match[1]) * unit)


def format_duration(duration: timedelta) -> str:
    """Return a duration in its largest unit and the next smaller one; what remains is cut off.

    >>> from datetime import timedelta
    >>> format_duration(timedelta(days=30))
    '30 days'
    >>> format_duration(timedelta(hours=2, minutes=5, seconds=59))
    '2 h 5 min'
    >>> format_duration(timedelta(seconds=0.5))
    '0.5 s'
    """
    seconds = duration.total_seconds()
    if seconds < _MINUTE:
        return f"{math.floor(seconds * 10) / 10:g} s"
    whole = int(seconds)
    days, hours, minutes = whole // _DAY, whole % _DAY // _HOUR, whole % _HOUR // _MINUTE
    if days:
        largest, next_one = f"{days} day" if days == 1 else f"{days} days", f" {hours} h" if hours else ""
    elif hours:
        largest, next_one = f"{hours} h", f" {minutes} min" if minutes else ""
    else:
        largest, next_one = f"{minutes} min", f" {whole % _MINUTE} s" if whole % _MINUTE else ""
    return largest + next_one
