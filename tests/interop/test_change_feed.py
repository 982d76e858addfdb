"""The change data feed through manifests, row by row against Delta's own batch and streaming readers."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from airflow_provider_fds.source.plan import SourceBatch

KINDS = [("false", "none"), ("true", "none"), ("false", "name"), ("true", "name"), ("true", "id")]


def build(lab, name: str, vectors: str, mapping: str) -> str:
    """A table with a commit of every kind."""
    path = lab.create(
        name,
        "(id LONG, v STRING, pt INT) USING delta PARTITIONED BY (pt) TBLPROPERTIES "
        f"('delta.enableChangeDataFeed' = 'true', 'delta.enableDeletionVectors' = '{vectors}', "
        f"'delta.columnMapping.mode' = '{mapping}')",
    )
    frame = lab.spark.range(40).selectExpr("id", "string(id) v", "int(id % 2) pt").coalesce(1)
    frame.write.format("delta").mode("append").save(path)
    lab.sql("DELETE FROM {} WHERE id IN (3, 7)", path)
    lab.sql("UPDATE {} SET v = 'u' WHERE id IN (4, 5)", path)
    lab.sql(
        "MERGE INTO {} t USING (SELECT 6L id UNION ALL SELECT 8L UNION ALL SELECT 77L) q ON t.id = q.id "
        "WHEN MATCHED AND t.id = 8 THEN DELETE WHEN MATCHED THEN UPDATE SET v = 'm' "
        "WHEN NOT MATCHED THEN INSERT (id, v, pt) VALUES (q.id, 'n', 1)",
        path,
    )
    lab.sql("DELETE FROM {} WHERE id IN (9, 11)", path)
    lab.sql("DELETE FROM {} WHERE pt = 0", path)
    lab.sql("INSERT INTO {} VALUES (200, 'z', 0)", path)
    lab.sql("OPTIMIZE {}", path)
    lab.sql("RESTORE TABLE {} TO VERSION AS OF 3", path)
    lab.sql("DELETE FROM {} WHERE id = 13", path)
    lab.sql("RESTORE TABLE {} TO VERSION AS OF 1", path)
    overwrite = lab.spark.sql("SELECT 1L id, 'ow' v, 1 pt")
    overwrite.write.format("delta").mode("overwrite").save(path)
    return path


@pytest.fixture(scope="module", params=KINDS, ids=lambda kind: f"vectors-{kind[0]}-mapping-{kind[1]}")
def table(lab, request) -> str:
    return build(lab, "feed-{}-{}".format(*request.param), *request.param)


def batches(lab, path: str, first: int, last: int, **options: Any) -> list[SourceBatch]:
    return lab.batches(path, first, last, ignore_changes=None, read_change_feed=True, **options)


def through_manifests(lab, path: str, first: int, last: int, **options: Any) -> Counter[str]:
    total: Counter[str] = Counter()
    for batch in batches(lab, path, first, last, **options):
        frame = lab.read(batch, path)
        found = frame.collect()
        assert batch.num_rows in (None, len(found))
        total += Counter(repr(row) for row in found)
    return total


def by_delta(lab, path: str, first: int, last: int) -> Counter[str]:
    reader = lab.spark.read.format("delta").option("readChangeFeed", "true")
    frame = reader.option("startingVersion", first).option("endingVersion", last).load(path)
    return Counter(repr(row) for row in frame.collect())


def streamed(lab, path: str, **options: Any) -> list[Counter[str]]:
    """The rows of each batch of a stream of changes of Structured Streaming, without those that have none."""
    found: list[Counter[str]] = []

    def keep(frame, _):
        rows = Counter(repr(row) for row in frame.collect())
        if rows:
            found.append(rows)

    reader = lab.spark.readStream.format("delta").option("readChangeFeed", "true").options(**options)
    lab._count += 1
    query = (
        reader.load(path)
        .writeStream.foreachBatch(keep)
        .option("checkpointLocation", lab.path(f"checkpoint{lab._count}"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return found


def test_every_range_has_the_rows_of_deltas_own_reader(lab, table):
    newest = lab.log(table).latest()
    assert newest >= 12
    for first, last in [(1, newest), (1, 1), (2, 2), (3, 5), (4, 8), (6, 10), (9, newest), (11, 11)]:
        assert through_manifests(lab, table, first, last) == by_delta(lab, table, first, last), (first, last)


def test_a_stream_has_the_same_rows(lab, table):
    newest = lab.log(table).latest()
    expected = sum(streamed(lab, table, startingVersion="1"), Counter())

    assert through_manifests(lab, table, 1, newest) == expected
    assert through_manifests(lab, table, 1, newest, max_files_per_batch=1) == expected
