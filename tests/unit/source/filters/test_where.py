"""``where``: which files it leaves out, by which proof, and what Spark is told to filter by."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_fds.delta.actions import Add, Cdc, Metadata
from airflow_provider_fds.errors import ConfigurationError, StoppedError
from airflow_provider_fds.source.filters.row_filter import RowFilter

TYPES: dict[str, Any] = {
    "i": "integer",
    "l": "long",
    "n": "decimal(10,2)",
    "wide": "decimal(38,0)",
    "x": "double",
    "b": "boolean",
    "s": "string",
    "day": "date",
    "at": "timestamp",
    "local": "timestamp_ntz",
    "st": {"type": "struct", "fields": []},
    "p": "string",
}


def metadata(**changes: Any) -> Metadata:
    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in TYPES.items()]
    schema = json.dumps({"type": "struct", "fields": fields})
    return Metadata("id", schema, ("p",), changes or None)


def file(low: Any = None, high: Any = None, *, column: str = "i", nulls: Any = 0, rows: Any = 10, **more: Any) -> Add:
    """A file of ten rows whose values of one column are between ``low`` and ``high``, without NULLs."""
    stats: dict[str, Any] = {"numRecords": rows, "nullCount": {column: nulls}}
    stats |= {"minValues": {column: low}} if low is not None else {}
    stats |= {"maxValues": {column: high}} if high is not None else {}
    return Add("a.parquet", stats=json.dumps(stats), partitionValues={"p": "x"}, **more)


def may_match(text: str, add: Add | Cdc) -> bool:
    return RowFilter(text).bind(metadata(), table="file:///t").may_match(add)


def sql(text: str) -> str:
    return RowFilter(text).bind(metadata(), table="file:///t").sql


@pytest.mark.parametrize(
    ("text", "is_read"),
    [
        ("i = 4", False),
        ("i = 5", True),
        ("i = 7", True),
        ("i = 8", False),
        ("i < 5", False),
        ("i <= 5", True),
        ("i > 7", False),
        ("i >= 7", True),
        ("i > 6.5", True),
        ("i BETWEEN 1 AND 4", False),
        ("i BETWEEN 1 AND 5", True),
        ("i IN (1, 9)", False),
        ("i IN (1, 6)", True),
        ("NOT i < 8", False),
        ("NOT i < 7", True),
        ("NOT i BETWEEN 5 AND 7", False),
        ("i IS NULL", False),
        ("NOT i IS NULL", True),
        ("i != 6", True),
        ("NOT (i > 0 OR i IS NULL)", False),
        # another column, about which nothing is known
        ("l = 1", True),
        ("i = 4 OR l = 1", True),
        ("i = 4 AND l = 1", False),
        ("NOT (i > 0 AND l = 1)", True),
        # partition values are exact
        ("p = 'y' OR i = 4", False),
        ("p = 'y' OR i = 6", True),
        ("p = 'x' AND i = 6", True),
        ("p IS NULL AND i = 6", False),
    ],
)
def test_a_file_with_values_from_5_to_7_is_read_unless_no_row_can_match(text: str, is_read: bool) -> None:
    assert may_match(text, file(5, 7)) is is_read


def test_a_file_with_one_value_is_left_out_by_its_opposite() -> None:
    assert not may_match("i != 5", file(5, 5))
    assert not may_match("NOT i = 5", file(5, 5, nulls=3))
    assert may_match("i != 5", file(5, 6))


@pytest.mark.parametrize(
    ("nulls", "null", "value"),
    [(0, False, True), (3, True, True), (10, True, False), (None, True, True), ("3", True, True), (1.5, True, True)],
)
def test_null_counts(nulls: Any, null: bool, value: bool) -> None:
    found = file(5, 7, nulls=nulls)
    assert may_match("i IS NULL", found) is null
    assert may_match("i IS NOT NULL", found) is value
    assert may_match("i = 6", found) is value
    # unknown is not true, whatever is negated
    assert may_match("NOT i = 4", found) is value


def test_null_counts_under_a_deletion_vector_prove_only_none_and_all() -> None:
    stats = {"numRecords": 10, "tightBounds": False, "nullCount": {"i": 9, "l": 10, "s": 0}}
    found = Add("a", stats=json.dumps(stats))
    assert may_match("i IS NULL", found)
    assert may_match("i IS NOT NULL", found)
    assert not may_match("l IS NOT NULL", found)
    assert not may_match("s IS NULL", found)


@pytest.mark.parametrize(
    "stats",
    [
        None,
        "",
        "{",
        "[]",
        '{"numRecords":10}',
        '{"numRecords":"ten","minValues":{"i":50}}',
        '{"minValues":null,"maxValues":{"i":"4"},"nullCount":{"i":{}}}',
        '{"minValues":{"i":5.0},"maxValues":{"i":true}}',
        '{"minValues":{"I":50},"maxValues":{"other":1}}',
    ],
)
def test_missing_or_damaged_statistics_prove_nothing(stats: str | None) -> None:
    for text in ("i = 1", "i > 100", "i IS NULL", "NOT i > 0", "i = 1 AND l = 2"):
        assert may_match(text, Add("a", stats=stats, partitionValues={}))


@pytest.mark.parametrize(
    ("column", "low", "high", "text", "is_read"),
    [
        # a maximum is cut after 32 characters, and something greater is appended
        ("s", "a", "b" * 32, f"s = '{'b' * 40}'", True),
        ("s", "a", "b" * 32 + "\U0010ffff", f"s = '{'b' * 32}\U0001f680'", True),
        ("s", "a", "b" * 32 + "\ufffd", f"s > '{'b' * 32}\U0001f680'", True),
        ("s", "a", "bbb\x7f", "s = 'bbbé'", True),
        ("s", "a", "b" * 32, "s > 'c'", False),
        ("s", "a", "b", "s = 'b1'", False),
        ("s", "a", "\U0010ffff", "s = 'x\U0010ffff'", True),
        ("s", "a", "b", "s = '\U0010ffff'", True),
        ("s", "b", "c", "s < 'é' AND s < 'B'", False),
        # times are cut to milliseconds
        ("at", "2026-01-01T00:00:00.000Z", "2026-01-01T00:00:00.001Z", "at = '2026-01-01 00:00:00.001999'", True),
        ("at", "2026-01-01T00:00:00.000Z", "2026-01-01T00:00:00.001Z", "at > '2026-01-01 00:00:00.002'", False),
        ("at", "2026-01-01T00:00:00.001Z", "2026-01-01T00:00:00.001Z", "at != '2026-01-01 00:00:00.001'", True),
        ("at", "2026-01-01T02:00:00.000+02:00", "2026-01-01T02:00:00+02:00", "at > '2026-01-01 01:00:00'", False),
        # without a zone it is unknown which instant they mean
        ("at", "2026-01-01T00:00:00.000", "2026-01-01T00:00:00.001", "at > '2027-01-01'", True),
        ("local", "2026-01-01T00:00:00.000", "2026-01-01T00:00:00.001", "local > '2027-01-01'", False),
        ("local", "2026-01-01", "2026-01-01", "local > '2027-01-01'", False),
        ("local", "2026-01-01T00:00:00+02:00", "2026-01-01T00:00:00+02:00", "local > '2027-01-01'", True),
        ("local", "2026-01-01T00:00:00.000", "9999-12-31T23:59:59.999", "local > '2027-01-01'", True),
        # dates before 1900 are written by two calendars
        ("day", "1500-01-01", "1501-01-01", "day > '2000-01-01'", True),
        ("day", "1500-01-01", "2001-01-01", "day > '2002-01-01'", False),
        ("day", "2001-01-01", "2002-01-01", "day < '1999-01-01'", False),
        ("day", "2001-1-1", "tomorrow", "day < '1999-01-01'", True),
        # NaN is greater than every number for Spark, and missing from the maxima of others
        ("x", 1.0, 2.0, "x > 5", True),
        ("x", 1.0, 2.0, "x < 0", True),
        ("b", False, False, "b = true", True),
        # decimals may have been floating-point numbers
        ("n", 1.5, 2.5, "n > 3", False),
        ("n", 99999999.99, 99999999.99, "n != 99999999.99", True),
        ("n", "1.5", "2.5", "n < 1", False),
        ("n", "NaN", "Infinity", "n < 1", True),
        # Spark rounds one of them to fit 38 digits
        ("wide", 5, 7, "wide = 4.5", True),
        ("wide", 5, 7, "wide = 4", False),
        ("l", 2**53, 2**53 + 1, f"l = {2**53 + 2}", False),
        ("l", 5, 7, "l = 0.0000000000000000001", True),
        ("st", None, None, "st IS NULL", False),
    ],
)
def test_a_bound_proves_no_more_than_writers_guarantee(
    column: str, low: Any, high: Any, text: str, is_read: bool
) -> None:
    assert may_match(text, file(low, high, column=column)) is is_read


def test_a_number_out_of_range_leaves_out_nothing_because_spark_then_ignores_even_null() -> None:
    # `i > 12345678901234567890` is false for Spark if i is NULL, so its negation is true
    assert may_match("NOT i > 12345678901234567890", file(nulls=10))
    assert may_match("i <= 12345678901234567890", file(nulls=10))
    assert may_match("i = 1 AND l < -12345678901234567890 OR i IS NULL", file(5, 7)) is False


@pytest.mark.parametrize(
    ("kind", "value", "text", "is_read"),
    [
        ("timestamp", "2026-01-01T00:00:00.000000Z", "p < '2026-01-01'", False),
        ("timestamp", "2026-01-01 02:00:00+02:00", "p != '2026-01-01'", False),
        # without a zone, Spark reads it in the zone of its session
        ("timestamp", "2026-01-01 00:00:00", "p < '2026-01-01'", True),
        ("timestamp", "2026-01-01 00:00:00", "NOT p < '2026-01-01'", True),
        ("timestamp_ntz", "2026-01-01 00:00:00", "p < '2026-01-01'", False),
        # Spark rounds the number to fit 38 digits
        ("decimal(38,10)", "1.0000000000", "p = 1.00000000001", True),
        ("decimal(38,10)", "1.0000000000", "p = 1.0000000001", False),
    ],
)
def test_a_partition_value_proves_only_what_every_session_of_spark_reads(
    kind: str, value: str, text: str, is_read: bool
) -> None:
    schema = json.dumps({"type": "struct", "fields": [{"name": "p", "type": kind, "nullable": True, "metadata": {}}]})
    bound = RowFilter(text).bind(Metadata("id", schema, ("p",), None), table="t")
    assert bound.may_match(Add("a", partitionValues={"p": value})) is is_read
    assert not bound.may_match(Add("a", partitionValues={"p": None}))


def test_change_files_have_no_statistics_and_are_read_unless_their_partition_does_not_match() -> None:
    assert may_match("i = 1 AND p = 'x'", Cdc("c", partitionValues={"p": "x"}))
    assert not may_match("i = 1 AND p = 'x'", Cdc("c", partitionValues={"p": "y"}))


def test_statistics_are_found_by_the_physical_name() -> None:
    mapping = {"delta.columnMapping.physicalName": "col-1", "delta.columnMapping.id": 1}
    fields = [{"name": "now", "type": "integer", "nullable": True, "metadata": mapping}]
    schema = json.dumps({"type": "struct", "fields": fields})
    mapped = Metadata("id", schema, (), {"delta.columnMapping.mode": "name"})
    bound = RowFilter("NOW > 9").bind(mapped, table="t")
    assert bound.sql == "`now` > 9"
    assert not bound.may_match(file(5, 7, column="col-1"))
    assert bound.may_match(file(5, 7, column="now"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("I = 5", "`i` = 5"),
        ("1.50 <= n", "`n` >= 1.50"),
        ("x = 0.1", "`x` = 0.1D"),
        ("b != TRUE", "`b` != TRUE"),
        ("day = '2026-01-31'", "`day` = DATE '2026-01-31'"),
        ("at < '2026-01-31 12:00'", "`at` < TIMESTAMP '2026-01-31 12:00:00.000000Z'"),
        ("at < TIMESTAMP '2026-01-31 12:00:00.5+02:00'", "`at` < TIMESTAMP '2026-01-31 10:00:00.500000Z'"),
        ("local < DATE '2026-01-31'", "`local` < TIMESTAMP_NTZ '2026-01-31 00:00:00.000000'"),
        ("s = 'plain text'", "`s` = 'plain text'"),
        ("s = 'it''s'", "`s` = CAST(X'69742773' AS STRING)"),
        ("s = ''", "`s` = ''"),
        ("i IS NOT NULL", "`i` IS NOT NULL"),
        ("NOT i IN (1, 2)", "NOT ((`i` = 1) OR (`i` = 2))"),
        ("i = 1 OR i = 2 AND l = 3", "(`i` = 1) OR ((`i` = 2) AND (`l` = 3))"),
        ("i BETWEEN 1 AND 2", "(`i` >= 1) AND (`i` <= 2)"),
    ],
)
def test_spark_gets_the_predicate_with_typed_literals(text: str, expected: str) -> None:
    assert sql(text) == expected


def test_quotes_in_a_name_are_doubled() -> None:
    fields = [{"name": "o`d", "type": "integer", "nullable": True, "metadata": {}}]
    schema = json.dumps({"type": "struct", "fields": fields})
    assert RowFilter("`o``d` = 1").bind(Metadata("id", schema), table="t").sql == "`o``d` = 1"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("price = 1", "where 'price = 1' names 'price', which is not a column of the table. Its columns are: i, l,"),
        ("i = 'x'", "compares 'i', of type integer, with 'x': expected a number"),
        ("st = 1", "cannot compare values of type struct"),
        (f"i = {'1' * 39}", "a number can have at most 38 digits"),
    ],
)
def test_a_predicate_that_does_not_fit_the_table_is_refused(text: str, words: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        RowFilter(text).bind(metadata(), table="file:///t")
    assert words in str(caught.value)
    assert caught.value.reason_code == "WHERE_INVALID"


def test_a_damaged_partition_value_stops_the_stream() -> None:
    fields = [{"name": "p", "type": "integer", "nullable": True, "metadata": {}}]
    found = Metadata("id", json.dumps({"type": "struct", "fields": fields}), ("p",))
    with pytest.raises(StoppedError, match="Omit the column from where"):
        RowFilter("p = 1").bind(found, table="t").may_match(Add("a", partitionValues={"p": "x"}))


NUMBERS = st.none() | st.integers(-3, 3)
LITERALS = st.integers(-4, 4)


def predicates() -> st.SearchStrategy[str]:
    comparisons = st.builds(
        "{} {} {}".format, st.sampled_from("il"), st.sampled_from(["=", "!=", "<", "<=", ">", ">="]), LITERALS
    )
    lists = st.builds(
        "{} {}IN ({}, {})".format, st.sampled_from("il"), st.sampled_from(["", "NOT "]), LITERALS, LITERALS
    )
    nulls = st.builds("{} IS {}NULL".format, st.sampled_from("il"), st.sampled_from(["", "NOT "]))
    return st.recursive(
        comparisons | lists | nulls,
        lambda parts: (
            st.builds("({} {} {})".format, parts, st.sampled_from(["AND", "OR"]), parts)
            | st.builds("NOT ({})".format, parts)
        ),
        max_leaves=5,
    )


@given(predicates(), st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1, max_size=5))
def test_no_file_with_a_row_that_satisfies_the_predicate_is_left_out(
    text: str, rows: list[tuple[int | None, int | None]]
) -> None:
    """Rows are judged by the exact evaluation of partition values."""
    where = RowFilter(text).bind(metadata(), table="t")
    fields = [{"name": name, "type": "long", "nullable": True, "metadata": {}} for name in "il"]
    exact = RowFilter(text).bind(
        Metadata("id", json.dumps({"type": "struct", "fields": fields}), ("i", "l")), table="t"
    )

    def values(row: tuple[int | None, int | None]) -> dict[str, str | None]:
        return {name: None if one is None else str(one) for name, one in zip("il", row, strict=True)}

    stats: dict[str, Any] = {"numRecords": len(rows), "minValues": {}, "maxValues": {}, "nullCount": {}}
    for name, column in zip("il", zip(*rows, strict=True), strict=True):
        known = [one for one in column if one is not None]
        stats["nullCount"][name] = len(column) - len(known)
        if known:
            stats["minValues"][name], stats["maxValues"][name] = min(known), max(known)
    if any(exact.may_match(Add("a", partitionValues=values(row))) for row in rows):
        assert where.may_match(Add("a", stats=json.dumps(stats)))
