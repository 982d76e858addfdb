"""The fence closes older epochs in the sink: what they write late is skipped or refused, and never duplicated."""

from __future__ import annotations

import shutil
from dataclasses import replace
from importlib import metadata

import pytest

from airflow_provider_fds.batch.report import FenceReport, decode, fence_report_name
from airflow_provider_fds.batch.spec import FenceSpec
from airflow_provider_fds.batch.transactions import fence_version, txn_version
from airflow_provider_fds.spark.application.job_run import run
from airflow_provider_fds.spark.runtime.failures import RefusalError
from airflow_provider_fds.spark.writers.delta_append_writer import DeltaAppendWriter


def rows(spark, stream):
    return spark.read.format("delta").load(str(stream.sink_path)).count()


def fence(spark, stream, epoch=2, **fields):
    """Run a fence job; return its exit code and its report."""
    spec = stream.job(fence=FenceSpec(stream="orders", uuid=stream.uuid, epoch=epoch), **fields)
    code = run(spark, spec)
    return code, decode(FenceReport, (stream.reports / fence_report_name(epoch, spec.attempt_id)).read_bytes())


def test_a_fence_adds_a_transaction_and_no_rows_and_a_batch_of_the_new_epoch_follows_it(spark, stream):
    first = stream.plan()[0]
    _, (loaded,) = stream.work(spark, stream.job(first))
    code, closed = fence(spark, stream, **stream.after(loaded))

    assert (code, closed.outcome, closed.sink_version) == (0, "fenced", 1)
    assert closed.sink_table_id == loaded.sink_table_id
    assert stream.sink_commits()[1]["txn"]["version"] == fence_version(2) == 2 << 32
    assert rows(spark, stream) == 10
    batch = stream.plan(epoch=2, prev_txn_version=fence_version(2))[1]
    known = {"sink_table_id": closed.sink_table_id, "sink_version": closed.sink_version}
    code, (report,) = stream.work(spark, stream.job(replace(batch, batch_id=0), **known))
    assert (code, report.outcome, report.sink_version) == (0, "written", 2)
    assert stream.sink_commits()[2]["txn"]["version"] == txn_version(2, 0)


def test_an_existing_fence_is_found_and_not_written_again(spark, stream):
    stream.begin(spark)
    _, first = fence(spark, stream, sink_version=0)
    code, again = fence(spark, stream, sink_version=0)

    assert (code, again.outcome, again.sink_version) == (0, "fenced", first.sink_version)
    assert len(stream.sink_commits()) == 2


def test_a_zombie_of_the_closed_epoch_that_starts_late_is_refused(spark, stream):
    (loaded,) = stream.begin(spark)
    batches = stream.plan()
    fence(spark, stream, **stream.after(loaded))

    code, (report,) = stream.work(spark, stream.job(batches[1], **stream.after(loaded)))

    assert (code, report.error_class) == (11, "SINK_OUT_OF_ORDER")
    assert rows(spark, stream) == 10


def test_a_zombie_that_checked_the_sink_before_the_fence_is_skipped_by_delta_and_reports_it(spark, stream):
    (loaded,) = stream.begin(spark)
    batches = stream.plan()
    late = stream.job(batches[1], **stream.after(loaded))
    zombie = DeltaAppendWriter(spark, stream.sink, late, {})
    assert zombie.find(batches[1]) is None
    fence(spark, stream, **stream.after(loaded))

    with pytest.raises(RefusalError, match="Delta skipped the write"):
        zombie.append(spark.read.format("delta").load(batches[1].manifest), batches[1])
    assert rows(spark, stream) == 10


def test_a_missing_sink_needs_no_fence_and_a_zombie_that_creates_it_keeps_the_new_epoch_out(spark, stream):
    batches = stream.plan()
    code, closed = fence(spark, stream)
    assert (code, closed.outcome) == (0, "sink_missing")

    stream.work(spark, stream.job(batches[0]))
    new = replace(stream.plan(epoch=2)[0], prev_txn_version=None)
    code, (report,) = stream.work(spark, stream.job(new))

    assert (code, report.error_class) == (10, "SINK_APPEARED")
    assert rows(spark, stream) == 10


def test_an_uncommitted_batch_in_the_sink_is_reported_with_its_end(spark, stream):
    (loaded, *_) = stream.begin(spark, 2)
    batches = stream.plan()
    _, closed = fence(spark, stream, **stream.after(loaded))

    (landed,) = closed.landed
    assert (landed.epoch, landed.batch_id, landed.sink_version) == (1, 1, 1)
    assert (landed.end, landed.digest) == (batches[1].end, batches[1].manifest_digest)


