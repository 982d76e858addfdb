"""Values of every type of Delta, from the source through a batch into the sink."""

from __future__ import annotations

import pytest

COLUMNS = """id LONG, y BYTE, s SHORT, i INT, f FLOAT, d DOUBLE, m DECIMAL(38, 18), b BOOLEAN, t STRING, v VARCHAR(40),
  c CHAR(3), x BINARY, da DATE, ts TIMESTAMP, tn TIMESTAMP_NTZ, va VARIANT,
  st STRUCT<a: INT, n: STRUCT<t: STRING>>, ar ARRAY<STRING>, ma MAP<STRING, ARRAY<DATE>>"""

VALUES = (
    """1, -128, -32768, -2147483648, float('-Infinity'), double('NaN'), -12345678901234567890.123456789012345678, true,
  repeat('long text 🚀 ', 1000), 'forty characters at most é', 'a', X'00FF', DATE'0001-01-01',
  TIMESTAMP'1969-12-31 23:59:59.123456', TIMESTAMP_NTZ'2026-03-29 02:30:00', parse_json('{"k": [1, null, "text"]}'),
  named_struct('a', 1, 'n', named_struct('t', 'inner text')), array('first', NULL, ''),
  map('key one', array(DATE'2026-02-28', NULL))""",
    """2, 127, 32767, 2147483647, -0.0, 1E300, 0, false, '', '', 'abc', X'', DATE'9999-12-31',
  TIMESTAMP'2026-01-01 00:00:00', TIMESTAMP_NTZ'1900-01-01 00:00:00.1', parse_json('"only text"'),
  named_struct('a', NULL, 'n', NULL), array(), map()""",
    "3" + ", NULL" * 18,
)


@pytest.fixture
def typed(spark, tmp_path, stream):
    """A stream of a table with three rows, some values among them as large and as odd as they come."""
    source = tmp_path / "typed"
    spark.sql(f"CREATE TABLE delta.`{source}` ({COLUMNS}) USING delta")
    for values in VALUES:
        spark.sql(f"INSERT INTO delta.`{source}` VALUES ({values})")
    stream.source = source
    return stream


# D46
def test_every_value_of_every_type_reaches_the_sink_as_it_is(spark, typed):
    code, reports = typed.work(spark, typed.job(*typed.plan()))
    assert (code, [report.outcome for report in reports]) == (0, ["written"] * 3)

    def rows(path):
        frame = spark.read.format("delta").load(str(path)).selectExpr("* EXCEPT (va)", "to_json(va) AS va")
        # a NaN equals nothing, its text does
        return frame.dtypes, sorted(repr(row) for row in frame.collect())

    assert rows(typed.sink_path) == rows(typed.source)
    written = spark.read.format("delta").load(str(typed.sink_path))
    assert dict(written.dtypes)["va"] == "variant"
    assert written.where("id = 1").selectExpr("length(t)", "t").first() == (12_000, "long text 🚀 " * 1000)
