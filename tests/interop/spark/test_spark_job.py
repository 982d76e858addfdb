"""What the job does with its batches: order, failures, verification, reports."""

from __future__ import annotations

from dataclasses import replace
from importlib import metadata

import pyspark
import pytest
from py4j.clientserver import ClientServerConnection

from airflow_provider_fds.batch.report import AttemptReport, decode, report_name
from airflow_provider_fds.spark.application.job import _unstarted, main
from airflow_provider_fds.spark.runtime import hadoop_files as files
from airflow_provider_fds.spark.runtime.driver_versions import DriverVersions
from airflow_provider_fds.spark.runtime.failures import RefusalError, explain
from airflow_provider_fds.spark.runtime.versions import DeltaJar


@pytest.fixture
def session(spark):
    """The session, with its settings put back afterwards."""
    keys = (
        "spark.sql.files.ignoreCorruptFiles",
        "spark.sql.files.ignoreMissingFiles",
        "spark.sql.parquet.outputTimestampType",
        "spark.databricks.delta.write.txnAppId",
    )
    yield spark
    for key in keys:
        spark.conf.unset(key)


def data_files(stream):
    return sorted(stream.source.glob("*.parquet"), key=lambda path: path.stat().st_mtime_ns)


def test_the_job_stops_at_the_first_batch_that_fails_and_keeps_what_was_done(spark, stream_of_a_copy):
    stream = stream_of_a_copy
    batches = stream.plan()
    data_files(stream)[1].unlink()
    spec = stream.job(*batches)
    code, left = stream.work(spark, spec)

    assert (code, [r.outcome for r in left]) == (11, ["written", "failed"])
    assert left[1].error_class == "FAILED_READ_FILE.FILE_NOT_EXIST"
    assert left[1].retryable is False
    assert "Spark does not find a data file (" in left[1].error_message
    assert data_files(stream)[0].name not in left[1].error_message
    assert "batch 1 (version 1)" in left[1].error_message
    assert not stream.was_started(spec, batches[2])
    assert len(stream.sink_commits()) == 1


def test_a_lost_file_fails_the_batch_whatever_the_session_says(session, stream_of_a_copy):
    stream = stream_of_a_copy
    batch = stream.plan()[0]
    data_files(stream)[0].unlink()
    session.conf.set("spark.sql.files.ignoreMissingFiles", "true")
    code, (report,) = stream.work(session, stream.job(batch))
    assert (code, report.outcome) == (11, "failed")
    assert report.settings["spark.sql.files.ignoreMissingFiles"] == "false"


def test_a_truncated_file_fails_the_batch_whatever_the_session_says(session, stream_of_a_copy):
    stream = stream_of_a_copy
    batch = stream.plan()[0]
    file = data_files(stream)[0]
    (stream.source / f".{file.name}.crc").unlink(missing_ok=True)
    file.write_bytes(file.read_bytes()[:-100])
    session.conf.set("spark.sql.files.ignoreCorruptFiles", "true")
    code, (report,) = stream.work(session, stream.job(batch))
    assert (code, report.outcome, report.retryable) == (11, "failed", False)
    # Spark 3.5 has no class of its own for what was wrong with the file
    assert report.error_class.startswith(("FAILED_READ_FILE", "TASK_WRITE_FAILED"))
    assert "damaged" in report.error_message
    assert stream.sink_commits() == []


def test_times_keep_their_microseconds_whatever_the_session_says(session, stream, tmp_path):
    at = "TIMESTAMP '2026-01-31 12:00:00.123456Z' AS at"
    stream.source = tmp_path / "times"
    session.range(1).selectExpr(at).write.format("delta").save(str(stream.source))
    session.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MILLIS")
    assert stream.work(session, stream.job(*stream.plan()))[0] == 0
    (row,) = session.read.format("delta").load(str(stream.sink_path)).selectExpr("unix_micros(at)").collect()
    assert row[0] == 1_769_860_800_123_456


def test_a_transaction_set_for_the_whole_session_is_refused(session, stream):
    session.conf.set("spark.databricks.delta.write.txnAppId", "mine")
    code, (report,) = stream.work(session, stream.job(stream.plan()[0]))
    assert (code, report.outcome) == (11, "failed")
    assert "txnAppId" in report.error_message


