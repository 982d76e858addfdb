"""Parses the value a user gives for an option.

Every function takes the user's value and returns the parsed one, or raises ``ValueError`` with the end of a sentence
that begins with the option's name: ``must be …, got …``.
"""

from __future__ import annotations

import re
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from airflow_provider_fds.credentials import redacted_uri, secret_part
from airflow_provider_fds.durations import parse_duration
from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.source.options.exclusion import compile_exclusion

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

#: Inclusive ranges of versions, ascending, without overlap.
VersionRanges = tuple[tuple[int, int], ...]

_LARGEST: Final = 2**63 - 1
#: Maximum length of a value in a message.
_SHOWN_CHARS: Final = 200
# more digits exceed the largest number in any case, and Python limits the digits it parses
_NUMBER: Final = re.compile(r"[0-9]{1,100}", re.ASCII)
_ROOT: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:(?://[^/\s]+)?(?:/[^\s]*)?|file:/*")
_SIZE: Final = re.compile(r"([0-9]{1,100})\s*([a-z]*)", re.ASCII)
_RANGE: Final = re.compile(r"([0-9]{1,100})(?:\s*-\s*([0-9]{1,100}))?", re.ASCII)

#: Spark's units (``JavaUtils.byteStringAs``): powers of 1024.
_UNITS: Final = {"": 0, "b": 0, "k": 1, "kb": 1, "m": 2, "mb": 2, "g": 3, "gb": 3, "t": 4, "tb": 4, "p": 5, "pb": 5}


def column(value: object) -> str:
    """Parse the name of a column."""
    if isinstance(value, str) and value.strip():
        return value.strip()
    raise ValueError(f"must be the name of a column, got {value!r}")


def boolean(value: object) -> bool:
    """Parse ``True``, ``False``, ``"true"`` or ``"false"``."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().lower() in ("true", "false"):
        return value.strip().lower() == "true"
    raise ValueError(f"must be true or false, got {value!r}")


def count(value: object) -> int:
    """Parse a whole number of at least 1."""
    number = _whole(value)
    if number is None or not 1 <= number <= _LARGEST:
        raise ValueError(f"must be an integer of at least 1, got {value!r}")
    return number


def size(value: object) -> int:
    """Parse a number of bytes of at least 1: a whole number, or a string with one of Spark's units, ``"10g"``."""
    number = _whole(value)
    if number is None and isinstance(value, str):
        match = _SIZE.fullmatch(value.strip().lower())
        if match and match[2] in _UNITS:
            number = int(match[1]) << (10 * _UNITS[match[2]])
    if number is None or not 1 <= number <= _LARGEST:
        raise ValueError(f"must be a size of at least 1 byte, such as 1000000, '512m' or '10g', got {value!r}")
    return number


#: Longest wait for more data. A position must not become so old that log cleanup or VACUUM reaches it.
_LONGEST_WAIT: Final = timedelta(days=1)
_LONGEST_SPAN: Final = timedelta(days=36_500)


def wait(value: object) -> timedelta:
    """Parse a time span above 0: a ``timedelta``, seconds, or a string with a unit, ``"90s"``, ``"15m"``, ``"1h"``."""
    found = parse_duration(value)
    if found is None or not timedelta(0) < found <= _LONGEST_WAIT:
        raise ValueError(
            f"must be a timedelta, a number of seconds or a string such as '15m', above 0 and at most a day, got "
            f"{value!r}"
        )
    return found


def drift(value: object) -> timedelta:
    """Parse a time span above 0 of at most 36500 days, as :func:`wait` does."""
    found = parse_duration(value)
    if found is None or not timedelta(0) < found <= _LONGEST_SPAN:
        raise ValueError(f"must be a timedelta, a number of seconds or a string such as '1h', above 0, got {value!r}")
    return found


def streams(value: object) -> tuple[str, ...]:
    """Parse streams or their names; sorted, without duplicates."""
    found = set()
    for item in _items([value] if hasattr(value, "name") else value):
        name = getattr(item, "name", item)
        if not isinstance(name, str) or not name.strip():
            raise ValueError(f"must be streams or their names, got {item!r}")
        found.add(name.strip())
    return tuple(sorted(found))


def shown_wait(value: timedelta) -> int | float:
    """Return a time span in seconds."""
    seconds = value.total_seconds()
    return int(seconds) if seconds.is_integer() else seconds


def starting_version(value: object) -> int | str:
    """Parse a version from 0, or one of the words ``earliest`` and ``latest``."""
    if isinstance(value, str) and value.strip().lower() in ("earliest", "latest"):
        return value.strip().lower()
    number = _whole(value)
    if number is None or not 0 <= number <= _LARGEST:
        raise ValueError(f"must be a version number, 'earliest' or 'latest', got {value!r}")
    return number


def version(value: object) -> int:
    """Parse a version from 0."""
    number = _whole(value)
    if number is None or not 0 <= number <= _LARGEST:
        raise ValueError(f"must be a version number (0 or greater), got {value!r}")
    return number


def timestamp(value: object) -> str:
    """Parse a point in time: a string for ``parse_timestamp``, a ``datetime`` or a ``date``; UTC without zone."""
    from airflow_provider_fds.delta.moments import parse_timestamp

    text = value.isoformat() if isinstance(value, (date, datetime)) else value
    if not isinstance(text, str) or not text.strip():
        raise ValueError(f"must be a timestamp such as '2026-01-31' or '2026-01-31T12:00:00Z', got {value!r}")
    try:
        parse_timestamp(text.strip())
    except ConfigurationError as error:
        raise ValueError(f"is not a valid timestamp: {error}") from error
    return text.strip()


def one_of(*words: str) -> Callable[[object], str]:
    """Return the parser of a choice between words."""

    def parse(value: object) -> str:
        if value in words:
            return str(value)
        raise ValueError(f"must be {' or '.join(map(repr, words))}, got {value!r}")

    return parse


def regex(value: object) -> str:
    """Parse a regular expression that Java and Python interpret alike."""
    if not isinstance(value, str) or not value:
        raise ValueError(f"must be a regular expression, got {value!r}")
    try:
        compile_exclusion(value)
    except ValueError as error:
        raise ValueError(f"cannot be {_short(value)}: {error}") from error
    return value


def predicate(value: object) -> str:
    """Parse a predicate on columns; whether the columns exist is known only with the table."""
    from airflow_provider_fds.source.filters.predicate import parse_predicate

    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"must be a predicate on columns such as \"day >= '2026-01-31'\", got {value!r}")
    try:
        parse_predicate(value)
    except ValueError as error:
        raise ValueError(f"cannot be {_short(value)}: {error}") from error
    return value.strip()