def test_a_batch_that_a_restore_removed_has_not_landed(spark, stream):
    (loaded, *_) = stream.begin(spark, 2)
    batches = stream.plan()
    spark.sql(f"RESTORE TABLE delta.`{stream.sink_path}` TO VERSION AS OF 0")
    _, closed = fence(spark, stream, **stream.after(loaded))

    assert closed.landed == ()
    again = replace(batches[1], epoch=2, batch_id=0, prev_txn_version=fence_version(2))
    known = {"sink_table_id": closed.sink_table_id, "sink_version": closed.sink_version}
    code, _ = stream.work(spark, stream.job(again, **known))
    assert code == 0
    assert rows(spark, stream) == 20


def test_rows_removed_after_a_fence_have_not_landed_for_the_next_one(spark, stream):
    (loaded, *_) = stream.begin(spark, 2)
    batches = stream.plan()
    assert fence(spark, stream, **stream.after(loaded))[1].landed
    spark.sql(f"RESTORE TABLE delta.`{stream.sink_path}` TO VERSION AS OF 0")

    _, closed = fence(spark, stream, epoch=3, **stream.after(loaded))

    assert (closed.landed, closed.sink_version) == ((), 4)
    again = replace(batches[1], epoch=3, batch_id=0, prev_txn_version=fence_version(3))
    known = {"sink_table_id": closed.sink_table_id, "sink_version": closed.sink_version}
    code, _ = stream.work(spark, stream.job(again, **known))
    assert (code, rows(spark, stream)) == (0, 20)


@pytest.mark.parametrize("happened", ["recreated", "restored from a copy", "cloned"])
def test_a_sink_that_is_now_another_table_is_accepted(spark, stream, happened):
    reports = stream.begin(spark, 2)
    batches = stream.plan()
    path, copy = str(stream.sink_path), str(stream.folder / "copy")
    if happened == "restored from a copy":
        shutil.copytree(path, copy)
        stream.work(spark, stream.job(batches[2], **stream.after(reports[1])))
        shutil.rmtree(path)
        shutil.move(copy, path)
        known = {"sink_table_id": reports[1].sink_table_id, "sink_version": 2}
        expected = 20
    else:
        if happened == "cloned":
            spark.sql(f"CREATE TABLE delta.`{copy}` SHALLOW CLONE delta.`{path}`")
        else:
            spark.range(5).selectExpr("id", "'x' AS name", "id % 2 AS p").write.format("delta").save(copy)
        stream.sink_path = type(stream.sink_path)(copy)
        known, expected = stream.after(reports[1]), 20 if happened == "cloned" else 5
    code, closed = fence(spark, stream, **known)

    assert (code, closed.outcome, closed.landed) == (0, "fenced", ())
    batch = replace(batches[2], epoch=2, batch_id=0, prev_txn_version=fence_version(2))
    known = {"sink_table_id": closed.sink_table_id, "sink_version": closed.sink_version}
    code, _ = stream.work(spark, stream.job(batch, **known))
    assert code == 0
    assert rows(spark, stream) == expected + 10


computed = pytest.mark.skipif(
    tuple(metadata.version("pyspark").split(".")) < ("4", "2"),
    reason="Spark before 4.2 makes no computed columns in a table without a catalog",
)


@pytest.mark.parametrize(
    "columns",
    [
        pytest.param("id LONG, n LONG GENERATED ALWAYS AS IDENTITY", marks=computed),
        pytest.param("n LONG GENERATED ALWAYS AS IDENTITY, id LONG", marks=computed),
        pytest.param("id LONG, twice LONG GENERATED ALWAYS AS (id * 2)", marks=computed),
        "id LONG NOT NULL, name STRING NOT NULL",
        "id LONG, `odd ``name` STRING",
    ],
)
def test_a_fence_fits_into_a_sink_with_columns_that_are_computed_or_required(spark, stream, columns):
    spark.sql(
        f"CREATE TABLE delta.`{stream.sink_path}` ({columns}) USING delta "
        "TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"
    )
    code, closed = fence(spark, stream)

    assert (code, closed.outcome) == (0, "fenced")
    assert stream.sink_commits()[-1]["txn"]["version"] == fence_version(2)


def test_a_fence_of_an_epoch_that_was_closed_itself_is_refused(spark, stream):
    stream.begin(spark)
    fence(spark, stream, epoch=3, sink_version=0)
    code, closed = fence(spark, stream, epoch=2, sink_version=0)

    assert (code, closed.outcome, closed.error_class, closed.retryable) == (10, "failed", "EPOCH_OVERTAKEN", True)


def test_the_error_says_why_a_sink_cannot_be_fenced(spark, stream):
    spark.sql(
        f"CREATE TABLE delta.`{stream.sink_path}` (id LONG) USING delta "
        "TBLPROPERTIES ('delta.setTransactionRetentionDuration' = 'interval 1 minute')"
    )
    code, closed = fence(spark, stream)

    assert (code, closed.error_class) == (11, "SINK_FORGETS_BATCHES")
