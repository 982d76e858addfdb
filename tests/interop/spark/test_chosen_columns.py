"""A stream that reads some columns of its table: what each kind of sink gets of them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from airflow_provider_fds.sinks import DeltaAppendSink, DeltaMergeSink, DeltaReplaceSink


@pytest.fixture
def source(spark, stream):
    """A table of changes: with deletion vectors, a column computed from another, and a column that is renamed."""
    stream.source = stream.folder / "source"
    table = f"delta.`{stream.source}`"
    spark.sql(
        f"CREATE TABLE {table} (id INT, name STRING, secret STRING, twice INT GENERATED ALWAYS AS (id * 2), day INT) "
        "USING delta PARTITIONED BY (day) TBLPROPERTIES ('delta.enableDeletionVectors' = 'true', "
        "'delta.columnMapping.mode' = 'name', 'delta.enableChangeDataFeed' = 'true')"
    )
    values = "int(id), concat('name ', id), concat('secret ', id), int(id % 2)"
    spark.sql(f"INSERT INTO {table} (id, name, secret, day) SELECT {values} FROM range(0, 6, 1, 1)")
    return table


def load(spark, stream, sink, *batches):
    code, reports = stream.work(spark, stream.job(*batches, sink=sink))
    assert (code, {report.outcome for report in reports}) == (0, {"written"}), reports
    return spark.read.format("delta").load(str(stream.sink_path))


def rows(frame, *columns):
    return Counter(tuple(row) for row in frame.select(*columns).collect())


def test_rows_are_counted_although_only_a_partition_column_or_a_generated_one_is_read(spark, stream, source):
    spark.sql(f"DELETE FROM {source} WHERE id = 3")
    for columns in (["day"], ["Twice"]):
        stream.options = {"columns": columns, "ignore_changes": True, "max_versions_per_batch": 1}
        sink = DeltaAppendSink(str(stream.folder / columns[0]))
        batches = stream.plan()
        assert [batch.num_rows for batch in batches] == [6, 2]
        code, reports = stream.work(spark, stream.job(*batches, sink=sink))
        assert (code, [report.rows_written for report in reports]) == (0, [6, 2])
        frame = spark.read.format("delta").load(sink.uri)
        assert frame.columns == [name.lower() for name in columns]


def test_a_merge_of_a_change_feed_keeps_its_columns_like_the_source(spark, stream, source):
    spark.sql(f"UPDATE {source} SET name = 'new', secret = 'new' WHERE id = 1")
    spark.sql(f"DELETE FROM {source} WHERE id = 4")
    spark.sql(f"ALTER TABLE {source} RENAME COLUMN secret TO hidden")
    spark.sql(f"ALTER TABLE {source} DROP COLUMN hidden")
    spark.sql(f"INSERT INTO {source} (id, name, day) VALUES (9, 'nine', 1)")
    follow = {"rename": "follow", "drop": "follow"}
    stream.options = {"columns": ["ID", "name"], "read_change_feed": True, "on_schema_change": follow}
    frame = load(spark, stream, DeltaMergeSink(str(stream.sink_path), keys=["id"]), *stream.plan())
    assert frame.columns == ["id", "name"]
    assert rows(frame, "id", "name") == rows(spark.table(source), "id", "name")


def test_an_interval_replaces_with_the_columns_that_are_read(spark, stream, source):
    stream.options = {"columns": ["id", "day"]}
    (batch,) = stream.plan()
    interval = replace(batch, interval="2026-01-01T00:00:00.000Z/2026-01-02T00:00:00.000Z")
    sink = DeltaReplaceSink(str(stream.sink_path), provenance=True).for_versions(0, 1)
    frame = load(spark, stream, sink, interval)
    assert frame.columns == ["id", "day", "_source_version", "_source_timestamp"]
    assert rows(frame, "id", "day") == rows(spark.table(source), "id", "day")


def test_a_sink_with_a_where_on_another_column_gets_nothing_and_says_why(spark, stream, source):
    stream.options = {"columns": ["id", "day"]}
    sink = DeltaAppendSink(str(stream.sink_path), where="secret = 'secret 1'")
    code, (report,) = stream.work(spark, stream.job(*stream.plan(), sink=sink))
    assert (code, report.error_class) == (11, "SINK_OPTION_UNUSABLE")
    assert "whose columns are id, day, _commit_version" in report.error_message
    assert not stream.sink_path.exists()
