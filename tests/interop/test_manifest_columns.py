"""A stream that reads some columns of a table: Spark sees only them, and their values are those of the table."""

from __future__ import annotations

import json

import pytest

from airflow_provider_fds.batch.manifest.manifest import build_manifest
from airflow_provider_fds.errors import ConfigurationError
from tests.manifests import commit_json

PROVENANCE = ["_commit_version", "_commit_timestamp"]


@pytest.fixture(scope="module")
def partitioned(lab):
    definition = "(a LONG, p STRING, b STRUCT<x: INT, y: STRING>, n INT, c DOUBLE) USING delta PARTITIONED BY (n, p)"
    path = lab.create("some columns", definition)
    rows = "(1, '50%', struct(1, 'x'), 1, 0.5), (2, NULL, struct(2, 'y'), 2, 1.5), (3, 'a/b', NULL, NULL, 2.5)"
    lab.sql(f"INSERT INTO {{}} VALUES {rows}", path)
    return path


@pytest.mark.parametrize("columns", ["a", "n", "p", "n p", "c a", "b n", "A C", "a p b n c"])
def test_the_chosen_columns_have_the_rows_of_the_table_in_its_order(lab, partitioned, columns):
    (batch,) = lab.batches(partitioned)
    chosen = columns.lower().split()
    in_order = [name for name in "apbnc" if name in chosen]

    found = lab.collect(batch, partitioned, columns=columns.split())

    assert {tuple(row.__fields__) for row in found} == {(*in_order, *PROVENANCE)}
    table = lab.spark.read.format("delta").load(partitioned)
    assert lab.without_provenance(found) == lab.rows(table.select(*in_order))


def test_spark_reads_no_other_column_and_the_manifest_has_no_value_of_one(lab, partitioned):
    (batch,) = lab.batches(partitioned)
    manifest = lab.publish(batch, partitioned, columns=["a"])
    frame = lab.spark.read.format("delta").load(manifest)
    plan = frame._jdf.queryExecution().executedPlan().toString()
    assert "ReadSchema: struct<a:bigint>" in plan
    built = build_manifest(batch, table_uri=lab.log(partitioned).table_uri, columns=["a"], stats=False)
    adds = [json.loads(line)["add"] for line in commit_json(built).splitlines() if b'"add"' in line]
    assert all(set(add["partitionValues"]) == set(PROVENANCE) for add in adds)
    assert all(set(json.loads(add["stats"])) == {"numRecords"} for add in adds)


def test_an_unknown_column_is_refused(lab, partitioned):
    (batch,) = lab.batches(partitioned)
    with pytest.raises(ConfigurationError, match="names 'd', which the table does not have"):
        lab.publish(batch, partitioned, columns=["a", "d"])


@pytest.mark.parametrize("mode", ["name", "id"])
def test_mapped_columns_are_chosen_by_their_name_of_now(lab, mode):
    path = lab.create(
        f"some mapped by {mode}",
        "(id LONG, a STRING, st STRUCT<x: INT, y: STRING>, pt STRING, q STRING) USING delta PARTITIONED BY (pt, q) "
        f"TBLPROPERTIES ('delta.columnMapping.mode' = '{mode}')",
    )
    lab.sql("INSERT INTO {} VALUES (1, 'a', struct(1, 'y'), 'p1', 'q1')", path)
    lab.sql("ALTER TABLE {} RENAME COLUMN st.x TO `x 2`", path)
    lab.sql("ALTER TABLE {} RENAME COLUMN pt TO `p t`", path)
    lab.sql("ALTER TABLE {} DROP COLUMN a", path)
    lab.sql("ALTER TABLE {} ADD COLUMNS (a STRING)", path)
    lab.sql("INSERT INTO {} (id, st, `p t`, q, a) VALUES (4, struct(4, 'v'), 'p3', 'q2', 'new a')", path)
    table = lab.spark.read.format("delta").load(path)
    (batch,) = lab.snapshot_batches(path)
    for chosen in (["st", "p t"], ["a"], ["q", "id"], ["p t"]):
        found = lab.collect(batch, path, columns=chosen)
        in_order = [name for name in table.columns if name in chosen]
        assert {tuple(row.__fields__) for row in found} == {(*in_order, *PROVENANCE)}
        assert lab.without_provenance(found) == lab.rows(table.select(*(f"`{name}`" for name in in_order)))


@pytest.mark.parametrize("mapping", ["none", "name"])
def test_a_change_feed_has_the_chosen_columns_and_the_change_type(lab, mapping):
    path = lab.create(
        f"some changes {mapping}",
        "(id LONG, v STRING, w INT, pt INT) USING delta PARTITIONED BY (pt) TBLPROPERTIES "
        f"('delta.enableChangeDataFeed' = 'true', 'delta.columnMapping.mode' = '{mapping}')",
    )
    frame = lab.spark.range(10).selectExpr("id", "string(id) v", "int(id) w", "int(id % 2) pt").coalesce(1)
    frame.write.format("delta").mode("append").save(path)
    lab.sql("DELETE FROM {} WHERE id = 3", path)
    lab.sql("UPDATE {} SET v = 'u' WHERE id = 4", path)
    columns = ["id", "v", "_change_type"]
    feed = lab.spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", 1).load(path)
    found = lab.rows(feed.limit(0).select(*columns))
    for batch in lab.batches(path, 1, ignore_changes=None, read_change_feed=True):
        read = lab.collect(batch, path, columns=["v", "id"])
        assert {tuple(row.__fields__) for row in read} == {(*columns, *PROVENANCE)}
        found += lab.without_provenance(read)
    assert found == lab.rows(feed.select(*columns))
