"""Which files are left out, and what the manifest says of those that are read, on tables as hostile writers leave them.

Spark is the judge: the rows of the whole table, read without any filter and so without any statistics, then filtered.
"""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from airflow_provider_fds.spark.application.batch_rows import batch_rows
from tests.interop.spark.conftest import ids_of

ZONE = "America/New_York"
PROTOCOLS = {
    "timestamp_ntz": {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": ["timestampNtz"],
        "writerFeatures": ["timestampNtz"],
    }
}


def write_table(path, type_, files, *, is_partition=False, version=0):
    """Write a table of ``id`` and ``c`` by hand: a commit for each file of (value in it, value or bound in the log)."""
    (path / "_delta_log").mkdir(parents=True)
    fields = [{"name": n, "type": t, "nullable": True, "metadata": {}} for n, t in (("id", "long"), ("c", type_))]
    head = [
        {"protocol": PROTOCOLS.get(type_, {"minReaderVersion": 1, "minWriterVersion": 2})},
        {
            "metaData": {
                "id": "11111111-2222-3333-4444-555555555555",
                "format": {"provider": "parquet", "options": {}},
                "schemaString": json.dumps({"type": "struct", "fields": fields}),
                "partitionColumns": ["c"] if is_partition else [],
                "configuration": {},
                "createdTime": 0,
            }
        },
    ]
    for number, (value, logged) in enumerate(files):
        file = path / f"{number}.parquet"
        columns: dict[str, Any] = {"id": pa.array([number], pa.int64())}
        stats: dict[str, Any] = {"numRecords": 1}
        if not is_partition:
            columns["c"] = value
            stats |= {"minValues": {"c": logged}, "maxValues": {"c": logged}, "nullCount": {"c": 0}}
        pq.write_table(pa.table(columns), file)
        add = {
            "path": file.name,
            "partitionValues": {"c": logged} if is_partition else {},
            "size": file.stat().st_size,
            "modificationTime": 0,
            "dataChange": True,
            "stats": json.dumps(stats),
        }
        lines = [*(head if number == 0 else ()), {"add": add}]
        (path / "_delta_log" / f"{version + number:020d}.json").write_text("\n".join(map(json.dumps, lines)))


def check(spark, stream, path, predicates, *, reads_all=False):
    """Compare the rows of a stream with those of the whole table that satisfy each predicate, in a zone west of UTC."""
    spark.conf.set("spark.sql.session.timeZone", ZONE)
    try:
        # in memory, so that a filter does not reach the table
        whole = spark.read.format("delta").load(str(path)).localCheckpoint()
        said = (f"({in_spark or predicate}) AS `{number}`" for number, (predicate, in_spark) in enumerate(predicates))
        rows = whole.selectExpr("id", *said).collect()
        stream.source = path
        expected, frames = {}, {}
        for number, (predicate, in_spark) in enumerate(predicates):
            ids = sorted(row.id for row in rows if row[str(number)])
            for stats in (True, False):
                stream.options = {"where": predicate, "stage_statistics": stats}
                expected[predicate, stats] = ids
                frames[predicate, stats] = [batch_rows(spark, batch) for batch in stream.plan()]
            if reads_all:
                # a filter of the user's own job
                stream.options = {}
                read = [batch_rows(spark, batch).where(in_spark or predicate) for batch in stream.plan()]
                expected[predicate, "job"], frames[predicate, "job"] = ids, read
        assert ids_of(frames) == expected
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


def same(*predicates):
    return [(predicate, None) for predicate in predicates]


def test_an_empty_text_as_a_partition_value_is_a_value(spark, stream, tmp_path):
    path = tmp_path / "source"
    table = pa.table({"id": pa.array([1, 2, 3], pa.int64()), "c": ["a", "", None]})
    write_deltalake(str(path), table, partition_by=["c"])
    check(
        spark,
        stream,
        path,
        same("c IS NULL", "c IS NOT NULL", "c <> 'a'", "c = ''", "NOT c = 'a' OR c IS NULL"),
    )


def test_an_empty_text_is_null_for_other_types(spark, stream, tmp_path):
    path = tmp_path / "source"
    write_table(path, "integer", [(None, "1"), (None, ""), (None, None)], is_partition=True)
    check(spark, stream, path, same("c IS NULL", "c <> 2"))


