"""Each batch lands in the sink once, or the attempt says why not and nothing is written."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from importlib import metadata

import pytest

from airflow_provider_fds.batch.transactions import txn_version
from airflow_provider_fds.sinks import DeltaAppendSink


def ids(spark, path):
    return sorted(row["id"] for row in spark.read.format("delta").load(str(path)).select("id").collect())


def refused(stream, spark, spec, error_class):
    """Run a job whose first batch has to be refused for good; return the message of its report."""
    code, reports = stream.work(spark, spec)
    assert (code, len(reports)) == (11, 1)
    assert (reports[0].outcome, reports[0].error_class, reports[0].retryable) == ("failed", error_class, False)
    assert str(stream.sink_path) in reports[0].error_message
    return reports[0].error_message


def test_a_batch_is_written_with_its_transaction_and_its_metadata(spark, stream):
    batch = stream.plan()[0]
    spec = stream.job(batch)
    code, (report,) = stream.work(spark, spec)

    assert (code, report.outcome, report.is_done) == (0, "written", True)
    assert (report.rows_planned, report.rows_written, report.sink_version) == (10, 10, 0)
    assert report.files_written == 1
    assert report.bytes_written > 0
    assert report.settings["spark.sql.files.ignoreCorruptFiles"] == "false"
    assert set(report.seconds) == {"check", "load", "write", "verify", "total"}
    assert stream.was_started(spec, batch)
    (commit,) = stream.sink_commits()
    assert commit["txn"]["appId"] == f"fds:{stream.uuid}"
    assert commit["txn"]["version"] == txn_version(1, 0)
    assert commit["metaData"]["id"] == report.sink_table_id
    assert json.loads(commit["commitInfo"]["userMetadata"])["digest"] == batch.manifest_digest
    assert ids(spark, stream.sink_path) == list(range(10))


def test_the_columns_of_the_manifest_are_not_written(spark, stream):
    stream.begin(spark)
    assert spark.read.format("delta").load(str(stream.sink_path)).columns == ["id", "name", "p"]


def test_provenance_is_written_under_names_of_its_own(spark, stream):
    sink = DeltaAppendSink(str(stream.sink_path), provenance=True)
    code, _ = stream.work(spark, stream.job(stream.plan()[0], sink=sink))
    rows = spark.read.format("delta").load(str(stream.sink_path))
    assert code == 0
    assert rows.columns == ["id", "name", "p", "_source_version", "_source_timestamp"]
    assert {row["_source_version"] for row in rows.collect()} == {0}
    assert all(row["_source_timestamp"] for row in rows.collect())


def test_batches_follow_each_other_in_one_application(spark, stream):
    code, reports = stream.work(spark, stream.job(*stream.plan()))
    assert (code, [r.outcome for r in reports], [r.sink_version for r in reports]) == (0, ["written"] * 3, [0, 1, 2])
    assert ids(spark, stream.sink_path) == list(range(30))


# D34, D35
def test_the_same_job_again_verifies_and_writes_nothing(spark, stream):
    batches = stream.plan()[:2]
    stream.work(spark, stream.job(*batches))
    code, reports = stream.work(spark, stream.job(*batches))
    assert (code, [r.outcome for r in reports], [r.rows_written for r in reports]) == (0, ["verified"] * 2, [10, 10])
    assert len(stream.sink_commits()) == 2


def test_a_job_that_only_checks_the_sink_writes_nothing(spark, stream):
    stream.begin(spark)
    batches = stream.plan()
    code, reports = stream.work(spark, stream.job(*batches, verify_only=True))
    assert (code, [r.outcome for r in reports]) == (10, ["verified", "failed"])
    assert reports[1].error_class == "BATCH_NOT_COMMITTED"
    assert len(stream.sink_commits()) == 1


def commit_by_hand(stream, first, last):
    """Commits without files, as many writers would leave behind in a week."""
    for version in range(first, last + 1):
        info = {"commitInfo": {"timestamp": 0, "operation": "WRITE", "operationParameters": {}, "isBlindAppend": True}}
        (stream.sink_path / "_delta_log" / f"{version:020}.json").write_text(json.dumps(info))


@pytest.mark.parametrize("others", [3, 60])  # read as files; by Spark
def test_commits_of_other_writers_in_between_do_no_harm(spark, stream, others):
    (report,) = stream.begin(spark)
    _, second, _ = stream.plan()
    commit_by_hand(stream, 1, others)
    code, (report,) = stream.work(spark, stream.job(second, **stream.after(report)))
    assert (code, report.outcome, report.sink_version) == (0, "written", others + 1)
    _, (report,) = stream.work(spark, stream.job(second, sink_version=0, sink_table_id=report.sink_table_id))
    assert (report.outcome, report.sink_version) == ("verified", others + 1)


def test_a_log_that_was_cleaned_up_since_the_last_batch_does_no_harm(spark, stream):
    (report,) = stream.begin(spark)
    _, second, _ = stream.plan()
    path = f"delta.`{stream.sink_path}`"
    spark.sql(f"ALTER TABLE {path} SET TBLPROPERTIES ('delta.checkpointInterval' = '2')")
    for _ in range(2):
        spark.sql(f"INSERT INTO {path} VALUES (1000, 'x', 1)")
    log = stream.sink_path / "_delta_log"
    assert list(log.glob("*.checkpoint.parquet"))
    for version in (0, 1):
        (log / f"{version:020}.json").unlink()
    code, (report,) = stream.work(spark, stream.job(second, **stream.after(report)))
    assert (code, report.outcome, report.sink_version) == (0, "written", 4)


def test_a_batch_after_a_later_one_is_out_of_turn(spark, stream):
    first, second, _ = stream.plan()
    stream.work(spark, stream.job(replace(second, prev_txn_version=None)))
    message = refused(stream, spark, stream.job(first), "SINK_OUT_OF_ORDER")
    assert str(txn_version(1, 1)) in message
    assert len(stream.sink_commits()) == 1


def test_a_batch_of_another_plan_under_the_same_number_is_out_of_turn(spark, stream):
    stream.begin(spark)
    batch = stream.plan()[0]
    refused(stream, spark, stream.job(replace(batch, manifest_digest="0" * 32)), "SINK_OUT_OF_ORDER")


def test_a_batch_whose_predecessor_is_not_in_the_sink_is_out_of_turn(spark, stream):
    (report,) = stream.begin(spark)
    _, _, third = stream.plan()
    message = refused(stream, spark, stream.job(third, **stream.after(report)), "SINK_OUT_OF_ORDER")
    assert f"expected {txn_version(1, 1)}" in message


def test_a_write_that_delta_skips_in_silence_is_noticed(spark, stream):
    batch = stream.plan()[0]
    for version in (batch.txn_version + 5, batch.txn_version + 6):
        later = spark.range(0).selectExpr("id", "'' AS name", "id AS p").write.format("delta").mode("append")
        later.option("txnAppId", batch.txn_app_id).option("txnVersion", version).save(str(stream.sink_path))
    commit_by_hand(stream, 2, 2)
    assert "expected none" in refused(stream, spark, stream.job(batch), "SINK_OUT_OF_ORDER")
    # told to look no further down than version 2, the driver does not see the later transactions, but Delta does
    message = refused(stream, spark, stream.job(batch, sink_version=2), "SINK_OUT_OF_ORDER")
    assert "skipped" in message
    assert len(stream.sink_commits()) == 3


def replace_table(spark, path):
    spark.sql(f"CREATE OR REPLACE TABLE delta.`{path}` USING delta AS SELECT 1L AS id, 'x' AS name, 1L AS p")
    return ""


def recreate(spark, path):
    shutil.rmtree(path)
    spark.range(5).selectExpr("id", "'x' AS name", "id AS p").write.format("delta").save(str(path))
    return "id"


@pytest.mark.parametrize(
    "harm",
    [
        pytest.param(
            replace_table,
            marks=pytest.mark.skipif(
                metadata.version("pyspark").startswith("3."),
                reason="Spark 3.5 does not replace a table without a catalog",
            ),
        ),
        recreate,
    ],
)
def test_a_sink_that_is_not_what_it_was_is_refused(spark, stream, harm):
    (report,) = stream.begin(spark)
    _, second, _ = stream.plan()
    word = harm(spark, stream.sink_path)
    commits = len(stream.sink_commits())
    message = refused(stream, spark, stream.job(second, **stream.after(report)), "SINK_REPLACED")
    assert word in message
    assert len(stream.sink_commits()) == commits


def test_a_restored_sink_is_refused_even_when_the_first_commit_was_never_recorded(spark, stream):
    (report,) = stream.begin(spark)
    first, second, _ = stream.plan()
    spark.sql(f"DELETE FROM delta.`{stream.sink_path}`")
    spark.sql(f"RESTORE delta.`{stream.sink_path}` TO VERSION AS OF 0")
    assert "RESTORE at version 2" in refused(stream, spark, stream.job(first), "SINK_REPLACED")
    assert "RESTORE" in refused(stream, spark, stream.job(second, **stream.after(report)), "SINK_REPLACED")
    assert len(stream.sink_commits()) == 3


def test_a_sink_restored_from_an_older_copy_is_refused(spark, stream, tmp_path):
    stream.begin(spark)
    first, second, third = stream.plan()
    shutil.copytree(stream.sink_path, tmp_path / "copy")
    _, reports = stream.work(spark, stream.job(first, second))
    shutil.rmtree(stream.sink_path)
    shutil.copytree(tmp_path / "copy", stream.sink_path)
    message = refused(stream, spark, stream.job(third, **stream.after(reports[-1])), "SINK_REPLACED")
    assert "version 0" in message
    assert "version 1" in message


def test_a_missing_sink_is_refused_and_not_created_again(spark, stream):
    (report,) = stream.begin(spark)
    _, second, _ = stream.plan()
    shutil.rmtree(stream.sink_path)
    message = refused(stream, spark, stream.job(second, **stream.after(report)), "SINK_MISSING")
    assert report.sink_table_id in message
    assert not stream.sink_path.exists()


def test_a_sink_with_too_short_a_memory_for_transactions_is_refused(spark, stream):
    spark.sql(
        f"CREATE TABLE delta.`{stream.sink_path}` (id LONG, name STRING, p LONG) USING delta "
        "TBLPROPERTIES ('delta.setTransactionRetentionDuration' = 'interval 30 minutes')"
    )
    message = refused(stream, spark, stream.job(stream.plan()[0]), "SINK_FORGETS_BATCHES")
    assert "interval 30 minutes" in message


def test_a_sink_inside_another_table_is_refused(spark, stream):
    outer = stream.folder / "outer"
    spark.range(1).write.format("delta").save(str(outer))
    stream.sink_path = outer / "sink"
    refused(stream, spark, stream.job(stream.plan()[0]), "SINK_PLACE_REFUSED")


def test_the_source_itself_is_refused_as_sink(spark, stream_of_a_copy):
    stream = stream_of_a_copy
    stream.sink_path = stream.source
    refused(stream, spark, stream.job(stream.plan()[0]), "SINK_PLACE_REFUSED")


@pytest.mark.parametrize("place", ["staging/orders", "staging/orders/sink", "staging"])
def test_a_sink_in_or_around_the_staging_folder_is_refused(spark, stream, place):
    stream.sink_path = stream.folder / place
    refused(stream, spark, stream.job(stream.plan()[0]), "SINK_PLACE_REFUSED")


def test_a_sink_on_s3_without_an_atomic_log_store_is_refused(spark, stream):
    sink = DeltaAppendSink("s3://lake/bronze/orders")
    code, (report,) = stream.work(spark, stream.job(stream.plan()[0], sink=sink))
    assert (code, report.error_class) == (11, "SINK_LOG_STORE_UNSAFE")
    for part in ("s3a://lake/bronze/orders", "spark.delta.logStore.s3a.impl", "allow_single_driver_s3=True"):
        assert part in report.error_message


def test_a_new_sink_is_partitioned_as_asked(spark, stream):
    sink = DeltaAppendSink(str(stream.sink_path), partition_by=("p",))
    code, reports = stream.work(spark, stream.job(*stream.plan()[:2], sink=sink))
    assert (code, reports[1].files_written) == (0, 2)
    assert stream.sink_commits()[0]["metaData"]["partitionColumns"] == ["p"]


def test_a_missing_partition_column_is_named(spark, stream):
    sink = DeltaAppendSink(str(stream.sink_path), partition_by=("day",))
    message = refused(stream, spark, stream.job(stream.plan()[0], sink=sink), "SINK_SCHEMA_MISMATCH")
    assert "day" in message
    assert not stream.sink_path.exists()


def test_columns_go_by_name_whatever_their_order_and_case(spark, stream):
    path = f"delta.`{stream.sink_path}`"
    spark.sql(f"CREATE TABLE {path} (extra STRING, P LONG, Name STRING, id LONG) USING delta")
    code, _ = stream.work(spark, stream.job(stream.plan()[0]))
    rows = spark.sql(f"SELECT id, Name, P, extra FROM {path} ORDER BY id").collect()
    assert code == 0
    assert [tuple(row) for row in rows[:2]] == [(0, "name 0", 0, None), (1, "name 1", 1, None)]


def test_a_column_that_the_sink_lacks_is_named(spark, stream):
    spark.sql(f"CREATE TABLE delta.`{stream.sink_path}` (id LONG, p LONG) USING delta")
    message = refused(stream, spark, stream.job(stream.plan()[0]), "SINK_SCHEMA_MISMATCH")
    assert "has columns name that the sink" in message
    assert "merge_schema=True" in message


def test_a_new_column_passes_with_merge_schema(spark, stream):
    spark.sql(f"CREATE TABLE delta.`{stream.sink_path}` (id LONG, p LONG) USING delta")
    sink = DeltaAppendSink(str(stream.sink_path), merge_schema=True)
    code, _ = stream.work(spark, stream.job(*stream.plan()[:2], sink=sink))
    assert code == 0
    assert spark.read.format("delta").load(str(stream.sink_path)).columns == ["id", "p", "name"]


def test_a_column_of_another_type_is_named_with_both_types(spark, stream):
    spark.sql(f"CREATE TABLE delta.`{stream.sink_path}` (id LONG, name STRUCT<a: INT>, p LONG) USING delta")
    message = refused(stream, spark, stream.job(stream.plan()[0]), "SINK_SCHEMA_MISMATCH")
    assert ["name", "string", "struct<a:int>"] in [line.split() for line in message.splitlines()]
    assert not any("add" in commit for commit in stream.sink_commits())


def test_a_source_that_has_columns_of_provenance_already_is_refused(spark, stream):
    spark.range(3).selectExpr("id", "id AS _source_version").write.format("delta").save(str(stream.folder / "chained"))
    stream.source = stream.folder / "chained"
    sink = DeltaAppendSink(str(stream.sink_path), provenance=True)
    assert "_source_version" in refused(stream, spark, stream.job(stream.plan()[0], sink=sink), "SINK_SCHEMA_MISMATCH")
