"""Which options of start and end go together, as far as they tell without a look at the table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


def range_problems(found: Mapping[str, tuple[str, Any]]) -> list[str]:
    """Return what is wrong with start and end.

    Args:
        found: Name of the option -> its spelling and its parsed value.
    """
    return _two_ends(found) + _end_before_start(found)


def _two_ends(found: Mapping[str, tuple[str, Any]]) -> list[str]:
    if "ending_version" not in found or "ending_timestamp" not in found:
        return []
    first, second = found["ending_version"][0], found["ending_timestamp"][0]
    return [f"options {first!r} and {second!r} exclude each other: a stream ends at a version or a time."]


def _end_before_start(found: Mapping[str, tuple[str, Any]]) -> list[str]:
    problems = []
    for unit, place in (("version", _version), ("timestamp", _time)):
        start, end = found.get(f"starting_{unit}"), found.get(f"ending_{unit}")
        if start is None or end is None:
            continue
        first, last = place(start[1]), place(end[1])
        if first is not None and last is not None and last < first:
            problems.append(
                f"option {end[0]!r} is {end[1]!r}, which is before {start[0]!r} = {start[1]!r}: the stream would end "
                "before it starts. Both are inclusive."
            )
    return problems


def _version(value: int | str) -> int | None:
    # the words "earliest" and "latest" are known with the table only
    return value if isinstance(value, int) else None


def _time(value: str) -> int:
    from airflow_provider_fds.delta.timestamps import parse_timestamp

    return parse_timestamp(value)
