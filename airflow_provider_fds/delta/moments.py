"""Points in time as text: what users write, and how FDS writes them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Final

from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.reasons import Reason

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LOCAL_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - its zone is subtracted apart
_MILLISECOND: Final = timedelta(milliseconds=1)
_MICROSECOND: Final = timedelta(microseconds=1)
_TIMESTAMP: Final = re.compile(
    r"(?P<year>[0-9]{4})(?:-(?P<month>[0-9]{1,2})(?:-(?P<day>[0-9]{1,2})"
    r"(?:[ T](?:(?P<hour>[0-9]{1,2}):(?P<minute>[0-9]{1,2})(?::(?P<second>[0-9]{1,2})(?:\.(?P<fraction>[0-9]{0,9}))?)?"
    r"\s*(?P<zone>[A-Za-z+-].*)?)?)?)?)?"
)
_OFFSET: Final = re.compile(
    r"(?:UTC|GMT|UT)?(?P<sign>[+-])(?P<h>[0-9]{1,2})(?::?(?P<m>[0-9]{2})(?::?(?P<s>[0-9]{2}))?)?"
)
_MAX_OFFSET: Final = timedelta(hours=18)


def parse_timestamp(text: str) -> int:
    """Return a time in milliseconds since the epoch, UTC; fractions of a millisecond are truncated.

    See :func:`parse_instant`.

    >>> parse_timestamp("2024-01-01")
    1704067200000
    >>> parse_timestamp("2024-01-01 01:00:00+01:00")
    1704067200000
    """
    return (parse_instant(text) - _EPOCH) // _MILLISECOND


def parse_instant(text: str) -> datetime:
    """Return the time that a person writes, with its zone; see :func:`parse_moment` for the formats.

    Unlike Spark, which takes the earlier offset, it refuses the local times of a change of the clocks.

    Raises:
        ConfigurationError: ``text`` matches no known format, is not a valid day or time, or is a local time that its
            zone has twice or not at all (the message names both times in UTC); or UTC has another year than 1 to 9999.
    """
    moment = parse_moment(text)
    try:
        moment.astimezone(UTC)
    except OverflowError:
        raise _unreadable(text, "in UTC, its year is not between 1 and 9999") from None
    if (why := clock_change(moment)) is not None:
        raise _unreadable(text, why)
    return moment


def clock_change(moment: datetime) -> str | None:
    """Return why a local time is not one instant, with the two that it can be in UTC; ``None`` if it is one.

    >>> clock_change(parse_moment("2026-10-25 02:30 Europe/Berlin"))
    'the clocks are set back, so it is either 2026-10-25T00:30:00Z or 2026-10-25T01:30:00Z; write one of these'
    """
    first, second = (moment.replace(fold=fold).utcoffset() or timedelta() for fold in (0, 1))
    if first == second:
        return None
    local = moment.replace(tzinfo=None)
    either, other = (f"{local - offset:%Y-%m-%dT%H:%M:%SZ}" for offset in sorted((first, second), reverse=True))
    what = "the clocks are set back, so it is" if first > second else "the clocks are set forward over it, so it is"
    return f"{what} either {either} or {other}; write one of these"


def parse_moment(text: str) -> datetime:
    """Return a time with its zone; fractions of a microsecond are truncated.

    The formats are those of Spark's cast to timestamp: ``yyyy``, ``yyyy-MM``, ``yyyy-MM-dd`` and ``yyyy-MM-dd[
    |T]HH:mm[:ss[.ffffff]][zone]``, where a zone is ``Z``, an offset or a name such as ``Europe/Berlin``. Without a zone
    the time is UTC.

    Raises:
        ConfigurationError: ``text`` matches no known format, or is not a valid day or time.
    """
    match = _TIMESTAMP.fullmatch(text.strip())
    if match is None:
        raise _unreadable(text, "it matches none of the known formats")
    try:
        return datetime(
            int(match["year"]),
            int(match["month"] or 1),
            int(match["day"] or 1),
            int(match["hour"] or 0),
            int(match["minute"] or 0),
            int(match["second"] or 0),
            int((match["fraction"] or "").ljust(6, "0")[:6]),
            tzinfo=_zone(match["zone"]),
        )
    except ValueError as error:
        raise _unreadable(text, str(error).strip("'\"")) from error


def microseconds_of(moment: datetime | str) -> int:
    """Return a time in microseconds since the epoch, UTC; of any year and zone, also where UTC has another year.

    Raises:
        ConfigurationError: It is no time.

    >>> microseconds_of("9999-12-31 23:59:59-01:00") - microseconds_of("9999-12-31 23:59:59")
    3600000000
    """
    found = parse_moment(moment) if isinstance(moment, str) else moment
    return (found.replace(tzinfo=None) - _LOCAL_EPOCH - (found.utcoffset() or timedelta())) // _MICROSECOND


def time_text(microseconds: int) -> str:
    """Return a time as ISO 8601 in UTC, with six digits, so that texts compare as times do.

    >>> time_text(0)
    '1970-01-01T00:00:00.000000Z'
    """
    moment = _EPOCH + microseconds * _MICROSECOND
    return moment.replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def moment_text(moment: datetime | str) -> str:
    """Return a point in time as watermarks are written; without a zone it is UTC.

    Raises:
        ConfigurationError: It is no time.

    >>> moment_text("2026-01-02 00:00:00+01:00")
    '2026-01-01T23:00:00.000000Z'
    """
    found = moment if isinstance(moment, datetime) else parse_instant(moment)
    if found.tzinfo is None:
        found = found.replace(tzinfo=UTC)
    return time_text(microseconds_of(found))


def _zone(text: str | None) -> tzinfo:
    if text is None or text in ("Z", "z", "UTC", "GMT", "UT"):
        return UTC
    match = _OFFSET.fullmatch(text.strip())
    if match is None:
        from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

        try:
            return ZoneInfo(text.strip())
        except ZoneInfoNotFoundError as error:
            raise ValueError(str(error)) from error
        except OSError:
            # the name of a folder of zones, or an invalid file name
            raise ValueError(f"unknown time zone {text.strip()[:100]!r}") from None
    offset = timedelta(hours=int(match["h"]), minutes=int(match["m"] or 0), seconds=int(match["s"] or 0))
    if offset > _MAX_OFFSET:
        raise ValueError(f"the offset {text!r} is above 18 hours")
    return timezone(-offset if match["sign"] == "-" else offset)


def _unreadable(text: str, why: str) -> ConfigurationError:
    return ConfigurationError(
        f"timestamp {text!r} cannot be read ({why}): expected yyyy, yyyy-MM, yyyy-MM-dd or yyyy-MM-dd "
        "HH:mm:ss[.ffffff] with an optional zone, such as '2026-01-31 08:00:00+01:00'; without a zone it is UTC",
        reason=Reason.INVALID_OPTION,
    )
