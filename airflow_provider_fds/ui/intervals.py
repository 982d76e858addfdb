"""What the page of a stream shows of its data intervals: the last one, what is not loaded, and the next one."""

from __future__ import annotations

from datetime import datetime
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, Final

from airflow_provider_fds.batch.version_ranges import describe_range
from airflow_provider_fds.ledger.entries.entry import iso_time
from airflow_provider_fds.ledger.intervals import instants_of

if TYPE_CHECKING:
    from airflow_provider_fds.ledger.records import IntervalRecord
    from airflow_provider_fds.ledger.state import StreamState

#: The next interval is known if so many intervals follow each other and have one length.
_ALIKE: Final = 3


def describe_intervals(state: StreamState) -> dict[str, Any] | None:
    """Return the intervals that matter now as JSON values, or ``None`` for a stream that reads by offset."""
    if not state.reads_by_interval:
        return None
    records = sorted(state.intervals, key=lambda record: instants_of(record.interval))
    spans = [instants_of(record.interval) for record in records]
    ends = accumulate((end for _, end in spans), max)
    return {
        "last": next((_described(record) for record in reversed(records) if record.is_done), None),
        "unfinished": [_described(record) for record in records if not record.is_done],
        # intervals may overlap
        "gaps": [{"start": end, "end": start} for end, (start, _) in zip(ends, spans[1:], strict=False) if start > end],
        "next": _next(spans[-_ALIKE:]),
    }


def _described(record: IntervalRecord) -> dict[str, Any]:
    start, end = instants_of(record.interval)
    return {
        "start": start,
        "end": end,
        "generation": record.generation,
        "versions": describe_range(record.first_version, record.last_version),
        "rows": record.rows if record.is_done else None,
        "is_blocked": record.blocked is not None,
    }


def _next(newest: list[tuple[str, str]]) -> dict[str, str] | None:
    times = [(datetime.fromisoformat(start), datetime.fromisoformat(end)) for start, end in newest]
    lengths = {end - start for start, end in times}
    if len(times) < _ALIKE or len(lengths) > 1 or any(one[1] != other[0] for one, other in pairwise(times)):
        return None
    return {"start": newest[-1][1], "end": iso_time(times[-1][1] + lengths.pop())}
