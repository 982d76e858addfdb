"""The table of type pairs against Delta: what an append does with each pair is the judge, and a merge does the same."""

from __future__ import annotations

import pytest

from airflow_provider_fds.batch.column_fit import fit
from airflow_provider_fds.sinks import DeltaAppendSink, DeltaMergeSink
from airflow_provider_fds.spark.runtime.versions import minor

TYPES = [
    "BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL(10,0)", "DECIMAL(10,2)",
    "DECIMAL(12,2)", "DECIMAL(12,4)", "DECIMAL(22,2)", "STRING", "BINARY", "DATE", "TIMESTAMP", "TIMESTAMP_NTZ",
]  # fmt: skip
WIDENING = "TBLPROPERTIES ('delta.enableTypeWidening' = 'true')"


def frame_of(spark, kind):
    return spark.sql(f"SELECT CAST(NULL AS {kind}) AS v").where("false")


def appended(spark, path, frame):
    """Append with Delta alone; return whether it accepts the type."""
    writer = frame.write.format("delta").mode("append").option("mergeSchema", "true")
    try:
        writer.save(str(path))
    except Exception as error:
        if "DELTA_" not in str(error):
            raise
        return False
    return True


def test_the_table_allows_what_an_append_of_delta_allows_and_casts_without_loss(spark, tmp_path):
    frames = {kind: frame_of(spark, kind) for kind in TYPES}
    names = {kind: frame.schema["v"].dataType.jsonValue() for kind, frame in frames.items()}
    wrong = []
    for number, sink in enumerate(TYPES):
        # a column for each source, since an append may widen its type
        path, columns = tmp_path / f"sink{number}", {source: f"v{n}" for n, source in enumerate(TYPES)}
        definition = ", ".join(f"{column} {sink}" for column in columns.values())
        spark.sql(f"CREATE TABLE delta.`{path}` ({definition}) USING delta {WIDENING}")
        answers = {source: fit(names[source], names[sink], "all") for source in TYPES}
        wrong += [
            (source, sink)
            for source, answer in answers.items()
            if answer == "unfit" and appended(spark, path, frames[source].selectExpr(f"v AS {columns[source]}"))
        ]
        # FDS casts what is exact, so that Delta sees the same types
        taken = [source for source, answer in answers.items() if answer not in ("exact", "unfit")]
        nulls = ", ".join(f"CAST(NULL AS {source}) AS {columns[source]}" for source in taken)
        if not appended(spark, path, spark.sql(f"SELECT {nulls}").where("false")):
            wrong.append((taken, sink))
    assert wrong == []


LIMITS = {
    "TINYINT": ("-128", "127"),
    "SMALLINT": ("-32768", "32767"),
    "INT": ("-2147483648", "2147483647"),
    "BIGINT": ("-9223372036854775808", "9223372036854775807"),
    "FLOAT": ("-3.4028235E38", "1.4E-45", "0.1"),
    "DECIMAL(10,0)": ("-9999999999", "9999999999"),
    "DECIMAL(10,2)": ("-99999999.99", "99999999.99"),
    "DECIMAL(12,2)": ("-9999999999.99", "9999999999.99"),
    "DATE": ("0001-01-01", "1582-10-15", "9999-12-31"),
}


def test_a_cast_that_is_exact_keeps_the_outermost_values(spark):
    names = {kind: frame_of(spark, kind).schema["v"].dataType.jsonValue() for kind in TYPES}
    exact = [(source, sink) for source in TYPES for sink in TYPES if fit(names[source], names[sink]) == "exact"]
    assert len(exact) == 27
    checks = [
        f"CAST(CAST(CAST('{text}' AS {source}) AS {sink}) AS {source}) <=> CAST('{text}' AS {source})"
        for source, sink in exact
        for text in LIMITS[source]
    ]
    assert all(spark.sql(f"SELECT {', '.join(checks)}").first())


