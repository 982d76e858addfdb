"""A data interval takes the place of what an earlier run of it has written, in one transaction."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from uuid import uuid4

import pytest

from airflow_provider_fds.batch.transactions import txn_version
from airflow_provider_fds.sinks import DeltaAppendSink, DeltaReplaceSink
from airflow_provider_fds.spark.writers.delta_append_writer import DeltaAppendWriter

DAY = "2026-01-01T00:00:00.000Z/2026-01-02T00:00:00.000Z"
NEXT_DAY = "2026-01-02T00:00:00.000Z/2026-01-03T00:00:00.000Z"


def ids(spark, stream):
    return sorted(row["id"] for row in spark.read.format("delta").load(str(stream.sink_path)).select("id").collect())


def interval_of(*parts, interval=DAY, generation=1):
    """One transaction of an interval made of the given batches, as the stream room plans it."""
    first, *more = parts
    return replace(
        first,
        interval=interval,
        epoch=generation,
        batch_id=len(parts) - 1,
        end=parts[-1].end,
        last_version=parts[-1].last_version,
        manifest_digest="-".join(part.manifest_digest for part in parts),
        num_rows=sum(part.num_rows for part in parts),
        prev_txn_version=None,
        more_manifests=tuple(part.manifest for part in more),
    )


@pytest.fixture
def by_provenance(stream):
    """A sink that replaces the rows of the source's version 1 and later."""
    return DeltaReplaceSink(str(stream.sink_path), provenance=True, replace_where="_source_version >= 1")


def test_an_interval_is_one_transaction_whatever_it_is_made_of(spark, stream, by_provenance):
    _, second, third = stream.plan()
    code, (report,) = stream.work(spark, stream.job(interval_of(second, third), sink=by_provenance))
    assert (code, report.outcome, report.rows_written, report.sink_version) == (0, "written", 20, 0)
    assert ids(spark, stream) == list(range(10, 30))
    (commit,) = stream.sink_commits()
    assert commit["txn"] == {**commit["txn"], "appId": f"fds:{stream.uuid}:{DAY}", "version": txn_version(1, 1)}
    assert json.loads(commit["commitInfo"]["userMetadata"])["interval"] == DAY


def test_a_later_generation_replaces_what_an_earlier_one_wrote_and_nothing_else(spark, stream, by_provenance):
    first, second, third = stream.plan()
    append = DeltaAppendSink(str(stream.sink_path), provenance=True)
    stream.work(spark, stream.job(first, sink=append))
    stream.work(spark, stream.job(interval_of(second), sink=by_provenance))
    code, (report,) = stream.work(spark, stream.job(interval_of(third, generation=2), sink=by_provenance))
    assert (code, report.outcome, report.rows_written) == (0, "written", 10)
    assert ids(spark, stream) == [*range(10), *range(20, 30)]


def test_the_first_rows_are_written_as_they_were_tested_although_what_transform_joins_changes(
    spark, stream, joined, monkeypatch
):
    codes, transform = joined(spark.range(30).selectExpr("id", "id + 100 AS code"))
    write = DeltaAppendWriter._write

    def wrote(*arguments):
        spark.sql(f"DELETE FROM delta.`{codes}`").collect()
        write(*arguments)

    monkeypatch.setattr(DeltaAppendWriter, "_write", wrote)
    sink = DeltaReplaceSink(str(stream.sink_path), provenance=True, replace_where="code >= 100", transform=transform)
    assert stream.work(spark, stream.job(interval_of(stream.plan()[0]), sink=sink))[0] == 0
    found = spark.read.format("delta").load(str(stream.sink_path)).select("id", "code").collect()
    assert sorted((row["id"], row["code"]) for row in found) == [(n, n + 100) for n in range(10)]


