"""Event times: the range of one column's values in the files of a batch, from the log, without reading a file."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import msgspec

from airflow_provider_fds.delta.damage import DAMAGE
from airflow_provider_fds.delta.moments import parse_moment
from airflow_provider_fds.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from airflow_provider_fds.delta.actions import Add, Metadata, Remove
    from airflow_provider_fds.source.planned import PlannedFile

#: Types of columns that have event times.
TYPES: Final = ("timestamp", "timestamp_ntz", "date")

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
#: Times of the years 1 to 9999, in microseconds since the epoch; the last one leaves room for what a cut lacks.
_EARLIEST: Final = (datetime(1, 1, 1, tzinfo=UTC) - _EPOCH) // _MICROSECOND
_LATEST: Final = (datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC) - _EPOCH) // _MICROSECOND
#: Delta for Spark cuts statistics of times to milliseconds; a text with more digits was not cut.
_EXACT: Final = re.compile(r"\.[0-9]{4}")
#: What a maximum that was cut lacks at most.
_CUT_MICROSECONDS: Final = 999
#: How Hive and Spark write NULL as a partition value.
_NULLS: Final = (None, "", "__HIVE_DEFAULT_PARTITION__")


@dataclass(frozen=True, slots=True)
class TimeRange:
    """Event times, in microseconds since the epoch, UTC.

    Attributes:
        min_us: No value is earlier.
        max_us: No value is later.
        seen_us: A value of the column is at least as late: ``max_us``, or up to 999 less if the log cut it to
            milliseconds, or ``min_us`` under a deletion vector.
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
        is_partition: Whether the table is partitioned by it, so that it has no statistics.
    """

    keys: tuple[str, ...]
    type: str
    is_partition: bool

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
        is_mapped = (metadata.property("delta.columnMapping.mode") or "none") != "none"
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
            extra = field.get("metadata") or {}
            keys.append(extra.get("delta.columnMapping.physicalName", field["name"]) if is_mapped else field["name"])
            type_ = field["type"]
        if type_ not in TYPES:
            shown = type_ if isinstance(type_, str) else str(type_.get("type"))
            raise ConfigurationError(
                f"{table}: event_time_column {name!r} is of type {shown}. Event times need a column of type "
                f"{', '.join(TYPES[:-1])} or {TYPES[-1]}.",
                table=table,
            )
        partitions = {column.lower() for column in metadata.partitionColumns}
        return cls(tuple(keys), type_, len(keys) == 1 and name.lower() in partitions)

    def times_of(self, file: Add | Remove) -> TimeRange | None:
        """Return the times in a file, ``None`` if it has none.

        Raises:
            LookupError: The log does not say it.
        """
        try:
            if self.is_partition:
                value = (file.partitionValues or {})[self.keys[0]]
                return None if value in _NULLS else self._range(value, value)
            stats = msgspec.json.decode(file.stats or "")
            rows = stats.get("numRecords")
            if rows == 0 or (rows is not None and self._value(stats, "nullCount") == rows):
                return None
            found = self._range(self._value(stats, "minValues"), self._value(stats, "maxValues"))
            # the latest row may be deleted; those that are left are not before the first one
            return found if file.deletionVector is None else replace(found, seen_us=found.min_us)
        except (*DAMAGE, ConfigurationError, KeyError, AttributeError, OverflowError) as error:
            raise LookupError from error

    def _value(self, stats: dict[str, Any], kind: str) -> Any:
        found: Any = stats.get(kind)
        for key in self.keys:
            found = found.get(key) if isinstance(found, dict) else None
        return found

    def _range(self, first: Any, last: Any) -> TimeRange:
        low, high = microseconds_of(first), microseconds_of(last)
        if not _EARLIEST <= low <= high <= _LATEST:
            raise LookupError(first)
        may_be_cut = self.type != "date" and not self.is_partition and _EXACT.search(last) is None
        return TimeRange(low, high + (_CUT_MICROSECONDS if may_be_cut else 0), high)


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


def microseconds_of(text: str) -> int:
    """Return a time, such as :func:`time_text` writes, in microseconds since the epoch."""
    return (parse_moment(text) - _EPOCH) // _MICROSECOND


def _begins(path: str, name: str) -> bool:
    path, name = path.lower(), name.lower()
    return path == name or path.startswith(name + ".")


__all__ = ["TYPES", "FoundTimes", "TimeColumn", "TimeRange", "microseconds_of", "times_of"]
