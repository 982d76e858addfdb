"""Checks the arguments that say how a task waits, while its DAG file is parsed."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from airflow_provider_fds.durations import parse_duration

if TYPE_CHECKING:
    from collections.abc import Mapping


#: Former arguments of tasks that wait or watch -> what happens now.
_REMOVED: Final = {
    "recheck_every": "every 20th poll lists the log and reads the position again",
    "max_refusals": "a waiting task gives up after 10 polls in a row that storage or Airflow refused; give it retries",
}


def removed_problems(given: Mapping[str, object]) -> list[str]:
    """Return what happens instead of each former argument that is given, one sentence each."""
    return [f"{name} is not an argument any more: {now}. Omit it." for name, now in _REMOVED.items() if name in given]


def grace_problems(grace: object) -> list[str]:
    """Return what is wrong with ``grace``, the time to wait after the end of an interval."""
    given = None if isinstance(grace, str) else parse_duration(grace)
    if grace is None or (given is not None and given >= timedelta(0)):
        return []
    return [f"grace must be None, a timedelta or seconds, and not negative, got {grace!r}."]
