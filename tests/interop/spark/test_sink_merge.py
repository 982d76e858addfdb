"""A merge leaves in the sink what the source has, key by key, whatever the batches are cut like."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import deltalake
import pyarrow as pa
import pytest

from airflow_provider_fds.batch.spec import FenceSpec
from airflow_provider_fds.sinks import DeltaMergeSink
from airflow_provider_fds.spark.runtime.versions import minor
from airflow_provider_fds.spark.writers.rows.merge_changes import MergeChanges


def sink_of(stream, **options):
    return DeltaMergeSink(str(stream.sink_path), **{"keys": ["id"], **options})


def rows(spark, path, *columns):
    frame = spark.read.format("delta").load(str(path))
    return Counter(tuple(row) for row in frame.select(*(columns or frame.columns)).collect())


def refused(stream, spark, sink, batch, error_class="MERGE_ORDER_UNKNOWN"):
    code, (report,) = stream.work(spark, stream.job(batch, sink=sink))
    assert (code, report.outcome, report.error_class) == (11, "failed", error_class)
    assert str(stream.sink_path) in report.error_message
    return report.error_message


@pytest.fixture(scope="module")
def changes(tmp_path_factory):
    """Inserts, an update, a delete, an update of a key, an overwrite, and a key that comes back."""
    path = str(tmp_path_factory.mktemp("changes") / "orders")

    def orders(name, *ids):
        return pa.table({"id": list(ids), "name": [f"{name} {i}" for i in ids]})

    enabled = {"delta.enableChangeDataFeed": "true"}
    deltalake.write_deltalake(path, orders("first", *range(6)), configuration=enabled)
    deltalake.DeltaTable(path).update({"name": "'updated'"}, predicate="id < 2")
    deltalake.DeltaTable(path).delete("id = 1")
    deltalake.DeltaTable(path).update({"id": "id + 100"}, predicate="id = 2")
    deltalake.write_deltalake(path, orders("again", *range(3, 8)), mode="overwrite")
    deltalake.write_deltalake(path, orders("back", 1), mode="append")
    return path


def test_the_sink_of_a_change_feed_ends_as_its_source_is(spark, stream, changes):
    stream.source = changes
    stream.options = {"read_change_feed": True, "max_versions_per_batch": 2}
    batches = stream.plan()
    sink = sink_of(stream)
    code, reports = stream.work(spark, stream.job(*batches, sink=sink))

    assert (code, {report.outcome for report in reports}) == (0, {"written"})
    assert rows(spark, stream.sink_path) == rows(spark, changes)
    assert len(stream.sink_commits()) == len(batches)
    for batch, commit in zip(batches, stream.sink_commits(), strict=True):
        assert (commit["txn"]["appId"], commit["txn"]["version"]) == (batch.txn_app_id, batch.txn_version)
    # 1 is deleted, 2 becomes 102; the overwrite deletes 0 and 102, updates 3, inserts 2, and 1 is inserted
    assert [report.rows_written for report in reports] == [6, 2, 2, 8]
    assert stream.sink_commits()[1]["commitInfo"]["operation"] == "MERGE"

    commits = len(stream.sink_commits())
    code, again = stream.work(spark, stream.job(*batches, sink=sink))
    assert (code, {report.outcome for report in again}) == (0, {"verified"})
    assert len(stream.sink_commits()) == commits
    settings = ("write.txnAppId", "write.txnVersion", "commitInfo.userMetadata")
    assert [spark.conf.get(f"spark.databricks.delta.{key}", None) for key in settings] == [None, None, None]
    assert [table.name for table in spark.catalog.listTables() if table.name.startswith("fds_batch")] == []


def test_history_has_every_change_of_a_key_and_when_it_held(spark, stream, changes):
    stream.source = changes
    stream.options = {"read_change_feed": True, "max_versions_per_batch": 100}
    code, _ = stream.work(spark, stream.job(*stream.plan(), sink=sink_of(stream, scd=2)))
    assert code == 0

    history = spark.read.format("delta").load(str(stream.sink_path)).collect()
    times = sorted({row[column] for row in history for column in ("_valid_from", "_valid_to")} - {None}, key=str)
    version = {None: None, **{time: number for number, time in enumerate(times)}}
    assert len(times) == 6
    found = {(row["id"], row["name"], version[row["_valid_from"]], version[row["_valid_to"]]) for row in history}
    assert len(history) == len(found)
    assert all(row["_is_current"] is (row["_valid_to"] is None) for row in history)
    assert found == {
        *[(0, "first 0", 0, 1), (0, "updated", 1, 4)],
        *[(1, "first 1", 0, 1), (1, "updated", 1, 2), (1, "back 1", 5, None)],
        *[(2, "first 2", 0, 3), (102, "first 2", 3, 4)],
        *[(number, f"first {number}", 0, 4) for number in (3, 4, 5)],
        *[(number, f"again {number}", 4, None) for number in range(3, 8)],
    }


def plain_source(stream, *commits):
    stream.source = stream.folder / "plain"
    for values in commits:
        deltalake.write_deltalake(
            str(stream.source), table(id="int64", at="int64", name="string")(*values), mode="append"
        )


def table(**types):
    """Make Arrow tables of rows."""
    schema = pa.schema(list(types.items()))
    return lambda *rows: pa.Table.from_pylist([dict(zip(types, row, strict=True)) for row in rows], schema)


def test_a_late_row_does_not_take_the_place_of_a_newer_one(spark, stream):
    plain_source(
        stream,
        [(1, 5, "five"), (1, 7, "seven"), (2, 5, "two")],
        [(1, 6, "late"), (2, 5, "as new, from a later commit"), (3, 1, "new")],
    )
    code, reports = stream.work(spark, stream.job(*stream.plan(), sink=sink_of(stream, sequence_by="at")))
    assert (code, [report.rows_written for report in reports]) == (0, [2, 2])
    assert sorted(rows(spark, stream.sink_path, "id", "name")) == [
        (1, "seven"),
        (2, "as new, from a later commit"),
        (3, "new"),
    ]


def test_rows_without_a_key_or_an_order_are_refused_with_count_and_example(spark, stream):
    plain_source(stream, [(None, 5, "a"), (1, 5, "b"), (1, 5, "c"), (2, None, "d")])
    (batch,) = stream.plan()
    message = refused(stream, spark, sink_of(stream, sequence_by="at"), batch)
    assert '1 rows have NULL in a key (id), such as {"id":null} in version 0' in message
    assert '1 rows have NULL in sequence_by (at), such as {"id":2} in version 0' in message
    assert "several rows of one key (id) have the same at and commit" in message
    assert 'such as {"id":1} in version 0' in message
    assert not stream.sink_path.exists()
    # a person decides: in the DAG, by a filter
    sink = sink_of(stream, where="id IS NOT NULL AND name <> 'c'")
    assert stream.work(spark, stream.job(batch, sink=sink))[0] == 0
    assert sorted(rows(spark, stream.sink_path, "id", "name")) == [(1, "b"), (2, "d")]


@pytest.mark.parametrize("is_there", [False, True], ids=["new table", "existing table"])
def test_an_empty_key_that_delta_keeps_as_null_is_refused(spark, stream, tmp_path, is_there):
    """A later change to the key would find no row, and be inserted beside the first."""
    stream.source = tmp_path / "regions"
    for value in ("first", "second"):
        frame = spark.createDataFrame([("", 1, value)], "region string, id bigint, value string")
        frame.write.format("delta").mode("append").save(str(stream.source))
    batches = stream.plan()
    sink = sink_of(stream, keys=["Region", "id"], partition_by=["region"])
    if is_there:
        known = spark.createDataFrame([("north", 1, "")], "region string, id bigint, value string")
        known.write.format("delta").partitionBy("region").save(str(stream.sink_path))
    message = refused(stream, spark, sink, batches[0])
    assert "1 rows have an empty text in the key Region, such as" in message
    assert stream.sink_path.exists() is is_there
    whole = sink_of(stream, keys=["region", "id"], where="region <> ''" if is_there else None)
    assert stream.work(spark, stream.job(*batches, sink=whole))[0] == 0
    kept = [("north", 1, "")] if is_there else [("", 1, "second")]
    assert rows(spark, stream.sink_path) == Counter(kept)


def test_rows_are_merged_as_they_were_checked_although_what_transform_joins_changes(spark, stream, joined, monkeypatch):
    codes, transform = joined(spark.range(30).selectExpr("id", "id + 100 AS code"))
    check = MergeChanges.check_order

    def checked(*arguments):
        found = check(*arguments)
        spark.sql(f"DELETE FROM delta.`{codes}`").collect()
        return found

    monkeypatch.setattr(MergeChanges, "check_order", checked)
    sink = sink_of(stream, keys=["code"], transform=transform)
    assert stream.work(spark, stream.job(stream.plan()[0], sink=sink))[0] == 0
    assert sorted(rows(spark, stream.sink_path, "id", "code")) == [(n, n + 100) for n in range(10)]


def test_a_batch_is_not_merged_if_spark_reads_other_rows_than_planned(spark, stream):
    (batch, *_) = stream.plan()
    message = refused(stream, spark, sink_of(stream), replace(batch, num_rows=batch.num_rows + 1), "ROWS_DIFFER")
    assert f"Spark reads {batch.num_rows:,} rows, but the source's log counts {batch.num_rows + 1:,}" in message
    # a filter leaves nothing to compare with, nor does a log that does not say it
    filtered = stream.job(replace(batch, num_rows=batch.num_rows + 1), sink=sink_of(stream, where="id >= 0"))
    unknown = stream.job(replace(batch, num_rows=None), sink=sink_of(stream))
    for job, outcome in ((filtered, "written"), (unknown, "verified")):
        code, (report,) = stream.work(spark, job)
        assert (code, report.outcome) == (0, outcome)


SORTED = {"SortMergeJoin"}


def joins_of_the_last_merge(spark):
    """Return the kinds of joins in the plan that wrote, as it was changed while it ran."""
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    executions = spark._jsparkSession.sharedState().statusStore().executionsList()
    plans = [executions.apply(n).physicalPlanDescription() for n in range(executions.size())]
    newest = next(plan for plan in reversed(plans) if "FullOuter" in plan)
    return {kind for kind in ("SortMergeJoin", "ShuffledHashJoin") if f"{kind} " in newest.partition("Initial Plan")[0]}


@pytest.mark.usefixtures("adaptive")
def test_a_small_batch_is_merged_without_sorting_the_table(spark, stream):
    threshold = "spark.sql.adaptive.maxShuffledHashJoinLocalMapThreshold"
    plain_source(stream, *([(1, at, "a"), (2, at, "b")] for at in range(4)))
    first, small, large, own = stream.plan()
    for batch, joins in ((first, None), (small, {"ShuffledHashJoin"}), (replace(large, num_bytes=1 << 40), SORTED)):
        assert stream.work(spark, stream.job(batch, sink=sink_of(stream)))[0] == 0
        assert joins is None or joins_of_the_last_merge(spark) == joins
        assert spark.conf.get(threshold, None) is None

    spark.conf.set(threshold, "0")
    try:
        assert stream.work(spark, stream.job(own, sink=sink_of(stream)))[0] == 0
        assert joins_of_the_last_merge(spark) == SORTED
        assert spark.conf.get(threshold) == "0"
    finally:
        spark.conf.unset(threshold)
    assert rows(spark, stream.sink_path, "id", "at") == Counter([(1, 3), (2, 3)])


def test_a_key_that_the_batch_lacks_is_named(spark, stream):
    message = refused(stream, spark, sink_of(stream, keys=["id", "shop"]), stream.plan()[0], "SINK_SCHEMA_MISMATCH")
    assert "lacks shop" in message


def test_a_merge_that_delta_skips_in_silence_is_noticed(spark, stream):
    batch = stream.plan()[0]
    stream.sink_path = stream.folder / "sink"
    empty = table(id="int64", name="string", p="int64")
    later = deltalake.CommitProperties(
        app_transactions=[deltalake.Transaction(batch.txn_app_id, batch.txn_version + 5)]
    )
    deltalake.write_deltalake(str(stream.sink_path), empty(), commit_properties=later)
    deltalake.write_deltalake(str(stream.sink_path), empty((0, "", 0)), mode="append")
    # told to look no further down than version 1, the driver does not see the later transaction, but Delta does
    code, (report,) = stream.work(spark, stream.job(batch, sink=sink_of(stream), sink_version=1))
    assert (code, report.error_class) == (11, "SINK_OUT_OF_ORDER")
    assert "skipped" in report.error_message
    assert len(stream.sink_commits()) == 2


def test_a_closed_epoch_merges_nothing(spark, stream):
    first, second, _ = stream.plan()
    sink = sink_of(stream, provenance=True)
    _, (report,) = stream.work(spark, stream.job(first, sink=sink))
    fence = FenceSpec(stream="orders", uuid=stream.uuid, epoch=2)
    stream.work(spark, stream.job(sink=sink, fence=fence, **stream.after(report)))
    assert stream.sink_commits()[-1]["txn"]["version"] == 2 << 32
    refused(stream, spark, sink, second, "SINK_OUT_OF_ORDER")

    (again, *_) = stream.plan(epoch=2, first_id=0)
    job = stream.job(replace(again, prev_txn_version=2 << 32), sink=sink, sink_version=1)
    code, (report,) = stream.work(spark, job)
    assert (code, report.sink_version, report.rows_written) == (0, 2, 10)
    assert rows(spark, stream.sink_path, "id", "_source_version") == Counter((id_, 0) for id_ in range(10))


def test_a_new_column_passes_with_merge_schema_and_is_named_without(spark, stream):
    stream.sink_path = stream.folder / "sink"
    mine = table(id="int64", p="int64", mine="string")
    deltalake.write_deltalake(str(stream.sink_path), mine((3, 77, "stays")))
    (batch, *_) = stream.plan()
    assert "has columns name that the sink" in refused(stream, spark, sink_of(stream), batch, "SINK_SCHEMA_MISMATCH")
    history = sink_of(stream, merge_schema=True, scd=2)
    assert "has no column _valid_from, _valid_to, _is_current" in refused(
        stream, spark, history, batch, "SINK_SCHEMA_MISMATCH"
    )
    code, _ = stream.work(spark, stream.job(batch, sink=sink_of(stream, merge_schema=True)))
    assert code == 0
    three = spark.read.format("delta").load(str(stream.sink_path)).where("id = 3").collect()
    assert [row.asDict() for row in three] == [{"id": 3, "p": 1, "mine": "stays", "name": "name 3"}]


WIDE = "id BIGINT, d DECIMAL(12,4), f DOUBLE, i DECIMAL(9,1), t TIMESTAMP, s STRUCT<x: DOUBLE>, n INT"
NARROW = "id BIGINT, d DECIMAL(10,2), f FLOAT, i BIGINT, t DATE, s STRUCT<x: FLOAT>, n BIGINT"


def wide_source(spark, stream):
    stream.source = stream.folder / "wide"
    spark.sql(f"CREATE TABLE delta.`{stream.source}` ({WIDE}) USING delta")
    values = "1, 1.2345, 0.1234567890123D, 1.5, TIMESTAMP'2026-01-01 13:00:00', named_struct('x', 0.1234567890123D), 7"
    spark.sql(f"INSERT INTO delta.`{stream.source}` VALUES ({values})")
    return stream.plan()


def test_values_that_a_merge_would_round_to_the_types_of_the_sink_are_refused(spark, stream):
    batches = wide_source(spark, stream)
    spark.sql(f"CREATE TABLE delta.`{stream.sink_path}` ({NARROW}) USING delta")
    for options in ({}, {"merge_schema": True}):
        message = refused(stream, spark, sink_of(stream, **options), batches[0], "SINK_SCHEMA_MISMATCH")
        # n is not among them: no value is changed by a wider type
        assert [line.split() for line in message.splitlines() if line.startswith("  ")] == [
            ["column", "batch", "sink"],
            ["d", "decimal(12,4)", "decimal(10,2)"],
            ["f", "double", "float"],
            ["i", "decimal(9,1)", "bigint"],
            ["t", "timestamp", "date"],
            ["s.x", "double", "float"],
        ]
    assert not rows(spark, stream.sink_path)


def test_a_merge_that_widens_the_types_of_the_sink_keeps_the_values(spark, stream):
    batches = wide_source(spark, stream)
    columns = NARROW.replace("i BIGINT, t DATE", "i DECIMAL(9,1), t TIMESTAMP").replace("x: FLOAT", "x: DOUBLE")
    spark.sql(
        f"CREATE TABLE delta.`{stream.sink_path}` ({columns}) USING delta "
        "TBLPROPERTIES ('delta.enableTypeWidening' = 'true')"
    )
    if minor(spark.version) < (4, 2):
        message = refused(stream, spark, sink_of(stream, merge_schema=True), batches[0], "SINK_SCHEMA_MISMATCH")
        assert [line.split()[0] for line in message.splitlines() if line.startswith("  ")] == ["column", "d", "f"]
        assert not rows(spark, stream.sink_path)
        pytest.skip("before Spark 4.2 a merge widens no types; it is refused")
    code, _ = stream.work(spark, stream.job(*batches, sink=sink_of(stream, merge_schema=True)))
    assert code == 0
    assert rows(spark, stream.sink_path, "d", "f") == rows(spark, stream.source, "d", "f")
