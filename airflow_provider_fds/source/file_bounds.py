"""What the statistics of a file prove about the values of a column (Delta protocol, "Per-file Statistics").

Only what is certain counts. A statistic that is missing, damaged, of an unknown form, or that writers are known to
round, proves nothing or less:

- Minima and maxima of ``float`` and ``double`` prove nothing, because writers disagree about NaN.
- Strings are cut after 32 characters; a maximum that may have been cut only bounds the part before the cut.
- Times are cut to milliseconds, so bounds are widened by one. Without a time zone they prove nothing about an instant.
- Decimals may have passed through a floating-point number, so bounds are widened by more than its rounding.
- Days and times before 1900 prove nothing: files of old writers are read by another calendar, or with other offsets.

Bounds need not be tight, as under a deletion vector (``tightBounds``): no row is outside of them in any case.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from airflow_provider_fds.delta.damage import DAMAGE
from airflow_provider_fds.delta.moments import parse_moment
from airflow_provider_fds.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_provider_fds.source.filter_column import FilterColumn

#: Greater than every other character, in the order of Delta's strings.
LAST_CHARACTER: Final = "\U0010ffff"

#: Characters that writers append to a maximum after they have cut it.
_TIE_BREAKERS: Final = (LAST_CHARACTER, "\ufffd", "\x7f")
_KEPT_CHARACTERS: Final = 32
_MILLISECOND: Final = timedelta(milliseconds=1)
_ROUNDING: Final = Decimal("1E-14")
_EARLIEST_DAY: Final = date(1900, 1, 2)
_EARLIEST_TIME: Final = datetime(1900, 1, 2, tzinfo=UTC)
_DAY: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)
_INSTANT: Final = re.compile(r"[0-9]{4}-.*T.*(Z|[+-][0-9]{2}:[0-9]{2})", re.ASCII)
_LOCAL_TIME: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}(T[0-9:.]+Z?)?", re.ASCII)


class Bounds(NamedTuple):
    """What is known of a column in a file.

    Attributes:
        low: No value is less; ``None``: unknown.
        high: No value is greater; ``None``: unknown.
        may_have_nulls: Whether there may be a NULL.
        may_have_values: Whether there may be something else.
    """

    low: Any = None
    high: Any = None
    may_have_nulls: bool = True
    may_have_values: bool = True


class FileStatistics(msgspec.Struct, frozen=True, gc=False):
    """The statistics of a file, with values as they are written."""

    numRecords: int | None = None  # noqa: N815
    minValues: dict[str, msgspec.Raw] | None = None  # noqa: N815
    maxValues: dict[str, msgspec.Raw] | None = None  # noqa: N815
    nullCount: dict[str, msgspec.Raw] | None = None  # noqa: N815


_DECODER: Final = msgspec.json.Decoder(FileStatistics)
_NO_STATISTICS: Final = FileStatistics()


def file_statistics(stats: str | None) -> FileStatistics:
    """Decode statistics; damaged or missing ones have no values."""
    if not stats:
        return _NO_STATISTICS
    try:
        return _DECODER.decode(stats)
    except DAMAGE:
        return _NO_STATISTICS


def bounds_reader(column: FilterColumn) -> Callable[[FileStatistics], Bounds]:
    """Return the function from a file's statistics to the bounds of ``column``, a column that is in the file."""
    key = column.key
    read = _READERS.get("timestamp_ntz" if column.type == "timestamp_ntz" else column.kind or "")

    def bounds(found: FileStatistics) -> Bounds:
        nulls = _number((found.nullCount or {}).get(key))
        # under a deletion vector only 0 and "all" are certain, so other counts say nothing
        may_have_nulls = nulls is None or nulls != 0
        may_have_values = nulls is None or found.numRecords is None or nulls != found.numRecords
        if read is None:
            return Bounds(None, None, may_have_nulls, may_have_values)
        low = _read(read, (found.minValues or {}).get(key), is_high=False)
        high = _read(read, (found.maxValues or {}).get(key), is_high=True)
        return Bounds(low, high, may_have_nulls, may_have_values)

    return bounds


def _read(read: Callable[[bytes, bool], Any], raw: msgspec.Raw | None, *, is_high: bool) -> Any:
    if raw is None:
        return None
    try:
        return read(bytes(raw), is_high)
    except (*DAMAGE, ConfigurationError):
        return None


def _number(raw: msgspec.Raw | None) -> int | None:
    if raw is None:
        return None
    try:
        return msgspec.json.decode(raw, type=int)
    except DAMAGE:
        return None


def _integer(raw: bytes, is_high: bool) -> int:  # noqa: ARG001 - one signature for all kinds
    return msgspec.json.decode(raw, type=int)


def _decimal(raw: bytes, is_high: bool) -> Decimal | None:
    value = Decimal(raw.decode().strip().strip('"'))
    if not value.is_finite():
        return None
    return value + abs(value) * _ROUNDING if is_high else value - abs(value) * _ROUNDING


def _text(raw: bytes, is_high: bool) -> str:
    value = msgspec.json.decode(raw, type=str)
    if not is_high or not (len(value) >= _KEPT_CHARACTERS or value.endswith(_TIE_BREAKERS)):
        return value
    kept = value[:-1] if value.endswith(_TIE_BREAKERS) else value
    # whatever follows the cut is less than this, unless it has this character itself
    return kept[:_KEPT_CHARACTERS] + LAST_CHARACTER


def _day(raw: bytes, is_high: bool) -> date | None:  # noqa: ARG001
    value = msgspec.json.decode(raw, type=str)
    if not _DAY.fullmatch(value):
        return None
    day = date.fromisoformat(value)
    return day if day >= _EARLIEST_DAY else None


def _instant(raw: bytes, is_high: bool) -> datetime | None:
    return _moment(raw, _INSTANT, is_high=is_high)


def _local_time(raw: bytes, is_high: bool) -> datetime | None:
    return _moment(raw, _LOCAL_TIME, is_high=is_high)


def _moment(raw: bytes, form: re.Pattern[str], *, is_high: bool) -> datetime | None:
    value = msgspec.json.decode(raw, type=str)
    if not form.fullmatch(value):
        return None
    moment = parse_moment(value)
    if moment < _EARLIEST_TIME:
        return None
    return moment + _MILLISECOND if is_high else moment - _MILLISECOND


_READERS: Final[dict[str, Callable[[bytes, bool], Any]]] = {
    "integer": _integer,
    "decimal": _decimal,
    "text": _text,
    "date": _day,
    "timestamp": _instant,
    "timestamp_ntz": _local_time,
}

__all__ = ["LAST_CHARACTER", "Bounds", "FileStatistics", "bounds_reader", "file_statistics"]