UNFIT = {
    "id": ("STRING", "INT", "'007'"),
    "at": ("STRING", "BIGINT", "'08'"),
    "d": ("STRING", "DECIMAL(9,2)", "'1.005'"),
    "day": ("STRING", "DATE", "'2026-01-01 13:00:00'"),
    "f": ("STRING", "DOUBLE", "'1e400'"),
    "b": ("STRING", "BOOLEAN", "'yes'"),
    "n": ("INT", "BOOLEAN", "7"),
    "ts": ("TIMESTAMP", "BIGINT", "TIMESTAMP'2026-01-01 00:00:00.5Z'"),
    "back": ("BIGINT", "TIMESTAMP", "1"),
    "tz": ("TIMESTAMP", "TIMESTAMP_NTZ", "TIMESTAMP'2026-01-01 00:00:00Z'"),
    "ntz": ("TIMESTAMP_NTZ", "TIMESTAMP", "TIMESTAMP_NTZ'2026-01-01 00:00:00'"),
    "big": ("BIGINT", "INT", "1"),
    "whole": ("DECIMAL(9,0)", "BIGINT", "1"),
    "s": ("STRUCT<x: STRING>", "STRUCT<x: INT>", "named_struct('x', '07')"),
    "a": ("ARRAY<STRING>", "ARRAY<INT>", "array('07')"),
    "k": ("MAP<STRING, INT>", "MAP<INT, INT>", "map('07', 1)"),
    "m": ("MAP<STRING, STRUCT<y: STRING>>", "MAP<STRING, STRUCT<y: INT>>", "map('k', named_struct('y', '07'))"),
}
NESTED = {"s": "s.x", "a": "a.element", "k": "k.key", "m": "m.value.y"}


@pytest.mark.parametrize("sink", ["append", "merge", "history"])
def test_values_that_the_sink_cannot_hold_are_refused_in_every_sink(spark, stream, sink):
    stream.source = stream.folder / "texts"
    columns = ", ".join(f"{name} {ours}" for name, (ours, _, _) in UNFIT.items())
    spark.sql(f"CREATE TABLE delta.`{stream.source}` ({columns}) USING delta")
    spark.sql(f"INSERT INTO delta.`{stream.source}` SELECT {', '.join(value for *_, value in UNFIT.values())}")
    theirs = ", ".join(f"{name} {theirs}" for name, (_, theirs, _) in UNFIT.items())
    validity = ", _valid_from TIMESTAMP, _valid_to DATE, _is_current BOOLEAN" if sink == "history" else ""
    spark.sql(f"CREATE TABLE delta.`{stream.sink_path}` ({theirs}{validity}) USING delta")
    path = str(stream.sink_path)
    declared = {
        "append": DeltaAppendSink(path),
        "merge": DeltaMergeSink(path, keys=["id"], sequence_by="at"),
        "history": DeltaMergeSink(path, keys=["id"], scd=2, merge_schema=True),
    }
    (batch,) = stream.plan()
    code, (report,) = stream.work(spark, stream.job(batch, sink=declared[sink]))
    assert (code, report.error_class) == (11, "SINK_SCHEMA_MISMATCH")
    shown = {line.split()[0] for line in report.error_message.splitlines() if line.startswith("  ")}
    first = {NESTED.get(name, name) for name in list(UNFIT)[:8]}
    assert shown - {"column", "and"} == first
    assert f"and {len(UNFIT) - 8 + (sink == 'history')} more" in report.error_message
    assert spark.read.format("delta").load(path).count() == 0


NARROW = (
    "id SMALLINT, at INT, f FLOAT, d DECIMAL(10,2), n INT, s STRUCT<b: INT, a: DATE>, l ARRAY<INT>, m MAP<INT, FLOAT>"
)
WIDE = (
    "m MAP<BIGINT, DOUBLE>, id BIGINT, at DECIMAL(12,2), f DOUBLE, d DECIMAL(22,2), n DOUBLE, "
    "s STRUCT<a: TIMESTAMP_NTZ, b: BIGINT>, l ARRAY<BIGINT>"
)