def test_a_row_count_that_is_not_the_plans_blocks_and_a_retry_does_not_forget_it(spark, stream):
    first, second, _ = stream.plan()
    first = replace(first, num_rows=11)
    code, left = stream.work(spark, stream.job(first, second))
    assert (code, [r.outcome for r in left]) == (12, ["mismatch"])
    assert left[0].sink_version == 0
    assert left[0].sink_table_id
    assert "wrote 10 rows" in left[0].error_message
    assert "11" in left[0].error_message

    code, left = stream.work(spark, stream.job(first, second))
    assert (code, [r.outcome for r in left]) == (12, ["mismatch"])
    assert len(stream.sink_commits()) == 1


def test_without_statistics_nothing_is_counted(spark, stream):
    code, (report,) = stream.work(spark, stream.job(replace(stream.plan()[0], num_rows=None)))
    assert (code, report.outcome, report.rows_planned, report.rows_written) == (0, "written", None, 10)
    # every row is written as it is, so as many were read
    assert report.rows_read == 10
    assert set(report.seconds) == {"check", "load", "write", "verify", "total"}
    assert min(report.seconds.values()) >= 0
    assert sum(report.seconds.values()) <= 2 * report.seconds["total"] + 0.01


def test_the_versions_of_the_session_are_found_and_go_together(spark):
    found = DriverVersions.of(spark)
    assert (found.pyspark, found.spark) == (pyspark.__version__, spark.version)
    assert found.delta == metadata.version("delta-spark")
    assert DeltaJar.named(found.delta_jar).delta == found.delta
    assert any(place.endswith(found.delta_jar) for place in found.class_path)
    assert found.problem() is None


def test_a_driver_of_another_pyspark_is_refused_before_anything_is_read(spark, stream, monkeypatch):
    monkeypatch.setattr(pyspark, "__version__", "3.4.1")
    code, (report,) = stream.work(spark, stream.job(stream.plan()[0]))
    assert (code, report.error_class, report.retryable) == (11, "SPARK_VERSION_MISMATCH", False)
    assert f"the driver's Python has pyspark 3.4.1, its JVM is Spark {spark.version}" in report.error_message
    assert not stream.sink_path.exists()


def test_a_job_without_a_session_reports_why(stream):
    spec = stream.job(*stream.plan())
    assert _unstarted(spec, RefusalError("SPARK_VERSION_MISMATCH", "pyspark 3.4.1 on Spark 4.2.0")) == 11
    (report,) = stream.read_reports(spec)
    assert (report.batch_id, report.error_class, report.retryable) == (0, "SPARK_VERSION_MISMATCH", False)
    assert _unstarted(None, RuntimeError("Java gateway process exited")) == 10


def test_a_manifest_that_is_gone_is_named(spark, stream):
    missing = str(stream.folder / "staging/orders/manifests/1/0-gone")
    code, (report,) = stream.work(spark, stream.job(replace(stream.plan()[0], manifest=missing)))
    assert (code, report.error_class) == (11, "MANIFEST_MISSING")
    assert missing in report.error_message


def test_no_batch_is_started_after_the_time_is_up(spark, stream, capsys):
    spec = stream.job(*stream.plan(), stop_after_ms=1)
    code, left = stream.work(spark, spec)
    assert (code, [r.batch_id for r in left]) == (0, [0])
    assert "stops before batch 1" in capsys.readouterr().out


def test_one_line_is_printed_for_people(spark, stream, capsys):
    stream.work(spark, stream.job(stream.plan()[0]))
    line = capsys.readouterr().out.strip()
    assert line.startswith("FDS batch 0 written: 10 rows, sink version 0, ")
    assert line.endswith(" s")


