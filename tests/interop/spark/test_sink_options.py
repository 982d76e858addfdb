"""What every sink may be told: which rows and columns, through which function, in files of which size."""

from __future__ import annotations

import sys
from dataclasses import replace
from datetime import UTC, date, datetime
from uuid import uuid4

import pytest

from airflow_provider_fds.delta.reader.log import DeltaLog
from airflow_provider_fds.delta.storage.local import LocalStorage
from airflow_provider_fds.sinks import DeltaAppendSink, DeltaMergeSink
from airflow_provider_fds.stream import DeltaStream
from airflow_provider_fds.stream.run.like_source import COPIED, like_source

JOBS = """
from pyspark.sql import DataFrame


def cleaned(orders: DataFrame) -> DataFrame:
    return orders.where("id <> 7").selectExpr("*", "upper(name) AS shout")


def broken(orders):
    return orders.select({}["colour"])


def forgetful(orders):
    orders.count()


def misspelt(orders):
    return orders.selectExpr("*", "upper(nam) AS shout")
"""


@pytest.fixture
def jobs(tmp_path, monkeypatch):
    """A module of the user's on the driver's path."""
    (tmp_path / "orders_jobs.py").write_text(JOBS)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path / "orders_jobs.py"
    sys.modules.pop("orders_jobs", None)


def rows(spark, stream, *columns):
    frame = spark.read.format("delta").load(str(stream.sink_path))
    return sorted(tuple(row) for row in frame.select(*(columns or frame.columns)).collect())


def failed(spark, stream, sink):
    code, (report,) = stream.work(spark, stream.job(stream.plan()[0], sink=sink))
    assert (code, report.outcome, report.retryable) == (11, "failed", False)
    assert not stream.sink_path.exists()
    return report.error_class, report.error_message


def test_rows_are_filtered_then_transformed_then_projected(spark, stream, jobs):
    sink = DeltaAppendSink(
        str(stream.sink_path),
        where="_commit_version < 1 AND id % 2 = 1",
        transform="orders_jobs:cleaned",
        columns=["id", "shout"],
        provenance=True,
        properties={"delta.enableChangeDataFeed": True, "delta.checkpointInterval": 20},
    )
    batches = stream.plan()[:2]
    code, reports = stream.work(spark, stream.job(*batches, sink=sink))
    # the log counts 10 rows in each batch; what the sink chooses is not held against it
    assert (code, [report.rows_written for report in reports]) == (0, [4, 0])
    assert [report.rows_read for report in reports] == [10, 10]
    frame = spark.read.format("delta").load(str(stream.sink_path))
    assert frame.columns == ["id", "shout", "_source_version", "_source_timestamp"]
    assert rows(spark, stream, "id", "shout", "_source_version") == [(i, f"NAME {i}", 0) for i in (1, 3, 5, 9)]
    configuration = stream.sink_commits()[0]["metaData"]["configuration"]
    assert configuration == {"delta.enableChangeDataFeed": "true", "delta.checkpointInterval": "20"}
    assert [commit["txn"]["version"] for commit in stream.sink_commits()] == [b.txn_version for b in batches]


def test_a_function_of_the_user_that_fails_is_named_with_file_and_line(spark, stream, jobs):
    error_class, message = failed(spark, stream, DeltaAppendSink(str(stream.sink_path), transform="orders_jobs:broken"))
    assert error_class == "USER_FUNCTION_FAILED"
    assert f"transform orders_jobs:broken failed at line 10 of {jobs}, in broken: KeyError" in message


def test_a_column_that_a_function_expects_is_reported_as_an_error_of_the_function(spark, stream, jobs):
    sink = DeltaAppendSink(str(stream.sink_path), transform="orders_jobs:misspelt")
    error_class, message = failed(spark, stream, sink)
    assert error_class == "USER_FUNCTION_FAILED"
    # over Spark Connect nobody looks at columns before the function has returned
    assert message.startswith("transform orders_jobs:misspelt failed")
    assert "UNRESOLVED_COLUMN" in message
    assert "`nam`" in message


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"transform": "orders_jobs:forgetful"}, "returned NoneType, expected a DataFrame"),
        ({"transform": "orders_jobs:missing"}, "there is no 'missing' in "),
        ({"transform": "no_such_jobs:cleaned"}, "cannot be imported on the driver (No module named 'no_such_jobs')"),
        ({"columns": ["id", "colour"]}, "names colour, but the batch has only id, name, p"),
        ({"where": "colour = 'red'"}, "where=\"colour = 'red'\" of the sink does not fit the batch"),
    ],
)
def test_an_unsuitable_option_is_refused_with_the_reason(spark, stream, jobs, options, expected):
    assert expected in failed(spark, stream, DeltaAppendSink(str(stream.sink_path), **options))[1]


