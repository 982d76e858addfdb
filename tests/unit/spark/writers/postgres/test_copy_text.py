"""Which types of PostgreSQL hold each value of a type of Spark."""

from __future__ import annotations

import pytest

from airflow_provider_fds.spark.writers.postgres.copy_text import TargetColumn, suggested, unfit, widened


def column(name: str, typmod: int = -1, **changes: object) -> TargetColumn:
    values = {"name": "c", "type": name, "typmod": typmod, "is_needed": False, "is_generated": False, "is_plain": True}
    return TargetColumn(**{**values, "shown": name, **changes})


def numeric(precision: int, scale: int) -> TargetColumn:
    return column("numeric", ((precision << 16) | (scale & 0x7FF)) + 4, shown=f"numeric({precision},{scale})")


HELD = [
    ("boolean", column("bool")), ("tinyint", column("int2")), ("smallint", column("int8")), ("int", column("int4")),
    ("int", column("numeric")), ("bigint", column("int8")), ("bigint", numeric(19, 0)), ("int", numeric(12, 2)),
    ("float", column("float8")), ("double", column("float8")), ("decimal(10,2)", column("numeric")),
    ("decimal(10,2)", numeric(10, 2)), ("decimal(10,2)", numeric(12, 4)), ("string", column("text")),
    ("string", column("varchar")), ("string", column("json")), ("binary", column("bytea")), ("date", column("date")),
    ("timestamp", column("timestamptz")), ("timestamp", column("timestamptz", 6)),
    ("timestamp_ntz", column("timestamp")), ("json of array<int>", column("jsonb")),
    ("json of struct<a:int>", column("json")),
]  # fmt: skip

CHANGED = [
    ("bigint", column("int4"), "needs int8 or numeric"),
    ("bigint", column("float8"), "needs int8 or numeric"),
    ("bigint", numeric(18, 0), "rounded, or too large"),
    ("decimal(10,2)", numeric(10, 1), "rounded, or too large"),
    ("decimal(10,2)", numeric(11, 4), "rounded, or too large"),
    ("decimal(3,2)", numeric(3, -2), "rounded, or too large"),
    ("double", column("float4"), "needs float8"),
    ("double", column("numeric"), "needs float8"),
    ("string", column("varchar", 14), "cuts blanks"),
    ("string", column("bpchar", 14), "needs text"),
    ("string", column("jsonb"), "needs text"),
    ("timestamp", column("timestamp"), "needs timestamptz"),
    ("timestamp", column("timestamptz", 0), "rounds"),
    ("timestamp_ntz", column("timestamptz"), "needs timestamp"),
    ("date", column("timestamp"), "needs date"),
    ("string", column("text", is_plain=False), "needs text"),
    ("int", column("int4", is_generated=True), "generates its values"),
    ("array<int>", column("_int4"), "not written to PostgreSQL"),
    ("struct<a:interval>", column("jsonb"), "not written to PostgreSQL"),
    ("json of struct<a:int>", column("text"), "json of struct<a:int> needs jsonb or json, not text"),
    ("interval day to second", column("interval"), "not written to PostgreSQL"),
]


@pytest.mark.parametrize(("spark_type", "target"), HELD)
def test_a_type_that_holds_each_value_is_accepted(spark_type, target):
    assert unfit(spark_type, target) is None


@pytest.mark.parametrize(("spark_type", "target", "message"), CHANGED)
def test_a_type_that_could_change_a_value_is_refused(spark_type, target, message):
    problem = unfit(spark_type, target)
    assert problem is not None
    assert message in problem


def test_a_missing_column_is_suggested_with_a_type_that_holds_its_values():
    assert [suggested(one) for one in ("bigint", "decimal(10,2)", "string", "map<string,int>")] == [
        "int8", "numeric(10,2)", "text", "json"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("spark_type", "target", "type_for_both"),
    [
        ("bigint", column("int4"), "int8"),
        ("int", numeric(10, 2), "numeric(12,2)"),
        ("bigint", numeric(2, 0), "numeric(19,0)"),
        ("decimal(30,2)", numeric(20, 6), "numeric(34,6)"),
        ("decimal(10,4)", numeric(20, 2), "numeric(22,4)"),
        ("decimal(10,2)", column("int8"), "numeric(21,2)"),
        ("decimal(38,2)", numeric(1000, 990), "numeric"),
        ("double", column("float4"), "float8"),
        ("string", column("varchar", 7), "text"),
        ("timestamp", column("timestamptz", 0), "timestamptz"),
        ("double", column("numeric"), None),
        ("string", column("jsonb"), None),
        ("bigint", column("int4", is_plain=False), None),
    ],
)
def test_a_wider_type_holds_what_the_column_has_and_what_it_gets(spark_type, target, type_for_both):
    assert unfit(spark_type, target) is not None
    assert widened(spark_type, target) == type_for_both
