"""A job of the user's finds its batch, reads it under the right settings, and says what it has done."""

from __future__ import annotations

import sys

import pytest

from airflow_provider_fds.batch.report import AttemptReport, decode
from airflow_provider_fds.batch.spec import USER_JOB_PREFIX, UserJobBatch
from airflow_provider_fds.spark import current_batch, spark_conf
from airflow_provider_fds.spark.runtime.failures import RefusalError


@pytest.fixture
def handed_out(stream):
    return UserJobBatch(stream.plan()[1], stream.reports.as_uri()).to_json()


def test_the_rows_of_the_batch_land_once_and_the_report_says_how_many(spark, stream, handed_out, monkeypatch):
    monkeypatch.setenv("FDS_BATCH", handed_out)
    for _ in range(2):
        batch = current_batch(spark)
        rows = batch.dataframe()
        rows.drop("_commit_timestamp").write.format("delta").mode("append").options(**batch.txn_options()).save(
            str(stream.sink_path)
        )
        batch.report(rows=rows.count())
    assert (batch.batch_id, batch.first_version, batch.num_rows) == (1, 1, 10)
    sink = spark.read.format("delta").load(str(stream.sink_path))
    assert sorted((row["id"], row["_commit_version"]) for row in sink.collect()) == [(i, 1) for i in range(10, 20)]
    reports = [
        decode(AttemptReport, path.read_bytes()) for path in (stream.reports / "1/1").glob(f"{USER_JOB_PREFIX}*")
    ]
    assert [(report.outcome, report.rows_written) for report in reports] == [("written", 10)] * 2
    assert {report.manifest_digest for report in reports} == {stream.plan()[1].manifest_digest}


def test_a_job_finds_its_batch_where_it_was_given_it(spark, handed_out, monkeypatch):
    with pytest.raises(RefusalError, match=r"conf=.*spark\.fds\.batch.*--fds-batch.*FDS_BATCH"):
        current_batch(spark)
    spark.conf.set("spark.fds.batch", handed_out)
    assert current_batch(spark).batch_id == 1
    spark.conf.unset("spark.fds.batch")
    for arguments in (["--fds-batch", handed_out], [f"--fds-batch={handed_out}"]):
        monkeypatch.setattr(sys, "argv", ["job.py", *arguments])
        assert current_batch(spark).batch_id == 1
    assert current_batch(spark, handed_out).txn_options("errors")["txnAppId"].endswith("#errors")
    with pytest.raises(ValueError, match="another version of FDS planned it"):
        current_batch(spark, '{"format": 99}')


def test_settings_under_which_rows_would_be_lost_are_put_right(spark, handed_out):
    spark.conf.set("spark.sql.files.ignoreCorruptFiles", "true")
    current_batch(spark, handed_out).dataframe()
    assert spark.conf.get("spark.sql.files.ignoreCorruptFiles") == "false"
    assert spark_conf()["spark.sql.files.ignoreMissingFiles"] == "false"
    assert spark_conf()["spark.sql.extensions"] == "io.delta.sql.DeltaSparkSessionExtension"