def test_times_without_a_zone_in_partition_values_are_those_of_the_session(spark, stream, tmp_path):
    path = tmp_path / "source"
    values = ["2024-01-01 20:00:00", "2024-01-02 01:00:00", "2024-01-01 10:00:00", "2024-01-02T00:00:00.000000Z"]
    write_table(path, "timestamp", [(None, value) for value in values], is_partition=True)
    check(
        spark,
        stream,
        path,
        same("c >= TIMESTAMP '2024-01-02 00:00:00Z'", "c < TIMESTAMP '2024-01-01 18:00:00Z'"),
    )


@pytest.mark.parametrize(
    ("type_", "values", "predicates"),
    [
        (
            "date",
            ["2024-01-01", "+10000-01-01", "2024", "-0001-01-01", "0000-01-01"],
            ["c > DATE '2024-01-01'", "c = DATE '2024-01-01'", "c IS NOT NULL"],
        ),
        (
            "timestamp",
            ["+10000-01-01 00:00:00", "2024-01-01T00:00:00Z", "1930-01-01T01:00:00+00:19:32"],
            [
                "c > TIMESTAMP '9999-12-31 23:59:59-10:00'",
                "c >= TIMESTAMP '0001-01-01 00:00:00+14:00'",
                "c = TIMESTAMP '1930-01-01 00:40:28Z'",
            ],
        ),
        ("timestamp_ntz", ["2024-01-01 00:00:00+02:00", "2024-01-01 01:00:00Z"], ["c = '2024-01-01'"]),
        ("boolean", ["yes", "false", "TRUE"], ["c = true"]),
        ("decimal(5,2)", ["1.555", "1e1", "1.5"], ["c = 1.56", "c > 9"]),
        ("double", ["inf", "NaN", "1", "1e400"], ["c > 5", "c <= 1"]),
    ],
    ids=["date", "timestamp", "timestamp_ntz", "boolean", "decimal", "double"],
)
def test_spellings_of_partition_values_that_spark_reads(spark, stream, tmp_path, type_, values, predicates):
    path = tmp_path / "source"
    write_table(path, type_, [(None, value) for value in values], is_partition=True)
    in_ntz = {"c = '2024-01-01'": "c = TIMESTAMP_NTZ '2024-01-01 00:00:00'"}
    check(spark, stream, path, [(one, in_ntz.get(one)) for one in predicates])


def test_decimals_whose_statistics_are_floating_point_numbers(spark, stream, tmp_path):
    path = tmp_path / "source"
    for number in (1830000000000000129, 1830000000000000900):
        values = pa.array([Decimal(number)], pa.decimal128(20, 0))
        write_deltalake(str(path), pa.table({"id": pa.array([number % 1000], pa.int64()), "c": values}), mode="append")
    check(spark, stream, path, same("c = 1830000000000000129"), reads_all=True)


def test_instants_whose_offset_was_cut_to_minutes(spark, stream, tmp_path):
    path = tmp_path / "source"
    stamps = pa.array([datetime(1930, 1, 1, 0, 40, 28, tzinfo=UTC)], pa.timestamp("us", tz="UTC"))
    monrovia = pa.array([datetime(1971, 6, 1, 0, 44, 30, tzinfo=UTC)], pa.timestamp("us", tz="UTC"))
    files = [(stamps, "1930-01-01T01:00:00.000+00:19"), (monrovia, "1971-06-01T00:00:00.000-00:44")]
    write_table(path, "timestamp", files)
    check(
        spark,
        stream,
        path,
        same("c = TIMESTAMP '1930-01-01 00:40:28Z'", "c = TIMESTAMP '1971-06-01 00:44:30Z'"),
        reads_all=True,
    )


def test_times_without_a_zone_in_statistics_are_no_instants(spark, stream, tmp_path):
    path = tmp_path / "source"
    stamps = pa.array([datetime(2024, 1, 1, 12, tzinfo=UTC)], pa.timestamp("us", tz="UTC"))
    write_table(path, "timestamp", [(stamps, "2024-01-01T12:00:00.000")])
    check(spark, stream, path, same("c = TIMESTAMP '2024-01-01 12:00:00Z'"), reads_all=True)


def test_nan_texts_and_days_of_another_calendar(spark, stream, tmp_path):
    for type_, values, logged, predicate in (
        ("double", pa.array([float("nan")]), 1.0, "c > 5"),
        ("string", pa.array(["b" * 40]), "b" * 32, f"c = '{'b' * 40}'"),
        ("boolean", pa.array([True]), False, "c = true"),
        ("date", pa.array([date(1600, 1, 1)]), "1600-01-11", "c = DATE '1600-01-01'"),
    ):
        path = tmp_path / type_
        write_table(path, type_, [(values, logged)])
        check(spark, stream, path, same(predicate), reads_all=True)
