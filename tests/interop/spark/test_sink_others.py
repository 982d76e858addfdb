"""Others in a sink: a stream of the same name, jobs that take rows out, a log or a memory that does not reach back."""

from __future__ import annotations

import json
import re
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from uuid import uuid4

import pytest

from airflow_provider_fds.batch.report import FenceReport, decode, fence_report_name
from airflow_provider_fds.batch.spec import FenceSpec
from airflow_provider_fds.batch.transactions import txn_version
from airflow_provider_fds.sinks import DeltaAppendSink, DeltaReplaceSink
from airflow_provider_fds.spark.application.job_run import run
from airflow_provider_fds.spark.fence import registration
from airflow_provider_fds.spark.fence.empty_append import append_nothing
from airflow_provider_fds.spark.runtime.failures import RefusalError
from airflow_provider_fds.spark.sink_log.history import SinkLog
from airflow_provider_fds.spark.writers.delta_append_writer import DeltaAppendWriter

RETENTION = "delta.setTransactionRetentionDuration"


def count(spark, stream):
    return spark.read.format("delta").load(str(stream.sink_path)).count()


def table(stream):
    return f"delta.`{stream.sink_path}`"


def create(spark, stream, properties="'delta.appendOnly' = 'false'"):
    spark.sql(
        f"CREATE TABLE {table(stream)} (id LONG, name STRING, p LONG) USING delta PARTITIONED BY (p) "
        f"TBLPROPERTIES ({properties})"
    )


def forget(spark, stream, version, *, hours):
    """Let Delta forget what was done before, as if a commit were so many hours old."""
    spark.sql(f"ALTER TABLE {table(stream)} SET TBLPROPERTIES ('{RETENTION}' = 'interval 1 day')")
    file = stream.sink_path / "_delta_log" / f"{version:020}.json"
    actions = [json.loads(line) for line in file.read_text().splitlines()]
    for action in actions:
        if "txn" in action:
            action["txn"]["lastUpdated"] -= hours * 3_600_000
    file.write_text("".join(json.dumps(action) + "\n" for action in actions))
    for checksum in file.parent.glob("*.crc"):
        checksum.unlink()
    for checksum in file.parent.glob(".*.crc"):
        checksum.unlink()
    spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()


def cut(spark, stream, before):
    """Write a log checkpoint and remove the commits before a version, as log cleanup does."""
    log = spark._jvm.org.apache.spark.sql.delta.DeltaLog.forTable(spark._jsparkSession, str(stream.sink_path))
    log.checkpoint()
    for version in range(before):
        (stream.sink_path / "_delta_log" / f"{version:020}.json").unlink()
    spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()


def refused(stream, spark, spec, error_class):
    code, reports = stream.work(spark, spec)
    assert (code, reports[-1].error_class, reports[-1].retryable) == (11, error_class, False)
    return reports[-1].error_message


# What the sink forgets ---------------------------------------------------------------------------------------------


def test_a_sink_that_forgets_transactions_in_less_time_than_a_writer_may_be_paused_is_refused(spark, stream):
    create(spark, stream, f"'{RETENTION}' = 'interval 30 days'")
    message = refused(stream, spark, stream.job(stream.plan()[0]), "SINK_FORGETS_BATCHES")
    assert "UNSET TBLPROPERTIES" in message
    spark.sql(f"ALTER TABLE {table(stream)} SET TBLPROPERTIES ('{RETENTION}' = 'interval 3650 days')")
    assert stream.work(spark, stream.job(stream.plan()[0]))[0] == 0


def test_a_memory_that_is_shortened_while_a_job_is_at_work_is_noticed_before_the_next_batch(spark, stream):
    spec = stream.job(*stream.plan()[:2])

    def shorten(_report):
        spark.sql(f"ALTER TABLE {table(stream)} SET TBLPROPERTIES ('{RETENTION}' = 'interval 1 day')")

    assert run(spark, spec, shorten) == 11
    assert stream.read_reports(spec)[1].error_class == "SINK_FORGETS_BATCHES"
    assert count(spark, stream) == 10


def test_a_memory_that_is_shortened_between_two_jobs_of_a_process_is_noticed_by_the_second(spark, stream):
    first, second = stream.plan()[:2]
    code, (report,) = stream.work(spark, stream.job(first))
    assert code == 0
    spark.sql(f"ALTER TABLE {table(stream)} SET TBLPROPERTIES ('{RETENTION}' = 'interval 1 day')")
    job = replace(stream.job(second), sink_version=report.sink_version, sink_table_id=report.sink_table_id)
    refused(stream, spark, job, "SINK_FORGETS_BATCHES")


def test_a_batch_that_lands_twice_because_the_sink_forgot_it_is_not_a_success(spark, stream):
    create(spark, stream)
    batch = stream.plan()[0]
    spec = stream.job(batch)
    zombie = DeltaAppendWriter(spark, stream.sink, spec, {})
    assert zombie.find(batch) is None
    stream.work(spark, stream.job(batch))
    forget(spark, stream, 2, hours=25)
    with pytest.raises(RefusalError, match="more than once, as versions 2 and 4") as caught:
        zombie.append(spark.read.format("delta").load(batch.manifest), batch)
    assert caught.value.reason == "BATCH_DOUBLED"