def test_a_transform_that_drops_the_order_of_commits_is_refused_by_a_merge(spark, stream, jobs):
    jobs.write_text("def cut(frame):\n    return frame.select('id', 'name')\n")
    sink = DeltaMergeSink(str(stream.sink_path), keys=["id"], transform="orders_jobs:cut")
    assert "transform orders_jobs:cut must return _commit_version, _commit_timestamp" in failed(spark, stream, sink)[1]


def test_a_new_table_is_clustered_in_the_transaction_of_its_first_batch(spark, stream):
    sink = DeltaAppendSink(
        str(stream.sink_path), cluster_by=["p", "id"], properties={"delta.enableChangeDataFeed": "true"}
    )
    batch = stream.plan()[0]
    code, (report,) = stream.work(spark, stream.job(batch, sink=sink))
    assert (code, report.outcome, report.rows_written) == (0, "written", 10)
    detail = spark.sql(f"DESCRIBE DETAIL delta.`{stream.sink_path}`").collect()[0]
    assert detail["clusteringColumns"] == ["p", "id"]
    assert detail["properties"]["delta.enableChangeDataFeed"] == "true"
    assert stream.sink_commits()[0]["txn"]["version"] == batch.txn_version
    _, (report,) = stream.work(spark, stream.job(batch, sink=sink))
    assert report.outcome == "verified"
    assert spark.conf.get("spark.databricks.delta.write.txnVersion", None) is None


def test_small_files_of_a_batch_are_combined_to_the_requested_size(spark, stream):
    stream.options = {"max_versions_per_batch": 3}
    files = []
    for size in (None, "64m"):
        stream.sink_path = stream.folder / f"sink {size}"
        sink = DeltaAppendSink(str(stream.sink_path), target_file_size=size)
        code, (report,) = stream.work(spark, stream.job(stream.plan()[0], sink=sink))
        assert (code, report.rows_written) == (0, 30)
        files.append(report.files_written)
    assert files == [2, 1]
    assert spark.conf.get("spark.databricks.delta.optimizeWrite.enabled", None) is None


CONSTANTS = {
    "source_system": "it's \\ ${env:HOME} é",
    "tier": 5_000_000_000,
    "weight": 0.1,
    "is test": True,
    "since": date(2026, 1, 31),
    "begun": datetime(2026, 1, 31, 12, tzinfo=UTC),
}


def test_constants_are_written_with_their_types_and_rows_are_still_counted(spark, stream):
    sink = DeltaAppendSink(
        str(stream.sink_path),
        columns=["id"],
        constant_columns=CONSTANTS,
        partition_by=["tier"],
        provenance=True,
        properties={"delta.columnMapping.mode": "name"},
    )
    code, reports = stream.work(spark, stream.job(*stream.plan(), sink=sink))
    assert (code, [(report.outcome, report.rows_read) for report in reports]) == (0, [("written", 10)] * 3)
    frame = spark.read.format("delta").load(str(stream.sink_path))
    found = {field.name: (field.dataType.simpleString(), field.nullable) for field in frame.schema.fields}
    assert found == {
        "id": ("bigint", True),
        "_source_version": ("bigint", True),
        "_source_timestamp": ("timestamp", True),
        "source_system": ("string", True),
        "tier": ("bigint", True),
        "weight": ("double", True),
        "is test": ("boolean", True),
        "since": ("date", True),
        "begun": ("timestamp", True),
    }
    row = frame.where("begun = TIMESTAMP_LTZ '2026-01-31T12:00:00Z'").select(*CONSTANTS).drop("begun").distinct()
    expected = {name: value for name, value in CONSTANTS.items() if name != "begun"}
    assert [one.asDict() for one in row.collect()] == [expected]


@pytest.mark.parametrize("options", [{}, {"transform": "orders_jobs:cleaned"}])
def test_a_constant_that_the_batch_has_as_a_column_is_refused(spark, stream, jobs, options):
    sink = DeltaAppendSink(str(stream.sink_path), constant_columns={"NAME": "crm"}, **options)
    error_class, message = failed(spark, stream, sink)
    assert error_class == "SINK_SCHEMA_MISMATCH"
    assert "the batch already has a column NAME, which constant_columns would add" in message


def test_a_constant_may_replace_a_column_that_is_not_chosen(spark, stream):
    sink = DeltaAppendSink(str(stream.sink_path), columns=["id"], constant_columns={"name": "crm"})
    assert stream.work(spark, stream.job(stream.plan()[0], sink=sink))[0] == 0
    assert rows(spark, stream, "id", "name") == [(number, "crm") for number in range(10)]


