"""Values of each type through real Spark into real columns: unchanged, or refused before the write."""

from __future__ import annotations

import base64
import datetime as dt
import json
import random
import sys
from decimal import Decimal

import pytest
from pyspark.sql import functions as F  # noqa: N812

from airflow_provider_fds.sinks import PostgresSink
from airflow_provider_fds.sinks.postgres import quoted
from airflow_provider_fds.spark.runtime.settings import session_conf
from airflow_provider_fds.spark.writers.postgres.line_chunks import line_chunks
from tests.interop.postgres.conftest import PostgresStream

pytestmark = pytest.mark.timeout(600)

#: Characters with a meaning for COPY, Spark's SQL or a shell, and one of four bytes.
TEXT = "tab\t newline\n return\r back\\slash \\N \\. 'quote' \"double\" ${x} %s \x08 é 🦉"

COLUMNS = {
    "flag": ("boolean", "boolean", "true"),
    "tiny": ("tinyint", "smallint", "-128Y"),
    "small": ("smallint", "smallint", "32767S"),
    "whole": ("int", "integer", "-2147483648"),
    "big": ("bigint", "bigint", "9223372036854775807"),
    "big_numeric": ("bigint", "numeric(19)", "-9223372036854775807"),
    "single": ("float", "real", "0.1F"),
    "double": ("double", "double precision", "1.7976931348623157E308D"),
    "nan": ("double", "double precision", "double('NaN')"),
    "infinite": ("float", "double precision", "float('-Infinity')"),
    "amount": ("decimal(38,18)", "numeric(38,18)", "12345678901234567890.123456789012345678BD"),
    "empty": ("string", "text", "''"),
    "bytes": ("binary", "bytea", "X'00FF5C0A'"),
    "day": ("date", "date", "DATE'1582-10-10'"),
    "far": ("date", "date", "DATE'9999-12-31'"),
    "at": ("timestamp", "timestamptz", "TIMESTAMP'2025-10-26 00:30:00.123456Z'"),
    "before": ("timestamp", "timestamptz", "TIMESTAMP'1500-01-01 00:00:00Z'"),
    "local": ("timestamp_ntz", "timestamp", "TIMESTAMP_NTZ'2025-03-30 02:30:00.000001'"),
    "local_before": ("timestamp_ntz", "timestamp", "TIMESTAMP_NTZ'1582-10-10 00:00:00'"),
}

EXPECTED = {
    "flag": True, "tiny": -128, "small": 32767, "whole": -(2**31), "big": 2**63 - 1, "big_numeric": Decimal(1 - 2**63),
    "single": pytest.approx(0.1), "double": 1.7976931348623157e308, "infinite": float("-inf"),
    "amount": Decimal("12345678901234567890.123456789012345678"), "empty": "", "bytes": b"\x00\xff\x5c\x0a",
    "day": dt.date(1582, 10, 10), "far": dt.date(9999, 12, 31),
    "at": dt.datetime(2025, 10, 26, 0, 30, 0, 123456, dt.UTC),
    "before": dt.datetime(1500, 1, 1, tzinfo=dt.UTC),
    "local": dt.datetime(2025, 3, 30, 2, 30, 0, 1),
    "local_before": dt.datetime(1582, 10, 10),
}  # fmt: skip


class Source:
    """A source with one commit, loaded into a table of its own."""

    def __init__(self, spark, database, folder):
        self.spark = spark
        self._database = database
        self._folder = folder

    def load(self, frame, table_columns, *, table="public.things", **options):
        """Load a frame; return the exit code and the report."""
        path = self._folder / "source"
        # what Spark 4 does: days before 1582 as they are
        settings = ("spark.sql.parquet.datetimeRebaseModeInWrite", "spark.sql.parquet.int96RebaseModeInWrite")
        with session_conf(self.spark, dict.fromkeys(settings, "CORRECTED")):
            frame.coalesce(1).write.format("delta").save(str(path))
        sink = PostgresSink(table, "pg", **options)
        columns = ", ".join(f"{quoted(name)} {kind}" for name, kind in table_columns.items())
        self._database.run(f"CREATE TABLE {quoted(*sink.parts)} ({columns})")
        stream = PostgresStream(self._folder, path)
        code, (report,) = stream.work(self.spark, stream.job(*stream.plan(), sink=sink))
        return code, report


