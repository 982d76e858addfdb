"""``where`` on partition columns leaves out what Spark's ``where`` leaves out, for every type and with NULLs."""

from __future__ import annotations

import pytest

TYPED = (
    "(id LONG, s STRING, i INT, d DATE, ts TIMESTAMP, tn TIMESTAMP_NTZ, n DECIMAL(10,2), b BOOLEAN, x DOUBLE, f FLOAT, "
    "`odd-é` STRING) USING delta PARTITIONED BY (s, i, d, ts, tn, n, b, x, f, `odd-é`)"
)
TYPED_ROWS = """INSERT INTO {} VALUES
  (1, 'a', 1, DATE'2026-01-31', TIMESTAMP'2026-01-01 00:00:00', TIMESTAMP_NTZ'2026-01-01 00:00:00', 1.50, true, 0.1,
   0.1, 'it''s'),
  (2, 'B', -7, DATE'2026-02-01', TIMESTAMP'2026-01-01 00:00:00.000001', TIMESTAMP_NTZ'1900-01-01 00:00:00.1', -0.01,
   false, double('NaN'), float('NaN'), '%20 /x'),
  (3, 'é', 2147483647, DATE'0001-01-01', TIMESTAMP'1969-12-31 23:59:59.123456', TIMESTAMP_NTZ'2026-03-29 02:30:00',
   99999999.99, true, -0.0, float('-Infinity'), 'a b'),
  (4, '🚀', 0, DATE'2026-12-31', TIMESTAMP'2030-01-01 00:00:00', TIMESTAMP_NTZ'2026-01-01 00:00:00', 0, false, 1E300,
   0.5, '`'),
  (5, null, null, null, null, null, null, null, null, null, null)"""

PREDICATES = [
    "s = 'a'",
    "S != 'a'",
    "s < 'b'",
    "s > 'z'",
    "s >= 'é' AND s <> '🚀'",
    "s IN ('a', 'B')",
    "s NOT IN ('a', 'B')",
    "NOT s = 'a' OR s IS NULL",
    "NOT (s = 'a' OR i > 0)",
    "s IS NOT NULL AND NOT s BETWEEN 'B' AND 'a'",
    "i < 1.5",
    "i = 2147483647",
    "1 <= i",
    "i BETWEEN -7 AND 0",
    "i NOT BETWEEN -7 AND 0",
    "d >= DATE '2026-01-31'",
    "d = '2026-02-01'",
    "d NOT IN ('2026-02-01', DATE '0001-01-01')",
    "ts > TIMESTAMP '2026-01-01 00:00:00'",
    "ts = TIMESTAMP '2026-01-01 01:00:00+01:00'",
    "ts < DATE '2026-01-01'",
    "ts <= '1969-12-31 23:59:59.123456'",
    "tn = TIMESTAMP '2026-01-01 00:00:00'",
    "tn < '1900-01-01 00:00:00.2'",
    "n = 1.5",
    "n < 0",
    "n >= 99999999.99",
    "b = true",
    "b != TRUE",
    "b > false",
    "x = 0.1",
    "x > 1",
    "x = 0",
    "f = 0.1",
    "f >= 0.1",
    "f < 0",
    "f <> 0.5",
    "`odd-é` = 'it''s'",
    "`odd-é` IN ('%20 /x', 'a b', '`')",
    "s = 'a' AND i = 1 OR d IS NULL AND x IS NULL",
]


@pytest.fixture(scope="module")
def typed(lab):
    path = lab.create("filtered", TYPED)
    lab.sql(TYPED_ROWS, path)
    return path


@pytest.fixture(scope="module")
def judged(lab, typed):
    """What Spark says of each predicate for the row of each data file, which has one: where leaves what is true."""
    said = [f"({predicate}) AS `{number}`" for number, predicate in enumerate(PREDICATES)]
    frame = lab.spark.read.format("delta").load(typed).selectExpr("_metadata.file_name AS name", *said)
    return {row.name: row for row in frame.collect()}


@pytest.mark.parametrize("predicate", PREDICATES)
def test_a_predicate_leaves_the_rows_that_sparks_where_leaves(lab, typed, judged, predicate):
    wanted = {name for name, row in judged.items() if row[str(PREDICATES.index(predicate))] is True}
    planned = {
        file.add.path.rpartition("/")[2] for batch in lab.batches(typed, where=predicate) for file in batch.files
    }
    assert len(judged) == 5
    assert planned == wanted


def test_78_a_batch_with_a_filter_reads_as_structured_streaming_with_a_where_does(lab, typed):
    predicate = "s IN ('a', 'é') OR b = false"
    frame = lab.read_one(typed, where=predicate)

    assert sorted(row.id for row in frame.collect()) == [1, 2, 3, 4]
    assert lab.rows(frame) == lab.rows(lab.spark.read.format("delta").load(typed).where(predicate))


@pytest.mark.parametrize("mode", ["name", "id"])
def test_78_under_column_mapping_a_predicate_names_columns_as_they_are_called_now(lab, mode):
    path = lab.create(
        f"mapped {mode}",
        f"(id LONG, old STRING) USING delta PARTITIONED BY (old) TBLPROPERTIES ('delta.columnMapping.mode' = '{mode}')",
    )
    lab.sql("ALTER TABLE {} RENAME COLUMN old TO country", path)
    lab.sql("INSERT INTO {} VALUES (1, 'DE'), (2, 'FR'), (3, null)", path)

    frame = lab.read_one(path, 1, where="country != 'FR'")
    assert [tuple(row)[:2] for row in frame.collect()] == [(1, "DE")]


def test_a_column_mapped_in_mid_range_is_filtered_before_and_after(lab):
    path = lab.create("mapped later", "(id LONG, country STRING) USING delta PARTITIONED BY (country)")
    lab.sql("INSERT INTO {} VALUES (1, 'DE'), (2, 'FR')", path)
    lab.sql("ALTER TABLE {} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')", path)
    lab.sql("INSERT INTO {} VALUES (3, 'DE'), (4, 'FR')", path)

    found = lab.read_all(path, where="country = 'DE'")
    assert found == lab.rows(lab.spark.read.format("delta").load(path).where("country = 'DE'"))


def test_changes_are_filtered_as_a_where_on_deltas_change_feed_does(lab):
    path = lab.create(
        "changed",
        "(id LONG, country STRING) USING delta PARTITIONED BY (country) "
        "TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')",
    )
    for statement in (
        "INSERT INTO {} VALUES (1, 'DE'), (2, 'FR'), (3, null), (4, 'DE')",
        "UPDATE {} SET id = id + 10 WHERE id = 1",
        "UPDATE {} SET country = 'FR' WHERE id = 4",
        "DELETE FROM {} WHERE country = 'DE'",
        "DELETE FROM {} WHERE country IS NULL",
    ):
        lab.sql(statement, path)
    feed = lab.spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", 1).load(path)

    for predicate in ("country = 'DE'", "country IS NULL OR country = 'FR'"):
        found = lab.read_all(path, 1, read_change_feed=True, ignore_changes=False, where=predicate)
        assert found == lab.rows(feed.where(predicate)), predicate