@pytest.mark.parametrize("sink", ["append", "merge"])
def test_narrower_values_go_into_wider_columns_of_every_sink(spark, stream, sink):
    stream.source = stream.folder / "narrow"
    spark.sql(f"CREATE TABLE delta.`{stream.source}` ({NARROW}) USING delta")
    for id_ in (1, 2):
        spark.sql(
            f"INSERT INTO delta.`{stream.source}` VALUES ({id_}, 7, 0.1, 1.25, 9, "
            "named_struct('b', 2, 'a', DATE'2026-01-31'), array(1, NULL), map(3, 0.5))"
        )
    spark.sql(f"CREATE TABLE delta.`{stream.sink_path}` ({WIDE}) USING delta")
    declared = DeltaAppendSink(str(stream.sink_path))
    if sink == "merge":
        declared = DeltaMergeSink(str(stream.sink_path), keys=["id"], sequence_by="at")
    code, reports = stream.work(spark, stream.job(*stream.plan(), sink=declared))
    assert (code, len(reports)) == (0, 2), reports
    frame = spark.read.format("delta").load(str(stream.sink_path))
    assert frame.dtypes[1] == ("id", "bigint")
    row = frame.where("id = 2").selectExpr(
        "at", "f = CAST(CAST(0.1 AS FLOAT) AS DOUBLE)", "d", "n", "string(s.a)", "s.b", "l", "m"
    ).first()  # fmt: skip
    assert [*map(str, row[:2]), *map(str, row[2:6])] == ["7.00", "True", "1.25", "9.0", "2026-01-31 00:00:00", "2"]
    assert (row[6], row[7]) == ([1, None], {3: 0.5})


def test_types_of_the_sink_widen_with_those_of_the_batch(spark, stream):
    stream.source = stream.folder / "wide"
    wide = "id BIGINT, f DOUBLE, d DECIMAL(22,2), s STRUCT<b: BIGINT>, l ARRAY<BIGINT>, n DOUBLE"
    spark.sql(f"CREATE TABLE delta.`{stream.source}` ({wide}) USING delta")
    spark.sql(
        f"INSERT INTO delta.`{stream.source}` VALUES (5000000000, 1e300, 12345678901234567890.12, "
        "named_struct('b', 5000000000), array(5000000000), 0.5)"
    )
    narrow = "id INT, f FLOAT, d DECIMAL(10,2), s STRUCT<b: INT>, l ARRAY<INT>, n INT"
    (batch,) = stream.plan()
    sinks = [DeltaAppendSink, DeltaMergeSink] if minor(spark.version) >= (4, 2) else [DeltaAppendSink]
    for kind in sinks:
        path = stream.folder / kind.__name__
        spark.sql(f"CREATE TABLE delta.`{path}` ({narrow}) USING delta {WIDENING}")
        keys = {"keys": ["id"]} if kind is DeltaMergeSink else {}
        code, (report,) = stream.work(spark, stream.job(batch, sink=kind(str(path), merge_schema=True, **keys)))
        assert code == 0, report.error_message
        found, source = (spark.read.format("delta").load(str(place)) for place in (path, stream.source))
        assert (found.dtypes, found.collect()) == (source.dtypes, source.collect())


def test_a_column_that_the_sink_lost_since_the_last_job_of_the_process_is_missed(spark, stream):
    first, second, third = stream.plan()
    sink = DeltaAppendSink(str(stream.sink_path), properties={"delta.columnMapping.mode": "name"})
    known = {}
    for batch in (first, second):
        code, (report,) = stream.work(spark, stream.job(batch, sink=sink, **known))
        assert code == 0
        known = stream.after(report)
    spark.sql(f"ALTER TABLE delta.`{stream.sink_path}` DROP COLUMN name")
    code, (report,) = stream.work(spark, stream.job(third, sink=sink, **known))
    assert (code, report.error_class) == (11, "SINK_SCHEMA_MISMATCH")
    assert "has columns name that the sink" in report.error_message