@pytest.fixture
def source(spark, database, tmp_path):
    return Source(spark, database, tmp_path)


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "America/New_York"])
def test_values_arrive_unchanged_whatever_the_time_zone_of_the_session(spark, source, database, zone):
    before = spark.conf.get("spark.sql.session.timeZone")
    chosen = ", ".join(f"{value} AS {name}" for name, (_, _, value) in COLUMNS.items())
    nothing = ", ".join(f"CAST(NULL AS {kind}) AS {name}" for name, (kind, _, _) in COLUMNS.items())
    frame = spark.sql(f"SELECT 1 AS id, {chosen} UNION ALL SELECT 2 AS id, {nothing}")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        code, report = source.load(frame, {"id": "integer", **{name: kind for name, (_, kind, _) in COLUMNS.items()}})
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
    assert code == 0, report
    with database.connection(options="-c TimeZone=UTC") as connection:
        found = connection.execute("SELECT * FROM public.things ORDER BY id")
        names = [column.name for column in found.description]
        one, other = (dict(zip(names, row, strict=True)) for row in found.fetchall())
    assert {name: one[name] for name in EXPECTED} == EXPECTED
    assert one["nan"] != one["nan"]
    assert {value for name, value in other.items() if name != "id"} == {None}


def test_a_float_is_the_same_number_in_either_type(spark, source, database):
    least, most = 1.401298464324817e-45, 3.4028234663852886e38
    values = [0.1, 16777217.0, least, most, -0.0, None]
    frame = spark.createDataFrame([(n, value, value) for n, value in enumerate(values)], "id int, a float, b float")
    code, report = source.load(frame, {"id": "integer", "a": "real", "b": "double precision"})
    assert code == 0, report
    exact = [row.a for row in frame.selectExpr("id", "CAST(a AS DOUBLE) AS a").orderBy("id").collect()]
    found = database.run("SELECT a::float8, b FROM public.things ORDER BY id")
    assert found == [(value, value) for value in exact]


@pytest.mark.parametrize("is_escaped", ["true", "false"])
def test_any_text_arrives_unchanged_under_any_setting_of_literals(spark, source, database, is_escaped):
    frame = spark.createDataFrame([(1, TEXT), (2, None), (3, "x" * 1_000_000)], "id int, text string")
    key = "spark.sql.parser.escapedStringLiterals"
    before = spark.conf.get(key)
    spark.conf.set(key, is_escaped)
    try:
        code, report = source.load(frame, {"id": "integer", "text": "text"})
    finally:
        spark.conf.set(key, before)
    assert code == 0, report
    assert database.run("SELECT text FROM public.things ORDER BY id") == [(TEXT,), (None,), ("x" * 1_000_000,)]


def test_hostile_names_are_names(spark, source, database):
    hostile = ["a'b", "c--", "d.e", "F", "g%s", "h`i", "j?k", "$$"]
    frame = spark.createDataFrame([(1, *hostile)], ["id", *hostile])
    table = '"s"";drop schema public;--%"."t%s.""u"'
    database.run('CREATE SCHEMA "s"";drop schema public;--%"')
    kinds = {"id": "bigint", **dict.fromkeys(hostile, "text")}
    code, report = source.load(frame, kinds, table=table, account='acc"o%s;unt')
    assert code == 0, report
    assert database.run('SELECT * FROM "s"";drop schema public;--%"."t%s.""u"') == [(1, *hostile)]
    assert database.run('SELECT rows FROM "acc""o%s;unt".batches') == [(1,)]


