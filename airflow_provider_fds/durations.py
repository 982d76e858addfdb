"""Durations as messages show them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from datetime import timedelta

_MINUTE: Final = 60
_HOUR: Final = 60 * _MINUTE
_DAY: Final = 24 * _HOUR


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


__all__ = ["format_duration"]
