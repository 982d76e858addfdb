"""The change data feed through manifests, row by row against Delta's own batch and streaming readers."""

from __future__ import annotations

from collections import Counter
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.functions import expr

from airflow_provider_fds.delta.reader.snapshot import freeze_snapshot
from airflow_provider_fds.source.offset import Offset
from airflow_provider_fds.source.options.options import SourceOptions
from airflow_provider_fds.source.planning.plan import BatchPlanner

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_provider_fds.source.planned import SourceBatch

WITH_VECTORS = ("true", "name")
KINDS = [("false", "none"), WITH_VECTORS]


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


@pytest.fixture(scope="module")
def built(lab) -> Callable[[tuple[str, str]], str]:
    """Gives the table of a kind, made once."""
    return cache(lambda kind: build(lab, "feed-{}-{}".format(*kind), *kind))


@pytest.fixture(params=KINDS, ids=lambda kind: f"vectors-{kind[0]}-mapping-{kind[1]}")
def table(built, request) -> str:
    return built(request.param)


def batches(lab, path: str, first: int, last: int, **options: Any) -> list[SourceBatch]:
    return lab.batches(path, first, last, ignore_changes=None, read_change_feed=True, **options)


def through_manifests(lab, path: str, first: int, last: int, **options: Any) -> Counter[str]:
    total: Counter[str] = Counter()
    for batch in batches(lab, path, first, last, **options):
        found = lab.collect(batch, path)
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


def through_manifests_from_the_snapshot(lab, path: str, version: int) -> Counter[str]:
    log = lab.log(path)
    frozen = freeze_snapshot(log, version, lab.staging, f"snapshots-{Path(path).name}")
    state = log.state_at(version)
    start = Offset(state.metadata.id, version, is_initial_snapshot=True)
    options = SourceOptions.parse({"read_change_feed": True})
    planner = BatchPlanner(log, start, state, options, log.latest(), snapshot=frozen, snapshot_storage=lab.staging)
    total: Counter[str] = Counter()
    for batch in planner:
        if batch.files:
            total += Counter(map(repr, lab.collect(batch, path)))
    return total


def test_every_range_has_the_rows_of_deltas_own_reader(lab, table):
    newest = lab.log(table).latest()
    assert newest >= 12
    for first, last in [(1, newest), (3, 9)]:
        assert through_manifests(lab, table, first, last) == by_delta(lab, table, first, last), (first, last)


def test_a_stream_has_the_same_rows_from_a_version_or_from_the_snapshot(lab, built):
    path = built(WITH_VECTORS)
    newest = lab.log(path).latest()
    expected = sum(streamed(lab, path, startingVersion="1"), Counter())

    assert through_manifests(lab, path, 1, newest) == expected
    assert through_manifests_from_the_snapshot(lab, path, newest) == sum(streamed(lab, path), Counter())


def test_70_limits_end_batches_where_structured_streaming_ends_them(lab):
    path = lab.create(
        "limited",
        "(id LONG, part LONG) USING delta PARTITIONED BY (part) TBLPROPERTIES "
        "('delta.enableChangeDataFeed' = 'true', 'delta.enableDeletionVectors' = 'false')",
    )
    lab.spark.range(0, 4, 1, 1).selectExpr("id", "id % 2 part").write.format("delta").mode("append").save(path)
    lab.sql("INSERT INTO {} VALUES (4, -1)", path)
    lab.sql("DELETE FROM {} WHERE part = -1", path)
    lab.sql("UPDATE {} SET id = 0 WHERE id < 2", path)
    lab.sql("UPDATE {} SET id = 0 WHERE id > 1", path)
    planned = batches(lab, path, 1, 5, max_files_per_batch=1)
    found = [Counter(map(repr, lab.collect(batch, path))) for batch in planned]

    assert [rows.total() for rows in found] == [2, 2, 1, 1, 4, 4]
    assert found == streamed(lab, path, startingVersion="1", maxFilesPerTrigger="1")


def test_vectors_of_large_files_are_subtracted(lab):
    """Bitmaps with all three kinds of Roaring containers, in rows that lie far apart."""
    path = lab.create(
        "large",
        "(id LONG) USING delta TBLPROPERTIES "
        "('delta.enableChangeDataFeed' = 'true', 'delta.enableDeletionVectors' = 'true')",
    )
    lab.spark.range(300_000).coalesce(1).write.format("delta").mode("append").save(path)
    lab.sql("DELETE FROM {} WHERE id = 299999", path)
    lab.sql("DELETE FROM {} WHERE id % 3 = 0 AND id < 150000", path)
    lab.sql("DELETE FROM {} WHERE id BETWEEN 100000 AND 200000 OR id % 1000 = 1", path)
    lab.sql("RESTORE TABLE {} TO VERSION AS OF 3", path)
    # what RESTORE brings back is what the DELETE before it took: the file comes again with the same vector
    first, second = batches(lab, path, 2, 5)
    found = lab.read(first, path).union(lab.read(second, path))
    columns = ["_commit_version", "_change_type"]
    reader = lab.spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", 2)

    assert [file.version for file in second.files] == [5]
    assert first.num_rows + second.num_rows == found.count() > 100_000
    sums = "count(*) n", "sum(id) total", "sum(id * id) squares"
    expected = reader.load(path).groupBy(columns).agg(*map(expr, sums))
    assert Counter(map(repr, found.groupBy(columns).agg(*map(expr, sums)).collect())) == Counter(
        map(repr, expected.collect())
    )