@pytest.mark.parametrize("scd", [1, 2])
def test_two_streams_merge_into_one_table_by_a_constant_in_the_key(spark, stream, scd):
    for system in ("crm", "erp"):
        sink = DeltaMergeSink(
            str(stream.sink_path), keys=["system", "id"], scd=scd, constant_columns={"system": system}
        )
        stream.uuid = str(uuid4())
        batches = [replace(batch, stream=system) for batch in stream.plan()[:2]]
        assert stream.work(spark, stream.job(*batches, sink=sink))[0] == 0
    found = spark.read.format("delta").load(str(stream.sink_path)).groupBy("system").count()
    assert sorted(map(tuple, found.collect())) == [("crm", 20), ("erp", 20)]


#: A value for each property that a sink may take from its source, but two that exclude each other in a new table.
PROPERTIES = {
    "delta.autoOptimize.autoCompact": "false",
    "delta.autoOptimize.optimizeWrite": "false",
    "delta.checkpoint.writeStatsAsJson": "true",
    "delta.checkpoint.writeStatsAsStruct": "true",
    "delta.checkpointInterval": "20",
    "delta.dataSkippingNumIndexedCols": "3",
    "delta.deletedFileRetentionDuration": "interval 3 days",
    "delta.enableDeletionVectors": "true",
    "delta.enableExpiredLogCleanup": "true",
    "delta.enableTypeWidening": "true",
    "delta.logRetentionDuration": "interval 9 days",
    "delta.randomPrefixLength": "3",
    "delta.randomizeFilePrefixes": "false",
}


def test_all_properties_that_are_copied_are_tested():
    assert {*PROPERTIES, "delta.columnMapping.mode", "delta.enableChangeDataFeed"} == set(COPIED)


@pytest.mark.parametrize(
    ("kind", "more", "key"),
    [
        (DeltaAppendSink, {"delta.enableChangeDataFeed": "true"}, "id"),
        (DeltaMergeSink, {"delta.columnMapping.mode": "name"}, "the id"),
    ],
)
def test_a_table_is_created_with_the_sources_partitions_and_properties(spark, stream, tmp_path, kind, more, key):
    stream.source, properties = tmp_path / "partitioned", PROPERTIES | more
    for number in range(2):
        frame = spark.range(3).selectExpr(f"id + 3 * {number} AS `{key}`", "id % 2 AS p", "id AS q")
        writer = frame.write.format("delta").mode("append").partitionBy("p", "q")
        writer.options(**{} if number else properties).save(str(stream.source))
    metadata = DeltaLog(LocalStorage(str(stream.source))).state_at(0).metadata
    keys = {"keys": [key]} if kind is DeltaMergeSink else {}
    sink = kind(str(stream.sink_path), like_source=["partition_by", "properties"], **keys)
    sink = like_source(sink, metadata, DeltaStream("orders", table=str(stream.source)))
    code, reports = stream.work(spark, stream.job(*stream.plan(), sink=sink))
    assert (code, [report.outcome for report in reports]) == (0, ["written", "written"])
    assert [row[0] for row in rows(spark, stream, f"`{key}`")] == [0, 1, 2, 3, 4, 5]
    detail = spark.sql(f"DESCRIBE DETAIL delta.`{stream.sink_path}`").collect()[0]
    assert detail["partitionColumns"] == ["p", "q"]
    assert {name: detail["properties"].get(name) for name in properties} == properties


@pytest.fixture
def berlin(spark):
    """The session in a zone whose clock shows an hour twice in autumn."""
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    yield spark
    spark.conf.set("spark.sql.session.timeZone", before)


def test_a_time_in_the_hour_that_the_clock_shows_twice_is_no_partition(berlin, stream):
    def sink_at(hour):
        at = datetime(2026, 10, 25, hour, 30, tzinfo=UTC)
        return DeltaAppendSink(str(stream.sink_path), constant_columns={"at": at}, partition_by=["at"])

    first, second = stream.plan()[:2]
    code, (report,) = stream.work(berlin, stream.job(first, sink=sink_at(1)))
    assert (code, report.reason) == (11, "SINK_UNSUITABLE")
    assert "partition column at that the clock of Europe/Berlin shows twice, such as 2026-10-25 02:30:00" in (
        report.error_message
    )
    assert not stream.sink_path.exists()
    code, (report,) = stream.work(berlin, stream.job(first, sink=sink_at(0)))
    assert code == 0
    # a table that is there
    job = stream.job(second, sink=sink_at(1), **stream.after(report))
    assert stream.work(berlin, job)[1][0].reason == "SINK_UNSUITABLE"
    berlin.conf.set("spark.sql.session.timeZone", "UTC")
    assert stream.work(berlin, stream.job(second, sink=sink_at(1), **stream.after(report)))[0] == 0
    found = berlin.read.format("delta").load(str(stream.sink_path))
    assert found.where("at = TIMESTAMP_LTZ '2026-10-25T01:30:00Z'").count() == 10
