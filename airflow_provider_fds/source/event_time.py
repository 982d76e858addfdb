"""Event times: the range of one column's values in the files of a batch, from the log, without reading a file."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import msgspec

from airflow_provider_fds.delta.moments import microseconds_of
from airflow_provider_fds.delta.schema import physical_name
from airflow_provider_fds.delta.statistics import null_count, statistics_of, time_at
from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.source.filters.filter_column import UNSURE, FilterColumn, table_columns

if TYPE_CHECKING:
    from collections.abc import Iterable

    from airflow_provider_fds.delta.actions import Add, Metadata, Remove
    from airflow_provider_fds.source.planned import PlannedFile

#: Types of columns that have event times.
TYPES: Final = ("timestamp", "timestamp_ntz", "date")

#: Times of the years 1 to 9999, in microseconds since the epoch; the last one leaves room for what a cut lacks.
_EARLIEST: Final = microseconds_of("0001-01-01")
_LATEST: Final = microseconds_of("9999-12-31 23:59:59")
#: What a maximum that was cut lacks at most.
_CUT_MICROSECONDS: Final = 999


@dataclass(frozen=True, slots=True)
class TimeRange:
    """Event times, in microseconds since the epoch, UTC.

    Attributes:
        min_us: No value is earlier.
        max_us: No value is later.
        seen_us: A value of the column is at least as late: ``max_us``, or less if the log cut digits off, or ``min_us``
            under a deletion vector.
    """

    min_us: int
    max_us: int
    seen_us: int

    def plus(self, other: TimeRange | None) -> TimeRange:
        """Return the range of both."""
        if other is None:
            return self
        return TimeRange(
            min(self.min_us, other.min_us), max(self.max_us, other.max_us), max(self.seen_us, other.seen_us)
        )


@dataclass(frozen=True, slots=True)
class TimeColumn:
    """Where the log has the times of a column, under one metadata.

    Attributes:
        keys: Its physical name; one name for each level of a nested column.
        type: One of :data:`TYPES`.
        partition: The column, if the table is partitioned by it, so that it has no statistics.
    """

    keys: tuple[str, ...]
    type: str
    partition: FilterColumn | None

    @classmethod
    def find(cls, metadata: Metadata, name: str, *, table: str) -> TimeColumn | None:
        """Return the column, or ``None`` if the table has none of this name. Case does not matter, as in Spark.

        Args:
            metadata: Metadata of the table.
            name: Its name; dots separate the levels of a nested column.
            table: URI of the table, for messages.

        Raises:
            ConfigurationError: It is not of one of :data:`TYPES`.
        """
        type_: Any = msgspec.json.decode(metadata.schemaString) if metadata.schemaString else {}
        keys: list[str] = []
        rest = name
        while rest:
            fields = type_.get("fields", ()) if isinstance(type_, dict) and type_.get("type") != "array" else ()
            # a name may have dots itself
            named = [field for field in fields if _begins(rest, field["name"])]
            if not named:
                return None
            field = max(named, key=lambda field: len(field["name"]))
            rest = rest[len(field["name"]) + 1 :]
            keys.append(physical_name(field, metadata))
            type_ = field["type"]
        if type_ not in TYPES:
            shown = type_ if isinstance(type_, str) else str(type_.get("type"))
            raise ConfigurationError(
                f"{table}: event_time_column {name!r} is of type {shown}. Event times need a column of type "
                f"{', '.join(TYPES[:-1])} or {TYPES[-1]}.",
                table=table,
            )
        column = table_columns(metadata).get(name.lower()) if len(keys) == 1 else None
        return cls(tuple(keys), type_, column if column is not None and column.is_partition else None)

    def times_of(self, file: Add | Remove) -> TimeRange | None:
        """Return the times in a file, ``None`` if it has none.

        Raises:
            LookupError: The log does not say it.
        """
        if self.partition is not None:
            return self._partition_time((file.partitionValues or {}).get(self.keys[0]))
        stats = statistics_of(file.stats)
        rows = stats.numRecords
        if rows == 0 or (rows is not None and null_count(stats, self.keys) == rows):
            return None
        low, high = (time_at(values, self.keys, self.type) for values in (stats.minValues, stats.maxValues))
        if low is None or high is None:
            raise LookupError(self.keys)
        found = TimeRange(
            low.us - low.slack_us,
            high.us + high.slack_us + (_CUT_MICROSECONDS if high.is_cut else 0),
            high.us - high.slack_us,
        )
        if not _EARLIEST <= low.us <= high.us <= _LATEST:
            raise LookupError(self.keys)
        # the latest row may be deleted; those that are left are not before the first one
        return found if file.deletionVector is None else replace(found, seen_us=found.min_us)

    def _partition_time(self, logged: str | None) -> TimeRange | None:
        assert self.partition is not None  # noqa: S101  # the caller has looked
        value = self.partition.value_of(logged)
        if value is None:
            return None
        if value is UNSURE:
            raise LookupError(logged)
        us = microseconds_of(value.isoformat()) if self.type == "date" else value
        if not _EARLIEST <= us <= _LATEST:
            raise LookupError(logged)
        return TimeRange(us, us, us)


@dataclass(frozen=True, slots=True)
class FoundTimes:
    """The times of some files.

    Attributes:
        range: Their range, ``None`` if no file has a value, or if it is unknown.
        unknown: Number of files of which the log does not say it.
        files: Number of files.
    """

    range: TimeRange | None
    unknown: int
    files: int


def times_of(files: Iterable[PlannedFile], column: TimeColumn) -> FoundTimes:
    """Return the times in the files of a batch. If one is unknown, the range is."""
    found: TimeRange | None = None
    unknown = number = 0
    for file in files:
        number += 1
        try:
            times = column.times_of(file.add)
        except LookupError:
            unknown += 1
            continue
        found = times if found is None else found.plus(times)
    return FoundTimes(None if unknown else found, unknown, number)


def _begins(path: str, name: str) -> bool:
    path, name = path.lower(), name.lower()
    return path == name or path.startswith(name + ".")
