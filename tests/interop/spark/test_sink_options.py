"""What every sink may be told: which rows and columns, through which function, in files of which size."""

from __future__ import annotations

import sys

import pytest

from airflow_provider_fds.sinks import DeltaMergeSink, DeltaTableSink

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
    sink = DeltaTableSink(
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
    error_class, message = failed(spark, stream, DeltaTableSink(str(stream.sink_path), transform="orders_jobs:broken"))
    assert error_class == "UserFunction"
    assert f"transform orders_jobs:broken failed at line 10 of {jobs}, in broken: KeyError" in message


def test_a_column_that_a_function_expects_is_reported_as_an_error_of_the_function(spark, stream, jobs):
    sink = DeltaTableSink(str(stream.sink_path), transform="orders_jobs:misspelt")
    error_class, message = failed(spark, stream, sink)
    assert error_class == "UserFunction"
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
    assert expected in failed(spark, stream, DeltaTableSink(str(stream.sink_path), **options))[1]


def test_a_transform_that_drops_the_order_of_commits_is_refused_by_a_merge(spark, stream, jobs):
    jobs.write_text("def cut(frame):\n    return frame.select('id', 'name')\n")
    sink = DeltaMergeSink(str(stream.sink_path), keys=["id"], transform="orders_jobs:cut")
    assert "transform orders_jobs:cut must return _commit_version, _commit_timestamp" in failed(spark, stream, sink)[1]


def test_a_new_table_is_clustered_in_the_transaction_of_its_first_batch(spark, stream):
    sink = DeltaTableSink(
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
        sink = DeltaTableSink(str(stream.sink_path), target_file_size=size)
        code, (report,) = stream.work(spark, stream.job(stream.plan()[0], sink=sink))
        assert (code, report.rows_written) == (0, 30)
        files.append(report.files_written)
    assert files == [2, 1]
    assert spark.conf.get("spark.databricks.delta.optimizeWrite.enabled", None) is None
