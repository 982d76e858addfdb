"""Event times in the statistics of the log."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from airflow_provider_fds.delta.actions import Add, DeletionVector, Metadata
from airflow_provider_fds.delta.moments import microseconds_of, time_text
from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.source.event_time import TimeColumn, TimeRange

TABLE = "file:///lake/orders"


def metadata(*fields: dict[str, Any], partitions: tuple[str, ...] = (), mapped: bool = False) -> Metadata:
    schema = json.dumps({"type": "struct", "fields": fields})
    configuration = {"delta.columnMapping.mode": "name"} if mapped else {}
    return Metadata("id", schema, partitions, configuration)


def field(name: str, type_: Any = "timestamp", physical: str | None = None) -> dict[str, Any]:
    extra = {} if physical is None else {"delta.columnMapping.physicalName": physical}
    return {"name": name, "type": type_, "nullable": True, "metadata": extra}


def struct(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "struct", "fields": list(fields)}


def file_of(first: Any, last: Any, *, rows: int = 10, nulls: Any = None) -> Add:
    stats = {"numRecords": rows, "minValues": first, "maxValues": last, "nullCount": nulls}
    return Add("f", size=1, stats=json.dumps(stats))


def column(*fields: dict[str, Any], name: str = "ts", **more: Any) -> TimeColumn:
    found = TimeColumn.find(metadata(*fields, **more), name, table=TABLE)
    assert found is not None
    return found


def shown(times: TimeRange | None) -> tuple[str, str, str] | None:
    return None if times is None else (time_text(times.min_us), time_text(times.max_us), time_text(times.seen_us))


@pytest.mark.parametrize(
    ("type_", "first", "last", "expected"),
    [
        # Delta for Spark cuts to milliseconds: a row may be up to 999 microseconds later than the maximum
        ("timestamp", "2026-01-01T00:00:00.123Z", "2026-01-02T00:00:00.456Z", (".123000", ".456999", ".456000")),
        ("timestamp", "2026-01-01T01:00:00.000+01:00", "2026-01-02T00:00:00Z", (".000000", ".000999", ".000000")),
        ("timestamp_ntz", "2026-01-01T00:00:00.123", "2026-01-02 00:00:00.456", (".123000", ".456999", ".456000")),
        # other writers do not cut
        ("timestamp", "2026-01-01T00:00:00.123456Z", "2026-01-02T00:00:00.456789Z", (".123456", ".456789", ".456789")),
        ("date", "2026-01-01", "2026-01-02", (".000000", ".000000", ".000000")),
    ],
)
def test_the_times_of_a_file_are_bounds_that_no_row_is_outside_of(type_, first, last, expected):
    times = column(field("ts", type_)).times_of(file_of({"ts": first}, {"ts": last}))
    low, high, seen = expected
    assert shown(times) == (
        f"2026-01-01T00:00:00{low}Z",
        f"2026-01-02T00:00:00{high}Z",
        f"2026-01-02T00:00:00{seen}Z",
    )


def test_the_latest_row_under_a_deletion_vector_may_be_deleted():
    first, last = {"ts": "2026-01-01T00:00:00.123Z"}, {"ts": "9000-01-02T00:00:00.456Z"}
    file = msgspec.structs.replace(file_of(first, last), deletionVector=DeletionVector("u", "x", 1, 1))
    found = column(field("ts")).times_of(file)
    assert shown(found) == ("2026-01-01T00:00:00.123000Z", "9000-01-02T00:00:00.456999Z", "2026-01-01T00:00:00.123000Z")


def test_a_nested_column_is_found_by_its_physical_names():
    inner = struct(field("at", physical="col-2"))
    found = column(field("event", inner, physical="col-1"), name="Event.AT", mapped=True)
    assert found.keys == ("col-1", "col-2")
    values = {"col-1": {"col-2": "2026-01-01T00:00:00.000Z"}}
    assert found.times_of(file_of(values, values, nulls={"col-1": {"col-2": 3}})) is not None
    assert found.times_of(file_of({}, {}, nulls={"col-1": {"col-2": 10}})) is None


def test_a_column_with_a_dot_in_its_name_is_found():
    assert column(field("a"), field("a.b"), name="a.b").keys == ("a.b",)


@pytest.mark.parametrize("name", ["at", "event.on", "event.at.x", "many.at", "e"])
def test_a_column_that_is_not_there_is_not_found(name):
    fields = (field("event", struct(field("at"))), field("many", {"type": "array", "elementType": struct(field("at"))}))
    assert TimeColumn.find(metadata(*fields), name, table=TABLE) is None


@pytest.mark.parametrize("type_", ["long", "string", {"type": "struct", "fields": []}])
def test_a_column_of_another_type_is_refused(type_):
    with pytest.raises(ConfigurationError, match=r"'ts' is of type .* timestamp, timestamp_ntz or date"):
        TimeColumn.find(metadata(field("ts", type_)), "ts", table=TABLE)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("2026-01-01T00:00:00Z", "2026-01-01T00:00:00.000000Z"),
        ("2026-01-01 10:00:00.5+00:00", "2026-01-01T10:00:00.500000Z"),
        ("2026-01-01T10:00:00.123456Z", "2026-01-01T10:00:00.123456Z"),
        (None, None),
        ("", None),
        ("__HIVE_DEFAULT_PARTITION__", None),
    ],
)
def test_a_partition_column_has_its_times_in_the_partition_values(value, expected):
    found = column(field("ts"), partitions=("TS",))
    times = found.times_of(Add("f", size=1, partitionValues={"ts": value}))
    assert times is None if expected is None else shown(times) == (expected, expected, expected)


@pytest.mark.parametrize(
    ("type_", "value", "expected"),
    [
        ("date", "2026-01-01", "2026-01-01T00:00:00.000000Z"),
        ("timestamp_ntz", "2026-01-01 10:00:00.5", "2026-01-01T10:00:00.500000Z"),
        # Spark passes over the zone
        ("timestamp_ntz", "2026-01-01 10:00:00+05:00", "2026-01-01T10:00:00.000000Z"),
        # Spark reads it in the zone of its session
        ("timestamp", "2026-01-01 10:00:00.5", None),
        ("timestamp", "2026-01-01", None),
        ("timestamp", "noon", None),
        ("date", "+10000-01-01", None),
        ("timestamp", "0001-01-01T00:00:00+18:00", None),
    ],
)
def test_a_partition_value_is_unknown_if_it_means_something_else_in_each_session(type_, value, expected):
    found = column(field("ts", type_), partitions=("ts",))
    file = Add("f", size=1, partitionValues={"ts": value})
    if expected is None:
        with pytest.raises(LookupError):
            found.times_of(file)
    else:
        assert shown(found.times_of(file)) == (expected, expected, expected)


def test_a_time_from_when_offsets_had_seconds_may_be_a_minute_from_what_the_log_says():
    # Amsterdam was at +00:19:32 until 1937, which the log has as +00:19
    logged = {"ts": "1930-01-01T01:00:00.000+00:19"}
    times = column(field("ts")).times_of(file_of(logged, logged))
    assert times is not None
    assert times.min_us <= microseconds_of("1930-01-01 00:40:28") <= times.max_us
    assert times.seen_us <= microseconds_of("1930-01-01 00:40:28")


@pytest.mark.parametrize(
    "stats",
    [
        None,
        "",
        "{",
        "[]",
        '{"numRecords":10}',
        '{"numRecords":10,"minValues":{"ts":"2026-01-01"},"maxValues":{}}',
        '{"numRecords":10,"minValues":{"ts":1},"maxValues":{"ts":2}}',
        '{"numRecords":10,"minValues":{"ts":"soon"},"maxValues":{"ts":"later"}}',
        '{"numRecords":10,"minValues":{"ts":"2026-01-02"},"maxValues":{"ts":"2026-01-01"}}',
        '{"numRecords":10,"minValues":[],"maxValues":[]}',
        '{"minValues":{"ts":"0001-01-01T00:00:00+18:00"},"maxValues":{"ts":"9999-12-31T23:59:59-18:00"},"nullCount":1}',
    ],
)
def test_statistics_that_do_not_say_the_times_are_unknown_and_no_error(stats):
    with pytest.raises(LookupError):
        column(field("ts")).times_of(Add("f", size=1, stats=stats))