def test_a_repeat_is_refused_by_the_tables_state_where_the_log_does_not_reach_back(spark, stream):
    (report, _) = stream.begin(spark, 2)
    _, second, _ = stream.plan()
    spark.sql(f"INSERT INTO {table(stream)} VALUES (1000, 'x', 1)")
    cut(spark, stream, before=2)
    message = refused(stream, spark, stream.job(second, **stream.after(report)), "SINK_OUT_OF_ORDER")
    assert f"has transaction {txn_version(1, 1)}" in message
    assert "skipped" not in message


def test_an_older_copy_whose_log_does_not_reach_back_is_refused(spark, stream, tmp_path):
    stream.begin(spark)
    first, second, third = stream.plan()
    shutil.copytree(stream.sink_path, tmp_path / "copy")
    _, reports = stream.work(spark, stream.job(first, second))
    shutil.rmtree(stream.sink_path)
    shutil.copytree(tmp_path / "copy", stream.sink_path)
    spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
    for _ in range(3):
        spark.sql(f"INSERT INTO {table(stream)} VALUES (1000, 'x', 1)")
    cut(spark, stream, before=3)
    message = refused(stream, spark, stream.job(third, **stream.after(reports[-1])), "SINK_OUT_OF_ORDER")
    assert f"has transaction {txn_version(1, 0)}" in message


# A stream of the same name -----------------------------------------------------------------------------------------


def test_two_streams_of_one_name_do_not_load_the_same_rows_into_one_sink(spark, stream):
    mine, ours = stream.plan()[0], stream.uuid
    stream.work(spark, stream.job(mine))
    stream.uuid = str(uuid4())
    message = refused(stream, spark, stream.job(*stream.plan()[:1]), "SINK_OF_NAMESAKE")
    assert f"other_streams=['{ours}']" in message
    spec = stream.job(fence=FenceSpec("orders", stream.uuid, 2))
    assert run(spark, spec) == 11
    fence = decode(FenceReport, (stream.reports / fence_report_name(2, spec.attempt_id)).read_bytes())
    assert fence.error_class == "SINK_OF_NAMESAKE"
    assert count(spark, stream) == 10
    sink = DeltaAppendSink(str(stream.sink_path), other_streams=(ours,))
    assert stream.work(spark, stream.job(*stream.plan()[:1], sink=sink))[0] == 0


def test_of_two_streams_of_one_name_that_begin_at_once_the_first_to_register_writes(spark, stream):
    create(spark, stream)
    theirs, ours = stream.plan()[0], stream.uuid
    stream.uuid = str(uuid4())
    mine = replace(theirs, uuid=stream.uuid)
    sink = DeltaAppendWriter(spark, stream.sink, stream.job(mine), {})
    assert sink.find(mine) is None
    stream.work(spark, stream.job(theirs))
    with pytest.raises(RefusalError, match=f"is the registration of another stream of the same name .uuid {ours}"):
        sink.append(spark.read.format("delta").load(mine.manifest), mine)
    assert count(spark, stream) == 10


def test_of_two_streams_that_create_the_sink_at_once_the_slower_one_appends(spark, stream):
    first, second, _ = stream.plan()
    other = replace(second, stream="live", uuid=str(uuid4()), prev_txn_version=None)
    slower = DeltaAppendWriter(spark, stream.sink, stream.job(first), {})
    assert slower.find(first) is None
    stream.work(spark, stream.job(other))
    assert slower.append(spark.read.format("delta").load(first.manifest), first).by_this_attempt
    assert count(spark, stream) == 20


def test_of_two_registrations_at_once_one_is_refused(spark, stream, monkeypatch):
    create(spark, stream)
    both_have_looked = threading.Barrier(2, timeout=60)

    def append_after_both_looks(*args):
        both_have_looked.wait()
        append_nothing(*args)

    monkeypatch.setattr(registration, "append_nothing", append_after_both_looks)

    def register(uuid):
        path = str(stream.sink_path)
        try:
            registration.ensure_registered(spark, SinkLog(spark, path), path, stream="orders", uuid=uuid, others=())
        except RefusalError as error:
            return str(error)
        return "registered"

    with ThreadPoolExecutor(2) as pool:
        found = sorted(pool.map(register, [str(uuid4()), str(uuid4())]))
    assert found[0] == "registered"
    assert "is the registration of another stream of the same name" in found[1]
    # whoever is registered is let through, without another commit
    versions = len(list((stream.sink_path / "_delta_log").glob("*.json")))
    monkeypatch.setattr(registration, "append_nothing", append_nothing)
    assert register(re.search(r"stream of the same name .uuid (.*?).,", found[1])[1]) == "registered"
    assert len(list((stream.sink_path / "_delta_log").glob("*.json"))) == versions


