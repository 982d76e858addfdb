"""Checks the arguments that say how a task waits, while its DAG file is parsed."""

from __future__ import annotations

from datetime import timedelta

from airflow_provider_fds.durations import parse_duration


def poll_option_problems(recheck_every: object, max_refusals: object) -> list[str]:
    """Return what is wrong with the poll counts given to a trigger, one sentence each."""
    given = (
        ("recheck_every", recheck_every, ""),
        ("max_refusals", max_refusals, "; to wait through any outage, use a large number"),
    )
    return [
        f"{name} must be an integer of at least 1, got {value!r}{hint}"
        for name, value, hint in given
        if not isinstance(value, int) or isinstance(value, bool) or value < 1
    ]


def grace_problems(grace: object) -> list[str]:
    """Return what is wrong with ``grace``, the time to wait after the end of an interval."""
    given = None if isinstance(grace, str) else parse_duration(grace)
    if grace is None or (given is not None and given >= timedelta(0)):
        return []
    return [f"grace must be None, a timedelta or seconds, and not negative, got {grace!r}."]


__all__ = ["grace_problems", "poll_option_problems"]