def version_ranges(value: object) -> VersionRanges:
    """Parse versions and inclusive ranges of them: ``"3,5-7"``, or a list of numbers, strings and pairs."""
    found: list[tuple[int, int]] = []
    for item in _items(value):
        pair = _range(item)
        if pair is None:
            raise ValueError(f"must be versions and ranges of versions such as '3,5-7', got {item!r} in {value!r}")
        found.append(pair)
    merged: list[tuple[int, int]] = []
    for first, last in sorted(found):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], last))
        else:
            merged.append((first, last))
    return tuple(merged)


def operations(value: object) -> tuple[str, ...]:
    """Parse names of operations as in ``commitInfo.operation``; upper case, sorted, without duplicates."""
    found = set()
    for item in _items(value):
        if not isinstance(item, str) or not item.strip():
            raise ValueError(f"must be names of operations such as 'DELETE,UPDATE', got {item!r} in {value!r}")
        found.add(item.strip().upper())
    return tuple(sorted(found))


def columns(value: object) -> tuple[str, ...]:
    """Parse names of columns; sorted, without duplicates (case does not matter, as in Delta)."""
    found: dict[str, str] = {}
    for item in _items(value):
        if not isinstance(item, str) or not item.strip():
            raise ValueError(f"must be names of columns such as 'id,name', got {item!r} in {value!r}")
        found.setdefault(item.strip().lower(), item.strip())
    if not found:
        raise ValueError("must name at least one column; omit it to read all of them")
    return tuple(found[name] for name in sorted(found))


def roots(value: object) -> tuple[str, ...]:
    """Parse URIs of folders, or ``"*"`` for anywhere; sorted, without trailing slashes or duplicates."""
    found = set()
    for item in _items(value):
        text = item.strip().rstrip("/") if isinstance(item, str) else ""
        if text != "*" and (_ROOT.fullmatch(text) is None or secret_part(text) is not None):
            raise ValueError(
                "must be URIs of folders or buckets such as 's3://lake/origin', or '*' for anywhere, got "
                f"{redacted_uri(str(item))!r}"
            )
        found.add(text)
    return tuple(sorted(found))


def shown_ranges(ranges: VersionRanges) -> str:
    """Return ranges of versions in the form that :func:`version_ranges` parses: ``"3,5-7"``."""
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)


def _short(value: str) -> str:
    shown = repr(value)
    return shown if len(shown) <= _SHOWN_CHARS else f"{shown[:_SHOWN_CHARS]}… ({len(value)} characters)"


def _whole(value: object) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, str) and _NUMBER.fullmatch(value.strip()):
        return int(value.strip())
    return None


def _items(value: object) -> Iterable[Any]:
    if isinstance(value, str):
        return value.split(",")
    if isinstance(value, (list, tuple, set, frozenset)):
        return value
    return (value,)


def _range(item: object) -> tuple[int, int] | None:
    number = _whole(item)
    first = last = number
    if number is None and isinstance(item, str) and (match := _RANGE.fullmatch(item.strip())):
        first, last = int(match[1]), int(match[2] or match[1])
    elif isinstance(item, (list, tuple)) and len(item) == 2:  # noqa: PLR2004  # a pair
        first, last = _whole(item[0]), _whole(item[1])
    if first is None or last is None or not 0 <= first <= last <= _LARGEST:
        return None
    return (first, last)
