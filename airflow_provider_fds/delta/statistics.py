"""The statistic of a data file that FDS counts by (Delta protocol, "Per-file Statistics")."""

from __future__ import annotations

import re
from typing import Annotated, Final

import msgspec

from airflow_provider_fds.delta.damage import DAMAGE, MAX_INT64


class _Statistics(msgspec.Struct, frozen=True, gc=False):
    numRecords: Annotated[int, msgspec.Meta(ge=0, le=MAX_INT64)] | None = None  # noqa: N815


_DECODER: Final = msgspec.json.Decoder(_Statistics)

#: The form in which Spark writes statistics; matching it is several times cheaper than decoding.
_START: Final = re.compile(r'\{"numRecords": ?([0-9]{1,18})[,}]')


def num_records(stats: str | None) -> int | None:
    """Return the number of rows in a file, including deleted ones; ``None`` if the statistics do not have it.

    Damaged statistics (not JSON, a number out of range) are ignored.
    """
    if not stats:
        return None
    try:
        return _DECODER.decode(stats).numRecords
    except DAMAGE:
        return None


def num_records_fast(stats: str | None) -> int | None:
    """Return the same without reading past the number, for a first pass over the files of a large commit."""
    if stats and (match := _START.match(stats)) is not None:
        return int(match[1])
    return num_records(stats)


def count_only(stats: str | None) -> str | None:
    """Return statistics with only the number of rows, without any value of a column; ``None`` if it is unknown."""
    rows = num_records(stats)
    return None if rows is None else f'{{"numRecords":{rows}}}'


def are_readable(stats: str | None) -> bool:
    """Return whether there are statistics, as JSON, with a number of rows in range if they have one.

    Damaged ones must not reach Spark, which counts rows and skips files by them.
    """
    if stats is None:
        return False
    try:
        _DECODER.decode(stats)
    except DAMAGE:
        return False
    return True


__all__ = ["are_readable", "count_only", "num_records", "num_records_fast"]
