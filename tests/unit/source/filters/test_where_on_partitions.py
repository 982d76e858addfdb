"""``where`` on partition columns: what is read, what is refused, and what it means. Numbers: conformance cases."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_fds.delta.actions import Add, Metadata
from airflow_provider_fds.errors import ConfigurationError, StoppedError
from airflow_provider_fds.source.filters.row_filter import RowFilter

TYPES = {
    "s": "string",
    "i": "integer",
    "l": "long",
    "n": "decimal(10,2)",
    "d": "double",
    "f": "float",
    "b": "boolean",
    "day": "date",
    "at": "timestamp",
    "local": "timestamp_ntz",
    "bin": "binary",
    "a b": "string",
}


def metadata(types: dict[str, str] | None = None, *, partitions: Any = None, **properties: str) -> Metadata:
    chosen = types or TYPES
    fields = [{"name": name, "type": type_, "nullable": True, "metadata": {}} for name, type_ in chosen.items()]
    fields.append({"name": "id", "type": "long", "nullable": True, "metadata": {}})
    schema = json.dumps({"type": "struct", "fields": fields})
    return Metadata("id", schema, tuple(chosen) if partitions is None else partitions, properties or None)


def keeps(text: str, **values: str | None) -> bool:
    return RowFilter(text).bind(metadata(), table="file:///t").may_match(Add("a", partitionValues=values))


@pytest.mark.parametrize(
    ("text", "value", "passes"),
    [
        ("s = 'x'", "x", True),
        ("s = 'x'", "y", False),
        ("s != 'x'", "y", True),
        ("s <> 'x'", "x", False),
        ("s < 'b'", "a", True),
        ("s <= 'b'", "b", True),
        ("s > 'b'", "b", False),
        ("s >= 'b'", "b", True),
        # texts compare by their bytes, case and all
        ("s < 'a'", "B", True),
        ("s > 'z'", "é", True),
        ("'b' < s", "c", True),
        ("'b' >= s", "c", False),
        ("S = 'x'", "x", True),
        ("`s` = 'it''s'", "it's", True),
        ("s in ('x', 'y')", "y", True),
        ("s not in ('x', 'y')", "y", False),
        ("s BETWEEN 'b' AND 'd'", "d", True),
        ("s NOT BETWEEN 'b' AND 'd'", "d", False),
        ("not s = 'x'", "x", False),
        ("not not s = 'x'", "x", True),
        ("s = 'x' or s = 'y' and s = 'z'", "x", True),
        ("(s = 'x' or s = 'y') and s = 'z'", "x", False),
        # NULL: neither a predicate nor its negation holds
        ("s = 'x'", None, False),
        ("s != 'x'", None, False),
        ("not s = 'x'", None, False),
        ("s in ('x')", None, False),
        ("s not in ('x')", None, False),
        ("s not between 'a' and 'b'", None, False),
        ("s is null", None, True),
        # Spark reads an empty text as such, although the protocol calls it NULL
        ("s is null", "", False),
        ("s is not null", "", True),
        ("s = ''", "", True),
        ("s <> 'x'", "", True),
        ("s is not null", "x", True),
        ("s = 'x' or s is null", None, True),
        ("not (s = 'x' and s is not null)", None, True),
        ("not (s = 'x' or s is not null)", None, False),
    ],
)
def test_a_predicate_means_what_it_means_in_sql(text: str, value: str | None, passes: bool) -> None:
    assert keeps(text, s=value) is passes


@pytest.mark.parametrize(
    ("text", "column", "value", "passes"),
    [
        ("i = 10", "i", "10", True),
        ("i > 9", "i", "10", True),
        ("i < -1", "i", "-2", True),
        ("i > 9.5", "i", "10", True),
        ("l = +9223372036854775807", "l", "9223372036854775807", True),
        ("n = 1.5", "n", "1.50", True),
        ("n < .51", "n", "0.50", True),
        ("d = 0.5", "d", "0.5", True),
        ("d > 1000000", "d", "NaN", True),
        ("d >= 1", "d", "-Infinity", False),
        ("d = 0", "d", "-0.0", True),
        # a float has fewer digits than the literal, as in Spark
        ("f = 0.1", "f", "0.1", False),
        ("f = 0.5", "f", "0.5", True),
        ("b = true", "b", "true", True),
        ("b != TRUE", "b", "false", True),
        ("day = DATE '2026-01-31'", "day", "2026-01-31", True),
        ("day > '2026-01-31'", "day", "2026-02-01", True),
        ("day between date '2026-01-01' and '2026-01-31'", "day", "2026-02-01", False),
        ("at = TIMESTAMP '2026-01-31 12:00:00'", "at", "2026-01-31 12:00:00", True),
        ("at = TIMESTAMP '2026-01-31 13:00:00+01:00'", "at", "2026-01-31T12:00:00.000000Z", True),
        ("at > TIMESTAMP '2026-01-31 12:00:00.000001'", "at", "2026-01-31 12:00:00.000002", True),
        ("at >= DATE '2026-01-31'", "at", "2026-01-31 00:00:00", True),
        ("at < '2026-01-31'", "at", "2026-01-30 23:59:59.999999", True),
        ("local < TIMESTAMP '2026-01-31 00:00:00'", "local", "2026-01-30 23:59:59", True),
        ("`a b` = 'x'", "a b", "x", True),
    ],
)
def test_values_compare_by_the_type_of_their_column(text: str, column: str, value: str, passes: bool) -> None:
    assert keeps(text, **{column: value}) is passes


def test_several_columns_are_judged_together_and_a_missing_one_is_null() -> None:
    text = "day >= DATE '2026-01-01' AND (s IN ('DE', 'FR') OR i IS NULL)"
    assert keeps(text, day="2026-01-02", s="DE", i="1")
    assert keeps(text, day="2026-01-02", s="XX")
    assert not keeps(text, day="2026-01-02", s="XX", i="1")
    assert not keeps(text, s="DE")
    assert RowFilter(text).columns == ("day", "s", "i")
    assert RowFilter("s IS NULL").bind(metadata(), table="t").may_match(Add("a"))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("s", "expected a comparison, IN, BETWEEN or IS, got the end"),
        ("s =", "expected a literal, got the end"),
        ("s = ", "expected a literal"),
        ("s = t", "expected a literal, got 't'"),
        ("= 'x'", "expected a column"),
        ("'x' = 'x'", "expected a column"),
        ("s = 'x", "is not understood"),
        ('s = "x"', "is not understood"),
        (r"s = 'a\n'", "is not understood"),
        ("s == 'x'", "expected a literal"),
        ("s <=> 'x'", "expected a literal"),
        ("s = NULL", "expected a literal, got 'null'"),
        ("s LIKE 'x%'", "expected a comparison"),
        ("s IN ()", "expected a literal, got ')'"),
        ("s IN ('x'", "expected ), got the end"),
        ("s IS 'x'", "expected NULL"),
        ("s IS TRUE", "expected NULL"),
        ("s NOT 'x'", "expected IN or BETWEEN"),
        ("s BETWEEN 'x' OR 'y'", "expected AND"),
        ("(s = 'x'", "expected )"),
        ("s = 'x')", "expected AND, OR or the end"),
        ("s = 'x' s = 'y'", "expected AND, OR or the end"),
        ("s = 'x';", "is not understood"),
        ("i = 1e3", "is not understood"),
        ("i = 1L", "is not understood"),
        ("lower(s) = 'x'", "expected a comparison"),
        ("i + 1 = 2", "is not understood"),
        ("s.x = 'y'", "is not understood"),
        ("day = DATE '2026-02-30'", "is not a date"),
        ("day = DATE 'today'", "is not a date"),
        ("at = TIMESTAMP 'now'", "cannot be read"),
        ("(" * 60 + "s = 'x'" + ")" * 60, "at most 50 nested parentheses"),
    ],
)
def test_an_unsupported_construct_is_refused_with_its_position(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=r"at character [0-9]+: ") as caught:
        RowFilter(text)
    assert words in str(caught.value)
    assert "A filter supports" in str(caught.value) or "is not a date" in str(caught.value) or "cannot be read" in words


@given(st.text("sxi'`()<>=!, \nANDORTINULLBETWEEN0.19-", max_size=30))
def test_any_text_is_a_predicate_or_refused_with_a_message(text: str) -> None:
    try:
        RowFilter(text)
    except ValueError as error:
        assert "at character" in str(error)  # noqa: PT017  # both outcomes are right


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("nothing = 1", "'nothing', which is not a column of the table. Its columns are: s, i, "),
        ("bin = 'x'", "'bin', but cannot compare values of type binary"),
        ("s = 1", "expected a string in single quotes"),
        ("i = '1'", "expected a number"),
        ("n = true", "expected a number"),
        ("b = 'true'", "expected true or false"),
        ("day = 20260131", "expected DATE '…'"),
        ("day = '31.1.2026'", "is not a date such as '2026-01-31'"),
        ("day = TIMESTAMP '2026-01-31 00:00:00'", "expected DATE '…'"),
        ("at = 1", "expected TIMESTAMP '…'"),
        ("at = 'noon'", "expected TIMESTAMP '…'"),
    ],
)
def test_a_predicate_that_does_not_fit_the_table_is_refused_with_what_would(text: str, words: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        RowFilter(text).bind(metadata(), table="file:///t")
    assert words in str(caught.value)
    assert text in str(caught.value)
    assert "file:///t" in str(caught.value)


def test_a_binary_column_can_be_null() -> None:
    assert keeps("bin is null", bin=None)


@pytest.mark.parametrize(
    ("extra", "type_"),
    [
        ({"__COLLATIONS": {"s": "UNICODE_CI"}}, "string with a collation"),
        ({"__CHAR_VARCHAR_TYPE_STRING": "char(3)"}, "char"),
    ],
)
def test_strings_that_do_not_compare_by_their_bytes_are_refused(extra: dict[str, Any], type_: str) -> None:
    schema = json.dumps({"type": "struct", "fields": [{"name": "s", "type": "string", "metadata": extra}]})
    with pytest.raises(ConfigurationError, match=f"but cannot compare values of type {type_}"):
        RowFilter("s = 'x'").bind(Metadata("id", schema, ("s",)), table="t")


def test_values_are_looked_up_by_physical_name_only_while_columns_are_mapped() -> None:
    field = {"name": "s", "type": "string", "metadata": {"delta.columnMapping.physicalName": "col-1"}}
    schema = json.dumps({"type": "struct", "fields": [field]})
    text = RowFilter("s = 'x'")
    for mode, key in (("name", "col-1"), ("id", "col-1"), ("none", "s")):
        bound = text.bind(Metadata("id", schema, ("s",), {"delta.columnMapping.mode": mode}), table="t")
        assert bound.may_match(Add("a", partitionValues={key: "x"}))
        assert not bound.may_match(Add("a", partitionValues={"other": "x"}))


@pytest.mark.parametrize(
    ("text", "column", "value"),
    [
        ("i = 1", "i", "one"),
        ("b = true", "b", "2"),
        ("i = 1", "i", "1_0"),
        ("i IS NULL", "i", "one"),
        ("day > '2026-01-01'", "day", "2026-02-30"),
        ("day > '2026-01-01'", "day", "1.1.2026"),
        ("at > '2026-01-01'", "at", "noon"),
    ],
)
def test_a_logged_value_that_is_invalid_for_its_type_stops_the_stream(text: str, column: str, value: str) -> None:
    with pytest.raises(StoppedError, match=f"{value!r} in partition column {column!r}"):
        keeps(text, **{column: value})


@pytest.mark.parametrize(
    ("text", "column", "value"),
    [
        ("day > DATE '2026-01-01'", "day", "+10000-01-01"),
        ("day = DATE '2026-01-01'", "day", "2026"),
        ("day = DATE '2026-01-01'", "day", "2026-1-1"),
        ("day = DATE '2026-01-01'", "day", "0000-01-01"),
        ("at > '2026-01-01'", "at", "+10000-01-01 00:00:00"),
        ("at > '2026-01-01'", "at", "2025-12-31 20:00:00"),
        ("at > '2026-01-01'", "at", "10:00:00"),
        ("i = 1", "i", "1.5"),
        ("i = 5", "i", " 5 "),
        ("n = 1.56", "n", "1.555"),
        ("n = 10", "n", "1e1"),
        ("d > 1", "d", "inf"),
        ("b = true", "b", "yes"),
        ("i < 12345678901234567890", "i", "1"),
    ],
)
def test_spark_decides_about_a_value_that_the_planner_cannot_read_as_every_session_does(
    text: str, column: str, value: str
) -> None:
    for predicate in (text, f"NOT {text}"):
        bound = RowFilter(predicate).bind(metadata(), table="t")
        file = Add("a", partitionValues={column: value})
        assert bound.may_match(file)
        assert bound.for_rows([file]).sql == bound.sql


@pytest.mark.parametrize("kind", ["i", "n", "d", "b", "day", "at", "local"])
def test_an_empty_text_is_null_for_every_type_but_text(kind: str) -> None:
    for value in ("", "__HIVE_DEFAULT_PARTITION__"):
        assert keeps(f"{kind} IS NULL", **{kind: value})
        assert not keeps(f"{kind} IS NOT NULL", **{kind: value})
    assert keeps("s = '__HIVE_DEFAULT_PARTITION__'", s="__HIVE_DEFAULT_PARTITION__")


def test_times_near_the_ends_of_the_calendar_are_compared_whatever_their_offset() -> None:
    early, late = "TIMESTAMP '0001-01-01 00:00:00+18:00'", "TIMESTAMP '9999-12-31 23:59:59-18:00'"
    assert keeps(f"at BETWEEN {early} AND {late}", at="2026-01-01T00:00:00Z")
    assert not keeps(f"at > {late}", at="9999-12-31T23:59:59.999999Z")
    bound = RowFilter(f"at >= {early}").bind(metadata(), table="t")
    assert bound.sql == "`at` >= TIMESTAMP '0001-01-01 00:00:00.000000+18:00'"
    with pytest.raises(ConfigurationError, match="outside of the years 1 to 9999 in UTC"):
        RowFilter(f"local >= {early}").bind(metadata(), table="t")