@pytest.mark.parametrize("log_is_cut", [False, True], ids=["log whole", "log cut"])
def test_versions_of_one_table_do_not_replace_those_of_another(spark, stream, tmp_path, log_is_cut):
    other = type(stream)(tmp_path / "other", tmp_path / "customers")
    spark.range(100, 105, 1, 1).write.format("delta").save(str(other.source))
    by_version = DeltaReplaceSink(str(stream.sink_path), provenance=True, merge_schema=True).for_versions(0, 0)
    theirs = replace(other.plan()[0], stream="customers")
    assert other.work(spark, other.job(interval_of(theirs), sink=by_version))[0] == 0
    if log_is_cut:
        spark.sql(f"ALTER TABLE delta.`{stream.sink_path}` SET TBLPROPERTIES ('x' = 'y')")
        log = spark._jvm.org.apache.spark.sql.delta.DeltaLog
        log.forTable(spark._jsparkSession, str(stream.sink_path)).checkpoint()
        (stream.sink_path / "_delta_log" / f"{0:020}.json").unlink()
        log.clearCache()
    code, (report,) = stream.work(spark, stream.job(interval_of(stream.plan()[0]), sink=by_version))
    assert (code, report.error_class, report.retryable) == (11, "SINK_SHARED", False)
    assert ("customers" in report.error_message) is not log_is_cut
    assert ids(spark, stream) == [*range(100, 105)]
    # a predicate that only rows of this stream satisfy, as its user says
    of_mine = replace(by_version, replace_where="id < 100")
    spec = stream.job(interval_of(stream.plan()[0]), sink=of_mine, allow_overlap=True)
    assert stream.work(spark, spec)[0] == 0
    assert ids(spark, stream) == [*range(10), *range(100, 105)]


def test_a_stream_replaces_what_the_one_before_has_loaded_only_if_it_may(spark, stream):
    by_version = DeltaReplaceSink(str(stream.sink_path), provenance=True).for_versions(0, 0)
    assert stream.work(spark, stream.job(interval_of(stream.plan()[0]), sink=by_version))[0] == 0
    stream.uuid = str(uuid4())
    again = interval_of(replace(stream.plan()[0], stream="orders_2"))
    code, reports = stream.work(spark, stream.job(again, sink=by_version))
    assert (code, reports[-1].error_class) == (11, "SINK_HAS_ROWS")
    assert stream.work(spark, stream.job(again, sink=by_version, allow_overlap=True))[0] == 0
    assert ids(spark, stream) == list(range(10))


def test_rows_that_had_to_be_copied_are_not_counted(spark, stream, by_provenance):
    stream.work(spark, stream.job(interval_of(*stream.plan()[1:]), sink=by_provenance))
    path = f"delta.`{stream.sink_path}`"
    spark.sql(f"OPTIMIZE {path}")  # rows of both versions are in one file now
    one_version = replace(by_provenance, replace_where="_source_version = 2")
    code, (report,) = stream.work(spark, stream.job(interval_of(stream.plan()[2], interval=NEXT_DAY), sink=one_version))
    assert (code, report.outcome, report.rows_written) == (0, "written", 10)
    assert ids(spark, stream) == list(range(10, 30))


def test_the_same_generation_again_verifies_and_writes_nothing(spark, stream, by_provenance):
    batch = interval_of(*stream.plan()[1:])
    stream.work(spark, stream.job(batch, sink=by_provenance))
    code, (report,) = stream.work(spark, stream.job(batch, sink=by_provenance))
    assert (code, report.outcome, report.rows_written) == (0, "verified", 20)
    assert len(stream.sink_commits()) == 1


def test_a_zombie_of_an_earlier_generation_writes_nothing(spark, stream, by_provenance):
    _, second, third = stream.plan()
    stream.work(spark, stream.job(interval_of(second, third, generation=2), sink=by_provenance))
    code, (report,) = stream.work(spark, stream.job(interval_of(second), sink=by_provenance))
    assert (code, report.error_class) == (11, "SINK_OUT_OF_ORDER")
    assert ids(spark, stream) == list(range(10, 30))