@pytest.mark.parametrize(
    ("expression", "kind", "message"),
    [
        ("1.5D", "integer", "needs float8, not integer"),
        ("CAST(1.23 AS DECIMAL(5,2))", "numeric(5,1)", "it would be rounded"),
        ("current_timestamp()", "timestamp", "needs timestamptz"),
        ("'ab  '", "varchar(2)", "cuts blanks"),
        ("array(1)", "integer[]", "json of array<int> needs jsonb or json, not integer[]"),
        ("map(1, 'a')", "jsonb", "is not written to PostgreSQL"),
        ("1", "text", "needs int4 or int8 or numeric, not text"),
    ],
)
def test_a_column_that_could_change_a_value_is_refused_before_the_write(
    spark, source, database, expression, kind, message
):
    code, report = source.load(spark.sql(f"SELECT {expression} AS value"), {"value": kind})
    assert (code, report.reason) == (11, "SINK_SCHEMA_MISMATCH")
    assert message in report.error_message
    assert database.run("SELECT count(*) FROM public.things") == [(0,)]


@pytest.mark.parametrize(
    ("expression", "kind"),
    [("concat('a', char(0))", "text"), ("DATE'+10000-01-01'", "date"), ("DATE'-0001-01-01'", "date")],
)
def test_a_value_that_postgresql_cannot_hold_fails_the_batch_for_good(spark, source, database, expression, kind):
    code, report = source.load(spark.sql(f"SELECT {expression} AS value"), {"value": kind})
    assert (code, report.reason) == (11, "SINK_SCHEMA_MISMATCH")
    assert database.run("SELECT count(*) FROM public.things") == [(0,)]


def test_what_the_table_lacks_or_needs_is_named_with_the_statement_that_adds_it(spark, source, database):
    code, report = source.load(spark.sql("SELECT 1L AS id, 2 AS `new`"), {"id": "bigint", "needed": "text NOT NULL"})
    assert (code, report.reason) == (11, "SINK_SCHEMA_MISMATCH")
    assert "the batch lacks needed" in report.error_message
    assert '`ALTER TABLE "public"."things" ADD COLUMN "new" int4`' in report.error_message
    assert database.run("SELECT count(*) FROM public.things") == [(0,)]


def test_a_column_is_found_in_upper_and_lower_case_and_others_get_their_default(spark, source, database):
    kinds = {"ID": "bigint", "made": "text DEFAULT 'here'", "own": "bigint GENERATED ALWAYS AS IDENTITY"}
    code, report = source.load(spark.sql("SELECT 7L AS id"), kinds)
    assert code == 0, report
    assert database.run("SELECT * FROM public.things") == [(7, "here", 1)]


NESTED = """
    SELECT 1 AS id, array(struct(
      12345678901234567890.123456789012345678BD AS amount, 0.1F AS single, 9007199254740993L AS big,
      TIMESTAMP'2025-10-26 00:30:00.123456Z' AS at, TIMESTAMP_NTZ'2025-03-30 02:30:00.000001' AS local,
      DATE'1582-10-10' AS day, X'00FF' AS bytes, CAST(NULL AS STRING) AS nothing,
      concat('tab', char(9), char(10), char(92), 'N "quoted" ', '🦉') AS text, double('NaN') AS nan)) AS things,
      map('a.b', array(1, NULL)) AS named, CAST(NULL AS ARRAY<INT>) AS missing"""


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin"])
def test_nested_values_arrive_as_json_that_says_all_of_them(spark, source, database, zone):
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        kinds = {"id": "integer", "things": "jsonb", "named": "json", "missing": "jsonb"}
        code, report = source.load(spark.sql(NESTED), kinds)
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
    assert code == 0, report
    ((things, named, missing),) = database.run("SELECT things::text, named::text, missing FROM public.things")
    ((thing,), more) = json.loads(things, parse_float=Decimal), json.loads(named)
    assert thing == {
        "amount": Decimal("12345678901234567890.123456789012345678"), "single": Decimal("0.1"),
        "big": 9007199254740993, "at": "2025-10-26 00:30:00.123456Z", "local": "2025-03-30 02:30:00.000001",
        "day": "1582-10-10", "bytes": base64.b64encode(b"\x00\xff").decode(), "nothing": None,
        "text": 'tab\t\n\\N "quoted" 🦉', "nan": "NaN",
    }  # fmt: skip
    assert (more, missing) == ({"a.b": [1, None]}, None)


