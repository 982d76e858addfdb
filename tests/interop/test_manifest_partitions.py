"""Partition values of every type and every odd text, in a table whose path is odd as well."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

ODD = [
    "a b",
    "100%",
    "k=v",
    "naïve 🚀",
    "line\nbreak",
    "/:#?",
    "%20",
    'it\'s "q" \\ `b`',
    "[x]{y}*",
    None,
]


@pytest.fixture(scope="module")
def strings(lab):
    path = lab.create("odd strings", "(id LONG, p STRING, n INT) USING delta PARTITIONED BY (p, n)")
    data = [(i, text, i % 2 or None) for i, text in enumerate(ODD)]
    frame = lab.spark.createDataFrame(data, "id LONG, p STRING, n INT")
    frame.write.format("delta").mode("append").save(path)
    return path


TYPED = (
    "(id LONG, d DATE, ts TIMESTAMP, tn TIMESTAMP_NTZ, dec DECIMAL(20,5), b BOOLEAN, x DOUBLE, f FLOAT, y BYTE, "
    "bin BINARY, s SHORT, l LONG) USING delta PARTITIONED BY (d, ts, tn, dec, b, x, f, y, bin, s, l)"
)
TYPED_ROWS = """INSERT INTO {} VALUES
  (1, DATE'0001-01-01', TIMESTAMP'1969-12-31 23:59:59.123456', TIMESTAMP_NTZ'2026-03-29 02:30:00', -0.00001, true,
   double('NaN'), float('-Infinity'), -128, X'41', -32768, 9223372036854775807),
  (2, DATE'2026-02-28', TIMESTAMP'2026-01-01 00:00:00', TIMESTAMP_NTZ'1900-01-01 00:00:00.1', 123456789012345.12345,
   false, 1E300, -0.0, 127, X'C3A9', 32767, -1),
  (3, null, null, null, null, null, null, null, null, null, null, null)"""


@pytest.fixture(scope="module")
def typed(lab):
    path = lab.create("typed", TYPED)
    lab.sql(TYPED_ROWS, path)
    return path


# D45
def test_odd_partition_texts_are_read_as_structured_streaming_reads_them(lab, strings):
    frame = lab.read_one(strings)

    assert {row.p for row in frame.collect()} == set(ODD)
    assert lab.rows(frame) == lab.streamed(strings)


def test_an_odd_partition_text_can_be_filtered(lab, strings):
    frame = lab.read_one(strings)

    for text in ("%20", "/:#?", "line\nbreak"):
        assert [row.id for row in frame.where(frame.p == text).collect()] == [ODD.index(text)]


# D45
def test_typed_partition_values_are_read_as_structured_streaming_reads_them(lab, typed):
    with lab.session_zone("America/New_York"):
        assert lab.rows(lab.read_one(typed)) == lab.streamed(typed)


# D44, D45
def test_columns_are_those_of_the_table_in_its_order_and_any_of_them_may_be_selected(lab):
    definition = "(a LONG, p STRING, b STRING, n INT, c DOUBLE) USING delta PARTITIONED BY (n, p)"
    path = lab.create("in the middle", definition)
    lab.sql("INSERT INTO {} VALUES (1, '50%', 'x', 1, 0.5), (2, NULL, 'y', 2, 1.5), (3, 'a/b', 'z', NULL, 2.5)", path)
    frame = lab.read_one(path)
    table = lab.spark.read.format("delta").load(path)

    assert frame.columns == [*"apbnc", "_commit_version", "_commit_timestamp"]
    for columns in ("apbnc", "ca", "np", "p", "bna"):
        selected = frame.select(*columns)
        assert selected.columns == [*columns]
        assert lab.rows(selected) == lab.rows(table.select(*columns))


def test_version_and_time_of_each_row_are_those_of_its_commit_in_every_time_zone(lab, typed):
    history = {r.version: r.timestamp for r in lab.sql("DESCRIBE HISTORY {}", typed).collect()}
    expected = [(1, int(history[1].astimezone(UTC).timestamp() * 1_000_000))] * 3
    frame = lab.read_one(typed).selectExpr("_commit_version", "unix_micros(_commit_timestamp)")

    for zone in ("UTC", "America/New_York", "Asia/Tokyo"):
        with lab.session_zone(zone):
            assert [tuple(row) for row in frame.collect()] == expected

    assert datetime.fromtimestamp(expected[0][1] / 1_000_000, UTC).year >= 2026
