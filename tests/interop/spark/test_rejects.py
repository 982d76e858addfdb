"""Rejected rows are in their table once, whatever dies between its commit and that of the sink."""

from __future__ import annotations

import json
import sys
from dataclasses import replace

import pytest

from airflow_provider_fds.batch.spec import Expectations
from airflow_provider_fds.batch.transactions import fence_version, txn_version
from airflow_provider_fds.sinks import DeltaAppendSink, DeltaMergeSink, DeltaReplaceSink
from airflow_provider_fds.spark.writers import delta_append_writer
from airflow_provider_fds.spark.writers.rows import rejects_table
from tests.interop.spark.test_sink_replace import NEXT_DAY, interval_of

EXPECT = {"id % 10 <> 3": "reject", "p = 0 OR id <> 13": "warn", "id % 10 <> 8": "drop"}


class DiedError(BaseException):
    """The driver's process ends here: nothing of it catches this."""


@pytest.fixture
def dies_at(monkeypatch):
    """Let the driver die when it reaches a point, once."""

    def at(point):
        def reached(name):
            if name == point:
                monkeypatch.undo()
                raise DiedError

        for module in (delta_append_writer, rejects_table):
            monkeypatch.setattr(module, "reach", reached)

    return at


def rejects(stream):
    return stream.folder / "rejects é"


def rejecting(stream, *batches, expect=EXPECT, **fields):
    return stream.job(*batches, expectations=Expectations(expect, None, str(rejects(stream))), **fields)


def ids(spark, path, column="id"):
    return sorted(row[0] for row in spark.read.format("delta").load(str(path)).selectExpr(column).collect())


def commits(path):
    logs = sorted((path / "_delta_log").glob("*.json"))
    found = [{k: v for line in log.read_text().splitlines() for k, v in json.loads(line).items()} for log in logs]
    return [commit.get("txn") for commit in found]


def app_id(stream):
    return f"fds:{stream.uuid}#rejects"


def test_a_rejected_row_has_where_it_comes_from_and_what_it_failed(spark, stream):
    code, reports = stream.work(spark, rejecting(stream, *stream.plan()))

    assert (code, {report.outcome for report in reports}) == (0, {"written"}), reports
    assert [(one.rows_written, one.rows_rejected, one.failed_rows["id % 10 <> 3"]) for one in reports] == [
        (8, 2, 1)
    ] * 3
    assert ids(spark, stream.sink_path) == [n for n in range(30) if n % 10 not in (3, 8)]
    frame = spark.read.format("delta").load(str(rejects(stream)))
    assert frame.columns == ["id", "name", "p", "_rejected"]
    found = sorted(frame.selectExpr("id", "name", "_rejected.*").collect())
    assert [(row["id"], row["name"], row["batch_id"], row["source_version"]) for row in found] == [
        (3, "name 3", 0, 0), (13, "name 13", 1, 1), (23, "name 23", 2, 2)
    ]  # fmt: skip
    assert [row["expectations"] for row in found] == [
        ["id % 10 <> 3"], ["id % 10 <> 3", "p = 0 OR id <> 13"], ["id % 10 <> 3"]
    ]  # fmt: skip
    assert {(row["stream"], row["uuid"], row["interval"], row["epoch"]) for row in found} == {
        ("orders", stream.uuid, None, 1)
    }
    assert all(row["source_timestamp"] is not None for row in found)
    assert commits(rejects(stream)) == [
        {"appId": app_id(stream), "version": txn_version(1, n), "lastUpdated": txn["lastUpdated"]}
        for n, txn in enumerate(commits(rejects(stream)))
    ]


@pytest.mark.parametrize("point", ["driver.rejects.before", "driver.rejects.after", "driver.commit.before"])
def test_a_driver_that_dies_around_the_rejected_rows_leaves_them_once(spark, stream, dies_at, point):
    batches = stream.plan()
    dies_at(point)
    with pytest.raises(DiedError):
        stream.work(spark, rejecting(stream, *batches))
    # the sink has no commit of the batch, which is the evidence that it is not done
    assert not stream.sink_path.exists()
    assert rejects(stream).exists() is (point != "driver.rejects.before")
    code, reports = stream.work(spark, rejecting(stream, *batches))
    assert (code, [one.outcome for one in reports]) == (0, ["written"] * 3)
    assert ids(spark, rejects(stream)) == [3, 13, 23]
    assert [txn["version"] for txn in commits(rejects(stream))] == [txn_version(1, n) for n in range(3)]
    assert ids(spark, stream.sink_path) == [n for n in range(30) if n % 10 not in (3, 8)]


