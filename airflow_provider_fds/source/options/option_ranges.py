"""Which options can be combined, as far as it is known without the table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from airflow_provider_fds.source.options.limits import LIMITS, default_limits

if TYPE_CHECKING:
    from collections.abc import Mapping

_RANGE: Final = ("starting_version", "starting_timestamp", "ending_version", "ending_timestamp")

#: Options of how small work waits for more.
_MINIMUM: Final = ("min_batch_bytes", "max_batch_wait")

#: Options of how far a stream may read ahead of others.
_ALIGNMENT: Final = ("align_with", "max_drift")

#: Options about commits; they have no effect on a snapshot.
_ABOUT_COMMITS: Final = (
    *(limit.option for limit in LIMITS if limit.is_about_commits),
    "whole_commits",
    *_MINIMUM,
    *_ALIGNMENT,
    "ignore_deletes",
    "ignore_changes",
    "skip_change_commits",
    "skip_versions",
    "skip_operations",
    "read_change_feed",
)


#: Options that set where a stream starts and ends; with data intervals, each run's interval sets this instead.
_PLACES: Final = (*_RANGE, "on_changed_start", "version_as_of", "timestamp_as_of")


def interval_problems(found: Mapping[str, tuple[str, Any]]) -> list[str]:
    """Return the options that have no meaning for a stream that reads data intervals, one sentence each.

    Args:
        found: Name of the option -> its spelling and its parsed value.
    """
    problems = [
        f"option {spelling!r} has no effect with read='data_interval': each run reads the commits of its own data "
        "interval. Omit it."
        for name, (spelling, _) in found.items()
        if name in _PLACES
    ]
    problems += [
        f"option {spelling!r} has no effect with read='data_interval': an interval is loaded completely, however small "
        "it is. Omit it."
        for name, (spelling, _) in found.items()
        if name in _MINIMUM
    ]
    problems += [
        f"option {spelling!r} has no effect with read='data_interval': intervals have no watermark, because they are "
        "loaded in any order. Omit it."
        for name, (spelling, _) in found.items()
        if name in _ALIGNMENT
    ]
    if found.get("on_violation", ("", "fail"))[1] != "fail":
        problems.append(
            "option 'on_violation' must be 'fail' with read='data_interval': an interval is loaded completely or "
            "not at all, and other intervals do not wait for it."
        )
    if found.get("on_lost_position", ("", "fail"))[1] != "fail":
        problems.append(
            "option 'on_lost_position' must be 'fail' with read='data_interval': an interval whose commits were "
            "removed would be loaded without them."
        )
    return problems


def range_problems(found: Mapping[str, tuple[str, Any]]) -> list[str]:
    """Return what is wrong with start and end.

    Args:
        found: Name of the option -> its spelling and its parsed value.
    """
    return _bounded(found) + _two_ends(found) + _end_before_start(found)


def minimum_problems(found: Mapping[str, tuple[str, Any]]) -> list[str]:
    """Return what is wrong with the options of how small work waits for more.

    Args:
        found: Name of the option -> its spelling and its parsed value.
    """
    if "min_batch_bytes" not in found:
        if "max_batch_wait" not in found:
            return []
        return [f"option {found['max_batch_wait'][0]!r} has no effect without min_batch_bytes. Omit it."]
    spelling, least = found["min_batch_bytes"]
    given = {name: value for name, (_, value) in found.items()}
    most = (default_limits(given) | given)["max_bytes_per_batch"]
    if most is None or least <= most:
        return []
    limit = found["max_bytes_per_batch"][0] if "max_bytes_per_batch" in found else "max_bytes_per_batch"
    return [
        (
            f"option {spelling!r} is {least} bytes, but a batch ends at {most} bytes ({limit!r}). Set a smaller "
            "minimum or a larger limit."
        )
    ]


def alignment_problems(found: Mapping[str, tuple[str, Any]]) -> list[str]:
    """Return what is wrong with the options of how far a stream may read ahead of others.

    Args:
        found: Name of the option -> its spelling and its parsed value.
    """
    if not found.get("align_with", ("", ()))[1]:
        if "max_drift" not in found:
            return []
        return [f"option {found['max_drift'][0]!r} has no effect without align_with. Omit it."]
    spelling = found["align_with"][0]
    missing = [name for name in ("event_time_column", "max_drift") if name not in found]
    return [f"option {spelling!r} needs {' and '.join(missing)} too. Set it."] if missing else []


def _bounded(found: Mapping[str, tuple[str, Any]]) -> list[str]:
    asked = [found[name][0] for name in ("version_as_of", "timestamp_as_of") if name in found]
    problems = []
    if len(asked) > 1:
        problems.append(f"options {asked[0]!r} and {asked[1]!r} cannot be combined: a table is read as of one version.")
    if asked:
        problems += [
            f"options {asked[0]!r} and {spelling!r} cannot be combined: the table is read as it was then, which "
            f"{'has no start and no end' if name in _RANGE else 'has no commits that it could apply to'}. Omit "
            "one of them."
            for name, (spelling, value) in found.items()
            if name in _RANGE or (name in _ABOUT_COMMITS and value)
        ]
    return problems


def _two_ends(found: Mapping[str, tuple[str, Any]]) -> list[str]:
    if "ending_version" not in found or "ending_timestamp" not in found:
        return []
    first, second = found["ending_version"][0], found["ending_timestamp"][0]
    return [f"options {first!r} and {second!r} cannot be combined: a stream ends at a version or at a time."]


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
    # the words "earliest" and "latest" can be resolved only with the table
    return value if isinstance(value, int) else None


def _time(value: str) -> int:
    from airflow_provider_fds.delta.moments import parse_timestamp

    return parse_timestamp(value)