def test_streams_of_one_name_that_load_different_rows_both_register(spark, stream):
    create(spark, stream)
    ours = stream.uuid
    for others in ((), (ours,)):
        sink = DeltaAppendSink(str(stream.sink_path), other_streams=others)
        assert stream.work(spark, stream.job(*stream.plan()[:1], sink=sink))[0] == 0
        stream.uuid = str(uuid4())
    assert count(spark, stream) == 20


# Rows that others take out -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "harm",
    [
        "overwrite",
        "DELETE FROM {} WHERE p = 1",
        "MERGE INTO {} USING (SELECT 3 AS k) ON id = k WHEN MATCHED THEN DELETE",
    ],
)
def test_rows_that_another_job_removes_are_a_warning_or_an_error_as_the_sink_says(spark, stream, harm):
    (report,) = stream.begin(spark)
    _, second, _ = stream.plan()
    if harm == "overwrite":
        spark.range(1).selectExpr("id", "'x' AS name", "id AS p").write.format("delta").mode("overwrite").save(
            str(stream.sink_path)
        )
    else:
        spark.sql(harm.format(table(stream)))
    strict = DeltaAppendSink(str(stream.sink_path), on_sink_overwritten="fail")
    message = refused(stream, spark, stream.job(second, sink=strict, **stream.after(report)), "SINK_OVERWRITTEN")
    assert "version 1 of the sink" in message
    code, (report,) = stream.work(spark, stream.job(second, **stream.after(report)))
    assert (code, report.outcome, len(report.warnings)) == (0, "written", 1)
    assert "version 1 of the sink" in report.warnings[0]
    assert "fds rewind orders" in report.warnings[0]


def test_writers_that_change_their_own_rows_or_remove_none_are_not_reported(spark, stream):
    create(spark, stream)
    first, second, third = stream.plan()
    _, (report,) = stream.work(spark, stream.job(first))
    for number in (7, 8):
        others = spark.range(3).selectExpr("id", f"'{number}' AS name", "9L AS p").write.format("delta")
        others.mode("overwrite").option("replaceWhere", "p = 9").save(str(stream.sink_path))
    spark.sql(f"UPDATE {table(stream)} SET name = 'new' WHERE p = 9")
    spark.sql(f"UPDATE {table(stream)} SET name = 'new' WHERE id = 99")
    spark.sql(f"OPTIMIZE {table(stream)}")
    spark.sql(f"DELETE FROM {table(stream)} WHERE id = 99")
    strict = DeltaAppendSink(str(stream.sink_path), on_sink_overwritten="fail")
    code, (report,) = stream.work(spark, stream.job(second, sink=strict, **stream.after(report)))
    assert (code, report.warnings) == (0, ())
    replacing = DeltaReplaceSink(str(stream.sink_path), replace_where="p IN (0, 1)")
    interval = replace(first, interval="2026-01-01T00:00:00Z/2026-01-02T00:00:00Z", prev_txn_version=None)
    assert stream.work(spark, stream.job(interval, sink=replacing, **stream.after(report)))[0] == 0
    code, (report,) = stream.work(spark, stream.job(third, sink=strict, **stream.after(report)))
    assert (code, report.warnings) == (0, ())


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE {} SET name = 'new' WHERE id = 1",
        "MERGE INTO {} USING (SELECT 3 AS k) ON id = k WHEN MATCHED THEN UPDATE SET name = 'new'",
    ],
)
def test_rows_that_another_job_changes_are_reported_without_an_error(spark, stream, statement):
    (report,) = stream.begin(spark)
    _, second, third = stream.plan()
    spark.sql(statement.format(table(stream)))
    strict = DeltaAppendSink(str(stream.sink_path), on_sink_overwritten="fail")
    code, (report,) = stream.work(spark, stream.job(second, sink=strict, **stream.after(report)))

    assert (code, count(spark, stream)) == (0, 20)
    (warning,) = report.warnings
    assert f"({statement.split()[0]}), by another writer, changed rows" in warning
    code, (report,) = stream.work(spark, stream.job(third, sink=strict, **stream.after(report)))
    assert (code, report.warnings) == (0, ())


def test_commits_that_can_no_longer_be_read_are_reported(spark, stream):
    (report,) = stream.begin(spark)
    _, second, _ = stream.plan()
    for _ in range(2):
        spark.sql(f"INSERT INTO {table(stream)} VALUES (1000, 'x', 1)")
    cut(spark, stream, before=2)
    code, (report,) = stream.work(spark, stream.job(second, **stream.after(report)))
    assert code == 0
    assert "begins at version 2" in report.warnings[0]


# Where commits are -------------------------------------------------------------------------------------------------


def test_a_sink_whose_commits_are_kept_elsewhere_is_refused_by_name(spark, stream):
    create(spark, stream, "'delta.feature.coordinatedCommits-preview' = 'supported'")
    message = refused(stream, spark, stream.job(stream.plan()[0]), "SINK_COMMITS_ELSEWHERE")
    assert "coordinatedCommits-preview" in message