def test_a_batch_that_is_in_the_sink_is_not_rejected_again(spark, stream, dies_at):
    batches = stream.plan()
    dies_at("driver.commit.after")
    with pytest.raises(DiedError):
        stream.work(spark, rejecting(stream, *batches))
    code, reports = stream.work(spark, rejecting(stream, *batches))
    assert (code, [one.outcome for one in reports]) == (0, ["verified", "written", "written"])
    assert [one.rows_rejected for one in reports] == [2, 2, 2]
    assert ids(spark, rejects(stream)) == [3, 13, 23]


def epoch_two(stream, first, **changes):
    """The rest of the source, planned again in an epoch that was fenced in the sink."""
    batches = [replace(one, batch_id=n) for n, one in enumerate(stream.plan(epoch=2)[first:])]
    previous = [fence_version(2), *(txn_version(2, n) for n in range(len(batches)))]
    return [replace(one, prev_txn_version=txn, **changes) for one, txn in zip(batches, previous, strict=False)]


def fenced(spark, stream, report):
    """Close epoch 1 in the sink as a replan does."""
    from airflow_provider_fds.batch.spec import FenceSpec

    spec = stream.job(fence=FenceSpec("orders", stream.uuid, 2), **stream.after(report))
    assert stream.work(spark, spec)[0] == 0


@pytest.mark.parametrize("versions", [1, 2])
def test_an_epoch_that_reads_rows_again_replaces_what_was_rejected_of_them(spark, stream, dies_at, versions):
    batches = stream.plan()
    _, (first,) = stream.work(spark, rejecting(stream, batches[0]))
    dies_at("driver.rejects.after")
    with pytest.raises(DiedError):
        stream.work(spark, rejecting(stream, batches[1], **stream.after(first)))
    assert ids(spark, rejects(stream)) == [3, 13]
    fenced(spark, stream, first)
    # other limits, and another idea of what is good
    stream.options = {"max_versions_per_batch": versions}
    again = stream.plan(epoch=2)
    again = epoch_two(stream, 1) if versions == 1 else again
    if versions == 2:
        # one batch with the versions 1 and 2
        start = batches[1].start
        (both,) = [one for one in stream_from(stream, batches[1]) if one.first_version == 1]
        again = [replace(both, batch_id=0, prev_txn_version=fence_version(2), start=start)]
    code, reports = stream.work(spark, rejecting(stream, *again, expect={"id % 10 <> 4": "reject"}, sink_version=None))
    assert code == 0, reports
    assert ids(spark, rejects(stream)) == [3, 14, 24]
    sink_ids = ids(spark, stream.sink_path)
    assert sink_ids == sorted([n for n in range(10) if n not in (3, 8)] + [n for n in range(10, 30) if n % 10 != 4])
    versions_there = [txn["version"] for txn in commits(rejects(stream)) if txn]
    assert fence_version(2) in versions_there


def test_a_repeated_interval_replaces_what_it_has_rejected_and_nothing_of_another_one(spark, stream, dies_at):
    first, second, _ = stream.plan()

    def load(batch, expect=EXPECT):
        sink = DeltaReplaceSink(str(stream.sink_path), provenance=True)
        sink = sink.for_versions(batch.first_version, batch.last_version)
        return stream.work(spark, rejecting(stream, batch, expect=expect, sink=sink))

    assert load(interval_of(second, interval=NEXT_DAY))[0] == 0
    dies_at("driver.rejects.after")
    with pytest.raises(DiedError):
        load(interval_of(first))
    for _ in range(2):
        assert load(interval_of(first))[0] == 0
    assert ids(spark, rejects(stream)) == [3, 13]
    assert load(interval_of(first, generation=2), expect={"id % 10 <> 4": "reject"})[0] == 0
    assert load(interval_of(first))[1][-1].outcome == "verified"
    assert ids(spark, rejects(stream)) == [4, 13]
    assert ids(spark, stream.sink_path) == [n for n in range(20) if n not in (4, 13, 18)]


