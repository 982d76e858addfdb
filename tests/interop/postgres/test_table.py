"""Tables that the first batch creates, and columns that later ones add, in a real PostgreSQL."""

from __future__ import annotations

import threading

import deltalake
import pyarrow as pa
import pytest

from airflow_provider_fds.sinks import PostgresSink
from airflow_provider_fds.spark.writers import postgres_writer
from tests.interop.postgres.test_append import fence
from tests.postgresql import IMMEDIATE

pytestmark = pytest.mark.timeout(600)


def sink_of(table="public.made", **options):
    return PostgresSink(table, "pg", **options)


def columns(database, table):
    return database.run(
        "SELECT attname, format_type(atttypid, atttypmod), attnotnull FROM pg_attribute "
        "WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
        table,
    )


def ids(database, table="public.made"):
    return [row[0] for row in database.run(f"SELECT id FROM {table} ORDER BY id")]


def test_the_first_batch_creates_the_table_and_later_ones_find_it(spark, stream, database):
    batches = stream.plan()
    sink = sink_of(create=True, provenance=True)
    code, reports = stream.work(spark, stream.job(*batches[:2], sink=sink))
    assert (code, [report.outcome for report in reports]) == (0, ["written"] * 2), reports
    assert columns(database, "public.made") == [
        ("id", "bigint", False), ("name", "text", False), ("p", "bigint", False), ("_source_version", "bigint", False),
        ("_source_timestamp", "timestamp with time zone", False),
    ]  # fmt: skip
    code, reports = stream.work(spark, stream.job(*batches, sink=sink))
    assert (code, [report.outcome for report in reports]) == (0, ["verified", "verified", "written"])
    assert ids(database) == list(range(30))


def test_a_merge_creates_a_table_with_its_keys_as_primary_key(spark, stream, database):
    code, reports = stream.work(spark, stream.job(*stream.plan(), sink=sink_of(create=True, mode="merge", keys=["ID"])))
    assert code == 0, reports
    assert columns(database, "public.made")[0] == ("id", "bigint", True)
    assert ids(database) == list(range(30))


@pytest.mark.parametrize("table", ['"s"";drop schema public;--%"."t%s.""u"', "public.made"])
def test_every_type_that_is_held_makes_a_column_that_holds_it(spark, stream, database, table):
    database.run('CREATE SCHEMA "s"";drop schema public;--%"')
    frame = spark.sql(
        "SELECT 1L AS id, true AS `a'b`, 1Y AS tiny, 1S AS small, 1 AS whole, 0.1F AS single, 0.1D AS double, "
        "1.25BD AS amount, 'x' AS `a\"b%s`, X'00' AS bytes, DATE'2026-01-01' AS day, current_timestamp() AS at, "
        "TIMESTAMP_NTZ'2026-01-01 00:00:00' AS local, array(struct(1 AS a)) AS nested, map('a', 1) AS named"
    )
    stream.source = stream.folder / "types"
    frame.write.format("delta").option("delta.columnMapping.mode", "name").save(str(stream.source))
    code, reports = stream.work(spark, stream.job(*stream.plan(), sink=sink_of(table, create=True)))
    assert code == 0, reports
    assert [kind for _, kind, _ in columns(database, table)] == [
        "bigint", "boolean", "smallint", "smallint", "integer", "real", "double precision", "numeric(3,2)", "text",
        "bytea", "date", "timestamp with time zone", "timestamp without time zone", "jsonb", "jsonb",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("expression", "message"),
    [("INTERVAL '1' DAY AS value", "is not written to PostgreSQL"), (f"1 AS `{'é' * 32}`", "longer than 63 bytes")],
)
def test_a_column_that_the_table_could_not_hold_creates_no_table(spark, stream, database, expression, message):
    sink = sink_of(create=True, transform=f"{__name__}:changed")
    changed.expression = expression
    code, (report,) = stream.work(spark, stream.job(stream.plan()[0], sink=sink))
    assert (code, report.reason) == (11, "SINK_SCHEMA_MISMATCH"), report
    assert message in report.error_message
    assert columns(database, "public.made") == []


def changed(frame):
    return frame.selectExpr("*", changed.expression)


def test_a_missing_schema_is_named_and_a_table_that_was_dropped_is_not_made_again(spark, stream, database):
    batches = stream.plan()
    code, (report,) = stream.work(spark, stream.job(batches[0], sink=sink_of("none.made", create=True)))
    assert (code, report.reason) == (11, "SINK_MISSING")
    assert "Create the schema" in report.error_message
    _, (first,) = stream.work(spark, stream.job(batches[0], sink=sink_of(create=True)))
    database.run("DROP TABLE public.made")
    code, (report,) = stream.work(spark, stream.job(batches[1], sink=sink_of(create=True), **stream.after(first)))
    assert (code, report.reason) == (11, "SINK_MISSING")
    assert columns(database, "public.made") == []


