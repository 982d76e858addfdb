"""No batch lands where another stream has loaded the same rows into the sink, whatever came in between."""

from __future__ import annotations

from dataclasses import replace
from uuid import uuid4

import pytest

from airflow_provider_fds.batch.report import FenceReport, decode, fence_report_name
from airflow_provider_fds.batch.spec import FenceSpec
from airflow_provider_fds.sinks import DeltaAppendSink, DeltaReplaceSink
from airflow_provider_fds.spark.application.job_run import run
from airflow_provider_fds.spark.writers.delta_append_writer import DeltaAppendWriter


def count(spark, stream):
    return spark.read.format("delta").load(str(stream.sink_path)).count()


def of_another(batches, name="live"):
    """The same batches, planned by another stream of the table."""
    uuid = str(uuid4())
    return [replace(batch, stream=name, uuid=uuid) for batch in batches]


def refused(stream, spark, spec):
    code, reports = stream.work(spark, spec)
    assert (code, reports[-1].error_class, reports[-1].retryable) == (11, "SINK_HAS_ROWS", False)
    return reports[-1].error_message


def test_a_range_that_another_stream_has_loaded_since_is_refused(spark, stream):
    reports = stream.begin(spark)
    _, second, third = stream.plan()
    live = of_another([second, third])
    assert stream.work(spark, stream.job(replace(live[0], prev_txn_version=None), live[1]))[0] == 0
    message = refused(stream, spark, stream.job(second, **stream.after(reports[-1])))
    for part in ("'orders' would load version 1 ", "'live' has loaded versions 1 to 2", "Nothing was written"):
        assert part in message
    assert count(spark, stream) == 30


def test_a_range_that_another_stream_had_loaded_before_the_last_batch_is_refused(spark, stream):
    first, second, third = stream.plan()
    live = of_another([third])
    assert stream.work(spark, stream.job(replace(live[0], prev_txn_version=None)))[0] == 0
    _, reports = stream.work(spark, stream.job(first))
    _, reports = stream.work(spark, stream.job(second, **stream.after(reports[-1])))
    assert "'live' has loaded version 2 " in refused(stream, spark, stream.job(third, **stream.after(reports[-1])))
    spec = stream.job(third, **stream.after(reports[-1]), allow_overlap=True)
    assert stream.work(spark, spec)[0] == 0
    assert count(spark, stream) == 40


def test_two_streams_that_load_the_snapshot_at_once_find_each_other_in_their_next_batches(spark, stream):
    (mine,) = stream.plan(from_snapshot=True)
    (theirs,) = of_another([mine])
    zombie = DeltaAppendWriter(spark, stream.sink, stream.job(mine), {})
    spark.sql(f"CREATE TABLE delta.`{stream.sink_path}` (id LONG, name STRING, p LONG) USING delta")
    assert zombie.find(mine) is None
    _, theirs_done = stream.work(spark, stream.job(theirs))
    landed = zombie.append(spark.read.format("delta").load(mine.manifest), mine)
    assert count(spark, stream) == 60
    following = replace(mine, batch_id=1, start=mine.end, end=mine.end, prev_txn_version=mine.txn_version)
    known = {"sink_table_id": theirs_done[-1].sink_table_id, "sink_version": landed.commit.version}
    message = refused(stream, spark, stream.job(following, **known))
    assert "has loaded the snapshot of version 2" in message
    assert "rows are duplicated. Version 3 of the sink is the last without these rows" in message
    (theirs_next,) = of_another([following])
    theirs_next = replace(theirs_next, uuid=theirs.uuid)
    assert "rows are duplicated" in refused(stream, spark, stream.job(theirs_next, **stream.after(theirs_done[-1])))


def test_rows_that_a_fence_has_removed_may_be_loaded_by_another_stream(spark, stream):
    sink = DeltaAppendSink(str(stream.sink_path), provenance=True)
    first, second, third = stream.plan()
    _, reports = stream.work(spark, stream.job(first, second, sink=sink))
    fence = FenceSpec("orders", stream.uuid, 2, removes="rows", from_version=1)
    spec = stream.job(fence=fence, sink=sink, **stream.after(reports[-1]))
    assert run(spark, spec) == 0
    assert decode(FenceReport, (stream.reports / fence_report_name(2, spec.attempt_id)).read_bytes()).has_removed
    live = of_another([second, third])
    assert stream.work(spark, stream.job(replace(live[0], prev_txn_version=None), live[1], sink=sink))[0] == 0
    assert count(spark, stream) == 30


def test_rows_that_a_restore_took_out_may_be_loaded_by_another_stream(spark, stream):
    stream.begin(spark, 2)
    _, second, third = stream.plan()
    spark.sql(f"RESTORE delta.`{stream.sink_path}` TO VERSION AS OF 0")
    live = of_another([second, third])
    assert stream.work(spark, stream.job(replace(live[0], prev_txn_version=None), live[1]))[0] == 0
    assert count(spark, stream) == 30


@pytest.mark.parametrize(
    "replaces", ["_source_version BETWEEN {} AND {}", "p = 0 AND _source_version BETWEEN {} AND {}"]
)
def test_a_replacement_by_version_does_not_remove_rows_of_another_stream(spark, stream, replaces):
    first, second, _ = stream.plan()
    sink = DeltaAppendSink(str(stream.sink_path), provenance=True)
    stream.work(spark, stream.job(first, second, sink=sink))
    interval = "2024-01-01T00:00:00Z/2024-01-02T00:00:00Z"
    (other,) = of_another([replace(first, interval=interval, prev_txn_version=None)], "days")
    replacing = DeltaReplaceSink(str(stream.sink_path), provenance=True, replace_where=replaces.format(0, 0))
    code, reports = stream.work(spark, stream.job(other, sink=replacing))
    assert count(spark, stream) == 20
    assert (code, reports[-1].error_class) == (11, "SINK_SHARED" if "p = 0" in replaces else "SINK_HAS_ROWS")