def stream_from(stream, batch):
    """Plan from the start of a batch on."""
    from airflow_provider_fds.batch.manifest.manifest import build_manifest
    from airflow_provider_fds.batch.manifest.publish import manifest_folder, write_manifest
    from airflow_provider_fds.delta.reader.log import DeltaLog
    from airflow_provider_fds.delta.storage.local import LocalStorage
    from airflow_provider_fds.source.offset import Offset
    from airflow_provider_fds.source.options.options import SourceOptions
    from airflow_provider_fds.source.planning.plan import BatchPlanner

    log = DeltaLog(LocalStorage(str(stream.source)))
    start = Offset.from_json(batch.start)
    state = log.state_at(batch.first_version - 1)
    for planned in BatchPlanner(log, start, state, SourceOptions.parse(stream.options), log.latest()):
        manifest = build_manifest(planned, table_uri=log.table_uri)
        folder = f"orders/{manifest_folder(2, 0, manifest.digest)}"
        yield replace(
            batch,
            epoch=2,
            end=planned.end.to_json(),
            last_version=planned.last_version,
            manifest=write_manifest(manifest, stream.staging, folder),
            manifest_digest=manifest.digest,
            num_files=planned.num_files,
            num_rows=planned.num_rows,
        )


def test_a_writer_of_a_closed_epoch_rejects_nothing_more(spark, stream):
    batches = stream.plan()
    _, (first,) = stream.work(spark, rejecting(stream, batches[0]))
    fenced(spark, stream, first)
    code, _ = stream.work(spark, rejecting(stream, epoch_two(stream, 1)[0]))
    assert code == 0
    # it had looked at both tables before the epoch was closed
    zombie = rejects_table.RejectsTable(
        spark, Expectations(EXPECT, None, str(rejects(stream))), stream.sink, batches[1], "zombie", "batch 1"
    )
    zombie._append(spark.range(2).selectExpr("id", "CAST(NULL AS STRING) AS name", "id AS p"))
    assert ids(spark, rejects(stream)) == [3, 13]


def test_other_expectations_do_not_reject_a_batch_a_second_time(spark, stream, dies_at):
    batch = stream.plan()[0]
    dies_at("driver.rejects.after")
    with pytest.raises(DiedError):
        stream.work(spark, rejecting(stream, batch))
    code, (report,) = stream.work(spark, rejecting(stream, batch, expect={"id % 10 <> 4": "reject"}))
    assert (code, report.reason) == (11, "EXPECTATION_UNUSABLE")
    assert "an earlier attempt has rejected rows of it" in report.error_message
    assert "fds replan orders --why" in report.error_message
    assert not stream.sink_path.exists()
    assert ids(spark, rejects(stream)) == [3]


@pytest.mark.parametrize(
    ("at_first", "now"),
    [("id <> 3", None), (None, "id <> 3"), ("id <> 3", "id <> 8"), ("id <> 3", "id <> 5")],
    ids=["more rows", "fewer", "as many", "others"],
)
def test_another_choice_of_rows_does_not_reject_a_batch_a_second_time(spark, stream, dies_at, at_first, now):
    """Each row that the attempts do not agree on would be in both tables, or in none."""
    batch, expect = stream.plan()[0], {"id % 5 <> 3": "reject"}
    sink = DeltaAppendSink(str(stream.sink_path), where=at_first)
    dies_at("driver.rejects.after")
    with pytest.raises(DiedError):
        stream.work(spark, rejecting(stream, batch, expect=expect, sink=sink))
    before = ids(spark, rejects(stream))
    sink = DeltaAppendSink(str(stream.sink_path), where=now)
    code, (report,) = stream.work(spark, rejecting(stream, batch, expect=expect, sink=sink))
    assert (code, report.reason) == (11, "EXPECTATION_UNUSABLE"), report
    assert f"a sink with where={at_first!r}. Declare this" in report.error_message
    assert "fds replan orders --why" in report.error_message
    assert not stream.sink_path.exists()
    assert ids(spark, rejects(stream)) == before