@pytest.mark.parametrize("constraint", ["CHECK", "NOT NULL"])
def test_the_cause_is_one_line_above_the_trace(spark, stream_of_a_copy, capsys, constraint):
    stream = stream_of_a_copy
    sink = f"delta.`{stream.sink_path}`"
    empty = spark.read.format("delta").load(str(stream.source)).limit(0)
    if constraint == "CHECK":
        empty.write.format("delta").save(str(stream.sink_path))
        spark.sql(f"ALTER TABLE {sink} ADD CONSTRAINT negative CHECK (id < 0)")
        cause = "[DELTA_VIOLATE_CONSTRAINT_WITH_VALUES] CHECK constraint negative (id < 0) violated by row with values"
    else:
        spark.sql(f"CREATE TABLE {sink} (id BIGINT NOT NULL, name STRING, p BIGINT) USING delta")
        null = spark.sql("SELECT CAST(NULL AS BIGINT) AS id").unionByName(empty, allowMissingColumns=True)
        null.write.format("delta").mode("append").save(str(stream.source))
        cause = "[DELTA_NOT_NULL_CONSTRAINT_VIOLATED] NOT NULL constraint violated for column: id"
    batch = stream.plan()[-1]
    code, (report,) = stream.work(spark, stream.job(replace(batch, prev_txn_version=None)))
    said = capsys.readouterr()
    first, *trace = said.err.splitlines()

    assert (code, report.outcome) == (11, "failed")
    assert first.startswith(f"FDS batch {batch.batch_id} fails with {report.error_class}: {report.error_message}")
    assert cause in first
    assert trace[0].startswith("Traceback ")
    assert len(trace) > 50
    # and the report of the attempt comes last
    assert (
        said.out.splitlines()[-1] == f"FDS batch {batch.batch_id} failed: {report.error_class}: {report.error_message}"
    )


def test_a_small_batch_calls_the_jvm_some_hundred_times(spark, stream, monkeypatch):
    stream.begin(spark)
    _, (before,) = stream.work(spark, stream.job(stream.plan()[1]))
    calls = []
    send = ClientServerConnection.send_command
    monkeypatch.setattr(
        ClientServerConnection, "send_command", lambda self, *given: calls.append(given[0]) or send(self, *given)
    )
    code, _ = stream.work(spark, stream.job(stream.plan()[2], **stream.after(before)))
    assert code == 0
    # what frees the objects of earlier tests comes when Python collects them
    calls = [call for call in calls if not call.startswith("m\n")]
    # all settings of the application are more than 300, and the JVM's versions and the sink's columns another 50
    assert len(calls) < 250, calls


def test_a_report_of_the_same_attempt_is_replaced(spark, stream):
    spec = stream.job(stream.plan()[0])
    path = stream.reports / report_name(1, 0, spec.attempt_id)
    path.parent.mkdir(parents=True)
    path.write_text("left by a crash")
    stream.work(spark, spec)
    assert decode(AttemptReport, path.read_bytes()).outcome == "written"
    assert sorted(p.name for p in path.parent.iterdir()) == [
        f"{spec.attempt_id}.json",
        f"{spec.attempt_id}.started.json",
    ]


def test_a_python_function_that_fails_in_a_worker_is_named_with_line_and_file(spark):
    from pyspark.sql.types import LongType

    def broken(number):
        return {0: 1}[number]

    spark.udf.register("broken", broken, LongType())
    with pytest.raises(Exception, match="KeyError") as caught:
        spark.sql("SELECT broken(id) FROM range(3)").collect()
    failure = explain(caught.value)
    assert (failure.error_class, failure.retryable) == ("USER_FUNCTION_FAILED", False)
    line = broken.__code__.co_firstlineno + 1
    assert f"the function broken failed at line {line} of {__file__}: KeyError: 1" in failure.message


@pytest.fixture
def through_hadoop(monkeypatch):
    """Go the way of remote files for local ones, too."""
    monkeypatch.setattr(files, "local_path", lambda _: None)


def test_files_are_written_and_read_through_hadoop_as_well(spark, tmp_path, through_hadoop):
    path = f"file:{tmp_path}/a b/1.json"
    for data in (b"one", "zwei ü".encode()):
        files.write_bytes(path, data, spark)
        assert files.read_bytes(path, spark) == data
    assert files.exists(path, spark)
    assert files.names(f"file:{tmp_path}/a b", spark) == {"1.json"}
    assert files.names(f"file:{tmp_path}/gone", spark) == set()


def test_a_job_goes_through_hadoop_as_well(spark, stream, through_hadoop):
    code, reports = stream.work(spark, stream.job(*stream.plan()[:2]))
    assert (code, [r.outcome for r in reports]) == (0, ["written"] * 2)


def test_a_missing_spec_ends_the_job_before_a_session_starts(tmp_path, capsys):
    uri = (tmp_path / "gone.json").as_uri()
    assert main([uri]) == 11
    assert uri in capsys.readouterr().err


def test_without_a_spec_the_job_says_how_it_is_called(capsys):
    assert main([]) == 11
    assert "job.py <uri of the job spec>" in capsys.readouterr().err