def test_two_drivers_at_once_create_one_table(spark, stream, database):
    first, outcomes = stream.plan()[0], []

    def work(job):
        outcomes.extend(report.outcome for report in stream.work(spark, job)[1])

    threads = [threading.Thread(target=work, args=(stream.job(first, sink=sink_of(create=True)),)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["verified", "written"]
    assert ids(database) == list(range(10))


def test_a_crash_leaves_no_table_and_a_retry_creates_it(spark, stream, database, monkeypatch):
    first, reached = stream.plan()[0], []

    def reach(point):
        reached.append(point)
        if point == "driver.commit.before" and reached.count(point) == 2:
            database.server.stop(IMMEDIATE)
            database.server.start()

    monkeypatch.setattr(postgres_writer, "reach", reach)
    code, (crashed,) = stream.work(spark, stream.job(first, sink=sink_of(create=True)))
    assert (code, crashed.reason, crashed.retryable) == (10, "SINK_CONNECTION_LOST", True), crashed
    assert columns(database, "public.made") == []
    code, (report,) = stream.work(spark, stream.job(first, sink=sink_of(create=True)))
    assert (code, report.outcome) == (0, "written")
    assert ids(database) == list(range(10))


def test_a_zombie_writes_nothing_into_a_table_that_a_later_epoch_has_made(spark, stream, database):
    batches = stream.plan()
    sink = sink_of(create=True)
    assert fence(spark, stream, sink=sink)[1].outcome == "sink_missing"
    (new,) = stream.plan(epoch=2)[:1]
    assert stream.work(spark, stream.job(new, sink=sink))[0] == 0
    code, (late,) = stream.work(spark, stream.job(batches[0], sink=sink))
    assert (code, late.reason) == (10, "EPOCH_OVERTAKEN")
    assert ids(database) == list(range(10))


@pytest.fixture
def growing(stream):
    """A source whose second commit has one more column, and whose third has a nested one."""
    stream.source = stream.folder / "growing"

    def append(*columns):
        table = pa.table({name: pa.array(values, kind) for name, kind, values in columns})
        deltalake.write_deltalake(str(stream.source), table, mode="append", schema_mode="merge")

    append(("id", pa.int64(), [1]), ("n", pa.int32(), [1]))
    append(("id", pa.int64(), [2]), ("n", pa.int32(), [2]), ("Extra", pa.string(), ["x"]))
    append(("id", pa.int64(), [3]), ("more", pa.list_(pa.int64()), [[1, 2]]))
    return stream


@pytest.mark.parametrize("mode", ["append", "merge"])
def test_columns_that_the_table_lacks_are_added_and_no_others(spark, growing, database, mode):
    database.run("CREATE TABLE public.made (id bigint, n integer, own text DEFAULT 'kept')")
    batches = growing.plan()
    options = {"mode": "merge", "keys": ["id"]} if mode == "merge" else {}
    code, reports = growing.work(spark, growing.job(*batches, sink=sink_of(**options)))
    assert (code, reports[-1].reason) == (11, "SINK_SCHEMA_MISMATCH")
    assert 'ADD COLUMN "Extra" text' in reports[-1].error_message

    sink = sink_of(merge_schema=True, **options)
    code, reports = growing.work(spark, growing.job(*batches, sink=sink))
    assert code == 0, reports
    found = database.run('SELECT id, n, own, "Extra", more FROM public.made ORDER BY id')
    assert found == [(1, 1, "kept", None, None), (2, 2, "kept", "x", None), (3, None, "kept", None, [1, 2])]


def test_a_type_is_not_widened_and_the_way_out_is_named(spark, stream, database):
    database.run("CREATE TABLE public.made (id integer, name varchar(3), p numeric(4,2))")
    database.run("INSERT INTO public.made (p) VALUES (1.25)")
    code, (report,) = stream.work(spark, stream.job(stream.plan()[0], sink=sink_of(merge_schema=True)))
    assert (code, report.reason) == (11, "SINK_SCHEMA_MISMATCH")
    way = 'ALTER TABLE "public"."made" ALTER COLUMN "id" TYPE int8, ALTER COLUMN "name" TYPE text, ALTER COLUMN "p"'
    assert way in report.error_message
    database.run(report.error_message.split("`")[1])
    assert stream.work(spark, stream.job(stream.plan()[0], sink=sink_of()))[0] == 0
    assert database.run("SELECT p::text FROM public.made WHERE id IS NULL") == [("1.25",)]


def test_a_driver_of_a_closed_epoch_adds_no_column(spark, growing, database):
    database.run("CREATE TABLE public.made (id bigint)")
    first = growing.plan()[0]
    fence(spark, growing, sink=sink_of())
    code, (late,) = growing.work(spark, growing.job(first, sink=sink_of(merge_schema=True)))
    assert (code, late.reason) == (10, "EPOCH_OVERTAKEN")
    assert [name for name, _, _ in columns(database, "public.made")] == ["id"]
