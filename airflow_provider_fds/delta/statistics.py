"""The statistics of a data file (Delta protocol, "Per-file Statistics"): what they say, and how much of it is certain.

The only module that decodes statistics. Only what is certain counts. A statistic that is missing, damaged, of an
unknown form, or that writers are known to round, proves nothing or less:

- Minima and maxima of ``float`` and ``double`` prove nothing, because writers disagree about NaN.
- Strings are cut after 32 characters; a maximum that may have been cut only bounds the part before the cut.
- Times are cut to milliseconds, so bounds are widened by one. Without a time zone they prove nothing about an instant.
- Offsets of zones are cut to minutes; until 1972 there were offsets with seconds, so older instants are widened by one
  minute.
- Decimals may have passed through a floating-point number, so bounds are widened by more than its rounding.
- Days and times before 1900 prove nothing: files of old writers are read by another calendar, or with other offsets.
- NULLs of arrays and maps are not counted by all writers alike.

Bounds need not be tight, as under a deletion vector (``tightBounds``): no row is outside of them in any case.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import msgspec

from airflow_provider_fds.delta.damage import DAMAGE, MAX_INT64
from airflow_provider_fds.delta.moments import microseconds_of
from airflow_provider_fds.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from airflow_provider_fds.delta.actions import Add

#: Greater than every other character, in the order of Delta's strings.
LAST_CHARACTER: Final = "\U0010ffff"

#: The types of integers, with the bits of each.
INTEGERS: Final = {"byte": 8, "short": 16, "integer": 32, "long": 64}

#: Characters that writers append to a maximum after they have cut it.
_TIE_BREAKERS: Final = (LAST_CHARACTER, "\ufffd", "\x7f")
_KEPT_CHARACTERS: Final = 32
_MILLISECOND_US: Final = 1_000
_MINUTE_US: Final = 60_000_000
_ROUNDING: Final = Decimal("1E-14")
_EARLIEST_DAY: Final = date(1900, 1, 2)
_EARLIEST_US: Final = microseconds_of(datetime(1900, 1, 2, tzinfo=UTC))
#: From here on no zone has an offset with seconds; the last one, Monrovia's, ended in January 1972.
_WHOLE_MINUTES_US: Final = microseconds_of(datetime(1972, 2, 1, tzinfo=UTC))

_DAY: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)
_INSTANT: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9:.]+(Z|[+-][0-9]{2}:[0-9]{2})", re.ASCII)
_LOCAL_TIME: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}([T ][0-9:.]+Z?)?", re.ASCII)
#: Delta for Spark cuts statistics of times to milliseconds; a text with more digits was not cut.
_UNCUT: Final = re.compile(r"\.[0-9]{4}")
#: The form in which Spark writes statistics; matching it is several times cheaper than decoding.
_START: Final = re.compile(r'\{"numRecords": ?([0-9]{1,18})[,}]')

_Count = Annotated[int, msgspec.Meta(ge=0, le=MAX_INT64)]


class Statistics(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """The statistics of a file, with values as they are written, by physical name."""

    numRecords: _Count | None = None  # noqa: N815
    minValues: dict[str, msgspec.Raw] | None = None  # noqa: N815
    maxValues: dict[str, msgspec.Raw] | None = None  # noqa: N815
    nullCount: dict[str, msgspec.Raw] | None = None  # noqa: N815
    tightBounds: bool | None = None  # noqa: N815


class _NumRecords(msgspec.Struct, frozen=True, gc=False):
    numRecords: _Count | None = None  # noqa: N815


class Bounds(NamedTuple):
    """What is known of a column in a file. Times are microseconds since the epoch.

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


class LoggedTime(NamedTuple):
    """A time in statistics.

    Attributes:
        us: Microseconds since the epoch, UTC.
        slack_us: How far the real time may be from it.
        is_cut: Whether digits after the milliseconds may have been cut off.
    """

    us: int
    slack_us: int
    is_cut: bool


_DECODER: Final = msgspec.json.Decoder(Statistics)
_COUNT_DECODER: Final = msgspec.json.Decoder(_NumRecords)
_OBJECT_DECODER: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_NO_STATISTICS: Final = Statistics()


def num_records(stats: str | None) -> int | None:
    """Return the number of rows in a file, including deleted ones; ``None`` if the statistics do not have it.

    Damaged statistics (not JSON, a number out of range) are ignored.
    """
    if not stats:
        return None
    try:
        return _COUNT_DECODER.decode(stats).numRecords
    except DAMAGE:
        return None


def num_rows_of(add: Add) -> int | None:
    """Return the rows of a file by its statistics, deleted rows subtracted; ``None`` if they do not say it."""
    rows = num_records(add.stats)
    if rows is None or add.deletionVector is None:
        return rows
    left = rows - add.deletionVector.cardinality
    # statistics with fewer rows than were deleted are ignored
    return left if left >= 0 else None


def num_records_fast(stats: str | None) -> int | None:
    """Return the same without reading past the number, for a first pass over the files of a large commit."""
    if stats and (match := _START.match(stats)) is not None:
        return int(match[1])
    return num_records(stats)


def count_only(stats: str | None) -> str | None:
    """Return statistics with only the number of rows, without any value of a column; ``None`` if it is unknown."""
    rows = num_records(stats)
    return None if rows is None else f'{{"numRecords":{rows}}}'


def statistics_of(stats: str | None) -> Statistics:
    """Decode statistics; damaged or missing ones have no values."""
    if not stats:
        return _NO_STATISTICS
    try:
        return _DECODER.decode(stats)
    except DAMAGE:
        return _NO_STATISTICS