def test_a_batch_stays_as_it_was_planned_when_a_column_is_added_later(lab):
    path = lab.create("added", "(id INT) USING delta TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')")
    lab.sql("INSERT INTO {} VALUES (1), (2)", path)
    lab.sql("UPDATE {} SET id = 3 WHERE id = 2", path)
    first, second = batches(lab, path, 1, 2)
    before = [lab.read(batch, path) for batch in (first, second)]
    lab.sql("ALTER TABLE {} ADD COLUMNS (n STRING)", path)
    lab.sql("UPDATE {} SET n = 'x' WHERE id = 3", path)
    after = [lab.read(batch, path) for batch in (first, second)]

    assert [frame.columns[:2] for frame in before] == [["id", "_change_type"]] * 2
    assert [lab.rows(frame) for frame in before] == [lab.rows(frame) for frame in after]
    # planned now, a batch ends where the column comes, and what was before it has no such column
    old, new = batches(lab, path, 2, 4)
    assert (lab.read(old, path).columns[:2], lab.read(new, path).columns[:2]) == (["id", "_change_type"], ["id", "n"])
    rows = [row for batch in (old, new) for row in lab.read(batch, path).selectExpr("id", "_change_type").collect()]
    reader = lab.spark.read.format("delta").option("readChangeFeed", "true")
    theirs = reader.option("startingVersion", 2).option("endingVersion", 4).load(path)
    assert sorted(rows) == sorted(theirs.selectExpr("id", "_change_type").collect())


def test_58_change_files_are_read_over_a_type_that_is_widened(lab):
    path = lab.create(
        "widened",
        "(id INT, p STRING) USING delta PARTITIONED BY (p) TBLPROPERTIES "
        "('delta.enableChangeDataFeed' = 'true', 'delta.enableTypeWidening' = 'true', "
        "'delta.enableRowTracking' = 'true')",
    )
    lab.sql("INSERT INTO {} VALUES (1, 'a b%'), (2, 'é/='), (3, NULL)", path)
    lab.sql("UPDATE {} SET id = id + 10", path)
    lab.sql("ALTER TABLE {} ALTER COLUMN id TYPE BIGINT", path)
    lab.sql("UPDATE {} SET id = 5000000000 WHERE id = 11", path)
    lab.sql("DELETE FROM {} WHERE id = 12", path)

    (whole,) = batches(lab, path, 1, 1)
    (narrow, wide, *_) = batches(lab, path, 2, 5)
    assert dict(lab.read(whole, path).dtypes)["id"] == dict(lab.read(narrow, path).dtypes)["id"] == "int"
    assert dict(lab.read(wide, path).dtypes)["id"] == "bigint"
    # Delta's batch reader refuses a range with a change of type, its stream reads it
    assert through_manifests(lab, path, 2, 5) == sum(streamed(lab, path, startingVersion="2"), Counter())


def test_a_clone_reads_the_vectors_of_its_origin(lab):
    properties = "'delta.enableChangeDataFeed' = 'true', 'delta.enableDeletionVectors' = 'true'"
    origin = lab.create("origin", f"(id LONG, v STRING) USING delta TBLPROPERTIES ({properties})")
    lab.spark.range(40).selectExpr("id", "'v' v").coalesce(1).write.format("delta").mode("append").save(origin)
    lab.sql("DELETE FROM {} WHERE id IN (3, 7)", origin)
    path = lab.path("clone of changes")
    lab.spark.sql(f"CREATE TABLE delta.`{path}` SHALLOW CLONE delta.`{origin}`")
    lab.sql("DELETE FROM {} WHERE id IN (15, 17)", path)
    lab.sql("UPDATE {} SET v = 'c' WHERE id = 19", path)
    vectors = [action.remove.deletionVector for action in lab.log(path).commit(1).actions if action.remove is not None]
    assert {vector.storageType for vector in vectors if vector is not None} == {"p"}

    assert through_manifests(lab, path, 0, 2) == by_delta(lab, path, 0, 2)


def test_removed_files_that_vacuum_took_are_the_same_error_as_lost_files(lab):
    path = lab.create("vacuumed", "(id LONG) USING delta TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')")
    lab.sql("INSERT INTO {} VALUES (1)", path)
    lab.sql("DELETE FROM {} WHERE true", path)
    (batch,) = batches(lab, path, 2, 2)
    frame = lab.read(batch, path)
    Path(path, batch.files[0].add.path).unlink()

    with pytest.raises(Exception, match="FILE_NOT_EXIST"):
        frame.collect()