def test_nested_times_are_refused_where_a_setting_would_change_them(spark, source, database):
    key = "spark.sql.legacy.timeParserPolicy"
    before = spark.conf.get(key)
    spark.conf.set(key, "LEGACY")
    try:
        code, report = source.load(spark.sql("SELECT array(1) AS value"), {"value": "jsonb"})
    finally:
        spark.conf.set(key, before)
    assert (code, report.reason) == (11, "SINK_UNSUITABLE")


@pytest.mark.parametrize("without", [(), ("pyarrow",)], ids=["Arrow", "rows"])
def test_lines_come_in_the_same_pieces_of_text_with_pyarrow_and_without(spark, monkeypatch, without):
    for name in without:
        monkeypatch.setitem(sys.modules, name, None)
    frame = spark.range(0, 25_000, 1, 3).selectExpr("concat(repeat('é', id % 7), id, char(10)) AS line")
    pieces = list(line_chunks(frame.where("id < 100 OR id > 20000")))
    found = [piece if isinstance(piece, str) else piece.decode() for piece, _ in pieces]
    ids = [*range(100), *range(20_001, 25_000)]
    assert "".join(found) == "".join(f"{'é' * (n % 7)}{n}\n" for n in ids)
    assert [text.count("\n") for text in found] == [count for _, count in pieces]
    assert {type(piece) for piece, _ in pieces} == {str if without else bytes}


def test_an_error_of_a_task_is_not_taken_for_the_end_of_the_lines(spark):
    frame = spark.range(0, 10, 1, 2).selectExpr("IF(id = 9, raise_error('broken'), 'x') AS line")
    with pytest.raises(Exception, match="broken"):
        list(line_chunks(frame))


@pytest.mark.parametrize("without", [(), ("pyarrow",)], ids=["Arrow", "rows"])
@pytest.mark.parametrize("says_so", [True, False], ids=["random by a function that says so", "by one that does not"])
def test_each_row_comes_once_if_spark_loses_a_shuffle_between_two_partitions(spark, monkeypatch, without, says_so):
    draw = F.udf(lambda _: random.randrange(1 << 30), "long", useArrow=False)
    frame = spark.range(0, 20_000, 1, 4).repartition(3, "id")
    frame = frame.select("id", (draw.asNondeterministic() if says_so else draw)("id").alias("drawn"))
    lines = frame.repartition(8, "drawn").selectExpr("concat(id, repeat(' ', 500), char(10)) AS line")
    for name in without:
        monkeypatch.setitem(sys.modules, name, None)
    pieces = line_chunks(lines)
    found = [next(pieces)]
    tracker = spark._jvm.org.apache.spark.SparkEnv.get().mapOutputTracker()
    shuffles = tracker.shuffleStatuses().keysIterator()
    while shuffles.hasNext():
        tracker.unregisterAllMapAndMergeOutput(shuffles.next())
    found += pieces
    text = "".join(piece if isinstance(piece, str) else piece.decode() for piece, _ in found)
    assert sorted(map(int, text.split())) == list(range(20_000))


@pytest.mark.parametrize("without", [(), ("pyarrow",)], ids=["Arrow", "rows"])
def test_settings_of_the_session_hold_where_the_lines_are_made(spark, monkeypatch, without):
    for name in without:
        monkeypatch.setitem(sys.modules, name, None)
    policy = "spark.sql.legacy.timeParserPolicy"
    day = """from_json(concat('{"day": "2026-1-', id + 1, '"}'), 'day date', map('dateFormat', 'yyyy-MM-dd')).day"""
    with session_conf(spark, {policy: "LEGACY"}):
        frame = spark.range(0, 2, 1, 2).selectExpr(f"coalesce(CAST({day} AS STRING), 'none') AS line")
        found = list(line_chunks(frame.selectExpr("concat(line, char(10)) AS line")))
    text = "".join(piece if isinstance(piece, str) else piece.decode() for piece, _ in found)
    assert text == "2026-01-01\n2026-01-02\n"
    assert spark.sparkContext.getLocalProperty(policy) is None
