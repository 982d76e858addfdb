"""Tables that came about in other ways than by CREATE and INSERT, or changed their nature on the way."""

from __future__ import annotations

import pytest


def test_a_converted_table_is_read_as_structured_streaming_reads_it(lab):
    """CONVERT TO DELTA lists files that are there already, with partition values that only their folders tell."""
    path = lab.path("converted")
    frame = lab.spark.sql("SELECT id, 'a b/c' || id % 2 AS pt, date'2026-01-01' AS d FROM range(6)")
    frame.write.partitionBy("pt", "d").parquet(path)
    lab.spark.sql(f"CONVERT TO DELTA parquet.`{path}` PARTITIONED BY (pt STRING, d DATE)")
    lab.sql("INSERT INTO {} VALUES (6, 'x', date'2026-01-02')", path)

    assert lab.read_all(path) == lab.streamed(path) == lab.table(path)


def test_a_clustered_table_is_read_and_its_clustering_ignored(lab):
    path = lab.create("clustered", "(id LONG, c STRING) USING delta CLUSTER BY (c)")
    for first in (0, 10):
        lab.sql(f"INSERT INTO {{}} SELECT id, 'c' || id % 3 FROM range({first}, {first + 10})", path)
    lab.sql("OPTIMIZE {}", path)
    lab.sql("INSERT INTO {} VALUES (20, 'c0')", path)

    assert "clustering" in lab.log(path).state_at(1).protocol.writerFeatures
    assert lab.read_all(path) == lab.streamed(path) == lab.table(path)


def test_column_mapping_may_be_switched_on_while_a_stream_reads(lab):
    """Conformance case 62."""
    path = lab.create("upgraded", "(id LONG, v STRING, pt STRING) USING delta PARTITIONED BY (pt)")
    lab.sql("INSERT INTO {} VALUES (1, 'before', 'p 1')", path)
    lab.sql("ALTER TABLE {} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')", path)
    lab.sql("INSERT INTO {} VALUES (2, 'after', 'p 2')", path)

    assert lab.read_all(path) == lab.streamed(path) == lab.table(path)


@pytest.mark.parametrize("policy", ["classic", "v2"])
def test_the_initial_snapshot_comes_from_the_checkpoints_that_spark_writes(lab, policy):
    """With deletion vectors and statistics; the commits behind the checkpoint are gone."""
    path = lab.create(
        f"snapshot {policy}",
        f"""(id LONG, pt STRING) USING delta PARTITIONED BY (pt) TBLPROPERTIES (
              'delta.checkpointPolicy' = '{policy}', 'delta.checkpointInterval' = '3',
              'delta.enableDeletionVectors' = 'true')""",
    )
    for first in (0, 10, 20):
        lab.spark.sql(f"SELECT id, 'p %' || id % 2 AS pt FROM range({first}, {first + 10})").coalesce(1).write.format(
            "delta"
        ).mode("append").save(path)
    lab.sql("DELETE FROM {} WHERE id IN (3, 24)", path)
    for version in range(3):
        (lab.folder / f"snapshot {policy}" / "_delta_log" / f"{version:020d}.json").unlink()

    batches = lab.snapshot_batches(path, max_files_per_batch=4)

    assert [batch.num_files for batch in batches] == [4, 2]
    found = [row for batch in batches for row in lab.collect(batch, path)]
    assert lab.without_provenance(found) == lab.table(path)
