"""Statistics of data files: what Spark is told of them."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo, available_timezones

import pytest

from airflow_provider_fds.delta.actions import Metadata
from airflow_provider_fds.delta.certain_statistics import CertainStatistics
from airflow_provider_fds.delta.statistics import bounds_reader, statistics_of

TYPES: dict[str, Any] = {
    "i": "integer",
    "l": "long",
    "n": "decimal(15,2)",
    "wide": "decimal(20,0)",
    "x": "double",
    "b": "boolean",
    "s": "string",
    "day": "date",
    "at": "timestamp",
    "local": "timestamp_ntz",
    "many": {"type": "array", "elementType": "long", "containsNull": True},
    "in": {"type": "struct", "fields": [{"name": "at", "type": "timestamp", "nullable": True, "metadata": {}}]},
    "p": "string",
}


def certain(stats: str | None, **properties: str) -> Any:
    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in TYPES.items()]
    metadata = Metadata("id", json.dumps({"type": "struct", "fields": fields}), ("p",), properties)
    found = CertainStatistics(metadata).of(stats)
    return None if found is None else json.loads(found)


@pytest.mark.parametrize(
    ("column", "value", "is_told"),
    [
        ("i", 2**31 - 1, True),
        ("i", 2**31, False),
        ("i", 1.0, False),
        ("i", "1", False),
        ("l", 2**63 - 1, True),
        ("n", 9999999999999.99, True),
        # delta-rs writes it as a floating-point number
        ("wide", 1830000000000000256, False),
        ("wide", 1, False),
        # writers disagree about NaN, and about false and true
        ("x", 1.5, False),
        ("b", False, False),
        ("s", "a" * 31, True),
        ("s", "a" * 32 + "\ufffd", True),
        ("s", "a" * 32 + "\U0010ffff", True),
        ("day", "1900-01-01", True),
        ("day", "1899-12-31", False),
        ("day", "+10000-01-01", False),
        ("at", "2026-01-01T00:00:00.000Z", True),
        ("at", "2026-01-01T00:00:00.123456+05:30", True),
        # in which zone?
        ("at", "2026-01-01T00:00:00.000", False),
        ("at", "2026-01-01", False),
        # the offset was +00:19:32
        ("at", "1930-01-01T01:00:00.000+00:19", False),
        ("local", "2026-01-01T00:00:00.000", True),
        ("local", "1899-12-31T00:00:00.000", False),
        ("in", {"at": "2026-01-01T00:00:00Z"}, True),
        ("in", {"at": "1971-01-01T00:00:00Z"}, False),
        ("p", "x", False),
        ("dropped", 1, False),
    ],
)
def test_spark_is_told_a_bound_only_if_it_is_certain(column: str, value: Any, is_told: bool) -> None:
    stats = {"numRecords": 3, "minValues": {column: value}, "maxValues": {column: value}, "tightBounds": False}
    found = certain(json.dumps(stats))
    assert (found["numRecords"], found["tightBounds"]) == (3, False)
    for part in ("minValues", "maxValues"):
        assert found.get(part, {}) == ({column: value} if is_told else {})


def test_a_maximum_that_may_have_been_cut_is_not_told_and_a_minimum_is() -> None:
    values = {"s": "b" * 32, "i": 5}
    found = certain(json.dumps({"numRecords": 1, "minValues": values, "maxValues": values}))
    assert found == {"numRecords": 1, "minValues": values, "maxValues": {"i": 5}}


def test_null_counts_are_told_unless_they_are_impossible_or_not_of_rows() -> None:
    counts = {"i": 3, "l": 4, "s": -1, "x": 0, "b": "0", "many": 2, "in": {"at": 1}}
    assert certain(json.dumps({"numRecords": 3, "nullCount": counts})) == {
        "numRecords": 3,
        "nullCount": {"i": 3, "x": 0, "in": {"at": 1}},
    }
    assert certain('{"numRecords":3,"nullCount":{"i":4,"l":3}}')["nullCount"] == {"l": 3}


@pytest.mark.parametrize(
    "stats", [None, "", "{", "[]", "3", '{"numRecords":"ten","minValues":{"i":1}}', '{"numRecords":-1}']
)
def test_of_damaged_statistics_nothing_is_told(stats: str | None) -> None:
    assert certain(stats) is None


def test_the_planner_believes_no_impossible_count() -> None:
    for text in ('{"numRecords":3,"nullCount":{"i":4}}', '{"numRecords":3,"nullCount":{"i":-3}}'):
        found = bounds_reader("i", "integer")(statistics_of(text))
        assert (found.may_have_nulls, found.may_have_values) == (True, True)
    found = bounds_reader("many", "array")(statistics_of('{"numRecords":3,"nullCount":{"many":0}}'))
    assert found.may_have_nulls


def test_no_zone_has_an_offset_with_seconds_since_1972() -> None:
    late = [
        name
        for name in sorted(available_timezones())
        for half_year in range(120)
        if (ZoneInfo(name).utcoffset(datetime(1972, 2, 1, tzinfo=UTC) + timedelta(days=182) * half_year) or timedelta())
        % timedelta(minutes=1)
    ]
    assert not late