def value_at(values: Mapping[str, msgspec.Raw] | None, keys: Sequence[str]) -> msgspec.Raw | None:
    """Return a statistic by the physical names of its column, from the outermost one to the column itself."""
    found = (values or {}).get(keys[0])
    if len(keys) == 1 or found is None:
        return found
    return value_at(_object(found), keys[1:])


def null_count(found: Statistics, keys: Sequence[str]) -> int | None:
    """Return the number of NULLs in a column; ``None``: unknown."""
    count = _read(_integer, value_at(found.nullCount, keys), is_high=False)
    return count if _is_possible(count, found.numRecords) else None


def time_at(values: Mapping[str, msgspec.Raw] | None, keys: Sequence[str], type_: str) -> LoggedTime | None:
    """Return the minimum or maximum of a column of times or days; ``None``: unknown."""

    def read(raw: bytes, is_high: bool) -> LoggedTime | None:  # noqa: ARG001 - one signature for all
        return _day_as_time(raw) if type_ == "date" else _time(raw, _FORMS[type_])

    found: LoggedTime | None = _read(read, value_at(values, keys), is_high=False)
    return found


def comparable_type(field: Mapping[str, Any]) -> str:
    """Return the type of a field of a schema, such as ``integer``; another name if it does not compare by its bytes."""
    type_ = field["type"]
    if not isinstance(type_, str):
        return str(type_.get("type"))
    extra = field.get("metadata") or {}
    if type_ == "string" and "__COLLATIONS" in extra:
        return "string with a collation"
    is_padded = str(extra.get("__CHAR_VARCHAR_TYPE_STRING", "")).startswith("char(")
    return "char" if type_ == "string" and is_padded else type_


def kind_of(type_: str) -> str | None:
    """Return how values of a type are compared, such as ``integer`` or ``text``; ``None`` if they cannot be."""
    if type_ in INTEGERS:
        return "integer"
    if type_.startswith("decimal"):
        return "decimal"
    if type_ in ("float", "double", "boolean", "date"):
        return type_
    if type_ in _FORMS:
        return "timestamp"
    return "text" if type_ == "string" or type_.startswith("varchar") else None


def bounds_reader(key: str, type_: str) -> Callable[[Statistics], Bounds]:
    """Return the function from a file's statistics to the bounds of a column that is in the file.

    Args:
        key: Its physical name.
        type_: Its type, as :func:`comparable_type` returns it.
    """
    read = _reader(type_)
    counts_nulls = type_ not in _COLLECTIONS

    def bounds(found: Statistics) -> Bounds:
        nulls = null_count(found, (key,)) if counts_nulls else None
        # under a deletion vector only 0 and "all" are certain, so other counts say nothing
        may_have_nulls = nulls is None or nulls != 0
        may_have_values = nulls is None or found.numRecords is None or nulls != found.numRecords
        if read is None:
            return Bounds(None, None, may_have_nulls, may_have_values)
        low = _read(read, (found.minValues or {}).get(key), is_high=False)
        high = _read(read, (found.maxValues or {}).get(key), is_high=True)
        return Bounds(low, high, may_have_nulls, may_have_values)

    return bounds


def decimal_digits(type_: str) -> tuple[int, int]:
    """Return precision and scale of a type such as ``decimal(10,2)``."""
    precision, _, scale = type_.partition("(")[2].rstrip(")").partition(",")
    return int(precision or 10), int(scale or 0)


def _reader(type_: str) -> Callable[[bytes, bool], Any] | None:
    if type_ in INTEGERS:
        limit = 1 << (INTEGERS[type_] - 1)
        return lambda raw, is_high: value if -limit <= (value := _integer(raw, is_high)) < limit else None
    return _READERS.get(type_ if type_ in _FORMS else kind_of(type_) or "")


def _read(read: Callable[[bytes, bool], Any], raw: msgspec.Raw | None, *, is_high: bool) -> Any:
    if raw is None:
        return None
    try:
        return read(bytes(raw), is_high)
    except (*DAMAGE, ConfigurationError):
        return None


def _object(raw: msgspec.Raw) -> dict[str, msgspec.Raw] | None:
    try:
        return _OBJECT_DECODER.decode(raw)
    except DAMAGE:
        return None


def _is_possible(nulls: Any, rows: int | None) -> bool:
    return nulls is not None and nulls >= 0 and (rows is None or nulls <= rows)


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


def _day_as_time(raw: bytes) -> LoggedTime | None:
    day = _day(raw, is_high=False)
    return None if day is None else LoggedTime(microseconds_of(day.isoformat()), 0, is_cut=False)


def _time(raw: bytes, form: re.Pattern[str]) -> LoggedTime | None:
    value = msgspec.json.decode(raw, type=str)
    if not form.fullmatch(value):
        return None
    us = microseconds_of(value)
    if us < _EARLIEST_US:
        return None
    has_seconds = form is _INSTANT and us < _WHOLE_MINUTES_US
    return LoggedTime(us, _MINUTE_US if has_seconds else 0, is_cut=_UNCUT.search(value) is None)


def _time_bound(raw: bytes, form: re.Pattern[str], *, is_high: bool) -> int | None:
    found = _time(raw, form)
    if found is None:
        return None
    slack = found.slack_us + _MILLISECOND_US
    return found.us + slack if is_high else found.us - slack


_FORMS: Final = {"timestamp": _INSTANT, "timestamp_ntz": _LOCAL_TIME}
_COLLECTIONS: Final = ("array", "map")
_READERS: Final[dict[str, Callable[[bytes, bool], Any]]] = {
    "decimal": _decimal,
    "text": _text,
    "date": _day,
    "timestamp": lambda raw, is_high: _time_bound(raw, _INSTANT, is_high=is_high),
    "timestamp_ntz": lambda raw, is_high: _time_bound(raw, _LOCAL_TIME, is_high=is_high),
}