def test_rows_outside_of_the_predicate_are_refused_and_nothing_is_written(spark, stream):
    sink = DeltaReplaceSink(str(stream.sink_path), replace_where="id < 5")
    stream.work(spark, stream.job(interval_of(stream.plan()[0]), sink=replace(sink, replace_where="id < 10")))
    code, (report,) = stream.work(spark, stream.job(interval_of(stream.plan()[0], generation=2), sink=sink))
    assert (code, report.error_class, report.retryable) == (11, "ROWS_OUTSIDE_INTERVAL", False)
    assert "id < 5" in report.error_message
    assert len(stream.sink_commits()) == 1


def test_dynamic_overwrite_replaces_the_partitions_that_the_rows_lie_in(spark, stream):
    sink = DeltaReplaceSink(str(stream.sink_path), partition_by=["p"], dynamic_partition_overwrite=True)
    batches = stream.plan()
    stream.work(spark, stream.job(interval_of(batches[0]), sink=sink))
    code, (report,) = stream.work(spark, stream.job(interval_of(batches[1], generation=2), sink=sink))
    assert (code, report.outcome, report.rows_written) == (0, "written", 10)
    assert ids(spark, stream) == list(range(10, 20))


def test_dynamic_overwrite_of_a_table_without_partitions_is_refused(spark, stream):
    stream.begin(spark)
    sink = DeltaReplaceSink(str(stream.sink_path), dynamic_partition_overwrite=True)
    code, (report,) = stream.work(spark, stream.job(interval_of(stream.plan()[1]), sink=sink))
    assert (code, report.error_class) == (11, "SINK_UNSUITABLE")
    assert ids(spark, stream) == list(range(10))


def test_a_session_that_overwrites_partitions_dynamically_does_not_change_a_predicate(spark, stream, by_provenance):
    _, second, third = stream.plan()
    stream.work(spark, stream.job(interval_of(second, third), sink=by_provenance))
    spark.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
    try:
        stream.work(spark, stream.job(interval_of(third, generation=2), sink=by_provenance))
    finally:
        spark.conf.unset("spark.sql.sources.partitionOverwriteMode")
    assert ids(spark, stream) == list(range(20, 30))


@pytest.mark.parametrize("is_there", [True, False])
def test_an_interval_without_rows_removes_what_was_there(spark, stream, is_there):
    sink = DeltaReplaceSink(str(stream.sink_path), replace_where="id < 100")
    if is_there:
        stream.work(spark, stream.job(interval_of(stream.plan()[0]), sink=sink))
    empty = replace(interval_of(stream.empty(), generation=2), num_rows=0)
    code, (report,) = stream.work(spark, stream.job(empty, sink=sink))
    assert (code, report.outcome, report.rows_written) == (0, "written", 0)
    assert ids(spark, stream) == []


def test_a_batch_of_an_offset_is_refused(spark, stream, by_provenance):
    code, (report,) = stream.work(spark, stream.job(stream.plan()[0], sink=by_provenance))
    assert (code, report.error_class) == (11, "SINK_UNSUITABLE")
    assert not stream.sink_path.exists()


@pytest.mark.parametrize("kind", ["partitions", "no partitions", "append"])
def test_concurrent_intervals_each_land_once_even_if_they_create_the_sink(spark, stream, kind):
    def sink(p):
        if kind == "append":
            return DeltaAppendSink(str(stream.sink_path), provenance=True)
        by = ["_source_version"] if kind == "partitions" else []
        where = f"_source_version = {p}"
        return DeltaReplaceSink(str(stream.sink_path), by, provenance=True, replace_where=where)

    jobs = [
        stream.job(interval_of(batch, interval=f"{i}/{i + 1}"), sink=sink(i)) for i, batch in enumerate(stream.plan())
    ]
    codes = {}
    threads = [
        threading.Thread(target=lambda job=job: codes.update({job.attempt_id: stream.work(spark, job)})) for job in jobs
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [(code, report.outcome) for code, (report,) in codes.values()] == [(0, "written")] * 3
    assert ids(spark, stream) == list(range(30))