def test_a_transform_that_returns_other_rows_does_not_reject_a_batch_a_second_time(
    spark, stream, dies_at, tmp_path, monkeypatch
):
    batch, expect = stream.plan()[0], {"id % 5 <> 3": "reject"}
    (tmp_path / "rejecting_functions.py").write_text(
        "least = 4\ndef some(df):\n    return df.where(f'id >= {least}')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    sink = DeltaAppendSink(str(stream.sink_path), transform="rejecting_functions:some")
    dies_at("driver.rejects.after")
    with pytest.raises(DiedError):
        stream.work(spark, rejecting(stream, batch, expect=expect, sink=sink))
    # corrected between the two attempts
    monkeypatch.setattr(sys.modules["rejecting_functions"], "least", 0)
    code, (report,) = stream.work(spark, rejecting(stream, batch, expect=expect, sink=sink))
    assert (code, report.reason) == (11, "EXPECTATION_UNUSABLE"), report
    assert "rules that rejected 1 rows, not 2 as now" in report.error_message
    assert not stream.sink_path.exists()


def test_a_row_is_in_one_table_although_what_transform_joins_changes_between_the_two(
    spark, stream, joined, monkeypatch
):
    names, transform = joined(spark.range(5).selectExpr("id", "'known' AS label"))
    reach = rejects_table.reach

    def reached(point):
        if point == "driver.rejects.after":
            spark.range(5, 8).selectExpr("id", "'new' AS label").write.format("delta").mode("append").save(names)
        reach(point)

    monkeypatch.setattr(rejects_table, "reach", reached)
    sink = DeltaAppendSink(str(stream.sink_path), transform=transform)
    spec = rejecting(stream, stream.plan()[0], expect={"label IS NOT NULL": "reject"}, sink=sink)
    code, (report,) = stream.work(spark, spec)

    assert (code, report.rows_rejected, report.rows_written) == (0, 5, 5)
    assert ids(spark, stream.sink_path) == [0, 1, 2, 3, 4]
    assert ids(spark, rejects(stream)) == [5, 6, 7, 8, 9]


def test_a_batch_without_a_rejected_row_makes_no_commit(spark, stream):
    code, _ = stream.work(spark, rejecting(stream, stream.plan()[0], expect={"id >= 0": "reject"}))
    assert code == 0
    assert not rejects(stream).exists()


def test_the_sink_itself_cannot_be_the_table_of_rejected_rows(spark, stream):
    spec = stream.job(stream.plan()[0], expectations=Expectations(EXPECT, None, str(stream.sink_path) + "/"))
    code, (report,) = stream.work(spark, spec)
    assert (code, report.reason) == (11, "SINK_PLACE_REFUSED")
    assert not stream.sink_path.exists()


def test_rejected_rows_can_be_loaded_after_a_mend(spark, stream, tmp_path):
    """They are read by a stream of their own, whose sink takes the columns that the first sink has."""
    assert stream.work(spark, rejecting(stream, stream.plan()[0]))[0] == 0
    from tests.interop.spark.conftest import Stream

    mend = Stream(tmp_path / "mend", rejects(stream))
    mend.sink_path = stream.sink_path
    sink = DeltaAppendSink(str(stream.sink_path), columns=["id", "name", "p"])
    (batch,) = mend.plan(stream="orders_mended")
    code, (mended,) = mend.work(spark, mend.job(batch, sink=sink, sink_table_id=None, sink_version=None))
    assert code == 0, mended
    assert ids(spark, stream.sink_path) == [0, 1, 2, 3, 4, 5, 6, 7, 9]


def test_a_merge_gets_the_rows_that_are_not_rejected(spark, stream):
    sink = DeltaMergeSink(str(stream.sink_path), keys=["id"])
    code, reports = stream.work(spark, rejecting(stream, *stream.plan(), sink=sink))
    assert code == 0, reports
    assert ids(spark, stream.sink_path) == [n for n in range(30) if n % 10 not in (3, 8)]
    assert ids(spark, rejects(stream)) == [3, 13, 23]
